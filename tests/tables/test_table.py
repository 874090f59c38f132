"""Reading tables: all sources give the same sums, every error is one sentence, rows never fail."""

from __future__ import annotations

import datetime
import gzip
import io
import logging
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.conftest import shown
from tests.fuzz.watch import CANARY
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.kernel import Grid
from dpgrain.tables.groups import Groups
from dpgrain.tables.split import Weight
from dpgrain.tables.user_sums import UserContributions
from dpgrain.units import Unit

USERS = ["ann", "ann", "ann", "bob", "bob", "čen", None, "dan"]
WORDS = ["yo", "yo", "bro", "yo", "日本", "bro", "yo", None]
WEIGHTS = [1.0, 2.0, 4.0, 0.5, 8.0, -3.0, 5.0, 1.0]
DOMAIN = ["yo", "bro", "日本", "absent"]
ROWS = pa.table({"who": USERS, "word": WORDS, "n": WEIGHTS})


def sums(
    table: dg.UserTable,
    unit: Unit | None = None,
    *,
    item: str = "word",
    domain: Any = DOMAIN,
    weight: str | None = None,
    clip: float = 1000.0,
) -> dict[Any, float]:
    blocks = UnitBlocks.for_unit(unit or dg.User(), table, [item])
    kind = pa.int64() if table.is_integer(item) else pa.string()
    groups = Groups.of([item], [pa.array(domain, kind)])
    cells = blocks.cells(groups, public=True)
    split = None if weight is None else Weight(2.0**-20)
    with table.open_engine() as engine:
        data = UserContributions(engine, blocks, groups, cells, weight, split)
        grid = Grid(np.array([clip]), 30)
        values = data.sums(grid) * grid.step[0]
        (items,) = data.dictionary.groups.columns
        return dict(zip(items.to_pylist(), values.tolist(), strict=True))


def write_csv(rows: pa.Table, path: Path) -> Path:
    frame = rows.to_pandas()
    frame.to_csv(path, index=False)
    return path


def parquet(rows: pa.Table, path: Path, **options: Any) -> Path:
    pq.write_table(rows, path, **options)
    return path


def opened_sources(folder: Path) -> dict[str, Callable[[], Any]]:
    half = ROWS.num_rows // 2

    def halves(write: Callable[[pa.Table, Path], Path], ending: str) -> list[Path]:
        return [
            write(ROWS.slice(0, half), folder / f"part0{ending}"),
            write(ROWS.slice(half), folder / f"part1{ending}"),
        ]

    def zipped() -> Path:
        path = folder / "rows.csv.gz"
        path.write_bytes(gzip.compress(write_csv(ROWS, folder / "raw.csv").read_bytes()))
        return path

    def tabs() -> Path:
        ROWS.to_pandas().to_csv(folder / "rows.tsv", index=False, sep="\t")
        return folder / "rows.tsv"

    return {
        "parquet": lambda: parquet(ROWS, folder / "it's [1] rows.parquet"),
        "parquet as text": lambda: str(parquet(ROWS, folder / "rows.parquet")),
        "parquet glob": lambda: (halves(parquet, ".parquet"), str(folder / "part*.parquet"))[1],
        "parquet list": lambda: halves(parquet, ".pq"),
        "csv": lambda: write_csv(ROWS, folder / "rows.csv"),
        "csv list": lambda: halves(write_csv, ".csv"),
        "csv.gz": zipped,
        "tsv": tabs,
        "arrow": lambda: ROWS,
        "arrow chunks": lambda: pa.concat_tables([ROWS.slice(0, 3), ROWS.slice(3)]),
        "arrow reader": lambda: pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches()),
        "arrow stream": lambda: Stream(ROWS),
        "dataset": lambda: ds.dataset(parquet(ROWS, folder / "of a dataset.parquet")),
        "arrow dictionary": lambda: ROWS.set_column(
            1, "word", ROWS.column("word").dictionary_encode()
        ),
        "pandas": ROWS.to_pandas,
        "pandas objects": lambda: ROWS.to_pandas().astype({"who": object, "word": object}),
        "pandas category": lambda: ROWS.to_pandas().astype({"word": "category"}),
        "polars": lambda: pl.DataFrame(ROWS.to_pandas()),
        "polars lazy": lambda: pl.DataFrame(ROWS.to_pandas()).lazy(),
        "duckdb": lambda: duckdb.from_arrow(ROWS),
    }


class Stream:
    """An object that only returns its rows by Arrow's protocol, like a database cursor."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


QUERIES = ("polars lazy", "duckdb")


def test_frame_columns_may_have_method_names() -> None:
    frame = pd.DataFrame({"who": [1, 2], "collect": [1, 2], "scanner": ["a", "b"]})
    table = dg.read(frame, user="who")
    assert set(table.schema) == {"who", "collect", "scanner"}
    release = dg.count(table, unit=dg.User(), epsilon=50.0, delta=1e-6, random_state=1)
    assert round(release.value) == 2


def test_partitions_of_folders_are_columns_of_a_dataset(tmp_path: Path) -> None:
    rows = pa.table({"who": [1, 2, 2, 3], "month": ["a", "a", "b", "b"]})
    ds.write_dataset(rows, tmp_path / "rows", format="parquet", partitioning=["month"],
                     partitioning_flavor="hive")  # fmt: skip
    table = dg.read(ds.dataset(tmp_path / "rows", partitioning="hive"), user="who")
    assert set(table.schema) == {"who", "month"}
    release = dg.count(
        table, by="month", domain=["a", "b"], unit=dg.User(), epsilon=50.0, delta=1e-6,
        random_state=1,
    )  # fmt: skip
    assert release.estimate.round().tolist() == [2, 2]
    assert release.guarantee.provenance == "as given"


@pytest.mark.parametrize("name", list(opened_sources(Path())))
def test_every_source_gives_the_same_sums(name: str, tmp_path: Path) -> None:
    delimiter = "\t" if name == "tsv" else ","
    table = dg.read(
        opened_sources(tmp_path)[name](),
        user="who",
        delimiter=delimiter,
        types={"n": "DOUBLE"},
        rows="as given" if name in QUERIES else None,
    )
    counts = {"yo": 3.0, "bro": 2.0, "日本": 1.0, "absent": 0.0}
    weighted = {"yo": 3.5, "bro": 4.0, "日本": 8.0, "absent": 0.0}
    for unit in (dg.User(), dg.Element("word"), dg.Record()):
        assert sums(table, unit) == counts
        assert sums(table, unit, weight="n") == weighted


@pytest.mark.parametrize(
    ("users", "items", "domain"),
    [
        ([1, 1, 2], [5, 5, -7], [5, -7]),
        ([-(2**63), 2**63 - 1, 0], [-(2**63), -(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        ([-(2**63), -(2**63) + 3, -(2**63)], ["a", "a", "b"], ["a", "b"]),
        ([2**63 - 1, 2**63 - 1, 2**63 - 9], ["a", "a", "b"], ["a", "b"]),
        (pa.array([0, 0, 2**64 - 1], pa.uint64()), pa.array([7, 7, 2**64 - 1], pa.uint64()),
         ["7", str(2**64 - 1)]),
        (pa.array([1, 1, 2], pa.uint8()), pa.array([5, 5, -7], pa.int8()), [5, -7]),
        ([datetime.date(2026, 1, 1)] * 2 + [datetime.date(2026, 1, 2)],
         [datetime.date(1999, 1, 2)] * 2 + [datetime.date(2000, 1, 2)],
         ["1999-01-02", "2000-01-02"]),
        ([True, True, False], [True, True, False], ["true", "false"]),
        (["", "", "x"], ["", "", "naïve Ω\u200d😀'\"\n"], ["", "naïve Ω\u200d😀'\"\n"]),
    ],
)  # fmt: skip
def test_users_and_items_of_many_types(users: Any, items: Any, domain: list[Any]) -> None:
    table = dg.read(pa.table({"who": users, "item": items}), user="who")
    expected = dict(zip(domain, [2.0, 1.0], strict=True))
    for unit in (dg.User(), dg.Element("item"), dg.Element("who"), dg.Record()):
        assert sums(table, unit, item="item", domain=domain) == expected


@pytest.mark.parametrize(
    "cells",
    [
        ["a", "a", None, "b"],
        [1, 1, None, -5],
        [datetime.date(2026, 1, 1)] * 2 + [None, datetime.date(2026, 1, 2)],
        pa.array([1, 1, None, 2**64 - 1], pa.uint64()),
    ],
)
def test_cells_of_many_types(cells: Any) -> None:
    rows = {"who": [1, 1, 1, 1], "item": ["x"] * 4, "cell": cells}
    table = dg.read(pa.table(rows), user="who")
    # Three elements of one coordinate, each clipped to 1.
    found = sums(table, dg.Element("cell"), item="item", domain=["x"], clip=1.0)
    assert found == {"x": pytest.approx(3.0, abs=1e-6)}
    found = sums(table, dg.User(2, by="cell"), item="item", domain=["x"], clip=1.0)
    assert found == {"x": pytest.approx(2.0, abs=1e-6)}


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("s"), pa.time64("us"), pa.duration("s")]
)
def test_times_do_not_name_things(kind: pa.DataType) -> None:
    """One value beyond the range of text would end the release: the type is rejected instead."""
    rows = pa.table(
        {"who": [1, 2], "item": ["x", "y"], "cell": pa.array([1, 2], pa.int64()).cast(kind)}
    )
    table = dg.read(rows, user="who")
    with refuses("element", "cannot", kind=dg.SchemaError):
        sums(table, dg.Element("cell"), item="item", domain=["x"], clip=1.0)


def test_quoted_newline_in_one_row_is_preserved(tmp_path: Path) -> None:
    path = tmp_path / "lines.csv"
    path.write_text('who,word\n1,a\n2,b\n77,"x\ny"\n3,a\n4\n')
    table = dg.read(path, user="who")
    found = sums(table, dg.User(), item="word", domain=["a", "b", "x\ny"], clip=1.0)
    assert found == {"a": 2.0, "b": 1.0, "x\ny": 1.0}


def test_brackets_in_a_name_are_the_name(tmp_path: Path) -> None:
    for name, word in (("a[1].parquet", "right"), ("a1.parquet", "wrong")):
        pq.write_table(pa.table({"who": [1], "word": [word]}), tmp_path / name)
    table = dg.read(tmp_path / "a[1].parquet", user="who")
    found = sums(table, dg.User(), item="word", domain=["right", "wrong"], clip=1.0)
    assert found == {"right": 1.0, "wrong": 0.0}


def test_enum_values_are_not_shown(tmp_path: Path) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TYPE name AS ENUM ('alice-secret', 'bob')")
    connection.sql("SELECT 1 AS who, 'bob'::name AS word").create("words")
    table = dg.read(connection.table("words"), user="who")
    assert "alice" not in repr(table)
    with pytest.raises(dg.SchemaError) as error:
        dg.histogram(table, "word", unit=dg.User(), epsilon=1, delta=1e-6, weight="word")
    assert "alice" not in str(error.value)


def test_names_of_columns_do_not_matter() -> None:
    rows = {"item": [1, 1, 2], "user_": ["a", "b", "a"], "cell": [2.0, 3.0, 4.0],
            "weight": ["x", "x", "z"], 'k "{}" key': ["p", "q", "p"], "source": [1, 1, 1]}  # fmt: skip
    table = dg.read(pa.table(rows), user="item")
    unit = dg.Element("weight")
    assert sums(table, unit, item="user_", domain=["a", "b"], weight="cell") == {"a": 6, "b": 3}
    awkward = 'k "{}" key'
    assert sums(table, dg.Element(awkward), item=awkward, domain=["p", "q"]) == {"p": 2, "q": 1}
    assert "2  users with a record" in table.check(awkward)
    dg.histogram(table, awkward, unit=dg.Element(awkward), epsilon=1, delta=1e-6)
    table = dg.read(pa.table({awkward: ["u", "v"], "x": ["a", "a"]}), user=awkward)
    assert sums(table, item="x", domain=["a"]) == {"a": 2}


# -- what is wrong with the schema, a parameter or a file ---


def a_file(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize(
    ("source", "options", "error", "words"),
    [
        (ROWS, {"user": "nobody"}, dg.SchemaError, "user 'nobody' is not a column.*who, word, n"),
        (ROWS, {"user": 3}, dg.ParameterError, "user must be a column name, not 3"),
        (ROWS, {"user": "n"}, dg.SchemaError, "user 'n' has type DOUBLE.*convert it"),
        (pa.table({"u": [[1]]}), {"user": "u"}, dg.SchemaError, "type BIGINT\\[\\]"),
        (pa.table({"u": [{"a": 1}]}), {"user": "u"}, dg.SchemaError, "STRUCT"),
        (ROWS, {"n_users": 0}, dg.ParameterError, "n_users must be an integer of at least 1.*0"),
        (ROWS, {"n_users": 1.5}, dg.ParameterError, "n_users.*1.5"),
        (ROWS, {"threads": 0}, dg.ParameterError, "threads.*0"),
        (ROWS, {"memory": "1MB"}, dg.ParameterError, "memory must be at least 256MB, not '1MB'"),
        (ROWS, {"memory": 10}, dg.ParameterError, "memory must be at least 256MB, not 10"),
        (ROWS, {"memory": "much"}, dg.ParameterError, "memory must be a size such as '1GB'.*'much'"),
        (5, {}, dg.ParameterError, "source must be a path.*not int"),
        ([], {}, dg.ParameterError, "source must be a path.*not list"),
        (pd.Series([1]), {}, dg.ParameterError, "not a Series"),
        ("rows.xlsx", {}, dg.ParameterError, "must end in .parquet, .csv"),
        ("nowhere.parquet", {}, dg.DataError, "'nowhere.parquet' does not exist; check the path"),
        ("none*.csv", {}, dg.DataError, "does not exist"),
        ("visits\0.parquet", {}, dg.DataError, "does not exist"),
        ("nowhere/lake", {}, dg.DataError, "no file or folder 'nowhere/lake'; check the path"),
    ],
)  # fmt: skip
def test_wrong_parameters(
    source: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        dg.read(source, **options)
    assert_one_sentence(caught.value)


def _parquet_of(column: str) -> bytes:
    held = io.BytesIO()
    pq.write_table(pa.table({column: [1, 2]}), held)
    return held.getvalue()


# A one-column file; its name has a byte that is never in UTF-8 text once it is replaced.
NAMED = _parquet_of("named")


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        ("a.csv", b"", {}, "is empty; its first line must contain the column names"),
        ("a.csv", b"who,word,word\n1,a,b\n", {}, "has the column 'word' twice"),
        ("a.csv", b"\xff\xfe\x00", {}, "cannot be read; check that it is UTF-8 text"),
        ("a.csv", b"who\n1\n", {"types": {"who": "whole"}}, "column 'who' to an SQL type"),
        ("a.csv", b"who\n1\n", {"types": {"x": "INT"}}, "types contains column 'x', which"),
        ("a.csv.gz", b"hello", {}, "cannot be read"),
        ("a.csv.gz", gzip.compress(b"who,word\n" * 99, mtime=0)[:14], {}, "cannot be read"),
        ("A.CSV.GZ", gzip.compress(b"who,word\n", mtime=0), {"user": "what"}, "it has who, word"),
        ("a.parquet", b"", {}, "cannot be read"),
        ("a.parquet", b"PAR1 this is no parquet", {}, "cannot be read"),
        (
            "a.parquet",
            NAMED.replace(b"named", b"n\xe5med"),
            {},
            "a column name that is not UTF-8 text",
        ),
    ],
)
def test_wrong_files(
    name: str, content: bytes, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = a_file(tmp_path, name, content)
    with pytest.raises(dg.DpgrainError, match=words) as caught:
        dg.read(path, **options)
    assert_one_sentence(caught.value)


def test_invalid_first_line_is_absent_from_the_error(tmp_path: Path) -> None:
    """In a file without a header the first line is a row."""
    # This line, which a traceback shows, does not contain the name.
    path = a_file(tmp_path, "a.csv", CANARY.encode() + b",17 May,\xff\n")
    with pytest.raises(dg.DataError, match="check that it is UTF-8 text") as caught:
        dg.read(path)
    assert CANARY not in shown(caught.value)


def assert_one_sentence(error: BaseException) -> None:
    text = str(error)
    assert text.endswith((".", "?"))
    assert "\n" not in text
    assert len(text) < 400


def test_files_of_several_kinds_or_headers(tmp_path: Path) -> None:
    one = a_file(tmp_path, "1.csv", b"a,b\n1,x\n")
    other = a_file(tmp_path, "2.csv", b"b,a\nx,1\n")
    with refuses("file", "columns", kind=dg.SchemaError):
        dg.read([one, other])
    with refuses("source", "Parquet"):
        dg.read([one, parquet(ROWS, tmp_path / "3.parquet")])


def test_byte_order_mark_does_not_belong_to_a_name(tmp_path: Path) -> None:
    content = "\ufeffwho,word\n1,a\n".encode()
    for path in (
        a_file(tmp_path, "a.csv", content),
        a_file(tmp_path, "a.csv.gz", gzip.compress(content)),
    ):
        table = dg.read(path, user="who")
        assert sums(table, domain=["a"]) == {"a": 1}


def big_parquet(path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = {"who": rng.integers(0, 10**9, 200_000), "word": rng.integers(0, 10**9, 200_000)}
    return parquet(pa.table(rows), path, compression="none", use_dictionary=False)


@pytest.mark.parametrize("damage", ["cut in the middle", "zeros in the middle", "deleted"])
def test_a_broken_file_releases_nothing(damage: str, tmp_path: Path) -> None:
    path = big_parquet(tmp_path / "rows.parquet")
    table = dg.read(path, user="who")
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2
    if damage == "deleted":
        path.unlink()
    elif damage == "cut in the middle":
        path.write_bytes(raw[:middle])
    else:
        # Here begins the second column, with the header of its page.
        raw[middle - 1000 : middle + 1000] = bytes(2000)
        path.write_bytes(raw)
    with refuses("file", "cannot", kind=dg.DataError) as caught:
        dg.histogram(table, "word", unit=dg.User(), epsilon=1, delta=1e-6, domain=[0, 10**9])
    assert_one_sentence(caught.value)
    if damage == "cut in the middle":
        with refuses("file", "cannot", kind=dg.DataError):
            dg.read(path)


@pytest.mark.parametrize(
    ("item", "weight", "unit", "words"),
    [
        ("nothing", None, dg.User(), "item 'nothing' is not a column"),
        ("n", None, dg.User(), "item 'n' has type DOUBLE"),
        ("word", "nothing", dg.User(), "weight 'nothing' is not a column"),
        (
            "word",
            "who",
            dg.User(),
            "weight 'who' must be numeric, not text; declare its type",
        ),
        ("word", None, dg.Element("nothing"), "element 'nothing' is not a column"),
        ("word", None, dg.Element("n"), "element 'n' has type DOUBLE"),
    ],
)
def test_wrong_columns(item: str, weight: str | None, unit: Unit, words: str) -> None:
    table = dg.read(ROWS, user="who")
    with pytest.raises(dg.SchemaError, match=words) as caught:
        dg.histogram(table, item, weight=weight, unit=unit, epsilon=1, delta=1e-6)
    assert_one_sentence(caught.value)


# -- the engine --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test leaves its spill folder empty, even after a failure."""
    (tmp_path / "spill").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spill"))
    yield
    assert not list((tmp_path / "spill").iterdir())


def test_safe_settings_are_in_force() -> None:
    table = dg.read(ROWS, user="who", memory="400MB", threads=3)
    with DuckDB(table) as engine:
        rows = engine._connection.sql("SELECT name, value FROM duckdb_settings()").fetchall()
        settings = dict(rows)
        folder = Path(settings["temp_directory"])
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent == Path(tempfile.gettempdir())
        wanted = {
            "temp_file_encryption": "true",
            "enable_progress_bar": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "threads": "1",  # of 3, as many as fit into its memory
        }
        assert {name: settings[name] for name in wanted} == wanted
        assert settings["memory_limit"] == "125.8 MiB"  # 33% of 400 MB
    assert not folder.exists()


def test_the_spill_folder_is_removed_after_an_error() -> None:
    table = dg.read(ROWS, user="who")
    folders = []

    def fail(engine: DuckDB) -> None:
        folders.append(Path(engine._spill.path))
        (folders[0] / "spilled").write_text("rows")
        raise RuntimeError

    with pytest.raises(RuntimeError), DuckDB(table) as engine:
        fail(engine)
    assert not folders[0].exists()


def many_users(rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    users = pa.array(rng.integers(0, 2**62, rows)).cast(pa.string())
    return pa.table({"who": users, "word": pa.array(np.zeros(rows, dtype=np.int64))})


@pytest.mark.slow
def test_spilling_works_and_does_not_change_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    spilled = []
    leave = DuckDB.__exit__

    def spy(self: DuckDB, *arguments: Any) -> None:
        spilled.append(len(list(Path(self._spill.path).iterdir())))
        leave(self, *arguments)

    monkeypatch.setattr(DuckDB, "__exit__", spy)
    table = dg.read(many_users(1_500_000), user="who", memory="256MB", threads=1)
    assert sums(table, item="word", domain=[0], clip=1.0) == {0: 1_500_000.0}
    assert spilled[0] > 0


@pytest.mark.slow
def test_full_spill_disk_is_reported_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    table = dg.read(many_users(3_000_000), user="who", memory="256MB", threads=1)
    real: Any = duckdb.connect

    def tiny(*arguments: Any, config: dict[str, Any] | None = None) -> Any:
        if config is None:
            return real(*arguments)
        connection = real(*arguments, config=config)
        connection.execute("SET max_temp_directory_size = '1MB'")
        return connection

    monkeypatch.setattr(duckdb, "connect", tiny)
    words = "needs more memory or spill space than allowed; raise memory= in dg.read, or free disk"
    with pytest.raises(dg.DataError, match=words) as caught:
        dg.histogram(table, "word", unit=dg.User(), epsilon=1, delta=1e-6, domain=[0], clip=1.0)
    assert_one_sentence(caught.value)


def test_no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    table = dg.read(ROWS, user="who")
    with pytest.raises(dg.DataError, match="The temporary folder cannot be written; point TMPDIR"):
        dg.histogram(table, "word", unit=dg.User(), epsilon=1, delta=1e-6)


def test_duckdb_reports_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    table = dg.read(ROWS, user="who")

    def full(self: DuckDB, *_: Any) -> str:
        raise duckdb.IOException('Could not write file "/x": No space left on device')

    monkeypatch.setattr(DuckDB, "_attach", full)
    with pytest.raises(dg.DataError, match=r"spill folder.*cannot be written; free disk space"):
        dg.histogram(table, "word", unit=dg.User(), epsilon=1, delta=1e-6)


# -- bad values in rows ------------------------------------------------------------------------------

BAD = {
    "who": [None, 1, 1, 1, 1, 1, 1, 1, 2, 2],
    "word": ["a", None, "a", "a", "a", "a", "a", "a", "b", "b"],
    "n": [7.0, 7.0, float("nan"), float("inf"), -float("inf"), -2.0, 1e308, None, 2.0, 3.0],
}


def release_all(table: dg.UserTable, weight: str | None) -> None:
    units: list[Unit] = [dg.Record(), dg.Element("word"), dg.Element(len), dg.User(), dg.User(2)]
    for unit in units:
        for domain in (["a", "b"], None):
            for clip in ("auto", 1.0):
                dg.histogram(
                    table, "word", unit=unit, epsilon=1, delta=1e-6, domain=domain, clip=clip,
                    weight=weight,
                )  # fmt: skip


@pytest.mark.slow
def test_bad_values_follow_the_fixed_rules(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    table = dg.read(pa.table(BAD), user="who")
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        found = sums(table, weight="n", domain=["a", "b"])
        assert found == {"a": pytest.approx(1000.0), "b": 5.0}
        assert sums(table, domain=["a", "b"]) == {"a": 6.0, "b": 2.0}
        release_all(table, "n")
        release_all(table, None)
        release_all(dg.read(pa.table(BAD).slice(0, 0), user="who"), "n")
    # A session of Spark left by other tests in this process logs what it releases.
    assert [line for line in caplog.records if not line.name.startswith("py4j")] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "line",
    [
        b"1,a,2,surplus\n",
        b"1\n",
        b"\n",
        b'1,"a,2\n',
        b'1,a"b"c,2\n',
        b"1,\xff\xfe,2\n",
        b"1,a,two\n",
        b"1,a,1e999\n",
        b"1,a,\x00\n",
        b"," * 50 + b"\n",
        b"1," + b"x" * 3_000_000 + b",1\n",
    ],
    ids=range(11),
)
def test_malformed_lines_of_csv_do_not_fail(line: bytes, tmp_path: Path) -> None:
    good = b"".join(b"%d,b,1\n" % i for i in range(2, 50))
    path = a_file(tmp_path, "rows.csv", b"who,word,n\n" + good + line + good)
    table = dg.read(path, user="who", types={"n": "DOUBLE"})
    found = sums(table, dg.Record(), weight="n", domain=["a", "b"])
    # An open quote may swallow what follows it, and nothing else may.
    assert found["b"] >= 48.0
    if line != b'1,"a,2\n':
        assert found["b"] == 96.0
    dg.histogram(table, "word", unit=dg.User(), epsilon=1, delta=1e-6)


def test_mixed_objects_of_pandas_do_not_decide_the_schema() -> None:
    clean = pd.DataFrame({"who": ["1", "2"], "word": pd.Series(["a", "b"], dtype=object)})
    dirty = pd.DataFrame({"who": ["1", "2"], "word": pd.Series(["a", 3], dtype=object)})
    first, second = dg.read(clean, user="who"), dg.read(dirty, user="who")
    assert first.schema == second.schema
    assert sums(second, domain=["a", "3"]) == {"a": 1, "3": 1}
    with refuses("data", "'a'", kind=dg.SchemaError):
        dg.read(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_check_counts_and_states_its_lack_of_privacy() -> None:
    text = dg.read(pa.table(BAD), user="who").check("word", "n")
    first, *lines = text.splitlines()
    assert "NOT private" in first
    assert [line.split(maxsplit=1) for line in lines] == [
        ["10", "rows"],
        ["1", "rows without a user (dropped)"],
        ["2", "users with a record"],
        ["1", "rows without an item (dropped)"],
        ["7", "most records of one user"],
        [
            "0",
            "rows that repeat another (all are counted; table.distinct() or --distinct '*' uses each "
            "once)",
        ],
        ["1", "missing cells of 'n' (treated as 0)"],
        ["0", "non-numeric cells of 'n' (treated as 0)"],
        ["3", "NaN or infinite cells of 'n' (treated as 0)"],
        ["1", "cells of 'n' below 0 (treated as 0)"],
    ]
    rows = pa.table({"who": [1, 1, 1, 2], "word": ["a", "a", "a", "a"]})
    assert "2  rows that repeat another" in dg.read(rows, user="who").check()
    empty = dg.read(rows.slice(0, 0), user="who").check("word")
    assert "0  most records of one user" in empty
    assert "users" not in dg.read(rows).check("word")


def test_check_reports_ids_resembling_missing_ones() -> None:
    missing = ["", " NULL", "None", "nan", "N/A", "unknown"]
    rows = pa.table({"who": [*missing, "Nancy", "null7", "7", None], "n": range(10)})
    told = "rows with a user such as NULL, n/a or unknown (each value is treated as one person)"
    counts = dg.read(rows, user="who").check_counts()
    assert (counts[told], counts["rows without a user (dropped)"]) == (len(missing), 1)
    # Whole numbers have no such texts.
    assert told not in dg.read(rows, user="n").check_counts()


def test_check_reports_cells_of_another_type() -> None:
    days = ["2025-12-31", "31.12.2025", "12/31/2025", "1.2.25 10:00", "soon", None]
    rows = pa.table({"who": ["a"] * 6, "at": days, "n": ["1", "1.5", "x", "", "2", "3"]})
    table = dg.read(rows, user="who", types={"at": "TIMESTAMP", "n": "BIGINT"})
    table = table.with_days("day", of="at").with_cells("tens", of="n", by=lambda n: n // 10)
    for items in (["day", "tens"], ["day", "day"]):
        counts = table.check_counts(items)
        assert counts["cells of 'at' that cannot be read as TIMESTAMP (treated as missing)"] == 4
        # Other columns with a declared type are listed if they have unreadable cells.
        assert counts["cells of 'n' that cannot be read as BIGINT (treated as missing)"] == 2


def test_check_reports_an_unreadable_column() -> None:
    """For all rows, whatever the region, and before any charge."""
    rows = pa.table({"who": ["a"] * 3, "at": ["31.12.2025"] * 2 + [None], "n": ["1,5", "2,5", "x"],
                     "day": ["2025-12-31"] * 3, "none": pa.nulls(3, pa.string())})  # fmt: skip
    types = {"at": "DATE", "n": "DOUBLE", "day": "DATE", "none": "DATE"}
    told = "non-empty cells of {}, none of which can be read as {}"
    table = dg.read(rows, user="who", types=types)
    nothing = {
        told.format("'n'", "DOUBLE"): 3,
        "cells of 'n' that would be readable with decimal=','": 2,
        told.format("'at'", "DATE"): 2,
        "cells of 'at' that would be readable with dates='31.12.2025'": 2,
    }
    for asked in (table, table.where(day=("2026-01-01", None))):
        counts = asked.check_counts()
        assert dict(list(counts.items())[:4]) == nothing
        assert not any("'none'" in words or "'day'" in words for words in counts)
    german = dg.read(rows, user="who", types=types, decimal=",", dates="31.12.2025")
    counts = german.check_counts()
    assert counts[told.format("'day'", "DATE written like 31.12.2025")] == 3
    nothing_read = [words for words in counts if "none of which" in words]
    assert not any("'at'" in words or "'n'" in words for words in nothing_read)
    assert counts["cells of 'n' that cannot be read as DOUBLE (treated as missing)"] == 1
    # Also for a number without a declared type.
    counts = dg.read(rows, user="who").check_counts(value="n")
    assert counts[told.format("'n'", "number")] == 3


@pytest.mark.parametrize(
    ("kind", "cells", "remedies"),
    [
        ("DOUBLE", ["1.234,56", "2,5"], ["decimal=','"]),
        ("DOUBLE", ["1,234", "12,5"], ["decimal=','"]),
        ("DOUBLE", ["1,234", "1,234.5"], ["thousands=','"]),
        ("DOUBLE", ["1,234"], ["thousands=','", "decimal=','"]),
        ("BIGINT", ["1 234"], ["thousands=' '"]),
        ("DOUBLE", ["1 234,5"], ["decimal=',' and thousands=' '"]),
        # In the other format, as many cells would become unreadable.
        ("DOUBLE", ["1.5", "2,5"], []),
        ("DOUBLE", ["1.5", "x"], []),
        ("DATE", ["25/04/2025", "01/02/2025"], ["dates='31/12/2025'"]),
        ("TIMESTAMP", ["01/02/2025 10:00"], ["dates='31/12/2025'", "dates='12/31/2025'"]),
        ("DATE", ["2025-12-31", "1.2.25"], []),
        ("BOOLEAN", ["1,5"], []),
    ],
)
def test_check_names_the_most_readable_format(
    kind: str, cells: list[str], remedies: list[str]
) -> None:
    counts = dg.read(pa.table({"x": cells}), types={"x": kind}).check_counts()
    told = [text.partition(" readable with ") for text in counts if " readable with " in text]
    assert [remedy for _, _, remedy in told] == remedies


@pytest.mark.parametrize(
    ("dates", "written", "day"),
    [
        ("31.12.2025", "1.2.2025", "2025-02-01"),
        ("31.12.2025", " 01.02.2025 14:30", "2025-02-01"),
        ("31.12.2025", "2025-02-01", None),
        ("31.12.2025", "1.2.25", None),
        ("31.12.2025", "31.02.2025", None),
        ("31.12.2025", "01.02.2025x", None),
        ("31.12.2025", "infinity", None),
        ("31/12/2025", "01/02/2025", "2025-02-01"),
        ("12/31/2025", "01/02/2025", "2025-01-02"),
        ("12/31/2025", "13/02/2025", None),
        ("31-12-2025", "01-02-2025", "2025-02-01"),
        ("20251231", "20250201", "2025-02-01"),
        ("20251231", "250201", None),
        ("2025-12-31", "2025-02-01", "2025-02-01"),
        ("2025-12-31", "01.02.2025", None),
    ],
)
def test_days_are_read_as_written(dates: str, written: str, day: str | None) -> None:
    rows = pa.table({"who": [1], "at": [written]})
    for kind in ("DATE", "TIMESTAMP"):
        table = dg.read(rows, user="who", types={"at": kind}, dates=dates)
        with table.open_engine() as engine:
            (found,) = engine.columns([("at", "as it is")]).column(0).to_pylist()
        assert (None if found is None else found.isoformat()[:10]) == day, kind


def test_days_read_in_two_ways_are_two_partitions() -> None:
    """01/02/2025 is a day in January to one and in February to the other."""
    rows = pa.table({"who": ["a"] * 600, "at": ["01/02/2025"] * 600, "x": ["y"] * 600})
    tables = [
        dg.read(rows, user="who", types={"at": "DATE"}, dates=dates)
        for dates in ("31/12/2025", "12/31/2025")
    ]
    asked: dict[str, Any] = {"unit": dg.Element("at"), "epsilon": 1.0, "delta": 1e-6}
    one, other = (dg.count(table, **asked).guarantee for table in tables)
    assert one.partition != other.partition
    regions = [table.where(at=("2025-01-01", "2025-01-31")).scope for table in tables]
    assert regions[0] != regions[1]
    with pytest.raises(
        dg.ParameterError, match="by the day of 'at' written like 12/31/2025 do not"
    ):
        _ = one + other
    record: dict[str, Any] = {"unit": dg.Record(), "epsilon": 1.0}
    january, february = (
        [dg.count(table.where(at=month), **record).guarantee for table in tables]
        for month in ("2025-01", "2025-02")
    )
    # Months are of different records where both are read in one way, and only there.
    assert (january[0] + february[0]).epsilon() == pytest.approx(1.0)
    assert (january[0] + february[1]).epsilon() == pytest.approx(2.0)


def test_dates_are_one_of_a_list() -> None:
    with refuses("dates", "'31.12.25'"):
        dg.read(pa.table({"who": ["a"]}), dates="31.12.25")


def test_several_columns_with_one_name_are_distinguished() -> None:
    table = dg.read(pa.table({"who": [1], "day": [1], "kind": ["a"]}), user="who")
    with refuses("by", "'day, kind'", kind=dg.SchemaError):
        dg.count(table, by="day, kind", unit=dg.User(), epsilon=1, delta=1e-6)
    with refuses("by", "'day,kin'", kind=dg.SchemaError):
        dg.count(table, by="day,kin", unit=dg.User(), epsilon=1, delta=1e-6)


def test_repr_shows_no_rows() -> None:
    shown = repr(dg.read(ROWS, user="who", n_users=1000))
    assert shown == (
        "UserTable(user='who', n_users=1,000, columns: who: VARCHAR, word: VARCHAR, n: DOUBLE)"
    )


def test_repr_shows_the_derivation_of_rows() -> None:
    """Joining persons with visits, instead of visits with persons, shows what is dropped."""
    visits = dg.read(ROWS, user="who").filter("n > 1")
    persons = dg.read(pa.table({"id": ["a"], "born": [1950]}), user="id")
    shown = repr(persons.join(visits))
    assert "; rows of a table in memory are paired with one row of the same person in " in shown
    assert shown.endswith("; only rows where n > 1 are used)")
    assert "; one row per person, with often (count())" in repr(visits.per_user(often="count()"))


@pytest.mark.slow(full=True)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see peak memory")
@pytest.mark.parametrize("weighted", [False, True])
def test_one_user_with_ten_million_rows_in_bounded_memory(weighted: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    size = 10**7
    items = rng.integers(0, 1000, size, dtype=np.int64)
    rows = {"who": np.ones(size, dtype=np.int64), "item": items, "w": rng.random(size)}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    script = f"""
        import pathlib, dpgrain as dg
        table = dg.read({str(tmp_path / "rows.parquet")!r}, user="who", memory="300MB")
        dg.histogram(table, "item", unit=dg.User(), epsilon=1, delta=1e-6, clip=100.0,
                     weight={"w" if weighted else None!r}, domain=range(1000))
        dg.histogram(table, "item", unit=dg.Element("item"), epsilon=1, delta=1e-6, clip=1.0)
        print(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
    """
    # The peak of only this process: getrusage starts from the parent's.
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 1.5e9
    assert not done.stderr

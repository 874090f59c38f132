"""Streams are read once, in batches, and stored privately; datasets are reread each time."""

from __future__ import annotations

import gc
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.conftest import shown
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.sources.duckdb_connection import spill_path
from dpgrain.tables.sources.streams import DatasetSource, StreamSource, store_stream

PROMISE: dict[str, Any] = {"unit": dg.User(), "epsilon": 5.0, "delta": 1e-6, "random_state": 1}
CANARY = "canary-81f3"
ODD = pa.table(
    {
        "who": [1, 2, 3, None],
        # Arrow does not look whether texts are UTF-8.
        "label": pa.Array.from_buffers(
            pa.string(), 4, pa.array([b"a", b"\xff", b"b" * (1 << 17), None], pa.binary()).buffers()
        ),
        "at": pa.array([0, 2**62, -(2**62), None], pa.timestamp("ms")),
        "kind": pa.array(["x", "y", "x", None]).dictionary_encode(),
        "w": [1.5, float("nan"), float("inf"), None],
        "list": [[1], [], None, [2]],
    }
)  # fmt: skip


class Once:
    """Batches that are returned once, and their number."""

    def __init__(self, rows: pa.Table, size: int = 7, fails: bool = False) -> None:
        self.schema, self.read = rows.schema, 0
        self._batches, self._fails = rows.to_batches(size), fails

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.read += 1
            yield batch
        if self._fails:
            raise ValueError(CANARY)

    @property
    def stream(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))


def rows_of(people: int = 400) -> pa.Table:
    rng = np.random.default_rng(1)
    who = np.repeat(np.arange(people), 5)
    return pa.table({"who": who, "item": [f"{CANARY} {i}" for i in rng.integers(0, 9, who.size)],
                     "w": rng.random(who.size)})  # fmt: skip


def same(source: Any, rows: pa.Table) -> None:
    """A source returns the same as the rows in memory, in their order."""
    one, other = dg.read(source, user="who"), dg.read(rows, user="who")
    assert one.schema == other.schema
    for column in [name for name in one.schema if name != "list"]:
        form = "text" if one.schema[column] == "VARCHAR" else "as it is"
        both: Any = [("who", "key"), (column, form)]
        with one.open_engine() as first, other.open_engine() as second:
            # As text, so that NaNs are equal.
            read, expected = (str(each.columns(both).to_pylist()) for each in (first, second))
        assert read == expected, column
    forms: tuple[dict[str, Any], ...] = ({"item": "label"}, {"item": "kind", "weight": "w"})
    for asked in forms:
        releases = [dg.histogram(table, **asked, **PROMISE).to_arrow() for table in (one, other)]
        assert releases[0].equals(releases[1])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_stream_is_read_as_a_table_is(size: int) -> None:
    same(Once(ODD, size).stream, ODD)


@pytest.mark.slow
def test_a_dataset_is_read_as_a_table_is(tmp_path: Path) -> None:
    # Values written to a file become text in it.
    rows = ODD.set_column(3, "kind", ODD.column("kind").cast(pa.string()))
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=2)
    same(ds.dataset(tmp_path / "rows.parquet"), rows)
    table = dg.read(ds.dataset(tmp_path), user="who")
    assert isinstance(table.source, DatasetSource)
    assert table.provenance == "as given"


def test_dataset_in_memory_is_stored_privately(tmp_path: Path) -> None:
    """pyarrow reads a dataset over a stream once."""
    rows = rows_of()
    for source in (ds.dataset(rows), ds.dataset(Once(rows).stream)):
        table = dg.read(source, user="who")
        assert isinstance(table.source, StreamSource)
        for _ in range(2):
            assert len(dg.histogram(table, "item", **PROMISE)) == 9


def test_a_filtered_dataset_stays_filtered(tmp_path: Path) -> None:
    pq.write_table(rows_of(), tmp_path / "rows.parquet")
    filtered = ds.dataset(tmp_path / "rows.parquet").filter(ds.field("who") < 7)
    with DuckDB(dg.read(filtered, user="who")) as engine:
        assert engine.query("SELECT count(*) AS n FROM source").column("n")[0].as_py() == 35


def test_nothing_is_read_before_a_release_and_nothing_twice() -> None:
    rows, once = rows_of(), Once(rows_of())
    table = dg.read(once.stream, user="who")
    assert once.read == 0
    first = dg.histogram(table, "item", **PROMISE)
    read = once.read
    assert read == len(rows.to_batches(7))
    second = dg.histogram(table.where(who=(0, 1000)), "item", **PROMISE)
    assert once.read == read
    expected = dg.histogram(dg.read(rows, user="who"), "item", **PROMISE)
    assert first.to_arrow().equals(expected.to_arrow())
    assert second.to_arrow().equals(expected.to_arrow())
    assert first.guarantee.provenance == "as given"


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_releases_of_several_threads_read_it_once(engine: Any) -> None:
    once = Once(rows_of())
    table = dg.read(once.stream, user="who", engine=engine)
    made: list[Any] = []
    threads = [
        threading.Thread(target=lambda: made.append(dg.histogram(table, "item", **PROMISE)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(release.estimate) for release in made}) == 1
    assert len(made) == 4


@pytest.mark.slow
def test_stored_stream_is_private_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    table = dg.read(Once(rows_of(40_000), 5000).stream, user="who")
    dg.histogram(table, "item", **PROMISE)
    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    held = b"".join(file.read_bytes() for file in folder.iterdir())
    assert len(held) > 100_000
    assert CANARY.encode() not in held
    narrowed = table.where(who=(0, 5))
    del table
    gc.collect()
    assert folder.exists()
    del narrowed
    gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_stored_stream_is_removed_with_the_process(tmp_path: Path) -> None:
    """A forked process that ends leaves it to the first one."""
    script = """
        import os, sys, pyarrow as pa, dpgrain as dg
        table = dg.read(pa.table({"who": [1]}).to_reader(), user="who")
        dg.count(table, unit=dg.User(), epsilon=1)
        (folder,) = os.listdir(os.environ["TMPDIR"])
        if not os.fork():
            sys.exit()
        os.wait()
        print(os.listdir(os.environ["TMPDIR"]) == [folder])
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        env={"TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "True\n"
    assert not list(tmp_path.iterdir())


def test_interrupted_stream_publishes_nothing() -> None:
    table = dg.read(Once(rows_of(), fails=True).stream, user="who")
    with dg.budget(10.0, 1e-5) as budget:
        for told in (
            "cannot be read completely",
            "can be read only once, and ended early; call dg.read",
        ):
            with pytest.raises(DataError, match=told) as caught:
                dg.sum(table, "w", bounds=(0, 1), unit=dg.User(), epsilon=1.0, delta=1e-6)
            assert CANARY not in shown(caught.value)
            assert caught.value.__notes__ == [
                "Nothing was published; a budget or a ledger that was charged for it stays charged."
            ]
        assert budget.spent.share_of(budget.caps.price) > 0


def test_a_cursor_of_adbc_is_a_stream(tmp_path: Path) -> None:
    """Unchanged, once its query is executed; its contents may be gone later."""
    dbapi = pytest.importorskip("adbc_driver_sqlite.dbapi")
    place = str(tmp_path / "rows.db")
    with dbapi.connect(place) as database, database.cursor() as cursor:
        with pytest.raises(DataError, match="The stream cannot be read completely"):
            dg.read(cursor, user="who")
        cursor.adbc_ingest("visits", rows_of().select(["who", "w"]))
        cursor.execute("SELECT who, w FROM visits")
        table = dg.read(cursor, user="who")
        assert table.provenance == "as given"
        expected = dg.sum(dg.read(rows_of(), user="who"), "w", bounds=(0, 1), **PROMISE)
        assert dg.sum(table, "w", bounds=(0, 1), **PROMISE).value == expected.value
        cursor.execute("SELECT who, w FROM visits")
        late = dg.read(cursor, user="who")
    with pytest.raises(DataError):
        dg.sum(late, "w", bounds=(0, 1), **PROMISE)


@pytest.mark.parametrize(("memory", "files"), [(0, 1), (700, 1), (10**6, 0)])
def test_rows_beyond_memory_are_stored_in_a_file(memory: int, files: int) -> None:
    rows = rows_of()
    with DuckDB(dg.read(rows, user="who")) as engine:
        batches = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(100))
        found = store_stream(
            engine.connection, batches, {name: name for name in rows.schema.names}, memory
        )
        answer = engine.connection.sql(f"SELECT * FROM {found}").to_arrow_table()
        assert len(list(spill_path(engine.connection).glob("*spilled*.db"))) == files
    by = [(name, "ascending") for name in rows.schema.names]
    assert answer.sort_by(by).to_pydict() == rows.sort_by(by).to_pydict()


def test_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    table = dg.read(Once(rows_of()).stream, user="who")
    with pytest.raises(DataError, match="TMPDIR"):
        dg.histogram(table, "item", **PROMISE)


def test_columns_indistinguishable_in_queries_are_rejected() -> None:
    rows = pa.table([[1], [2]], names=["who", "Who"])
    with pytest.raises(SchemaError, match="The stream has the column 'who' and 'Who'"):
        dg.read(rows.to_reader(), user="who")


def test_spark_takes_no_stream() -> None:
    with pytest.raises(ParameterError, match="engine='duckdb'"):
        dg.read(rows_of().to_reader(), user="who", engine="spark")


@pytest.mark.parametrize(
    "rows", [pa.table({"who": pa.array([], pa.int64())}), rows_of().select([])]
)
def test_streams_without_rows_or_columns(rows: pa.Table) -> None:
    table = dg.read(rows.to_reader())
    with DuckDB(table) as engine:
        found = engine.query("SELECT count(*) AS n FROM source").column("n")[0].as_py()
    assert found == rows.num_rows

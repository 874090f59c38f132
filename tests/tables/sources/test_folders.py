"""Folders of files: the read ones, and the values in folder names."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpgrain as dg
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.sources.folders import matches_duckdb, read_partition

NOTHING = "__HIVE_DEFAULT_PARTITION__"


def lake(root: Path, *folders: str, ending: str = "parquet", **columns: Any) -> Path:
    """Write a file below each folder, with rows of one person per folder."""
    for who, folder in enumerate(folders):
        place = root / folder
        place.mkdir(parents=True, exist_ok=True)
        rows = pa.table({"who": [who, who], **columns})
        if ending == "parquet":
            pq.write_table(rows, place / "part-0.parquet")
        else:
            rows.to_pandas().to_csv(place / f"part-0.{ending}", index=False)
    return root


def held(source: Any, column: str = "month", **options: Any) -> dict[Any, Any]:
    table = dg.read(source, user="who", types={"who": "BIGINT"}, **options)
    with DuckDB(table) as engine:
        found = engine.query(f'SELECT DISTINCT who, "{column}" AS x FROM source', [column])
    rows = found.to_pylist()
    assert len({row["who"] for row in rows}) == len(rows)
    return {row["who"]: row["x"] for row in rows}


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_names_of_folders_are_columns_of_text(ending: str, tmp_path: Path) -> None:
    root = lake(tmp_path / "lake", "month=01", "month=2", f"month={NOTHING}", ending=ending)
    assert dg.read(root, user="who").schema["month"] == "VARCHAR"
    assert held(root) == {0: "01", 1: "2", 2: None}
    table = dg.read(root, user="who", types={"month": "INTEGER"})
    assert table.schema["month"] == "INTEGER"
    assert dg.read(root, user="who").provenance == "table"


def test_rows_of_a_partition_are_published(tmp_path: Path) -> None:
    root = lake(tmp_path / "lake", "day=2025-01-01", "day=2025-01-02", "day=2025-01-03")
    table = dg.read(root, user="who", types={"day": "DATE"})
    release = dg.count(
        table.where(day=("2025-01-02", None)), by="day", domain=["2025-01-02", "2025-01-03"],
        unit=dg.User(), epsilon=50.0, delta=1e-6, random_state=1,
    )  # fmt: skip
    assert release.estimate.round().tolist() == [2, 2]


@pytest.mark.parametrize("column", ["file_index", "FILE_INDEX"])
@pytest.mark.parametrize(
    "values", [["x", "1"], [1, 0], [2**62, -1]], ids=["text", "places", "large"]
)
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_no_column_stands_for_the_place_of_a_file(
    ending: str, values: list[Any], column: str, tmp_path: Path
) -> None:
    """A DuckDB column has that name: text would end a release, numbers would reveal a month."""
    root = lake(tmp_path / "lake", "month=a!", "month=b!", "month=c", ending=ending,
                **{column: values})  # fmt: skip
    assert held(root) == {0: "a!", 1: "b!", 2: "c"}


@pytest.mark.parametrize(
    ("pattern", "columns"),
    [
        ("", {"month", "day"}),
        ("month=*", {"month", "day"}),
        ("month=1", {"day"}),
        ("month=1/day=*", {"day"}),
        ("**/*.parquet", {"month", "day"}),
        ("month=1/day=2/part-0.parquet", set()),
    ],
)
def test_columns_are_the_open_parts_of_a_pattern(
    pattern: str, columns: set[str], tmp_path: Path
) -> None:
    root = lake(tmp_path / "of=all", "month=1/day=1", "month=1/day=2", "month=2/day=1")
    table = dg.read(str(root / pattern), user="who")
    assert set(table.schema) == {"who", *columns}


ODD = [
    "%FF",
    "%00",
    "a%2Fb",
    "a+b",
    "a=b",
    "%",
    "%zz",
    "é",
    "it's",
    "a?b",
    "",
    '"x"',
    "{x}",
    NOTHING,
]


@pytest.mark.slow
def test_no_name_of_a_folder_ends_a_release(tmp_path: Path) -> None:
    """DuckDB reads names that are plain, and others are read here: the same value, or none."""
    root = lake(tmp_path / "lake", *[f"month={name}" for name in ODD])
    expected = ["%FF", "%00", NOTHING]
    values = [None if name in expected else name.replace("%2F", "/") for name in ODD]
    assert held(root) == dict(enumerate(values))
    for who, name in enumerate(ODD):
        one = lake(tmp_path / f"lake {who}", f"month={name}")
        assert held(one) == {0: values[who]}


@given(st.text(max_size=9).filter(lambda name: not set("/\0") & set(name)))
def test_plain_names_are_read_equally_by_duckdb(name: str) -> None:
    """Plain names are neither encoded nor paths."""
    try:
        folder = f"month={name}"
        folder.encode()
    except UnicodeError:
        return
    path = PurePath("lake") / folder / "rows.parquet"
    partition = read_partition(path, PurePath("lake"))
    if matches_duckdb(str(path), partition):
        ((_, value),) = partition
        assert value == name or "%" in name or name == NOTHING


def test_parent_folders_have_no_effect(tmp_path: Path) -> None:
    for above in ("month=9", "user=ann", "x=%FF"):
        root = lake(tmp_path / above / "lake", "month=1", "month=2")
        assert held(root) == {0: "1", 1: "2"}


def test_a_column_of_the_files_is_read_from_them(tmp_path: Path) -> None:
    root = lake(tmp_path / "lake", "Month=1", "Month=2", month=[7, 7])
    assert dg.read(root, user="who").schema == {"who": "BIGINT", "month": "BIGINT"}
    assert held(root) == {0: 7, 1: 7}


def test_files_with_malformed_times_retain_their_partition(tmp_path: Path) -> None:
    """Such a file is read from a copy in a folder with another name."""
    root = tmp_path / "lake"
    for who, month in enumerate(("1", "2")):
        place = root / f"month={month}"
        place.mkdir(parents=True)
        at = pa.array([2**61 if who else 0, 1], pa.timestamp("ms"))
        pq.write_table(pa.table({"who": [who, who], "at": at}), place / "a.parquet")
    table = dg.read(root, user="who")
    with DuckDB(table) as engine:
        found = engine.query(
            'SELECT who, month, count("at") AS n FROM source GROUP BY ALL ORDER BY 1',
            ["month", "at"],
        )
    assert [tuple(row.values()) for row in found.to_pylist()] == [(0, "1", 2), (1, "2", 1)]


def test_partitions_of_other_types_are_widened(tmp_path: Path) -> None:
    """A column that is a number in one partition and text in another is text in all, or nothing's."""
    root = lake(tmp_path / "lake", "month=1", x=[1, 2])
    pq.write_table(pa.table({"who": [5], "x": ["a"]}), root / "month=1/part-1.parquet")
    assert dg.read(root, user="who").schema["x"] == "VARCHAR"
    pq.write_table(pa.table({"who": [5], "x": [True]}), root / "month=1/part-1.parquet")
    table = dg.read(root, user="who")
    with pytest.raises(SchemaError, match="'x' has type UNION of BIGINT and BOOLEAN"):
        dg.histogram(table, "x", unit=dg.User(), epsilon=1.0, delta=1e-6)


def test_remedy_for_files_of_different_types_works(tmp_path: Path) -> None:
    root = lake(tmp_path / "lake", "month=1", x=["1", "2"])
    pq.write_table(pa.table({"who": [5], "x": [1.5]}), root / "month=1/part-1.parquet")
    table, remedy = dg.read(root, user="who"), "VARCHAR and DOUBLE.*write them again with one type"
    for use in (
        lambda: dg.sum(table, "x", bounds=(0, 5), unit=dg.User(), epsilon=1.0),
        lambda: dg.count(table, by="x", unit=dg.User(), epsilon=1.0, delta=1e-6),
        lambda: table.filter("x > 1"),
        lambda: table.distinct("x"),
        # No type can be declared instead.
        lambda: dg.read(root, user="who", types={"x": "DOUBLE"}),
    ):
        with pytest.raises(SchemaError, match=remedy):
            use()
    pq.write_table(pa.table({"who": [5], "x": ["1.5"]}), root / "month=1/part-1.parquet")
    numbers = dg.read(root, user="who", types={"x": "DOUBLE"})
    release = dg.sum(numbers, "x", bounds=(0, 5), clip=5, unit=dg.User(), epsilon=100.0)
    assert 0 < release.estimate[0] < 9


def test_names_with_leading_dot_or_underscore_are_skipped(tmp_path: Path) -> None:
    root = lake(tmp_path / "lake", "month=1")
    for name in ("_SUCCESS", ".part-0.parquet.crc", "_temporary/0/part-9.parquet"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    assert held(root) == {0: "1"}


def test_links_are_followed_and_a_file_counts_once(tmp_path: Path) -> None:
    root = lake(tmp_path / "lake", "month=1")
    other = lake(tmp_path / "elsewhere", "x")
    (root / "month=2").symlink_to(other / "x")
    (root / "month=1" / "_above").symlink_to(root)
    (root / "month=1" / "again.parquet").symlink_to(root / "month=1" / "part-0.parquet")
    with DuckDB(dg.read(root, user="who")) as engine:
        found = engine.query(
            "SELECT month, count(*) AS n FROM source GROUP BY ALL ORDER BY 1", ["month"]
        )
    assert [tuple(row.values()) for row in found.to_pylist()] == [("1", 2), ("2", 2)]


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    root = lake(tmp_path / "lake", "month=1")
    (root / "month=2").symlink_to(root)
    assert held(root) == {0: "1"}


def other(root: Path) -> None:
    (root / "month=1" / "notes.txt").write_text("x")


def mixed(root: Path) -> None:
    (root / "month=1" / "more.csv").write_text("who\n1\n")


def levels(root: Path) -> None:
    lake(root, "month=1/day=1")


def twice(root: Path) -> None:
    (root / "month=1").rename(root / "x")
    lake(root.parent / "other", "month=1/Month=2")
    (root.parent / "other" / "month=1").rename(root / "month=1")
    (root / "x" / "part-0.parquet").unlink()


def delta(root: Path) -> None:
    (root / "_delta_log").mkdir()


def hudi(root: Path) -> None:
    (root / ".hoodie").mkdir()


def iceberg(root: Path) -> None:
    (root / "metadata").mkdir()
    (root / "metadata" / "v1.metadata.json").write_text("{}")


def empty(root: Path) -> None:
    (root / "month=1" / "part-0.parquet").unlink()


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        (
            other,
            ParameterError,
            r"notes.txt' must end in .parquet, .csv or .csv.gz, or be a folder",
        ),
        (mixed, ParameterError, "source must not mix Parquet and CSV files"),
        (levels, SchemaError, "use the same levels of name=value"),
        (twice, SchemaError, "name a column twice; rename a level"),
        (
            delta,
            ParameterError,
            "must not be a table of Delta, because its folder also contains changed",
        ),
        (hudi, ParameterError, "a table of Hudi, because"),
        (iceberg, ParameterError, "a table of Iceberg, because"),
        (empty, DataError, "contains no files; check the path"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_forbidden_folder_contents_are_rejected(
    change: Any, error: type[Exception], told: str, tmp_path: Path
) -> None:
    root = lake(tmp_path / "lake", "month=1")
    change(root)
    with pytest.raises(error, match=told):
        dg.read(root, user="who")


def test_changing_folder_is_rejected(tmp_path: Path) -> None:
    root = lake(tmp_path / "lake", "month=1", "month=2")
    table = dg.read(root, user="who")
    pq.write_table(pa.table({"who": ["a"]}), root / "month=2" / "part-0.parquet")
    with pytest.raises(SchemaError, match="has different columns than when it was opened"):
        dg.count(table, unit=dg.User(), epsilon=1.0, delta=1e-6)

"""Each Parquet file is read by its own schema, under the first file's column names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import DataError, SchemaError
from dpgrain.tables.sources import parquet_files
from dpgrain.tables.sources.parquet_files import (
    ParquetFiles,
    copy_valid_times,
    out_of_range_int96,
    schema_key,
    unchecked_times,
)


def written(folder: Path, *tables: dict[str, Any]) -> ParquetFiles:
    paths = [str(folder / f"{place}.parquet") for place in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(pa.table(table), path)
    return ParquetFiles(tuple(paths))


def rows_of(source: ParquetFiles, folder: Path) -> list[tuple[object, ...]]:
    with duckdb.connect(config={"temp_directory": str(folder)}) as connection:
        rows = connection.execute(f"SELECT who, x FROM {source.attach(connection, ['who', 'x'])}")
        return sorted(rows.fetchall(), key=str)


@pytest.mark.parametrize(
    ("second", "kind", "values"),
    [
        (pa.array([2], pa.int64()), "BIGINT", (1, 2)),
        (pa.array([2.5]), "DOUBLE", (1.0, 2.5)),
        (pa.array(["two"]), "VARCHAR", ("1", "two")),
        # No release can use a column of numbers and booleans.
        (pa.array([True]), "UNION of INTEGER and BOOLEAN", (None, None)),
    ],
    ids=str,
)
def test_types_of_files_widen(
    second: pa.Array, kind: str, values: tuple[object, ...], tmp_path: Path
) -> None:
    first = {"who": ["a"], "x": pa.array([1], pa.int32())}
    # Order and case of names differ, and one file has more columns.
    source = written(tmp_path, first, {"X": second, "more": [0], "WHO": ["b"]})
    assert source.columns() == {"who": "VARCHAR", "x": kind}
    assert rows_of(source, tmp_path) == [("a", values[0]), ("b", values[1])]


def test_files_must_have_the_first_files_columns(tmp_path: Path) -> None:
    source = written(tmp_path, {"who": [1], "x": [1]}, {"who": [1]})
    with refuses("file", "1.parquet", "lacks the column 'x'", kind=SchemaError):
        source.columns()
    source = written(tmp_path, {"who": [1], "x": [1]}, {"who": [1]}, {"who": [1]})
    with refuses("file", "0.parquet", "has a column 'x', which", "1.parquet", kind=SchemaError):
        source.columns()


def test_error_names_the_damaged_file(tmp_path: Path) -> None:
    source = written(tmp_path, {"who": [1]}, {"who": [1]}, {"who": [1]})
    damaged = Path(source.paths[1])
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(DataError, match=re.escape(f"The file {str(damaged)!r} cannot be read")):
        source.columns()


def test_names_differing_only_in_case_are_rejected(tmp_path: Path) -> None:
    with refuses("file", "0.parquet", "'who' and 'WHO'", kind=SchemaError):
        written(tmp_path, {"who": [1], "WHO": [1]}).columns()


def test_spill_copy_replaces_out_of_range_times(tmp_path: Path) -> None:
    times = pa.array([0, 2**62], pa.int64()).view(pa.timestamp("ms"))
    source = written(tmp_path, {"who": ["a", "b"], "x": times})
    spill = tmp_path / "spill"
    spill.mkdir()
    ((_, first), (_, second)) = rows_of(source, spill)
    assert first is not None
    assert second is None
    assert len(list(spill.glob("*.parquet"))) == 1


FAR = 2**62


def times_file(path: Path, raw: list[int | None], unit: str = "ms", **options: object) -> str:
    at = pa.array(raw, pa.int64()).view(pa.timestamp(unit))
    inside = pa.array([{"at": FAR}] * len(raw), pa.struct({"at": pa.int64()}))
    pq.write_table(pa.table({"At": at, "s": inside, "who": list(range(len(raw)))}), path, **options)
    return str(path)


@pytest.mark.parametrize(
    ("raw", "unit", "options", "milliseconds", "others"),
    [
        ([0, 1], "ms", {}, [], []),
        ([0, FAR], "ms", {}, ["at"], []),
        ([0, FAR], "ms", {"row_group_size": 1}, ["at"], []),
        ([None, None], "ms", {}, [], []),
        ([0, 1], "ms", {"write_statistics": False}, ["at"], []),
        ([0, -(2**63)], "us", {}, [], ["at"]),
        ([0, 2**63 - 1], "us", {}, [], []),
        ([0, 1], "us", {"write_statistics": False}, [], ["at"]),
        ([0, FAR], "ns", {}, [], []),
        ([0, FAR], "ns", {"use_deprecated_int96_timestamps": True}, [], ["at"]),
    ],
)
def test_footer_shows_out_of_range_times(
    raw: list[int | None],
    unit: str,
    options: dict[str, object],
    milliseconds: list[str],
    others: list[str],
    tmp_path: Path,
) -> None:
    found = unchecked_times(times_file(tmp_path / "t.parquet", raw, unit, **options))
    assert sorted(found.milliseconds) == milliseconds
    assert sorted(found.others) == others


def test_files_of_one_schema_are_described_once(tmp_path: Path) -> None:
    made = [pa.table({"who": [place], "at": [1.5]}) for place in range(2)]
    made.append(pa.table({"who": [1], "at": [1]}))
    paths = [str(tmp_path / f"{place}.parquet") for place in range(len(made))]
    for table, path in zip(made, paths, strict=True):
        pq.write_table(table, path)
    same, other, odd = map(schema_key, paths)
    assert same == other
    assert same != odd


@pytest.mark.parametrize("options", [{}, {"row_group_size": 1}, {"row_group_size": 3}])
def test_copy_has_only_the_used_columns(options: dict[str, Any], tmp_path: Path) -> None:
    path = times_file(tmp_path / "t.parquet", [0, FAR, None, 5], **options)
    copy_valid_times(path, tmp_path / "copy.parquet", {"at"})
    found = pq.read_table(tmp_path / "copy.parquet")
    assert found.schema.names == ["At"]
    assert found["At"].cast(pa.int64()).to_pylist() == [0, None, None, 5000]


@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_batches_of_several_row_groups_meet(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "_ROWS", 3)
    options: dict[str, Any] = {"row_group_size": rows, "use_deprecated_int96_timestamps": True}
    path = times_file(tmp_path / "t.parquet", [*range(10), None], "us", **options)
    assert out_of_range_int96(path) == frozenset()
    copy_valid_times(path, tmp_path / "copy.parquet", {"at", "who"})
    found = pq.read_table(tmp_path / "copy.parquet")
    assert found["At"].cast(pa.int64()).to_pylist() == [*range(10), None]
    assert found["who"].to_pylist() == list(range(11))


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_files_of_both_kinds_are_one_table(engine: Any, tmp_path: Path) -> None:
    times_file(tmp_path / "a.parquet", [0, FAR])
    times_file(tmp_path / "b.parquet", [0, 1], "us")
    table = dg.read(str(tmp_path / "*.parquet"), user="who", engine=engine)
    with table.with_days("day", "At").open_engine() as opened:
        found = opened.columns([("day", "text")]).column(0).to_pylist()
    assert found == ["1970-01-01", None, "1970-01-01", "1970-01-01"]


@pytest.mark.parametrize(
    ("raw", "unit", "far"),
    [
        ([0, None, 9_007_199_254_740_992], "ms", []),
        ([0, 10**16], "ms", ["at"]),
        ([2**63 - 2, None, 0, -1], "us", []),
        ([0, -(10**18)], "us", ["at"]),
        ([], "ms", []),
    ],
)
def test_days_and_nanoseconds_are_read_or_copied(
    raw: list[int | None], unit: str, far: list[str], tmp_path: Path
) -> None:
    """A day out of range is a null, and all others are read like in files without one."""
    path = times_file(tmp_path / "t.parquet", raw, unit, use_deprecated_int96_timestamps=True)
    assert sorted(out_of_range_int96(path)) == far
    for engine in ("duckdb", InMemory):
        with dg.read(path, user="who", engine=engine).open_engine() as opened:
            found = opened.columns([("At", "as it is")]).column(0)
        one = 1 if unit == "us" else 1000
        read = [None if each in (10**16, -(10**18)) else each for each in raw]
        assert found.cast(pa.int64()).to_pylist() == [each and each * one for each in read]


@pytest.mark.parametrize("options", [{}, {"write_statistics": False}])
@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_empty_file_is_read_like_one_with_rows(
    engine: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    times_file(tmp_path / "a.parquet", [], **options)
    times_file(tmp_path / "b.parquet", [0, 1], **options)
    for files, rows in (("a.parquet", 0), ("*.parquet", 2)):
        table = dg.read(str(tmp_path / files), user="who", engine=engine)
        with table.with_days("day", "At").open_engine() as opened:
            found = opened.columns([("day", "text")]).column(0).to_pylist()
        assert found == ["1970-01-01"] * rows

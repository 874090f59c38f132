"""Each Parquet file is read by its own schema, under the first file's column names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses

from dpgrain.errors import SchemaError
from dpgrain.tables.sources.parquet_files import ParquetFiles


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

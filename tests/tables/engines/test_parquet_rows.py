"""Times of Parquet that a footer does not show to be within range."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpgrain as dg
from dpgrain.tables.engines.parquet_rows import copy_readable, odd_times

FAR = 2**62


def written(path: Path, raw: list[int | None], unit: str = "ms", **options: object) -> str:
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
def test_a_footer_shows_which_times_are_within_range(
    raw: list[int | None],
    unit: str,
    options: dict[str, object],
    milliseconds: list[str],
    others: list[str],
    tmp_path: Path,
) -> None:
    found = odd_times(written(tmp_path / "t.parquet", raw, unit, **options))
    assert sorted(found.milliseconds) == milliseconds
    assert sorted(found.others) == others


def test_a_copy_has_the_columns_that_are_used(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", [0, FAR, None, 5])
    copy_readable(path, tmp_path / "copy.parquet", {"at"})
    found = pq.read_table(tmp_path / "copy.parquet")
    assert found.schema.names == ["At"]
    assert found["At"].cast(pa.int64()).to_pylist() == [0, None, None, 5000]


@pytest.mark.parametrize("engine", ["duckdb", "in_memory"])
def test_files_of_both_kinds_are_one_table(engine: str, tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", [0, FAR])
    written(tmp_path / "b.parquet", [0, 1], "us")
    table = dg.read(str(tmp_path / "*.parquet"), user="who", engine=engine)
    with table.with_days("day", "At").open_engine() as opened:
        found = opened.columns([("day", "text")]).column(0).to_pylist()
    assert found == ["1970-01-01", None, "1970-01-01", "1970-01-01"]

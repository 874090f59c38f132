"""The real rows of a table, unchanged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import dpgrain as dg
from dpgrain.tables.sources.loading import load_rows


def test_rows_equal_the_read_ones(tmp_path: Path) -> None:
    rows = pa.table({"who": [3, 1, 2], "page": ["a", None, "b"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    for source in (rows, tmp_path / "rows.parquet"):
        found = load_rows(dg.read(source, user="who").source)
        assert sorted(found.to_pylist(), key=str) == sorted(rows.to_pylist(), key=str)

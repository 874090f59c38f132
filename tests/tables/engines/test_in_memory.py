"""The engine in memory keeps to the contract of engines, whatever it reads."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpgrain as dg
from dpgrain.testing import EngineContract


class TestInMemory(EngineContract):
    engine = "in_memory"


PRICES = [Decimal("1.50"), None, Decimal("0.00000001"), Decimal(7)]
ODD = {
    "who": pa.array([*range(239), None], pa.uint64()),
    "item": pa.array([True, False, None, True] * 60),
    "price": pa.array(PRICES * 60),
    "w": pa.array(["1,5", "x", "2", "3"] * 60),
}


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
@pytest.mark.parametrize("item", ["item", "price"])
def test_what_arrow_reads_otherwise_is_read_by_duckdb(
    item: str, ending: str, tmp_path: Path
) -> None:
    rows, path = pa.table(ODD), tmp_path / f"rows.{ending}"
    if ending == "csv":
        rows.to_pandas().to_csv(path, index=False)
    elif ending == "parquet":
        pq.write_table(rows, path)
    options: dict[str, Any] = {"user": "who", "types": {"w": "DOUBLE"}, "decimal": ","}
    found = []
    for engine in ("duckdb", "in_memory"):
        table = dg.read(rows if ending == "arrow" else path, engine=engine, **options)
        release = dg.sum(table, "w", by=item, unit=dg.User(), epsilon=50, delta=0.1, random_state=1)
        found.append(release.to_arrow())
    assert len(found[0])
    assert found[0].equals(found[1])

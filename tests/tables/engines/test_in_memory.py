"""The engine in memory satisfies the contract of engines, whatever it reads."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.testing import EngineContract


@pytest.mark.slow
class TestInMemory(EngineContract):
    engine = InMemory


PRICES = [Decimal("1.50"), None, Decimal("0.00000001"), Decimal(7)]
ODD = {
    "who": pa.array([*range(239), None], pa.uint64()),
    "item": pa.array([True, False, None, True] * 60),
    "price": pa.array(PRICES * 60),
    "w": pa.array(["1,5", "x", "2", "3"] * 60),
}


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
@pytest.mark.parametrize("item", ["item", "price"])
def test_columns_read_differently_by_arrow_use_duckdb(
    item: str, ending: str, tmp_path: Path
) -> None:
    rows, path = pa.table(ODD), tmp_path / f"rows.{ending}"
    if ending == "csv":
        rows.to_pandas().to_csv(path, index=False)
    elif ending == "parquet":
        pq.write_table(rows, path)
    options: dict[str, Any] = {"user": "who", "types": {"w": "DOUBLE"}, "decimal": ","}
    found = []
    for engine in ("duckdb", InMemory):
        table = dg.read(rows if ending == "arrow" else path, engine=engine, **options)
        release = dg.sum(table, "w", by=item, unit=dg.User(), epsilon=50, delta=0.1, random_state=1)
        found.append(release.to_arrow())
    assert len(found[0])
    assert found[0].equals(found[1])


def test_columns_of_one_row_stay_together() -> None:
    """A rerun query may return its rows in another order; here only user 0 has a."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT 0 AS who, 'a' AS item FROM range(300000) "
        "UNION ALL SELECT 1 + i % 50000, 'b' FROM range(300000) r(i)"
    )
    connection.execute("CREATE TABLE d AS SELECT i AS who FROM range(50001) r(i)")
    joined = connection.sql("SELECT t.who, t.item FROM t JOIN d USING (who)")
    release = dg.histogram(
        dg.read(joined, user="who", engine=InMemory, rows="as given"), "item", unit=dg.User(),
        epsilon=50, delta=0.1, clip=1.0, domain=["a", "b"], random_state=1,
    )  # fmt: skip
    assert abs(release.estimate - [1, 50_000]).max() < 5


def test_invalid_text_row_moves_no_other(tmp_path: Path) -> None:
    """Bytes that are not UTF-8, in either column, leave out their own row and shift no other."""
    rows = [row for i in range(500) for row in (b",a", f"u{i},b".encode())]
    lines = [b"who,item", b"p,\xff", *rows, b"\xff,a", b""]
    (tmp_path / "rows.csv").write_bytes(b"\n".join(lines))
    for engine in ("duckdb", InMemory):
        release = dg.histogram(
            dg.read(tmp_path / "rows.csv", user="who", engine=engine), "item", unit=dg.User(),
            epsilon=50, delta=0.1, clip=1.0, domain=["a", "b"], random_state=1,
        )  # fmt: skip
        assert abs(release.estimate - [0, 500]).max() < 5, engine

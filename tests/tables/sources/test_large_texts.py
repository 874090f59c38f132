"""Pages of Parquet with large texts are found by their headers, and read from a copy."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.tables.sources import large_texts
from dpgrain.tables.sources.large_texts import copy_texts


def texts(rows: int, size: int) -> list[str]:
    return ["x" * (size - 8) + f"{row:08d}" for row in range(rows)]


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_headers_show_all_values_and_bytes(
    dictionary: bool, version: str, compression: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"n": range(9_000), "t": [None, *texts(8_999, 90)]})
    pq.write_table(
        table,
        path,
        use_dictionary=dictionary,
        data_page_version=version,
        compression=compression,
        data_page_size=1 << 14,
        write_batch_size=50,
        row_group_size=4_000,
        write_statistics=["t"],
    )
    footer = pq.read_metadata(path)
    with path.open("rb") as file:
        for group in range(footer.num_row_groups):
            chunk = footer.row_group(group).column(1)
            pages = list(large_texts._pages(file, chunk))
            assert len(pages) > (1 if dictionary else 3)
            assert sum(number for number, _ in pages) == chunk.num_values
            headers = chunk.total_uncompressed_size - sum(size for _, size in pages)
            assert 0 < headers < 300 * len(pages)


@pytest.mark.parametrize("page", [1 << 10, 1 << 20])
@pytest.mark.parametrize(
    ("rows", "size", "large"),
    [(1_500, 20_000, True), (1_500, 10_000, False), (20_000, 1_000, False), (40, 600_000, True)],
)
def test_column_is_large_by_its_values_per_read(
    page: int, rows: int, size: int, large: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    held = [*["a", "b"] * 30_000, *texts(rows, size), *["c"] * 30_000]
    table = pa.table({"who": range(len(held)), "T": held, "u": ["z"] * len(held)})
    pq.write_table(table, path, data_page_size=page, write_batch_size=64)
    assert large_texts.large_text_columns(str(path)) == ({"t"} if large else set())


def test_unreadable_headers_show_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"t": texts(30_000, 900)}), path, use_dictionary=False)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    with path.open("rb") as file:
        assert not large_texts._is_large(file, chunk)
    for broken in (b"", b"\x00" * 100, b"\xff" * 100, b"\x19\x0c" * 50):
        (tmp_path / "broken").write_bytes(broken)
        with (tmp_path / "broken").open("rb") as file:
            assert large_texts._is_large(file, chunk)


def test_a_copy_has_the_same_rows(tmp_path: Path) -> None:
    path, copy = tmp_path / "t.parquet", tmp_path / "copy.parquet"
    rows = 700
    held = [None, "x" * 65_536, "x" * 65_537, *texts(rows - 3, 40_000)]
    columns: dict[str, Any] = {
        "t": pa.array(held, pa.large_string()),
        "n": pa.array(np.arange(rows) % 200, pa.uint8()),
        "day": pa.array([dt.date(2024, 5, 1)] * rows),
        "e": pa.array(["a", "b"] * (rows // 2)).dictionary_encode(),
        "unused": [1] * rows,
    }
    pq.write_table(pa.table(columns), path)
    copy_texts(str(path), copy, {"t", "n", "day", "e"})
    footer = pq.read_metadata(copy)
    assert footer.num_row_groups > 5
    with duckdb.connect() as connection:
        names = "n, day, e, CASE WHEN strlen(t) <= 65536 THEN t END AS t"
        one, two = (
            connection.sql(f"SELECT {names} FROM '{each}' ORDER BY ALL").fetchall()
            for each in (path, copy)
        )
    assert one == two


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
def test_large_texts_work_with_times_and_uuids(engine: Any, tmp_path: Path) -> None:
    path, rows = tmp_path / "t.parquet", 500
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT i AS who, repeat('x', 50000) || i AS t, md5(i::VARCHAR)::UUID AS id, "
            "TIMESTAMP '2024-05-01' + to_days(i::INTEGER) AS at, (i / 4)::DECIMAL(9, 2) AS d "
            f"FROM range({rows}) r(i)) TO '{path}' (FORMAT parquet)"
        )
    assert large_texts.large_text_columns(str(path)) == {"t"}
    table = dg.read(path, user="who", engine=engine).with_days("day", of="at")
    wanted: Any = [("id", "key"), ("day", "key"), ("d", "key"), ("t", "text"), ("who", "key")]
    with table.open_engine() as opened:
        found = opened.columns(wanted).to_pylist()
    by_who = {row["c4"]: row for row in found}
    assert len(by_who) == rows
    for who in (0, 7, 499):
        digest = hashlib.md5(str(who).encode(), usedforsecurity=False).hexdigest()
        assert by_who[who]["c0"] == str(uuid.UUID(digest))
        assert by_who[who]["c1"] == str(dt.date(2024, 5, 1) + dt.timedelta(days=who))
        assert by_who[who]["c2"] == f"{who / 4:.2f}"
        assert by_who[who]["c3"].startswith("x" * 190 + "…")

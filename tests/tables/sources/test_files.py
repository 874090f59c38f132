"""Cached facts on a file are forgotten when the file changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.tables.sources.files import FileCache


def appended(path: Path) -> None:
    path.write_text(path.read_text() + "more")


def replaced(path: Path) -> None:
    before, new = path.stat(), path.with_suffix(".new")
    new.write_text("x" * before.st_size)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.rename(path)


def rewritten(path: Path) -> None:
    time = path.stat().st_mtime_ns
    path.write_text("y" * path.stat().st_size)
    os.utime(path, ns=(time, time + 1))


@pytest.mark.parametrize("change", [appended, replaced, rewritten])
def test_a_changed_file_is_looked_at_again(change: Any, tmp_path: Path) -> None:
    path, looked = tmp_path / "f", []
    path.write_text("text")

    def look(name: str) -> str:
        looked.append(name)
        return Path(name).read_text()

    kept = FileCache(look)
    assert kept.get(str(path)) == kept.get(str(path)) == "text"
    assert len(looked) == 1
    change(path)
    assert kept.get(str(path)) == path.read_text()
    assert len(looked) == 2


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("before", ["", '3,"c"d\n'], ids=["regular", "odd"])
def test_open_table_reads_later_rows(before: str, engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("who,w\n1,a\n" + before)
    table = dg.read(path, user="who", engine=engine)

    def read() -> list[Any]:
        with table.open_engine() as opened:
            return sorted(opened.columns([("w", "key")]).column(0).to_pylist())

    assert read() == ["a"]
    with path.open("a") as file:
        file.write('4,5" disk\n5,"b"\n6,"e"f\n')
    assert read() == ['5" disk', "a", "b"]


def test_file_with_changed_columns_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"who": [1], "w": ["a"]}), path)
    table = dg.read(path, user="who")
    pq.write_table(pa.table({"who": [1], "w": ["b"], "x": [1]}), path)
    with refuses("file", "columns", kind=dg.SchemaError):
        dg.count(table, unit=dg.User(), epsilon=1.0, random_state=1)
    path = tmp_path / "u.parquet"
    pq.write_table(pa.table({"who": [1], "at": pa.array([1], pa.timestamp("ms"))}), path)
    table = dg.read(path, user="who").with_days("day", "at")
    far = pa.array([2**62], pa.int64()).view(pa.timestamp("ms"))
    pq.write_table(pa.table({"who": [1], "at": far}), path)
    with table.open_engine() as opened:
        assert opened.columns([("day", "text")]).column(0).to_pylist() == [None]

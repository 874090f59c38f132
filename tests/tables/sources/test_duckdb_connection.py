"""Work of DuckDB ends at an interrupt, and each registered table has its own name."""

from __future__ import annotations

import threading

import duckdb
import pyarrow as pa
import pytest

from dpgrain.tables.sources.duckdb_connection import register_rows, run_interruptible


def test_each_registered_table_has_its_own_name() -> None:
    connection = duckdb.connect()
    names = [register_rows(connection, pa.table({"x": [value]})) for value in (1, 2)]
    assert [connection.sql(f"FROM {name}").fetchall() for name in names] == [[(1,)], [(2,)]]


def test_work_is_threaded_only_in_the_main_thread() -> None:
    connection = duckdb.connect()
    main = threading.current_thread()
    assert run_interruptible(connection, threading.current_thread) is not main
    found: list[bool] = []

    def outside() -> None:
        here = threading.current_thread()
        found.append(run_interruptible(connection, threading.current_thread) is here)

    thread = threading.Thread(target=outside)
    thread.start()
    thread.join()
    assert found == [True]


def test_an_interrupt_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def result(self) -> None:
            raise KeyboardInterrupt

    ended = []

    class Connection:
        def interrupt(self) -> None:
            ended.append(True)

    monkeypatch.setattr(
        "dpgrain.tables.sources.duckdb_connection.ThreadPoolExecutor.submit",
        lambda *_: Interrupted(),
    )
    with pytest.raises(KeyboardInterrupt):
        run_interruptible(Connection(), lambda: None)  # type: ignore[arg-type]
    assert ended == [True]

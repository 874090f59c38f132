"""Helpers for a DuckDB connection: registered data, limits and interrupts."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import duckdb

Answer = TypeVar("Answer")

_counter = itertools.count()


def register_rows(connection: duckdb.DuckDBPyConnection, data: Any) -> str:
    """Register an Arrow table, or a stream for one read, and return its SQL name."""
    name = f"source_{next(_counter)}"
    connection.register(name, data)
    return name


def spill_path(connection: duckdb.DuckDBPyConnection) -> Path:
    """Return the spill folder of a connection."""
    return Path(connection.execute("SELECT current_setting('temp_directory')").fetchall()[0][0])


def memory_limit(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the bytes of memory that a connection can use before it spills."""
    return int(connection.execute("SELECT getvariable('memory')").fetchall()[0][0])


def run_interruptible(connection: duckdb.DuckDBPyConnection, work: Callable[[], Answer]) -> Answer:
    """Run work of DuckDB in another thread: DuckDB handles Ctrl-C only when it has finished."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(work)
        try:
            return answer.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise

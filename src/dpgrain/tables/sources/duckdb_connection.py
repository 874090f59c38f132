"""Helpers for a DuckDB connection: what is registered on it, its limits, and interrupts."""

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
    """Register something of Arrow's on a connection, and return the name that it has there.

    Args:
        connection: the connection.
        data: a table, or a stream that is read once.
    """
    name = f"source_{next(_counter)}"
    connection.register(name, data)
    return name


def spill_path(connection: duckdb.DuckDBPyConnection) -> Path:
    """Return the folder that a connection spills into.

    Args:
        connection: the connection.
    """
    return Path(connection.execute("SELECT current_setting('temp_directory')").fetchall()[0][0])


def memory_limit(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the bytes that a connection may hold before it spills.

    Args:
        connection: the connection.
    """
    return int(connection.execute("SELECT getvariable('memory')").fetchall()[0][0])


def run_interruptible(connection: duckdb.DuckDBPyConnection, work: Callable[[], Answer]) -> Answer:
    """Wait for DuckDB's work, which ctrl-C ends at once.

    DuckDB itself looks for signals when it is done, so it works in another thread meanwhile.

    Args:
        connection: the connection that works.
        work: the work.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(work)
        try:
            return answer.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise

"""A DuckDB connection: registered data, schemas, limits, interrupts and errors without rows."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from dpgrain.errors import DataError, DpgrainError, raise_without_context

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
    """Run DuckDB's work in another thread, because it handles Ctrl-C only at its end."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(work)
        try:
            return answer.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


def schema_reader() -> duckdb.DuckDBPyConnection:
    """Return a connection for reading schemas, to be closed by ``with``."""
    return _schema_database(os.getpid()).cursor()


@cache
def _schema_database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the schema database of a process, opened once because that is slow.

    It has no background threads, which a fork would lack, and caches no files.
    """
    settings: dict[str, Any] = {"threads": 1, "enable_external_file_cache": False}
    return duckdb.connect(":memory:", config=settings)


def describe_columns(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Return column name → type of an SQL relation."""
    planned = connection.sql(f"SELECT * FROM {relation}")
    return dict(zip(planned.columns, map(str, planned.types), strict=True))


@cache
def duckdb_type(kind: pa.DataType) -> str:
    """Return DuckDB's type of an Arrow type, or Arrow's name for an unsupported one.

    The storage type of an extension type, such as a pandas period, would not have its meaning.
    """
    if isinstance(kind, pa.ExtensionType):
        return str(kind)
    try:
        empty = pa.table({"column": pa.array([], kind)})
        with schema_reader() as connection:
            connection.register("empty", empty)
            return describe_columns(connection, "empty")["column"]
    except (pa.ArrowException, duckdb.Error):
        return str(kind)


def schema_types(schema: pa.Schema) -> dict[str, str]:
    """Return column → DuckDB type."""
    return {column.name: duckdb_type(column.type) for column in schema}


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Replace exceptions of DuckDB, Arrow and the file system, which can quote rows."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise DataError(
            f"{name} needs more memory or spill space than allowed; raise memory= in dg.read, "
            "or free disk space in the temporary folder (TMPDIR)."
        ) from error
    except duckdb.IOException as error:
        if any(word in str(error).lower() for word in ("no space", "disk", "write", "temp")):
            raise unwritable_error(name) from error
        raise DataError(
            f"{name} cannot be read; check that it exists, is readable and is a complete file."
        ) from error
    except DpgrainError:
        raise
    except (duckdb.InterruptException, RuntimeError) as error:
        if "interrupt" in str(error).lower():
            raise KeyboardInterrupt from None
        raise
    except (duckdb.Error, pa.ArrowException, OSError):
        # Streams of batches raise Arrow's exceptions or OSError.
        raise_without_context(incomplete_error(name))


def incomplete_error(name: str) -> DataError:
    """Return the error about a source that ended early."""
    return DataError(
        f"{name} cannot be read completely; check that every file is complete, or that its "
        "query runs to completion."
    )


def unwritable_error(name: str) -> DataError:
    """Return the error about a spill folder that cannot be written."""
    return DataError(
        f"The spill folder for {name} cannot be written; free disk space, or point TMPDIR to "
        "a disk with free space."
    )

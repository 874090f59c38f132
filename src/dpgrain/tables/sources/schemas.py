"""The schemas of what DuckDB reads, found without reading rows."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa


def schema_reader() -> duckdb.DuckDBPyConnection:
    """Return a connection that reads schemas alone, to be closed by ``with``."""
    return _schema_database(os.getpid()).cursor()


@cache
def _schema_database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the database of a process for schemas: making one takes longer than reading a schema.

    It has no threads of its own, which a copy of the process would lack, and keeps nothing of files.
    """
    settings: dict[str, Any] = {"threads": 1, "enable_external_file_cache": False}
    return duckdb.connect(":memory:", config=settings)


def describe_columns(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Return column name → type of what stands behind FROM.

    Of a wide table each query that is planned takes a second: this one is planned once, and not run.
    """
    planned = connection.sql(f"SELECT * FROM {relation}")
    return dict(zip(planned.columns, map(str, planned.types), strict=True))


@cache
def duckdb_type(kind: pa.DataType) -> str:
    """Return the type of DuckDB's that a column of an Arrow type is; its own name if there is none.

    Types of other libraries, such as periods of pandas, mean more than what they are stored as.
    """
    if isinstance(kind, pa.ExtensionType):
        return str(kind)
    try:
        nothing = pa.table({"column": pa.array([], kind)})
        with schema_reader() as connection:
            connection.register("nothing", nothing)
            return describe_columns(connection, "nothing")["column"]
    except (pa.ArrowException, duckdb.Error):
        return str(kind)

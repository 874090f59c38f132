"""Schemas in DuckDB's types, without reading rows."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa


def schema_reader() -> duckdb.DuckDBPyConnection:
    """Return a connection for reading schemas, to be closed by ``with``."""
    return _schema_database(os.getpid()).cursor()


@cache
def _schema_database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the schema database of a process; opening one takes longer than reading a schema.

    It has no background threads, which a fork would lack, and caches no files.
    """
    settings: dict[str, Any] = {"threads": 1, "enable_external_file_cache": False}
    return duckdb.connect(":memory:", config=settings)


def describe_columns(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Return column name → type of an SQL relation.

    The query is planned once and not run, because planning takes a second for a wide table.
    """
    planned = connection.sql(f"SELECT * FROM {relation}")
    return dict(zip(planned.columns, map(str, planned.types), strict=True))


@cache
def duckdb_type(kind: pa.DataType) -> str:
    """Return DuckDB's type of an Arrow type, or Arrow's name for extension and unsupported types.

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

"""Provenance of the rows of a source, by the kind of thing that is passed; nobody's plan is read.

What no line of :func:`_known` lists is a query, over whose rows one person may decide.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.provenance import Provenance
from dpgrain.tables.engines.given import is_stream, unreadable
from dpgrain.tables.engines.postgres_source import PostgresSource
from dpgrain.tables.engines.sources import TABLE, holds_its_values
from dpgrain.tables.engines.spark_session import is_frame


def provenance_of(data: Any, rows: str | None = None) -> Provenance:
    """Return where the rows of a source come from.

    Args:
        data: the source, as it is passed to :func:`dpgrain.read`.
        rows: ``"as given"`` where the caller states that the rows are as a query made them.

    Raises:
        ParameterError: if the source is a query and this is not stated, or it is nothing to read.

    >>> import duckdb
    >>> provenance_of("visits.parquet"), provenance_of(duckdb.sql("SELECT 1 AS who"), "as given")
    ('table', 'as given')
    """
    if rows is not None:
        _validate.one_of(("as given",), rows=rows)
        return "as given"
    known = _known(data)
    if known is None:
        raise _refused(data)
    return known


def _known(data: Any) -> Provenance | None:
    """Return the provenance of a source that is no query; None for any other."""
    if _is_path(data) or (isinstance(data, Sequence) and data and all(map(_is_path, data))):
        return "table"
    if isinstance(data, PostgresSource):
        return "table" if data.is_table else None
    if isinstance(data, duckdb.DuckDBPyRelation):
        return "table" if data.type == TABLE and holds_its_values(data) else None
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return "as given"
    module = type(data).__module__.partition(".")[0]
    # A column of a data frame of pandas may be called "collect".
    if module == "pandas":
        return "as given"
    lazy = hasattr(data, "collect") or is_frame(data)
    return "as given" if (module == "polars" or is_stream(data)) and not lazy else None


def _is_path(data: Any) -> bool:
    return isinstance(data, str | os.PathLike)


def _refused(data: Any) -> ParameterError:
    """Return the error about a source that is not listed, which is the same for every query."""
    if isinstance(data, PostgresSource):
        return _refused_of_postgres(data)
    lazy = hasattr(data, "collect") or is_frame(data)
    if not lazy and not isinstance(data, duckdb.DuckDBPyRelation):
        return unreadable(data)
    if not lazy and data.type == TABLE:
        return ParameterError(
            f"source {data.alias!r} has columns that are computed as they are read (GENERATED ALWAYS "
            "AS), or stands in a database that is not DuckDB's, where one person may decide over what "
            "is read of others; copy it (CREATE TABLE … AS FROM …), or state rows='as given', and the "
            "guarantee says that nobody's rows are assumed to decide over those of others.",
            name="source",
        )
    return ParameterError(
        f"source is a query ({type(data).__name__}), where one person may decide over rows of others: "
        "after ORDER BY amount DESC LIMIT 1000 one moves a count from 1,004 to 5; pass the table "
        "itself (its files, or con.table('visits') of DuckDB) with types=, where, with_cells, "
        "with_days and per_user in place of the query, or state rows='as given', and the guarantee "
        "says that nobody's rows are assumed to decide over those of others.",
        name="source",
    )


def _refused_of_postgres(source: PostgresSource) -> ParameterError:
    """Return the error about a query, or about a name of a database that is no table as it stands."""
    what = (
        "query is a query"
        if source.table is None
        else f"table {source.table!r} is no table as it stands, but a view or a foreign table, or one "
        "of which row security shows a part, or whose columns are computed as they are read"
    )
    return ParameterError(
        f"{what}, where one person may decide over rows of others; name the table itself with "
        "where, types=, with_cells and per_user, or state rows='as given', and the guarantee says that "
        "nobody's rows are assumed to decide over those of others.",
        name="query" if source.table is None else "table",
    )

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
from dpgrain.scope.provenance import Provenance
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
            f"source {data.alias!r} has generated columns (GENERATED ALWAYS AS), or is in a "
            "database that is not DuckDB's, so one person may affect the data read of others; "
            "copy it (CREATE TABLE … AS FROM …), or pass rows='as given', with which the "
            "guarantee assumes that no person's rows affect those of others.",
            name="source",
        )
    return ParameterError(
        f"source must be a table, not a query ({type(data).__name__}): in a query such as "
        "ORDER BY amount DESC LIMIT 1000, one person's rows can determine which rows of others "
        "are included. Pass its files or con.table('visits'), and use types=, where, "
        "with_cells, with_days and per_user instead of the query; or pass rows='as given', "
        "with which the guarantee assumes that no person's rows affect those of others.",
        name="source",
    )


def _refused_of_postgres(source: PostgresSource) -> ParameterError:
    """Return the error about a query, or about a name of a database that is no table as it stands."""
    what = (
        "query is not a base table"
        if source.table is None
        else f"table {source.table!r} is not a base table (it is a view or a foreign table, "
        "row security hides rows of it, or it has generated columns)"
    )
    return ParameterError(
        f"{what}, so one person's rows may affect the rows of others; pass the table itself "
        "with where, types=, with_cells and per_user, or pass rows='as given', with which the "
        "guarantee assumes that no person's rows affect those of others.",
        name="query" if source.table is None else "table",
    )

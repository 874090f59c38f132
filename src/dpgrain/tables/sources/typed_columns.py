"""A source with types stated for columns of text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import duckdb

from dpgrain import _validate
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.tables.engines.sql import DATES, ISO, Written, quoted, tried
from dpgrain.tables.sources.column_names import column_hint
from dpgrain.tables.sources.column_types import (
    TEXT,
    read_as,
)
from dpgrain.tables.sources.source import RowSource, SourceWrapper


@dataclass(frozen=True, eq=False)
class TypedSource(SourceWrapper):
    """A source of which some columns of text are read as another type; what does not fit is a null.

    Args:
        source: the source.
        types: column → type, as DuckDB spells it.
        written: how numbers and days are written in text.
    """

    source: RowSource
    types: Mapping[str, str]
    written: Written = field(default_factory=Written)

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        stated = {column: read_as(kind) for column, kind in self.types.items()}
        return {**self.source.columns(), **stated}

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the columns in their stated types."""
        stated = ", ".join(
            f"{self._stated(column, kind)} AS {quoted(column)}"
            for column, kind in self.types.items()
            if used is None or column in used
        )
        rows = self.source.attach(connection, used)
        return f"(SELECT * REPLACE ({stated}) FROM {rows})" if stated else rows

    def _stated(self, column: str, kind: str) -> str:
        if read_as(kind) == TEXT:
            return f"TRY_CAST({tried(column, kind, self.written)} AS VARCHAR)"
        return tried(column, read_as(kind), self.written)


def with_types(
    source: RowSource, types: Mapping[str, str] | None, decimal: str = ".", dates: str = ISO
) -> RowSource:
    """Return the source with the types that are stated for columns of text.

    Args:
        source: the source.
        types: column → type.
        decimal: the mark before the decimals of a number.
        dates: the last day of 2025, as days are written.

    Raises:
        SchemaError: if it has no such column, or one that is not text.
        ParameterError: if a type is unknown, or the decimal mark or the form of days is.
    """
    _validate.one_of((".", ","), decimal=decimal)
    _validate.one_of(tuple(DATES), dates=dates)
    types = _validate.mapping(types=types)
    if not types:
        return source
    columns = source.columns()
    stated = {}
    for column, kind in types.items():
        if column not in columns:
            raise SchemaError(
                f"types contains column {column!r}, which does not exist; "
                f"{column_hint(column, list(columns))}.",
                name="types",
            )
        stated[column] = _sql_type(column, kind)
        if columns[column] not in (TEXT, read_as(stated[column])):
            raise SchemaError(
                f"types must not set column {column!r} to {kind!r}, because it already has "
                f"type {columns[column]}; omit it from types.",
                name="types",
            )
    changed = {
        column: kind for column, kind in stated.items() if columns[column] == TEXT and kind != TEXT
    }
    return TypedSource(source, changed, Written(decimal, dates)) if changed else source


def _sql_type(column: str, kind: str) -> str:
    """Return the type as DuckDB spells it: INT is INTEGER."""
    try:
        return str(duckdb.sqltype(kind))
    except duckdb.Error as error:
        raise ParameterError(
            f"types must set column {column!r} to an SQL type such as BIGINT, DOUBLE, DATE or "
            f"VARCHAR, not {kind!r}.",
            name="types",
        ) from error

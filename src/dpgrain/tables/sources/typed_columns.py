"""A source with explicit types of text columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import duckdb

from dpgrain import _validate
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.tables.engines.sql import DATES, MARKS, TextFormat, cast_sql, quoted
from dpgrain.tables.sources.column_names import column_hint
from dpgrain.tables.sources.column_types import (
    TEXT,
    conversion,
    is_readable,
    read_as,
)
from dpgrain.tables.sources.source import RowSource, SourceWrapper


@dataclass(frozen=True, eq=False)
class TypedSource(SourceWrapper):
    """A source with text columns read as other types; an invalid value becomes null."""

    source: RowSource
    types: Mapping[str, str]
    written: TextFormat = field(default_factory=TextFormat)

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        explicit = {column: read_as(kind) for column, kind in self.types.items()}
        return {**self.source.columns(), **explicit}

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return SQL of the columns in their explicit types."""
        casts = ", ".join(
            f"{self._cast(column, kind)} AS {quoted(column)}"
            for column, kind in self.types.items()
            if used is None or column in used
        )
        rows = self.source.attach(connection, used)
        return f"(SELECT * REPLACE ({casts}) FROM {rows})" if casts else rows

    def _cast(self, column: str, kind: str) -> str:
        if read_as(kind) == TEXT:
            return f"TRY_CAST({cast_sql(column, kind, self.written)} AS VARCHAR)"
        return cast_sql(column, read_as(kind), self.written)


def with_types(
    source: RowSource, types: Mapping[str, str] | None, written: TextFormat = TextFormat()
) -> RowSource:
    """Return the source with explicit types of text columns, written in a format."""
    _validate.one_of((".", ","), decimal=written.decimal)
    _validate.one_of(("", *MARKS), thousands=written.thousands)
    if written.thousands == written.decimal:
        # With a decimal comma, points between thousands need no mark.
        remedies = {
            ".": "1.234,56, pass only decimal=','",
            ",": "1,234.56, pass only thousands=','",
        }
        raise ParameterError(
            f"thousands must differ from the decimal mark, {written.decimal!r}; for numbers such as "
            f"{remedies[written.decimal]}.",
            name="thousands",
        )
    _validate.one_of(tuple(DATES), dates=written.dates)
    types = _validate.mapping(types=types)
    if not types:
        return source
    columns = source.columns()
    explicit = {}
    for column, kind in types.items():
        if column not in columns:
            raise SchemaError(
                f"types contains column {column!r}, which does not exist; "
                f"{column_hint(column, list(columns))}.",
                name="types",
            )
        explicit[column] = _sql_type(column, kind)
        if columns[column] not in (TEXT, read_as(explicit[column])):
            own = columns[column]
            remedy = "omit it from types" if is_readable(own) else conversion(own, kind)
            raise SchemaError(
                f"types must not set column {column!r} to {kind!r}, because it already has "
                f"type {own}; {remedy}.",
                name="types",
            )
    changed = {
        column: kind
        for column, kind in explicit.items()
        if columns[column] == TEXT and kind != TEXT
    }
    return TypedSource(source, changed, written) if changed else source


def _sql_type(column: str, kind: str) -> str:
    """Return DuckDB's name of a type: INTEGER for INT."""
    try:
        return str(duckdb.sqltype(kind))
    except duckdb.Error as error:
        raise ParameterError(
            f"types must set column {column!r} to an SQL type such as BIGINT, DOUBLE, DATE or "
            f"VARCHAR, not {kind!r}.",
            name="types",
        ) from error

"""SQL of the columns of a source."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dpgrain.tables.engines.sql import quoted
from dpgrain.tables.sources.column_types import (
    TIMES,
    read_as,
    reading_of,
    type_of,
)


def listing(columns: Mapping[str, str]) -> str:
    """Return the SQL of columns, name → SQL; of none, of one that nobody asks for."""
    listed = (
        sql if sql == quoted(name) else f"{sql} AS {quoted(name)}" for name, sql in columns.items()
    )
    return ", ".join(listed) or 'NULL AS "none"'


def usable(kinds: Mapping[str, str], used: Collection[str] | None) -> dict[str, str]:
    """Return the columns that are used, or all that can be, with their types."""
    return {
        column: kind
        for column, kind in kinds.items()
        if (used is None or column in used) and type_of(kind) is not None
    }


def readings(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return column → SQL of the column as it is read."""
    return {column: reading_of(quoted(column), kind) for column, kind in kinds.items()}


def readings_of_arrow(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return column → SQL of the column as it is read, of Arrow's rows whose times are in range."""
    times = {column: quoted(column) for column, kind in kinds.items() if read_as(kind) in TIMES}
    return {**readings(kinds), **times}


def selected(rows: str, columns: Mapping[str, str]) -> str:
    """Return the SQL of columns of some rows, name → SQL."""
    plain = all(sql == quoted(column) for column, sql in columns.items())
    return rows if plain else f"(SELECT {listing(columns)} FROM {rows})"

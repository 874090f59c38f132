"""SQL of the columns of a source."""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping, Sequence

from dpgrain.tables.engines.sql import literal, quoted
from dpgrain.tables.sources.column_types import TIMES, column_type, read_as, read_expression


def select_list(columns: Mapping[str, str]) -> str:
    """Return the SQL of a select list, name → SQL; a column of nulls if there are none."""
    listed = (
        sql if sql == quoted(name) else f"{sql} AS {quoted(name)}" for name, sql in columns.items()
    )
    return ", ".join(listed) or 'NULL AS "none"'


def usable_columns(kinds: Mapping[str, str], used: Collection[str] | None) -> dict[str, str]:
    """Return column → type, of the used columns that releases can use; None for all."""
    return {
        column: kind
        for column, kind in kinds.items()
        if (used is None or column in used) and column_type(kind) is not None
    }


def read_expressions(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return column → SQL that reads it."""
    return {column: read_expression(quoted(column), kind) for column, kind in kinds.items()}


def arrow_expressions(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return column → SQL that reads it from Arrow rows with timestamps in range."""
    times = {column: quoted(column) for column, kind in kinds.items() if read_as(kind) in TIMES}
    return {**read_expressions(kinds), **times}


def select_from(rows: str, columns: Mapping[str, str]) -> str:
    """Return the SQL of columns of some rows, name → SQL."""
    plain = all(sql == quoted(column) for column, sql in columns.items())
    return rows if plain else f"(SELECT {select_list(columns)} FROM {rows})"


def file_list(paths: Sequence[str]) -> str:
    """Return the SQL of a list of files; their names are not patterns."""
    return "[" + ", ".join(literal(glob.escape(path)) for path in paths) + "]"

"""The SQL of columns: names, texts, keys and numbers."""

from __future__ import annotations

from dpgrain.tables.engines.column_types import INTEGERS, LONGEST_LABEL, TEXT, is_number


def quoted(identifier: str) -> str:
    """Return an SQL identifier."""
    return '"' + identifier.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return an SQL string."""
    return "'" + value.replace("'", "''") + "'"


def key(column: str, kind: str, *, of: str = "") -> str:
    """Return the SQL of a column used as a key: integers stay integers, all else is a label.

    Args:
        column: the column.
        kind: the column's type.
        of: the query's name for the table, where it must be said.
    """
    named = f"{of}.{quoted(column)}" if of else quoted(column)
    return label(named) if kind == TEXT else held_key(column, kind, of=of)


def held_key(column: str, kind: str, *, of: str = "") -> str:
    """Return the SQL of a column used as a key, in rows of which :func:`holds` says that they have it.

    To compare a length costs less than to choose between a text and a null.
    """
    named = f"{of}.{quoted(column)}" if of else quoted(column)
    return f"CAST({named} AS {'BIGINT' if kind in INTEGERS else 'VARCHAR'})"


def holds(column: str, kind: str) -> str:
    """Return the SQL condition that a row has a key in a column."""
    if kind == TEXT:
        return f"strlen({quoted(column)}) <= {LONGEST_LABEL}"
    return f"{key(column, kind)} IS NOT NULL"


def label(sql: str) -> str:
    """Return the SQL of a text; null where it is longer than labels may be."""
    return f"CASE WHEN strlen({sql}) <= {LONGEST_LABEL} THEN {sql} END"


def number(column: str) -> str:
    """Return the SQL of a column of numbers; what is not a number is null."""
    return f"TRY_CAST({quoted(column)} AS DOUBLE)"


def tried(column: str, kind: str, decimal: str = ".") -> str:
    """Return the SQL of a column of text as another type; what does not fit is a null.

    DuckDB may move a plain cast of a column into the reader of a file, which then drops whole rows that
    do not fit; an expression stays where it is.
    """
    written = f"concat({label(quoted(column))}, '')"
    if decimal == "," and is_number(kind):
        # Points change places with commas, so that 1.5 is no number where a comma is asked for.
        written = f"translate({written}, '.,', ',.')"
    return f"TRY_CAST({written} AS {kind})"

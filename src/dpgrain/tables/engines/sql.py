"""The SQL of columns: names, texts, keys, numbers, and the types that tell which a column may be."""

from __future__ import annotations

#: Values of these types are keys as they are; all other keys are text.
INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
#: Numbers of these types are whole.
WHOLE = INTEGERS | {"UBIGINT", "HUGEINT", "UHUGEINT"}
_NUMBERS = WHOLE | {"FLOAT", "DOUBLE"}


def is_number(kind: str) -> bool:
    """Return whether a DuckDB type is one of numbers."""
    return kind in _NUMBERS or kind.startswith("DECIMAL")


def quoted(identifier: str) -> str:
    """Return an SQL identifier."""
    return '"' + identifier.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return an SQL string."""
    return "'" + value.replace("'", "''") + "'"


def key(column: str, kind: str, *, of: str = "") -> str:
    """Return the SQL of a column used as a key: integers stay integers, all else is text.

    Args:
        column: the column.
        kind: the column's type.
        of: the query's name for the table, where it must be said.
    """
    named = f"{of}.{quoted(column)}" if of else quoted(column)
    return f"CAST({named} AS {'BIGINT' if kind in INTEGERS else 'VARCHAR'})"


def number(column: str) -> str:
    """Return the SQL of a column of numbers; what is not a number is null."""
    return f"TRY_CAST({quoted(column)} AS DOUBLE)"


def tried(column: str, kind: str, decimal: str = ".") -> str:
    """Return the SQL of a column of text as another type; what does not fit is a null.

    DuckDB may move a plain cast of a column into the reader of a file, which then drops whole rows that
    do not fit; an expression stays where it is.
    """
    written = f"concat({quoted(column)}, '')"
    if decimal == "," and is_number(kind):
        # Points change places with commas, so that 1.5 is no number where a comma is asked for.
        written = f"translate({written}, '.,', ',.')"
    return f"TRY_CAST({written} AS {kind})"

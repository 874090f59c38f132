"""Column names that queries can use, and hints for missing ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpgrain._formatting import COLUMN_LETTERS, first_duplicate, shorten, suggest_columns
from dpgrain.errors import SchemaError

# Delimiters other than the comma, to suggest for a header with one column.
_MARKS = (";", "\t", "|")
#: Words about a header that another delimiter splits.
LOOKS_LIKE_SEVERAL = "looks like several"


def require_names(names: Iterable[str], source: str) -> None:
    """Raise SchemaError for empty column names, or names that differ only in case."""
    names = list(names)
    nameless = next((name for name in names if not name or "\0" in name), None)
    if nameless is not None:
        raise SchemaError(
            f"{source} has the column name {nameless!r}, which queries cannot use; rename it."
        )
    twice = first_duplicate(name.casefold() for name in names)
    if twice is not None:
        alike = [name for name in names if name.casefold() == twice]
        other = (
            "twice"
            if alike[0] == alike[1]
            else f"and {alike[1]!r}, which queries treat as the same"
        )
        raise SchemaError(f"{source} has the column {alike[0]!r} {other}; rename one of them.")


def column_hint(column: str, names: Sequence[str]) -> str:
    """Return a hint about a missing column: similar names, or the delimiter to pass."""
    if len(names) == 1 and (remedy := delimiter_hint(names[0])):
        return (
            f"its one column {shorten(names[0], COLUMN_LETTERS)!r} {LOOKS_LIKE_SEVERAL}: {remedy}"
        )
    return suggest_columns(column, names)


def delimiter_hint(header: str) -> str:
    """Return the delimiter to pass if one name looks like several; else an empty text."""
    mark = next((mark for mark in _MARKS if mark in header), None)
    return "" if mark is None else f"pass delimiter={mark!r} in dg.read or --delimiter {mark!r}"

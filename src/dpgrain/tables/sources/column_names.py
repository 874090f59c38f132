"""Column names that queries can use, and hints for missing ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpgrain._wording import COLUMN_LETTERS, first_repeated, named_like, shorten
from dpgrain.errors import SchemaError

# Marks between columns in the header of a CSV file, where it is no comma.
_MARKS = (";", "\t", "|")


def require_names(names: Iterable[str], source: str) -> None:
    """Raise unless all column names differ in a query, where capital letters count as small ones.

    Raises:
        SchemaError: if two have one name, or one has none that a query can state.
    """
    names = list(names)
    nameless = next((name for name in names if not name or "\0" in name), None)
    if nameless is not None:
        raise SchemaError(
            f"{source} has the column name {nameless!r}, which queries cannot use; rename it."
        )
    twice = first_repeated(name.casefold() for name in names)
    if twice is not None:
        alike = [name for name in names if name.casefold() == twice]
        other = (
            "twice"
            if alike[0] == alike[1]
            else f"and {alike[1]!r}, which queries treat as the same"
        )
        raise SchemaError(f"{source} has the column {alike[0]!r} {other}; rename one of them.")


def column_hint(column: str, names: Sequence[str]) -> str:
    """Say which columns there are in place of one that is missing, or that one looks like several.

    >>> column_hint("paid", ["who;paid"])
    "its one column 'who;paid' looks like several: pass delimiter=';' in dg.read or --delimiter ';'"
    """
    if len(names) == 1 and (remedy := delimiter_hint(names[0])):
        return f"its one column {shorten(names[0], COLUMN_LETTERS)!r} looks like several: {remedy}"
    return named_like(column, names)


def delimiter_hint(header: str) -> str:
    """Say which delimiter to state where a header of one column looks like several; else nothing."""
    mark = next((mark for mark in _MARKS if mark in header), None)
    return "" if mark is None else (f"pass delimiter={mark!r} in dg.read or --delimiter {mark!r}")

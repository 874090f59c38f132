"""Conditions of a region that PostgreSQL decides exactly as DuckDB does, by its own comparisons.

Each constant has the type of its column, so that no value is cast and no comparison can fail:

- Integers are compared as integers; ends beyond the type of the column are replaced by its ends.
- Texts are equal if their bytes are (``COLLATE "C"``), as in DuckDB.
- Dates and timestamps are integers on both servers, days or microseconds. A constant has four
  digits of a year, and ``+00`` if the column has a zone, so that no setting of the session changes
  it. Infinite values, and those that DuckDB cannot represent, are missing.

All other conditions are left to the reader: floating point, whose NaN is equal to itself there, has
no regions, and numeric, padded text, UUID and ENUM would need a cast.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dpgrain.scope.regions import DAY, LabelSet, Side, Span
from dpgrain.tables.engines.sql import literal, quoted
from dpgrain.tables.sources.column_types import LONGEST_LABEL

# Integer types on the server: the smallest number above.
_INTEGERS = {"smallint": 1 << 15, "integer": 1 << 31, "bigint": 1 << 63}
_TEXTS = ("text", "character varying")
# DuckDB's range ends earlier than the server's, because it begins at 1970, not at 2000.
_FIRST_UNREADABLE = "294247-01-01 00:00:00"
#: Types of dates and timestamps on the server: the first value above all readable ones.
UNREADABLE = {
    "date": "infinity",
    "timestamp without time zone": _FIRST_UNREADABLE,
    "timestamp with time zone": f"{_FIRST_UNREADABLE}+00",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def server_condition(side: Side, kind: str) -> str | None:
    """Return the SQL that a server's value is in a side; None if it must not decide."""
    column, values = quoted(side.column), side.values
    missing = f"{column} IS NULL"
    if values == LabelSet():
        inside: str | None = "false"
    elif kind in _INTEGERS and values.axis == "whole":
        inside = _integers(column, values, _INTEGERS[kind])
    elif isinstance(values, LabelSet):
        inside = _labels(column, values, kind)
    else:
        inside = _times(column, values, kind)
    if side.missing:
        if kind in UNREADABLE:
            missing += f" OR {column} >= '{UNREADABLE[kind]}' OR {column} <= '-infinity'"
        elif kind not in (*_INTEGERS, "boolean"):
            # Long texts are missing as well.
            return None
    return inside and f"({inside}{f' OR {missing}' if side.missing else ''})"


def _integers(column: str, values: Span | LabelSet, limit: int) -> str | None:
    if isinstance(values, LabelSet):
        labels = [n for n in values.labels if isinstance(n, int) and -limit <= n < limit]
        listed = ", ".join(f"'{n}'" for n in labels)
        return None if values.but else f"{column} IN ({listed})" if listed else "false"
    low = -limit if values.low is None else max(values.low, -limit)
    last = limit - 1 if values.high is None else min(values.high, limit) - 1
    return f"{column} BETWEEN '{low}' AND '{last}'" if low <= last else "false"


def _labels(column: str, values: LabelSet, kind: str) -> str | None:
    """Return the condition of texts and booleans; null characters are in no table."""
    if values.but or kind not in (*_TEXTS, "boolean"):
        return None
    labels = [str(label) for label in values.labels]
    if kind == "boolean":
        labels = [label for label in labels if label in ("true", "false")]
    labels = [each for each in labels if "\0" not in each and len(each.encode()) <= LONGEST_LABEL]
    compared = column if kind == "boolean" else f'{column} COLLATE "C"'
    return f"{compared} IN ({', '.join(map(literal, labels))})" if labels else "false"


def _times(column: str, values: Span, kind: str) -> str | None:
    """Return the condition of an interval of dates or timestamps in the years 1 to 9999."""
    if kind not in UNREADABLE or values.axis == "whole":
        return None
    try:
        ends = [None if end is None else _text(end, kind) for end in (values.low, values.high)]
    except OverflowError:
        return None
    low, high = ends
    above = f"{column} > '-infinity'" if low is None else f"{column} >= '{low}'"
    return f"{above} AND {column} < '{high or UNREADABLE[kind]}'"


def _text(end: int, kind: str) -> str:
    """Return the text of a day, rounded up, or of microseconds since 1970."""
    if kind == "date":
        return (_EPOCH + timedelta(days=-(-end // DAY))).date().isoformat()
    text = (_EPOCH + timedelta(microseconds=end)).replace(tzinfo=None).isoformat(" ")
    return f"{text}+00" if kind == "timestamp with time zone" else text

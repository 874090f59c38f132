"""Parsing of regions, such as a first and a last day, into a :class:`Region`.

Bounds are inclusive: ``("2026-01-01", "2026-01-31")`` contains the whole last day, and
``"2026-01"`` the whole month.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Protocol

import numpy as np

from dpgrain import _validate
from dpgrain.errors import CareWarning, ParameterError
from dpgrain.scope.regions import EVERYTHING, Axis, LabelSet, Region, Side, Span, microseconds
from dpgrain.scope.zones import midnight
from dpgrain.tables.sources.column_types import DAY, MOMENT, TEXT, TIMES, declaration, is_number

_MICROSECOND = timedelta(microseconds=1)
_PERIOD = re.compile(
    r"(?P<year>\d{4})(-(?P<month>\d\d)(-(?P<day>\d\d)"
    r"([T ](?P<hour>\d\d)(:(?P<minute>\d\d)(:(?P<second>\d\d)(\.(?P<fraction>\d{1,6}))?)?)?"
    r"(?P<zone>Z|[+-]\d\d:\d\d)?)?)?)?"
)


# Format of text that may mean all days of a month, or all times of a day.
_MONTH_OR_DAY = re.compile(r"\d{4}-\d{2}(-\d{2})?")


class TableColumns(Protocol):
    """Columns of a table, with their types and rules for labels."""

    @property
    def schema(self) -> Mapping[str, str]:
        """Column name → DuckDB type."""

    @property
    def cells(self) -> Mapping[str, Any]:
        """Added columns of cells."""

    @property
    def derived(self) -> Mapping[str, Any]:
        """Columns derived by expressions."""

    @property
    def days(self) -> Mapping[str, Any]:
        """Added columns of dates."""

    def require(self, column: str, role: str) -> None:
        """Raise unless the table has the column."""

    def require_key(self, column: str, role: str) -> None:
        """Raise unless the column has a key type."""

    def is_integer(self, column: str) -> bool:
        """Return True if keys of this column are integers."""

    def read_as(self, column: str) -> str:
        """Return the type that a column is read as."""

    def label_value(self, label: Any, column: str, role: str) -> int | str:
        """Return the value of a column for a public label."""


def parse_region(table: TableColumns, stated: Mapping[str, Any]) -> Region:
    """Return the region of conditions on columns of a table."""
    if not stated:
        raise ParameterError(
            "where requires a column, such as where(day=('2026-01-01', '2026-01-31'))."
        )
    result = EVERYTHING
    for column, value in stated.items():
        side = _side(table, column, value)
        # Several columns may derive from one, such as dates from timestamps.
        result = intersect(result, Region((side,))) if side else Region((*result.sides, side))
    return result


def intersect(region: Region, more: Region) -> Region:
    """Return the intersection of two regions of one table; reject an empty one."""
    result = region.both(more) if region.comparable(more) else ()
    if len(result) != 1:
        raise ParameterError(
            f"the region is empty: no record can be in both {region} and {more}; pass a "
            "region that records can be in."
        )
    return result[0]


def _side(table: TableColumns, column: str, value: Any) -> Side:
    table.require(column, "where")
    if column in table.cells:
        raise ParameterError(
            f"where must use columns of the data, not the column of cells {column!r}; pass "
            f"the region of {table.cells[column].of!r}, from which it is derived."
        )
    if column in table.derived:
        raise ParameterError(
            f"where must use columns of the source, but {_validate.describe(column)} is computed "
            f"({table.derived[column].text}); pass the region of the original columns, or use "
            "filter(…)."
        )
    if column in table.days:
        return _date_side(table, column, value)
    stated, timed = _parts(value), table.schema[column] in (DAY, *TIMES)
    missing, parts = None in stated, [part for part in stated if part is not None]
    kind = table.read_as(column)
    if timed:
        ends = list(map(_interval, parts))
        return Side(column, _times(table.schema[column], column, ends), missing, kind)
    if is_number(table.schema[column]) or any(map(_is_dated, parts)):
        parts = list(map(_interval, parts))
    if any(isinstance(part, tuple) for part in parts):
        return Side(column, _numbers(table, column, parts), missing, kind)
    table.require_key(column, "where")
    labels = [table.label_value(part, column, "where contains") for part in parts]
    _warn_about_periods(column, labels)
    return Side(column, _contiguous(labels) or LabelSet(tuple(labels)), missing, kind)


def _warn_about_periods(column: str, labels: Sequence[int | str]) -> None:
    """Warn about a label that looks like a month or a date in a column of text."""
    for label in labels:
        if isinstance(label, str) and _MONTH_OR_DAY.fullmatch(label):
            warnings.warn(
                f"where uses {label!r} as text, which {column!r} must equal; if the column contains "
                f"dates or timestamps, declare its type, such as {declaration(column, 'DATE')}.",
                CareWarning,
                stacklevel=5,
            )


def _date_side(table: TableColumns, column: str, value: Any) -> Side:
    """Return the timestamps of dates, from first midnight to that after the last date."""
    stated, day = _parts(value), table.days[column]
    ends = [_interval(part) for part in stated if part is not None]
    days, kind = _times(DAY, column, ends), table.schema[day.of]
    values: Span | LabelSet = LabelSet()
    if isinstance(days, Span):
        low, high = (
            None if end is None else _midnight(end, column, day.zone)
            for end in (days.low, days.high)
        )
        first_and_last = ends[0] if isinstance(ends[0], tuple) else (ends[0], ends[0])
        values = _ordered(Span(_axis(kind), low, high), column, first_and_last)
    return Side(day.of, values, None in stated, table.read_as(day.of))


def _midnight(end: int, column: str, zone: str) -> int:
    """Return the start of the day at an end of an interval of dates."""
    result = midnight((datetime(1970, 1, 1) + timedelta(microseconds=end)).date(), zone)
    if result is None:
        raise ParameterError(f"where must use dates of {column!r} in the years 2 to 9998.")
    return result


def _axis(kind: str) -> Axis:
    """Return the axis of a type of dates or timestamps."""
    return "date" if kind == DAY else "instant" if kind == MOMENT else "time"


def _parts(value: Any) -> list[Any]:
    """Return the allowed values of a column, one or several."""
    if isinstance(value, str | bytes | tuple | date) or not hasattr(value, "__iter__"):
        return [value]
    parts = np.atleast_1d(value).tolist() if isinstance(value, np.ndarray) else list(value)
    if not parts:
        raise ParameterError("the region is empty: where has an empty list; add a value.")
    return parts


def _interval(part: Any) -> Any:
    """Return the ends of an interval such as ``"1..3"``; anything else unchanged."""
    if not isinstance(part, str) or ".." not in part:
        return part
    first, _, last = part.partition("..")
    return first.strip() or None, last.strip() or None


def _is_dated(part: Any) -> bool:
    """Return True for an interval of dates, which only columns of dates support."""
    ends = _interval(part)
    return isinstance(ends, tuple) and any(
        isinstance(end, date | np.datetime64) or ("-" in str(end) and _PERIOD.fullmatch(str(end)))
        for end in ends
    )


def _contiguous(labels: Sequence[int | str]) -> Span | None:
    """Return the interval of consecutive integers; None for other labels."""
    numbers = sorted({label for label in labels if isinstance(label, int)})
    if len(numbers) < len(set(labels)) or not numbers:
        return None
    low, high = numbers[0], numbers[-1] + 1
    return Span("whole", low, high) if high - low == len(numbers) else None


def _ends(column: str, parts: Sequence[Any]) -> tuple[Any, Any]:
    """Return the first and the last value of the only interval."""
    if len(parts) != 1:
        raise ParameterError(
            f"where must have one interval of {column!r}, not a list of {len(parts)}; for the days "
            "between two dates write 'FIRST..LAST', otherwise publish a release for each."
        )
    ends = parts[0] if isinstance(parts[0], tuple) else (parts[0], parts[0])
    if len(ends) != 2 or ends == (None, None):
        raise ParameterError(
            f"where must have the first and the last value of {column!r}, one of them None if "
            f"unbounded, not {_validate.describe(ends)}."
        )
    return ends


def _numbers(table: TableColumns, column: str, parts: Sequence[Any]) -> Span:
    """Return an interval of integers, which includes both ends."""
    first, last = _ends(column, parts)
    if not table.is_integer(column):
        typed = declaration(column, "DATE" if _is_dated((first, last)) else "BIGINT")
        is_text = table.schema[column] == TEXT
        remedy = f"declare its type, such as {typed}, or list its values"
        raise ParameterError(
            f"where must not have an interval of {column!r} ({table.schema[column]}), because only "
            "integers, dates and timestamps have intervals; "
            f"{remedy if is_text else 'use filter(…) or --filter'}."
        )
    low, high = (
        None if end is None else table.label_value(end, column, "where contains")
        for end in (first, last)
    )
    assert not isinstance(low, str)  # noqa: S101 - keys of a column of integers are integers
    assert not isinstance(high, str)  # noqa: S101
    return _ordered(Span("whole", low, None if high is None else high + 1), column, (first, last))


def _times(kind: str, column: str, parts: Sequence[Any]) -> Span | LabelSet:
    """Return an interval of timestamps, which includes all of the last period."""
    if not parts:
        return LabelSet()
    first, last = _ends(column, parts)
    low = None if first is None else _period(first, kind, column)[0]
    high = None if last is None else _period(last, kind, column)[1]
    ends = [None if end is None else microseconds(end) for end in (low, high)]
    return _ordered(Span(_axis(kind), *ends), column, (first, last))


def _ordered(span: Span, column: str, ends: tuple[Any, Any]) -> Span:
    if not span:
        raise ParameterError(
            f"the region is empty: {column!r} begins at {ends[0]!s} and ends at "
            f"{ends[1]!s}; pass the smaller value first."
        )
    return span


def _period(stated: Any, kind: str, column: str) -> tuple[datetime, datetime]:
    """Return the start of a day, month or timestamp, and the start of the next one."""
    begin, end = _text_period(stated) if isinstance(stated, str) else _date_period(stated)
    if begin is None or end is None:
        raise ParameterError(
            f"where must use dates or timestamps for {column!r}, such as '2026-01-31', "
            f"'2026-01' or '2026-01-31T12:00', not {_validate.describe(stated)}; the format in "
            "dates= is only for values of the table."
        )
    if begin.tzinfo is not None and kind != MOMENT:
        raise ParameterError(
            f"where has {stated!s} with a time zone, but {column!r} has none; omit the zone."
        )
    if kind == DAY and begin.timetz().replace(tzinfo=None) != datetime.min.time():
        raise ParameterError(f"where must use whole dates for {column!r}, not {stated!s}.")
    return begin, end


def _date_period(stated: Any) -> tuple[datetime | None, datetime | None]:
    """Return the ends of a date or timestamp object of Python or NumPy."""
    if isinstance(stated, np.datetime64):
        return _text_period(str(stated))
    if isinstance(stated, datetime):
        return stated, stated + _MICROSECOND
    if isinstance(stated, date):
        return _text_period(stated.isoformat())
    return None, None


def _text_period(stated: str) -> tuple[datetime | None, datetime | None]:
    """Return the ends of the period of a text: a year, …, a second."""
    match = _PERIOD.fullmatch(stated.strip())
    if match is None:
        return None, None
    result = match.groupdict()
    whole = [result[name] or least for name, least in zip(_UNITS, _LEAST, strict=True)]
    fraction, zone = (result["fraction"] or "").ljust(6, "0"), result["zone"] or ""
    try:
        begin = datetime.fromisoformat(
            f"{'-'.join(whole[:3])}T{':'.join(whole[3:])}.{fraction}{zone}"
        )
        return begin, _next(begin, result)
    except (ValueError, OverflowError):
        return None, None


_UNITS = ("year", "month", "day", "hour", "minute", "second")
_LEAST = ("01", "01", "01", "00", "00", "00")


def _next(begin: datetime, fields: Mapping[str, str | None]) -> datetime:
    """Return the start of the next period of the smallest stated unit."""
    if fields["fraction"]:
        return begin + timedelta(microseconds=10 ** (6 - len(fields["fraction"])))
    unit = next(name for name in reversed(_UNITS) if fields[name])
    if unit == "year":
        return begin.replace(year=begin.year + 1)
    if unit == "month":
        return begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return begin + timedelta(**{f"{unit}s": 1})

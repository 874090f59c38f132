"""Days in time zones: the start of a day, and the offsets of clocks from UTC.

All of it comes from :mod:`zoneinfo`, so that engines and ledgers use the same days.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dpgrain import _validate
from dpgrain.scope.regions import microseconds

# First year with an offset of any zone; first year under a permanent rule; and the year when the
# rule repeats with the calendar, 400 years later.
_FIRST, _RULE, _AGAIN = 1800, 2200, 2600
# Steps between two readings of an offset, with at most one change each; longer under the permanent
# rule, with at most two changes a year, weeks apart.
_STATED, _RULED = timedelta(days=1), timedelta(days=7)


def check_zone(zone: str) -> str:
    """Return the name of a known zone."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise _validate.error_about(
            "zone", f"must be a zone such as 'Europe/Paris', not {_validate.describe(zone)}."
        ) from error
    return zone


def midnight(day: date, zone: str) -> int | None:
    """Return a day's first midnight in μs since 1970; None outside supported years."""
    try:
        return microseconds(
            datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone) if zone else None)
        )
    except OverflowError:
        return None


@lru_cache(maxsize=32)
def offsets(zone: str) -> tuple[tuple[int, int], ...]:
    """Return the offsets of a zone from UTC until 2600: (start, offset) in microseconds."""
    clocks = ZoneInfo(zone)
    time, offset = datetime(_FIRST, 1, 1, tzinfo=UTC), timedelta()
    result: list[tuple[int, int]] = []
    while time.year < _AGAIN:
        step = _STATED if time.year < _RULE + 1 else _RULED
        now = _offset(time, clocks)
        if not result or now != offset:
            begin = _change(time - step, time, clocks) if result else time
            result.append((microseconds(begin), now // timedelta(microseconds=1)))
            offset = now
        time += step
    return tuple(result)


#: Start of the permanent rule, in microseconds since 1970, and its period.
RULE_BEGINS = microseconds(datetime(_RULE, 1, 1))
RULE_LASTS = microseconds(datetime(_AGAIN, 1, 1)) - RULE_BEGINS


def _change(before: datetime, after: datetime, clocks: ZoneInfo) -> datetime:
    """Return the first time with the later offset, between two times around one change."""
    new = _offset(after, clocks)
    while after - before > timedelta(microseconds=1):
        middle = before + (after - before) // 2
        before, after = (before, middle) if _offset(middle, clocks) == new else (middle, after)
    return after


def _offset(time: datetime, clocks: ZoneInfo) -> timedelta:
    return time.astimezone(clocks).utcoffset() or timedelta()

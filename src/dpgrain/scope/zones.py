"""Days in time zones: when a day begins, and by how much clocks differ from UTC, as facts.

All of it is what :mod:`zoneinfo` says, so that a day that an engine finds and a day that a ledger
charges are one.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dpgrain import _validate
from dpgrain.scope.regions import microseconds

# Year before which no zone was stated; year from which on clocks follow a rule for all years; and
# the year in which that rule comes again with the calendar, 400 years later.
_FIRST, _RULE, _AGAIN = 1800, 2200, 2600
# Time between two looks at clocks, in which they change once at most; and the same under a rule,
# where they change at most twice in a year, weeks apart.
_STATED, _RULED = timedelta(days=1), timedelta(days=7)


def check_zone(zone: str, *, name: str = "zone") -> str:
    """Return the name of a known zone.

    >>> check_zone("Europe/Paris")
    'Europe/Paris'
    """
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise _validate.error_about(
            name, f"must be a zone such as 'Europe/Paris', not {_validate.describe(zone)}."
        ) from error
    return zone


def midnight(day: date, zone: str) -> int | None:
    """Return when a day begins: the first time that clocks show its midnight, or would have.

    >>> midnight(date(2026, 3, 30), "Europe/Paris") - midnight(date(2026, 3, 29), "Europe/Paris")
    82800000000
    """
    try:
        return microseconds(
            datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone) if zone else None)
        )
    except OverflowError:
        return None


@lru_cache(maxsize=32)
def offsets(zone: str) -> tuple[tuple[int, int], ...]:
    """Return by how much clocks are ahead of UTC, and from when on, until the year 2600."""
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


#: The microseconds since 1970 from which clocks follow a rule, and after which it comes again.
RULE_BEGINS = microseconds(datetime(_RULE, 1, 1))
RULE_LASTS = microseconds(datetime(_AGAIN, 1, 1)) - RULE_BEGINS


def _change(before: datetime, after: datetime, clocks: ZoneInfo) -> datetime:
    """Return the first moment with the offset of the second of two, between which clocks change."""
    new = _offset(after, clocks)
    while after - before > timedelta(microseconds=1):
        middle = before + (after - before) // 2
        before, after = (before, middle) if _offset(middle, clocks) == new else (middle, after)
    return after


def _offset(time: datetime, clocks: ZoneInfo) -> timedelta:
    return time.astimezone(clocks).utcoffset() or timedelta()

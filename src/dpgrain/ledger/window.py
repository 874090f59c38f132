"""Time windows of a promise: a person's records within any window of some length are one unit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain.scope.partitions import Rule, clock_days
from dpgrain.scope.regions import Side, Span
from dpgrain.scope.zones import check_zone, midnight

_EPOCH = date(1970, 1, 1).toordinal()
# Microseconds of an hour.
_HOUR = 3600 * 10**6


#: Selection of the windows that overlap an interval: all, those that contain it, or the others.
Meeting: TypeAlias = Literal["any", "whole", "parts"]


class TimeWindow:
    """Windows of one length in a column of times; each is identified by its start."""

    column: str

    @property
    def rule(self) -> Rule:
        """Partition rule with these windows, for pricing releases."""
        raise NotImplementedError

    def starts(self, span: Span) -> tuple[int | None, int | None]:
        """Return the first start of windows that overlap an interval, and the end of the starts."""
        raise NotImplementedError

    def meetings(self, side: Side | None) -> tuple[Meeting, ...]:
        """Return the selections of windows that pay different prices for a side of the column."""
        raise NotImplementedError

    def window_starts(self, meeting: Meeting, span: Span) -> list[tuple[int | None, int | None]]:
        """Return the starts of the selected windows that overlap an interval, as intervals."""
        raise NotImplementedError

    def records(self, starts: Span) -> Span:
        """Return the interval of the first window of a range of starts, otherwise of the last."""
        raise NotImplementedError

    @staticmethod
    def from_dict(values: Any) -> TimeWindow:
        """Read a window from JSON values."""
        hours = isinstance(values, dict) and "hours" in values
        return _validate.read_fields(AnyHours if hours else AnyDays, values, "a window")


@dataclass(frozen=True)
class AnyDays(TimeWindow):
    """Any window of consecutive days: the promise covers a person's records in each such window.

    Args:
        days: the number of days, w.
        column: the column of days: timestamps, dates, or integers that count days.
        zone: the time zone for days of timestamps, such as ``"Europe/Paris"``; by default UTC.

    A window is identified by its first day. A release on the days a to b affects the windows that
    start on a−w+1 to b, and each start has an account. Records without a day are in no window:
    records with a missing day, before all days and after all days are three separate units, which
    share an account. Source: docs/theory, "Ledgers".

    Raises:
        ParameterError: if ``days`` is not an integer of at least 1, or ``zone`` is unknown.

    >>> AnyDays(30, "day").starts(Span("whole", 100, 101))
    (71, 101)
    """

    days: int
    column: str
    zone: str = ""

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        _validate.integer(minimum=1, days=self.days)
        check_zone(self.zone or "UTC")

    @property
    def rule(self) -> Rule:
        """Partition rule with these windows, for pricing releases."""
        return Rule(self.column, "any", days=self.days, zone=self.zone)

    def meetings(self, side: Side | None) -> tuple[Meeting, ...]:  # noqa: ARG002
        """Return one selection: windows contain whole days, and releases are charged by the day."""
        return ("any",)

    def window_starts(self, meeting: Meeting, span: Span) -> list[tuple[int | None, int | None]]:  # noqa: ARG002
        """Return the starts of windows that overlap some days."""
        return [self.starts(span)]

    def starts(self, span: Span) -> tuple[int | None, int | None]:
        """Return the first start of windows that overlap some days, and the end of the starts.

        Args:
            span: the interval of days, times or timestamps.

        Returns:
            Days counted from 1970, or as the column counts them; None for an open end.
        """
        if span.axis == "whole":
            first, end = span.low, span.high
        else:
            zone = (self.zone or "UTC") if span.axis == "instant" else ""
            days = clock_days(span, zone)
            first, last = (None if day is None else day.toordinal() - _EPOCH for day in days)
            end = None if last is None else last + 1
        return None if first is None else first - self.days + 1, end

    def records(self, starts: Span) -> Span:
        """Return the interval of the first window of a range of starts, otherwise of the last."""
        first = _any_start(starts)
        ends = None if first is None else (first, first + self.days)
        if ends is None or starts.axis == "whole":
            return Span(starts.axis, *(ends or ()))
        zone = (self.zone or "UTC") if starts.axis == "instant" else ""
        low, high = (midnight(date.fromordinal(end + _EPOCH), zone) for end in ends)
        return Span(starts.axis, low, high)

    def __str__(self) -> str:
        zone = f" ({self.zone})" if self.zone else ""
        return f"any {self.days} days in a row of {self.column!r}{zone}"


@dataclass(frozen=True)
class AnyHours(TimeWindow):
    """Any window of consecutive hours: the promise covers a person's records in each such window.

    Args:
        hours: the number of hours.
        column: the column of timestamps.

    A window is identified by the microsecond of its start, which has an account. It can overlap a
    released day in part: such windows are charged for parts of blocks, and windows that contain
    everything released for whole blocks. Records without a time are in no window; they are separate
    units. Source: docs/theory, "Ledgers".

    Raises:
        ParameterError: if ``hours`` is not an integer of at least 1.

    >>> hour = 3600 * 10**6
    >>> window, day = AnyHours(720, "at"), Span("time", 0, 24 * hour)
    >>> whole, parts = window.window_starts("whole", day), window.window_starts("parts", day)
    >>> whole == [(-696 * hour, 1)], parts == [(-720 * hour + 1, -696 * hour), (1, 24 * hour)]
    (True, True)
    """

    hours: int
    column: str

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        _validate.integer(minimum=1, hours=self.hours)

    @property
    def rule(self) -> Rule:
        """Partition rule with these windows, for pricing releases."""
        return Rule(self.column, "any", hours=self.hours)

    def starts(self, span: Span) -> tuple[int | None, int | None]:
        """Return the first start of windows that overlap an interval, and the end of the starts.

        Args:
            span: the interval of times, in microseconds.

        Returns:
            Microseconds since 1970; None for an open end. Columns with other units overlap all
            windows.
        """
        if span.axis == "whole":
            return None, None
        return None if span.low is None else span.low - self._length + 1, span.high

    def meetings(self, side: Side | None) -> tuple[Meeting, ...]:
        """Return the selections of windows that pay different prices for a side of the column."""
        values = None if side is None else side.values
        if side is None or side.missing or not isinstance(values, Span) or values.axis == "whole":
            return ("any",)
        if values.low is None or values.high is None or values.high - values.low > self._length:
            return ("any",)
        return ("whole", "parts")

    def window_starts(self, meeting: Meeting, span: Span) -> list[tuple[int | None, int | None]]:
        """Return the starts of the selected windows that overlap an interval, as intervals."""
        first, end = self.starts(span)
        if meeting == "any" or span.low is None or span.high is None:
            return [(first, end)]
        last_of_whole = span.low + 1
        first_of_whole = span.high - self._length
        if meeting == "whole":
            return [(first_of_whole, last_of_whole)]
        return [(first, first_of_whole), (last_of_whole, end)]

    def records(self, starts: Span) -> Span:
        """Return the interval of the first window of a range of starts, otherwise of the last."""
        first = _any_start(starts)
        return Span(starts.axis, *(() if first is None else (first, first + self._length)))

    @property
    def _length(self) -> int:
        return self.hours * _HOUR

    def __str__(self) -> str:
        return f"any {self.hours} hours in a row of {self.column!r}"


def _any_start(starts: Span) -> int | None:
    """Return the first start, otherwise the last; None if both ends are open."""
    return starts.low if starts.low is not None or starts.high is None else starts.high - 1

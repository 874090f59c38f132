"""Windows: the stretch of time of a person's records in one promise of a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain.scope.partitions import Rule, clock_days
from dpgrain.scope.regions import Side, Span
from dpgrain.scope.zones import check_zone, midnight

_EPOCH = date(1970, 1, 1).toordinal()
# The microseconds of an hour.
_HOUR = 3600 * 10**6


#: Which windows that meet an interval are meant: any, those that hold all of it, or those that do not.
Meeting: TypeAlias = Literal["any", "whole", "parts"]


class Window:
    """A stretch of time of one promise; each is known by its start."""

    column: str

    @property
    def rule(self) -> Rule:
        """The stretches as a rule, by which releases are priced for one of them."""
        raise NotImplementedError

    def starts(self, span: Span) -> tuple[int | None, int | None]:
        """Return the first start, and the one after the last, of windows that meet an interval."""
        raise NotImplementedError

    def meetings(self, side: Side | None) -> tuple[Meeting, ...]:
        """Return the kinds of windows that pay different prices for what a side of the column holds."""
        raise NotImplementedError

    def starts_that(self, meeting: Meeting, span: Span) -> list[tuple[int | None, int | None]]:
        """Return the starts of windows that meet an interval in one of these ways, as intervals."""
        raise NotImplementedError

    def records(self, starts: Span) -> Span:
        """Return what the first window of some starts holds, or the last one if there is no first."""
        raise NotImplementedError

    @staticmethod
    def from_dict(values: Any) -> Window:
        """Read a window from its fields in JSON.

        Raises:
            ParameterError: if a field is missing, unknown or wrong.
        """
        hours = isinstance(values, dict) and "hours" in values
        return _validate.read_fields(AnyHours if hours else AnyDays, values, "a window")


@dataclass(frozen=True)
class AnyDays(Window):
    """Any window of a stated number of days: a promise for what a person has in each such window.

    Args:
        days: the number of days, w.
        column: the column whose days are meant: times, or whole numbers that count days.
        zone: the zone in which days of moments begin, such as ``"Europe/Paris"``; by default UTC.

    A window is known by the day on which it starts. A release on the days a to b meets the windows
    that start on a−w+1 to b, so that each start has an account of its own. Records without a day lie
    in no window: those without a value, before all days and after all of them are three units of their
    own, which share an account. Source: docs/theory, "Ledgers".

    Raises:
        ParameterError: if the number is not a whole one of at least 1, or there is no such zone.

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
        """The stretches as a rule, by which releases are priced for one of them."""
        return Rule(self.column, "any", days=self.days, zone=self.zone)

    def meetings(self, side: Side | None) -> tuple[Meeting, ...]:  # noqa: ARG002
        """Return one kind: a window holds whole days, and a release by days is charged as such."""
        return ("any",)

    def starts_that(self, meeting: Meeting, span: Span) -> list[tuple[int | None, int | None]]:  # noqa: ARG002
        """Return the starts of windows that meet some days."""
        return [self.starts(span)]

    def starts(self, span: Span) -> tuple[int | None, int | None]:
        """Return the first start, and the one after the last, of windows that meet some days.

        Args:
            span: the interval of days, times or moments.

        Returns:
            Days counted from 1970, or as the column counts them; None where there is no end.
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
        """Return what the first window of some starts holds, or the last one if there is no first."""
        first = _one_of(starts)
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
class AnyHours(Window):
    """Any window of a stated number of hours: a promise for what a person has in each such window.

    Args:
        hours: the number of hours.
        column: the column of times that is meant.

    A window is known by the microsecond in which it starts, and has an account for it. It may hold a
    part of a day that is released: such windows pay for parts of blocks, and those that hold all of
    what is released for whole blocks. Records without a time lie in no window; they are units of their
    own. Source: docs/theory, "Ledgers".

    Raises:
        ParameterError: if the number is not a whole one of at least 1.

    >>> hour = 3600 * 10**6
    >>> window, day = AnyHours(720, "at"), Span("time", 0, 24 * hour)
    >>> whole, parts = window.starts_that("whole", day), window.starts_that("parts", day)
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
        """The stretches as a rule, by which releases are priced for one of them."""
        return Rule(self.column, "any", hours=self.hours)

    def starts(self, span: Span) -> tuple[int | None, int | None]:
        """Return the first start, and the one after the last, of windows that meet an interval.

        Args:
            span: the interval of times, in microseconds.

        Returns:
            Microseconds since 1970; None where there is no end. Numbers that count something else lie
            in any window.
        """
        if span.axis == "whole":
            return None, None
        return None if span.low is None else span.low - self._length + 1, span.high

    def meetings(self, side: Side | None) -> tuple[Meeting, ...]:
        """Return the kinds of windows that pay different prices for what a side of the column holds."""
        values = None if side is None else side.values
        if side is None or side.missing or not isinstance(values, Span) or values.axis == "whole":
            return ("any",)
        if values.low is None or values.high is None or values.high - values.low > self._length:
            return ("any",)
        return ("whole", "parts")

    def starts_that(self, meeting: Meeting, span: Span) -> list[tuple[int | None, int | None]]:
        """Return the starts of windows that meet an interval in one of these ways, as intervals."""
        first, end = self.starts(span)
        if meeting == "any" or span.low is None or span.high is None:
            return [(first, end)]
        last_of_whole = span.low + 1
        first_of_whole = span.high - self._length
        if meeting == "whole":
            return [(first_of_whole, last_of_whole)]
        return [(first, first_of_whole), (last_of_whole, end)]

    def records(self, starts: Span) -> Span:
        """Return what the first window of some starts holds, or the last one if there is no first."""
        first = _one_of(starts)
        return Span(starts.axis, *(() if first is None else (first, first + self._length)))

    @property
    def _length(self) -> int:
        return self.hours * _HOUR

    def __str__(self) -> str:
        return f"any {self.hours} hours in a row of {self.column!r}"


def _one_of(starts: Span) -> int | None:
    """Return the first start, or the last one; None where there is neither."""
    return starts.low if starts.low is not None or starts.high is None else starts.high - 1

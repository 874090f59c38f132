"""Windows: the stretch of time of a person's records that one promise of a ledger is about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from dpgrain import _fields, _validate
from dpgrain.partitions import shown_days
from dpgrain.regions import Span
from dpgrain.zones import check_zone

_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class AnyDays:
    """Any so many days in a row: a promise holds for what a person has in each such window.

    Args:
        days: the number of days, w.
        column: the column whose days are meant: times, or whole numbers that count days.
        zone: the zone in which days of moments begin, such as ``"Europe/Paris"``; by default UTC.

    A window is known by the day on which it starts. A release on the days a to b meets the windows
    that start on a−w+1 to b, so that each start has an account of its own. Records without a day lie
    in no window: those without a value, before all days and after all of them are three units of their
    own, which share an account. Source: docs/theory.md, "Ledgers".

    Raises:
        ParameterError: if the number is not a whole one of at least 1, or there is no such zone.

    >>> AnyDays(30, "day").starts(Span("whole", 100, 101))
    (71, 101)
    """

    days: int
    column: str
    zone: str = ""

    def __post_init__(self) -> None:
        _fields.check(self)
        _validate.integer(minimum=1, days=self.days)
        check_zone(self.zone or "UTC")

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
            days = shown_days(span, zone)
            first, last = (None if day is None else day.toordinal() - _EPOCH for day in days)
            end = None if last is None else last + 1
        return None if first is None else first - self.days + 1, end

    def __str__(self) -> str:
        zone = f" ({self.zone})" if self.zone else ""
        return f"any {self.days} days in a row of {self.column!r}{zone}"

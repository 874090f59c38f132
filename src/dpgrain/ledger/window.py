"""Windows: the stretch of time of a person's records that one promise of a ledger is about."""

from __future__ import annotations

from dataclasses import dataclass

from dpgrain import _fields, _validate


@dataclass(frozen=True)
class AnyDays:
    """Any so many days in a row: a promise holds for what a person has in each such window.

    Args:
        days: the number of days, w.
        column: the column whose days are meant.

    A window is known by the day on which it starts. A release on the days a to b meets the windows
    that start on a−w+1 to b, so that each start has an account of its own. Source: docs/theory.md,
    "Ledgers".

    Raises:
        ParameterError: if the number is not a whole one of at least 1.

    >>> AnyDays(30, "day").starts(100, 101)
    (71, 101)
    """

    days: int
    column: str

    def __post_init__(self) -> None:
        _fields.check(self)
        _validate.integer(minimum=1, days=self.days)

    def starts(self, first: int, end: int) -> tuple[int, int]:
        """Return the first start, and the one after the last, of windows that meet some days.

        Args:
            first: the first day, as a number.
            end: the day after the last.
        """
        return first - self.days + 1, end

    def __str__(self) -> str:
        return f"any {self.days} days in a row of {self.column!r}"

"""Recurrent releases: their cost to a returning person, and their errors.

A table grows by one period (a day, for example) at a time, and counts of it are published
repeatedly. The schedule of releases decides the cost to a person who returns k times; this plan
compares schedules before the first day.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain._formatting import powers, rounded_up
from dpgrain.accounting import gaussian_epsilon
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.errors import ParameterError
from dpgrain.planning.plan_tables import PlanTable, Section, planned_promise, three_digits
from dpgrain.publishing import Promise
from dpgrain.units import User
from dpgrain.words.notes import Note, note_text, note_texts

#: How people are counted: once per release, or once for each period with a visit.
Counting: TypeAlias = Literal["people", "visits"]
#: Protected data of a person: one period, a given number of consecutive periods, or all.
Promised: TypeAlias = Literal["period", "within", "person"]

_MOST_PERIODS = 10**6


@dataclass(frozen=True)
class ReleaseSchedule:
    """The cost and the error of one schedule of releases.

    Args:
        every: the number of periods of a window; each window is released once, with its own noise.
        running: True if every release covers all periods so far, counted again.
        promised: the protected data of one person.
        releases: the total number of releases.
        noise: the standard deviation of the noise of one release.
        total: the standard deviation of the summed noise of all windows; of the last release if
            each covers all periods so far.
        epsilon_of_period: ε for one person's data of one period.
        epsilon_of_person: ε for all data of a person with the stated number of returns.

    >>> plan = plan_recurrent(1.0, 1e-6, periods=28, returns=5, every=[1, 7])
    >>> daily, weekly = plan.schedules[:2]
    >>> weekly.name, weekly.releases, round(weekly.total / daily.total, 2)
    ('every 7 periods', 4, 0.38)
    """

    every: int
    running: bool
    promised: Promised
    releases: int
    noise: float
    total: float
    epsilon_of_period: float
    epsilon_of_person: float

    @property
    def name(self) -> str:
        """Description of the schedule."""
        if self.running:
            return f"running total, every {self.every:,}" if self.every > 1 else "running total"
        if self.releases == 1:
            return "once, at the end"
        return f"every {self.every:,} periods" if self.every > 1 else "every period"


@dataclass(frozen=True)
class RecurrentPlan(PlanTable):
    """Costs and errors of schedules of releases, for each possible protected unit.

    Args:
        title: a description of the releases, the promise and the person.
        epsilon: the promised ε.
        delta: the promised δ.
        returns: the number of periods with a visit of a person.
        periods: the number of periods.
        within: the number of consecutive periods of the sliding promise; None without one.
        schedules: the schedules, ordered by promise.
        savings: the returns from which windows need less noise, each a kind and its numbers.
        assumptions: the assumptions of the numbers, in the same form.

    >>> plan = plan_recurrent(1.0, 1e-6, periods=28, returns=5, every=[7])
    >>> plan.columns[1:]
    ('releases', 'noise sd', 'of total', 'ε, period', 'ε, person')
    >>> for heading, rows in plan.tables():
    ...     print(heading)
    ...     print(rows[0])
    Promised for one period of a person:
    ('every 7 periods', '4', '4.22', '8.45', '1', '2.13')
    Promised for a person who comes in at most 5 periods:
    ('every 7 periods', '4', '8.45', '16.9', '0.476', '1')
    """

    title: str
    epsilon: float
    delta: float
    returns: int
    periods: int
    within: int | None
    schedules: tuple[ReleaseSchedule, ...]
    savings: tuple[Note, ...] = ()
    assumptions: tuple[Note, ...] = ()

    columns = ("", "releases", "noise sd", "of total", "ε, period", "ε, person")

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on savings and on the assumptions of the numbers."""
        return (*filter(None, [" ".join(note_texts(self.savings))]), *super().notes)

    def tables(self) -> list[Section]:
        """Return a table for each promise, with its heading: a row of text per schedule."""
        numbers = {"within": self.within or 0, "person": self.returns}
        return [
            (note_text((promised, numbers.get(promised, 0))), [_row(each) for each in schedules])
            for promised, schedules in groupby(self.schedules, lambda each: each.promised)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {
            "plan": self.title,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "returns": self.returns,
            "periods": self.periods,
            "within": self.within,
            "schedules": [{"name": each.name, **asdict(each)} for each in self.schedules],
            "notes": list(self.notes),
        }


def plan_recurrent(
    epsilon: float,
    delta: float,
    *,
    periods: int,
    returns: int,
    every: Sequence[int] | None = None,
    counting: Counting = "people",
    within: int | None = None,
) -> RecurrentPlan:
    """Return the costs of releasing windows, or running totals, to a returning person.

    Args:
        epsilon: privacy parameter ε, such as 1; smaller protects more.
        delta: privacy parameter δ, such as 1e-6.
        periods: public number of periods, such as days.
        returns: number of periods in which a person has records. It is at most ``periods``.
        every: periods of a window; by default 1, 7 and all. Each has its own schedule.
        counting: whether a person counts once per release, or once per period of it.
        within: also plan a promise for every window of N periods.

    Raises:
        ParameterError: if a number is out of range.

    A window has its own noise and is released once; a running total is recounted over all periods
    so far, so each period is charged in every later release. Nothing is clipped: a person counts at
    most once per period. The noise is Gaussian, and the neighbour has the data removed.

    Formal guarantee: with noise of these sizes, releases are (ε, δ)-DP for a person's data of the
    promised type, if each person counts at most once per period, wherever the periods are. Source:
    docs/theory, "Releases that come back".

    >>> plan = plan_recurrent(1.0, 1e-6, periods=365, returns=30)
    >>> [(each.name, round(each.epsilon_of_person, 2)) for each in plan.schedules[:3]]
    [('every period', 6.58), ('every 7 periods', 6.58), ('once, at the end', 1.0)]
    """
    promise = planned_promise(User(), epsilon, delta, "zero_out")
    periods = _validate.integer(minimum=1, periods=periods)
    _at_most(_MOST_PERIODS, periods=periods)
    returns = _at_most(periods, returns=_validate.integer(minimum=1, returns=returns))
    _validate.one_of(("people", "visits"), counting=counting)
    if within is not None:
        within = _at_most(periods, within=_validate.integer(minimum=1, within=within))
    person = _Person(counting, periods, returns)
    stated = [1, min(7, periods), periods] if every is None else every
    lengths = sorted(set(_validate.integers(minimum=1, every=stated)))
    for length in lengths:
        _at_most(periods, every=length)
    units: dict[Promised, tuple[int, int]] = {"period": (1, 1)}
    if within is not None:
        units["within"] = (within, min(within, returns))
    units["person"] = (periods, returns)
    schedules = tuple(
        _schedule(person, length, running, promised, units, promise)
        for promised in units
        for length, running in [*((length, False) for length in lengths), (1, True)]
    )
    title = (
        f"Counts of {counting} over {periods:,} periods, a person comes in {returns:,} of them, "
        f"zero_out, ε = {epsilon:g}, δ = {powers(delta)}"
    )
    return RecurrentPlan(
        title,
        epsilon,
        delta,
        returns,
        periods,
        within,
        schedules,
        tuple(_savings(person, lengths, within)),
        (("schedule-columns",), (f"total-of-{counting}",), ("returns",)),
    )


def _schedule(
    person: _Person,
    every: int,
    running: bool,
    promised: Promised,
    units: dict[Promised, tuple[int, int]],
    promise: Promise,
) -> ReleaseSchedule:
    """Return a schedule with its cost and error; ``units`` are the span and the visits of each."""
    moved = {name: person.moved(every, running, *each) for name, each in units.items()}
    norm, mu = moved[promised], gaussian_mu(promise.epsilon, promise.delta)
    releases = -(-person.periods // every)
    return ReleaseSchedule(
        every,
        running,
        promised,
        releases,
        norm / mu,
        norm / mu * (1.0 if running else math.sqrt(releases)),
        gaussian_epsilon(promise.delta, mu * (moved["period"] / norm)),
        gaussian_epsilon(promise.delta, mu * (moved["person"] / norm)),
    )


def _savings(person: _Person, lengths: Sequence[int], within: int | None) -> Iterator[Note]:
    """Yield the number of returns from which windows need less noise."""
    for length in lengths:
        if person.counting == "visits" or length in (1, person.periods):
            continue
        for span in (person.periods, *([within] if within is not None else [])):
            least = next(
                (n for n in range(1, span + 1)
                 if person.moved(length, False, span, n) < person.moved(1, False, span, n)),
                None,
            )  # fmt: skip
            kind = f"saves-of-{'person' if span == person.periods else 'span'}"
            yield (kind if least else f"no-{kind}", length, span, least or 0)


@dataclass(frozen=True)
class _Person:
    """Largest l2 change of the released counts by one person's data."""

    counting: Counting
    periods: int
    returns: int

    def moved(self, every: int, running: bool, span: int, visits: int) -> float:
        """Return the norm for ``visits`` periods within a span of consecutive periods."""
        if running:
            return self._running(visits)
        if self.counting == "visits":
            return self._visits(every, visits)
        # A span that starts on the last period of a window overlaps the most windows.
        met = (span + every - 2) // every + 1
        return math.sqrt(min(visits, met, -(-self.periods // every)))

    def _visits(self, every: int, visits: int) -> float:
        """Return the norm if visits are in as few windows as possible."""
        full = visits // every
        rest = visits - full * every
        # The rest is in another whole window, or else in the last one, which is shorter.
        return math.sqrt(full * every**2 + rest**2)

    def _running(self, visits: int) -> float:
        """Return the norm if the data come first, so that all later releases include them."""
        if self.counting == "people":
            return math.sqrt(self.periods)
        growing = (visits - 1) * visits * (2 * visits - 1) // 6
        return math.sqrt(growing + (self.periods - visits + 1) * visits**2)


def _row(schedule: ReleaseSchedule) -> tuple[str, ...]:
    errors = (three_digits(schedule.noise), three_digits(schedule.total))
    costs = (rounded_up(schedule.epsilon_of_period, 3), rounded_up(schedule.epsilon_of_person, 3))
    return (schedule.name, f"{schedule.releases:,}", *errors, *costs)


def _at_most(most: int, **values: int) -> int:
    ((name, value),) = values.items()
    if value > most:
        raise ParameterError(f"{name} must be at most {most:,}, not {value:,}.", name=name)
    return value

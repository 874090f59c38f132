"""Nested partitions: a statement on any cell is true for all of them, day by day."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache, partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.ledger import AnyDays
from dpgrain.scope.partitions import Overlap, Partition, Rule, clock_days, period_of
from dpgrain.scope.regions import EVERYTHING, LabelSet, Region, Side, Span, days, microseconds

# Twenty-nine years contain every calendar: each weekday begins a leap year and a common one.
DAYS = [date(2000, 1, 1) + timedelta(days=i) for i in range(29 * 366)]
PERIODS = ("day", "week", "month", "year")
PARIS = ZoneInfo("Europe/Paris")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def whole(day: date, kind: str) -> date:
    return period_of(day, kind)[0]


@cache
def _of(kind: str) -> list[date]:
    return [whole(day, kind) for day in DAYS]


def measured(
    records: list[Any], own: Callable[[Any], Hashable], promised: Callable[[Any], Hashable]
) -> Overlap:
    """Overlaps of a protected partition's cells with another's, among all possible records."""
    met: Mapping[Hashable, set[Hashable]] = defaultdict(set)
    owner: Mapping[Hashable, set[Hashable]] = defaultdict(set)
    for record in records:
        met[promised(record)].add(own(record))
        owner[own(record)].add(promised(record))
    return Overlap(max(map(len, met.values())), all(len(cells) == 1 for cells in owner.values()))


def _cell(moment: datetime, zone: tzinfo, kind: str) -> date:
    return whole(moment.astimezone(zone).date(), kind)


@pytest.mark.parametrize("promised", PERIODS)
@pytest.mark.parametrize("own", PERIODS)
def test_periods_are_nested_by_the_calendar(own: str, promised: str) -> None:
    said = Rule("day", own).overlap(Rule("day", promised))  # type: ignore[arg-type]
    # The first and the last year may be cut.
    inside = DAYS[366:-366]
    assert said == measured(inside, lambda day: whole(day, own), lambda day: whole(day, promised))


@pytest.mark.parametrize("length", [1, 2, 6, 7, 8, 9, 28, 29, 30, 31, 60, 365, 366, 367])
@pytest.mark.parametrize("own", PERIODS)
def test_consecutive_days_meet_the_stated_number_of_periods(own: str, length: int) -> None:
    said = Rule("day", own).overlap(Rule("day", "any", days=length))  # type: ignore[arg-type]
    begins = (later != day for day, later in itertools.pairwise(_of(own)))
    of_day = list(itertools.accumulate(begins, initial=0))
    most = 1 + max(last - first for first, last in zip(of_day, of_day[length - 1 :], strict=False))
    assert said is not None
    assert said.whole == (own == "day")
    # Months count as the shortest of them, so that long stretches are rounded up.
    assert most <= said.cells <= most + (own == "month") * (1 + length // 100)


@pytest.mark.parametrize("hours", [1, 24, 25, 48, 49, 168, 169, 700])
@pytest.mark.parametrize("own", PERIODS)
def test_consecutive_hours_meet_no_more_periods_than_stated(own: str, hours: int) -> None:
    said = Rule("at", own).overlap(Rule("at", "any", hours=hours))  # type: ignore[arg-type]
    assert said is not None
    assert not said.whole
    # They are met from the last second of a day to a moment before the hours are over.
    most = 0
    for day in DAYS[: 2 * 366 : 3]:
        first = datetime(day.year, day.month, day.day, 23, 59, 59)
        last = (first + timedelta(hours=hours, microseconds=-1)).date()
        met = {whole(day + timedelta(days=i), own) for i in range((last - day).days + 1)}
        most = max(most, len(met))
    assert most <= said.cells <= most + 1 + hours // 700


@pytest.mark.slow
def test_days_of_another_zone_are_met_in_parts() -> None:
    """Hours of some years, with both changes of the clocks."""
    hours = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=i) for i in range(2 * 366 * 24)]
    for own, promised in [("day", "day"), ("day", "week"), ("week", "day"), ("month", "week")]:
        said = Rule("t", own, "UTC").overlap(Rule("t", promised, "Europe/Paris"))  # type: ignore[arg-type]
        found = measured(
            hours, partial(_cell, zone=UTC, kind=own), partial(_cell, zone=PARIS, kind=promised)
        )
        assert said is not None
        assert not said.whole
        assert found.cells <= said.cells


@pytest.mark.parametrize("own", [(5,), (2, 5, 9), (0, 3, 6), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("promised", [(5,), (2, 5, 9), (0, 3, 6), (1, 2, 3, 4, 5)])
def test_bins_are_nested(own: tuple[int, ...], promised: tuple[int, ...]) -> None:
    def bin_of(edges: tuple[int, ...]) -> Callable[[int], int]:
        return lambda value: sum(edge <= value for edge in edges)

    said = Rule("n", "bins", edges=own).overlap(Rule("n", "bins", edges=promised))
    assert said == measured(list(range(-5, 15)), bin_of(own), bin_of(promised))


@pytest.mark.parametrize("kind", PERIODS)
@pytest.mark.parametrize("zone", ["", "UTC", "Europe/Paris"])
def test_cells_of_a_region_are_counted_and_rounded_out(kind: str, zone: str) -> None:
    rule = Rule("t", kind, zone)  # type: ignore[arg-type]
    clock = ZoneInfo(zone) if zone else None
    for first, hours in [(0, 1), (5, 24), (24 * 88, 24), (24 * 90, 24 * 400), (24 * 300 + 23, 25)]:
        low = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=first)
        inside = [low + timedelta(minutes=30 * i) for i in range(2 * hours)]

        def cell(moment: datetime) -> date:
            local = moment.astimezone(clock) if clock else moment
            return whole(local.date(), kind)

        axis: Any = "instant" if zone else ("time", "date")[hours % 24 == 0 == first % 24]
        span = Span(axis, microseconds(low), microseconds(low) + hours * 3600 * 10**6)
        region = Region((Side("t", span),))
        assert Partition((rule,)).cells_in(region) == len(set(map(cell, inside)))
        (side,) = Partition((rule,)).whole_cells(region).sides
        assert isinstance(side.values, Span)
        assert side.values.minus(span) or side.values == span
        assert not span.minus(side.values)
        for end in (side.values.low, side.values.high):
            # A cell begins at each end.
            before, begun = (_EPOCH + timedelta(microseconds=(end or 0) + by) for by in (-1, 0))
            assert cell(before) != cell(begun)
        assert Partition((rule,)).cells_in(Region((side,))) == len(set(map(cell, inside)))
        # Times of another type are incomparable.
        other: Any = "time" if zone else "instant"
        wrong = Region((Side("t", Span(other, span.low, span.high)),))
        assert Partition((rule,)).cells_in(wrong) is None
        assert Partition((rule,)).whole_cells(wrong) == EVERYTHING


JANUARY = Region((Side("day", days("2026-01-01", "2026-01-31")),))
SUNDAY = Region((Side("day", days("2026-01-04", "2026-01-04")),))
TOPICS = Region((Side("topic", LabelSet(("a", "b", "c"))),))


@pytest.mark.parametrize(
    ("own", "promised", "region", "expected"),
    [
        # Another column divides cells, or unites them, which a region must bound.
        ([("day", "day")], [("day", "day"), ("topic", "label")], EVERYTHING, Overlap(1, False)),
        ([("day", "day"), ("topic", "label")], [("day", "day")], EVERYTHING, None),
        ([("day", "day"), ("topic", "label")], [("day", "day")], TOPICS, Overlap(3)),
        ([("day", "day"), ("topic", "label")], [("day", "week")], TOPICS, Overlap(21)),
        ([("topic", "label")], [("day", "day")], EVERYTHING, None),
        # A region of a single day is within one protected cell.
        ([("topic", "label")], [("day", "day")], Region((*SUNDAY.sides, *TOPICS.sides)), Overlap(3)),
        ([("day", "week")], [("day", "day")], JANUARY, Overlap(1, False)),
        ([("day", "week")], [("day", "day")], SUNDAY, Overlap(1)),
        ([("day", "day")], [("day", "month")], SUNDAY, Overlap(1)),
        ([("day", "day")], [("day", "year")], JANUARY, Overlap(31)),
        # A promise names a column of dates without its type.
        ([("day", "day")], [("day", "label")], EVERYTHING, Overlap(1)),
        ([("day", "label")], [("day", "day")], EVERYTHING, None),
        ([("day", "week")], [("day", "label")], EVERYTHING, Overlap(1, False)),
        ([("day", "week")], [("day", "label")], SUNDAY, Overlap(1)),
    ],
)  # fmt: skip
def test_partitions_of_several_columns(
    own: Any, promised: Any, region: Region, expected: Overlap | None
) -> None:
    mine, theirs = (Partition(tuple(Rule(*rule) for rule in rules)) for rules in (own, promised))
    assert mine.compared(theirs, region) == expected


def test_stated_partitions_are_distinguished_by_their_mark() -> None:
    one, two = (Partition((Rule("item", "stated", mark=mark, cells=4),)) for mark in ("#1", "#2"))
    assert one.compared(one) == Overlap(1)
    # With another mapping a cell may meet all of them, in part, and those without a value.
    assert one.compared(two) == Overlap(5, whole=False)
    assert one.compared(Partition((Rule("item"),))) == Overlap(1, whole=False)
    assert Partition((Rule("item"),)).compared(one) is None


def test_missing_days_are_in_separate_cells() -> None:
    side = JANUARY.sides[0]
    region = Region((Side("day", side.values, missing=True),))
    # Without a value, before all days and after them.
    assert Partition((Rule("day", "day"),)).cells_in(region) == 34
    assert Partition((Rule("topic"),)).cells_in(
        Region((Side("topic", LabelSet(("a",)), missing=True),))
    ) == 4  # fmt: skip
    assert Partition((Rule("topic"),)).cells_in(EVERYTHING) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "bins"}, {"kind": "bins", "edges": (3, 2)}, {"kind": "label", "edges": (1,)},
        {"kind": "stated"}, {"mark": "#1"}, {"kind": "any"}, {"days": 3}, {"kind": "hour"},
        {"kind": "any", "days": 0}, {"kind": "stated", "mark": "#1", "cells": 0},
    ],
)  # fmt: skip
def test_invalid_rules_are_rejected(wrong: Any) -> None:
    with pytest.raises(ParameterError):
        Rule("c", **wrong)


def test_invalid_partitions_are_rejected() -> None:
    for rules in [(), (Rule("a"), Rule("a", "day"))]:
        with pytest.raises(ParameterError, match="one rule for each of its columns"):
            Partition(rules)


def test_json_and_words() -> None:
    made = Partition((Rule("t", "week", "UTC"), Rule("n", "bins", edges=(1, 5)), Rule("c")))
    assert _validate.read_fields(Partition, made.to_dict(), "a partition") == made
    assert str(made) == "'c' and bins of 'n' at 1, 5 and the week of 't' (UTC)"
    assert str(Rule("day", "any", days=30)) == "any 30 days in a row of 'day'"


@pytest.mark.parametrize(
    ("zone", "back"),
    [
        ("America/St_Johns", datetime(2010, 11, 7, 2, 31, tzinfo=UTC)),
        ("America/Moncton", datetime(2006, 10, 29, 3, 1, tzinfo=UTC)),
        ("Europe/Paris", datetime(2026, 10, 25, 1, 0, tzinfo=UTC)),
    ],
)
def test_every_displayed_day_is_met(zone: str, back: datetime) -> None:
    """Some clocks are put back past midnight, and show a day again after the next has begun."""
    steps = {*range(-7200, 7200, 600), -90, -60, -30, -1, 1, 30}
    for one, two in itertools.combinations(sorted(steps), 2):
        low, high = (back + timedelta(seconds=step) for step in (one, two))
        seen = range(one, two, max((two - one) // 400, 1))
        days = {(back + timedelta(seconds=at)).astimezone(ZoneInfo(zone)).date() for at in seen}
        span = Span("instant", microseconds(low), microseconds(high))
        first, last = clock_days(span, zone)
        assert first is not None
        assert last is not None
        assert first <= min(days) <= max(days) <= last
        assert (last - first).days <= 1
        starts = AnyDays(1, "at", zone).starts(span)
        assert starts == (first.toordinal() - 719_163, last.toordinal() - 719_163 + 1)
    # An interval without an end begins on the repeated day.
    later = Span("instant", microseconds(back - timedelta(seconds=30)))
    assert clock_days(later, zone) == ((back).astimezone(ZoneInfo(zone)).date(), None)


def test_days_written_in_two_ways_do_not_overlap() -> None:
    """01/02/2025 is one day to one reading and another to the other; a promise is about either."""
    one, other = (
        Rule("at", "day", read=f"DATE written like {dates}")
        for dates in ("31/12/2025", "12/31/2025")
    )
    plain = Rule("at", "day")
    assert one.overlap(other) is None
    assert plain.overlap(one) is None
    assert one.overlap(plain) == Overlap(1)
    assert one.overlap(one) == Overlap(1)
    assert one.overlap(Rule("at")) == Overlap(1)
    assert str(one) == "the day of 'at' written like 31/12/2025"

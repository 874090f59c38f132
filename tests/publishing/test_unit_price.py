"""The cost of a release for a protected unit other than its block, case by case."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.refusals import refuses
from tests.tables.cases import one_sentence

from dpgrain.accounting import (
    ApproximateDP,
    Contribution,
    Event,
    Gaussian,
    gaussian_delta,
    gaussian_epsilon,
)
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import Price
from dpgrain.publishing.unit_price import neighbours_for_unit, price_for_unit
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import EVERYTHING, LabelSet, Region, Side, days
from dpgrain.units import Level, Relation

M = gaussian_mu(1.0, 1e-6)
CAPS = Price(mu=M, leak=1e-7)
DAY, WEEK, MONTH = (Partition((Rule("day", kind),)) for kind in ("day", "week", "month"))
TOPIC = Partition((Rule("topic"),))
ONE_DAY, ONE_WEEK = (
    Region((Side("day", days("2026-01-05", end)),)) for end in ("2026-01-05", "2026-01-11")
)
TOPICS = Region((Side("topic", LabelSet(("a", "b", "c"))),))
# The squares s² of a replaced block's change, by type.
SQUARES: dict[Any, int] = {"one": 1, "nonnegative": 2, "signed": 4}


def any_days(number: int) -> Partition:
    return Partition((Rule("day", "any", days=number),))


def release(
    partition: Partition | None,
    event: Event | None = None,
    *,
    level: Level = "element",
    scope: Region = EVERYTHING,
    elements: str = "cells",
    **contribution: Any,
) -> Guarantee:
    event = event or Gaussian(1.0, Contribution(block=level, **contribution))
    named = elements if level == "element" else ""
    return Guarantee(level, named, "zero_out", 1e-6, event, scope=scope, partition=partition)


def square(made: Guarantee, cells: Partition | None, **asked: Any) -> float:
    level: Level = "user" if cells is None else "element"
    asked = {"level": level, "relation": "zero_out", **asked}
    return price_for_unit(made, asked["level"], cells, asked["relation"], Price(mu=100.0)).mu ** 2


@pytest.mark.parametrize("coordinates", SQUARES)
@pytest.mark.parametrize(
    ("own", "promised", "blocks", "whole"),
    [
        (DAY, DAY, 1, True), (DAY, WEEK, 7, True), (DAY, MONTH, 31, True), (WEEK, WEEK, 1, True),
        (WEEK, DAY, 1, False), (MONTH, DAY, 1, False), (WEEK, MONTH, 6, False),
        (MONTH, WEEK, 2, False), (DAY, any_days(30), 30, True), (WEEK, any_days(30), 6, False),
        (MONTH, any_days(30), 3, False),
    ],
)  # fmt: skip
def test_blocks_and_parts_of_blocks(
    coordinates: Any, own: Partition, promised: Partition, blocks: int, whole: bool
) -> None:
    factor = 1 if whole else SQUARES[coordinates]
    disjoint = release(own, coordinates=coordinates)
    assert square(disjoint, promised) == pytest.approx(factor * blocks)
    shared = release(own, coordinates=coordinates, layout="shared")
    assert square(shared, promised) == pytest.approx(factor * blocks**2)
    # An exchanged unit moves its blocks as an exchange of each does.
    exchanged = square(disjoint, promised, relation="replace")
    assert exchanged == pytest.approx(SQUARES[coordinates] * blocks)
    # With a contribution bound, a part that empties its block admits another one.
    kept = release(own, coordinates=coordinates, max_elements=100)
    assert square(kept, promised) == pytest.approx(max(2, SQUARES[coordinates]) * blocks)


@pytest.mark.parametrize("coordinates", SQUARES)
def test_users_and_parts_of_users(coordinates: Any) -> None:
    made = release(None, level="user", coordinates=coordinates)
    assert square(made, None) == pytest.approx(1)
    assert square(made, DAY) == pytest.approx(SQUARES[coordinates])
    # A user's data of a day belong to the day, and to every window that meets it.
    daily = release(None, level="user", coordinates=coordinates, scope=ONE_DAY)
    for cells in (DAY, WEEK, any_days(30), Partition((Rule("day"),))):
        assert square(daily, cells) == pytest.approx(1), cells
    weekly = release(None, level="user", coordinates=coordinates, scope=ONE_WEEK)
    assert square(weekly, WEEK) == pytest.approx(1)
    assert square(weekly, any_days(30)) == pytest.approx(SQUARES[coordinates])
    assert square(weekly, None) == pytest.approx(1)


def test_a_weekly_release_for_the_promise_of_a_day() -> None:
    for coordinates, sd, epsilon in (("nonnegative", 5.975, 1.455), ("signed", 8.449, 2.123)):
        fits = release(WEEK, Gaussian(sd, Contribution(coordinates=coordinates)))  # type: ignore[arg-type]
        assert price_for_unit(fits, "element", DAY, "zero_out", CAPS).mu == pytest.approx(
            M, rel=2e-4
        )
        # Charged as a block it would fit at less noise, and promise more than is true.
        block = release(WEEK, Gaussian(1 / M, Contribution(coordinates=coordinates)))  # type: ignore[arg-type]
        assert pytest.approx(4.225, abs=5e-4) == 1 / M
        true = price_for_unit(block, "element", DAY, "zero_out", CAPS).mu
        assert gaussian_epsilon(1e-6, true) == pytest.approx(epsilon, abs=1e-3)
        if coordinates == "nonnegative":
            assert gaussian_delta(1.0, true) == pytest.approx(2.18e-4, rel=3e-3)


def test_any_thirty_days_of_daily_releases() -> None:
    mu = M / math.sqrt(30)
    assert mu == pytest.approx(0.0432, abs=5e-5)
    daily = release(DAY, Gaussian(1 / mu), scope=ONE_DAY)
    # Each release is whole days of every stretch that meets it; thirty of them fill the promise.
    one = price_for_unit(daily, "element", any_days(30), "zero_out", CAPS)
    assert one.times(30).mu == pytest.approx(M)
    together = price_for_unit(
        release(DAY, Gaussian(1 / mu)), "element", any_days(30), "zero_out", CAPS
    )
    assert together.mu == pytest.approx(M)


@pytest.mark.parametrize(
    ("coordinates", "expected"), [("one", 0.0425), ("nonnegative", 0.0412), ("signed", 0.0389)]
)
def test_any_720_hours_are_29_days_and_two_parts(coordinates: Any, expected: float) -> None:
    contribution = Contribution(coordinates=coordinates)
    whole, parts = contribution.sensitivity(29), contribution.sensitivity(2, "replace")
    assert M / math.hypot(whole, parts) == pytest.approx(expected, abs=5e-5)


def test_cells_and_windows_are_counted() -> None:
    """A person of w windows, of each at most m cells: √(wm)·M, and √2 times that under a bound."""
    windows, cells = 4, 5
    days_of = Contribution(cells=cells)
    assert days_of.sensitivity(100) * math.sqrt(windows) == pytest.approx(
        math.sqrt(windows * cells)
    )
    kept = Contribution(max_elements=cells)
    exchanged = kept.sensitivity(cells)
    assert exchanged == pytest.approx(math.sqrt(2 * cells))


def test_an_exchanged_record_may_leave_a_region() -> None:
    records = {"block": "record", "coordinates": "one"}
    event = Gaussian(1 / M, Contribution(**records))  # type: ignore[arg-type]
    daily = release(None, event, level="record", scope=ONE_DAY)
    for relation, factor in (("zero_out", 1.0), ("replace", math.sqrt(2))):
        own: Relation = relation  # type: ignore[assignment]
        assert price_for_unit(daily, "record", None, own, CAPS).mu == pytest.approx(factor * M)
    # It stays among the records of everything.
    everything = release(None, event, level="record")
    assert price_for_unit(everything, "record", None, "replace", CAPS).mu == pytest.approx(M)


def test_a_region_bounds_how_many_blocks_a_unit_meets() -> None:
    by_topic = release(TOPIC, scope=Region((*ONE_DAY.sides, *TOPICS.sides)))
    assert square(by_topic, DAY) == pytest.approx(3)
    assert square(by_topic, None) == pytest.approx(3)
    assert square(release(TOPIC, scope=TOPICS), DAY) == pytest.approx(3 * 2)
    # A user has a week's days in it, removed as wholes.
    assert square(release(DAY, scope=ONE_WEEK), None) == pytest.approx(7)
    assert square(release(DAY, scope=ONE_WEEK), None, relation="replace") == pytest.approx(14)
    both = Partition((Rule("day", "day"), Rule("topic")))
    assert square(release(DAY), both) == pytest.approx(2)
    assert square(release(both, scope=TOPICS), DAY) == pytest.approx(3)


@pytest.mark.parametrize(
    ("made", "level", "cells"),
    [
        (release(TOPIC), "element", DAY),
        (release(TOPIC), "user", None),
        (release(DAY, layout="shared"), "user", None),
        (release(None, level="record"), "element", DAY),
        (release(None, level="record"), "user", None),
    ],
)
def test_unbounded_unit_is_rejected_with_one_message(
    made: Guarantee, level: Level, cells: Partition | None
) -> None:
    with refuses("contribution", "unbounded") as caught:
        price_for_unit(made, level, cells, "zero_out", CAPS)
    assert "use the promised unit" in one_sentence(caught.value)


def test_partition_known_only_by_description() -> None:
    fits = [release(None, elements=words) for words in ("'topic'", "the column 'topic'")]
    assert [square(made, TOPIC) for made in fits] == [1, 1]
    other = release(None, elements="the elements passed (#1234)")
    with refuses("release", "unknown") as caught:
        price_for_unit(other, "element", TOPIC, "zero_out", CAPS)
    one_sentence(caught.value)


def test_bounds_of_users_are_blocks_as_well() -> None:
    """A user with at most M elements: a day is part of up to M counted blocks."""
    event = Gaussian(1.0, Contribution(max_elements=3))
    made = release(TOPIC, event, level="user")
    assert square(made, None) == pytest.approx(3)
    assert square(made, DAY) == pytest.approx(2 * 3)
    assert square(release(DAY, event, level="user"), WEEK) == pytest.approx(2 * 3)
    assert square(release(WEEK, event, level="user"), DAY) == pytest.approx(2)


def test_other_events_are_also_queried() -> None:
    known = release(WEEK, ApproximateDP(0.01, 1e-9, "element", "zero_out"))
    asked = neighbours_for_unit(known, "element", DAY, "zero_out")
    assert (asked.units, asked.relation) == (1, "replace")
    price = price_for_unit(known, "element", DAY, "zero_out", Price(pure=1.0, mu=M, leak=1e-6))
    # A part of a block is two steps: it is removed, and the rest is added again.
    assert price.leak > 2e-9
    assert price.pure == pytest.approx(0.02)


def test_remaining_budget_covers_every_account() -> None:
    event = Gaussian(10.0, Contribution(block="record", coordinates="one"))
    daily = release(None, event, level="record", scope=ONE_DAY)
    room = Price(mu=M / 2, leak=1e-8)
    assert price_for_unit(daily, "record", None, "replace", CAPS, room).mu == pytest.approx(
        0.1 * math.sqrt(2)
    )

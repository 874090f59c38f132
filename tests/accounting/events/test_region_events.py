"""Events of regions: no division of units over regions costs more than is charged."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.refusals import refuses

from dpgrain.accounting import (
    ZCDP,
    Compose,
    Contribution,
    Event,
    Gaussian,
    Laplace,
    PureDP,
    SampledGaussian,
    Scoped,
    Selection,
)
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.accounting.losses.loss import Loss
from dpgrain.scope.regions import EVERYTHING, Region, Side, Span, atoms
from dpgrain.units import Element, Record, User

DELTA = 1e-6
MU = gaussian_mu(1.0, DELTA)
SHARED = Contribution(layout="shared")


def of(first: int, end: int) -> Region:
    return Region((Side("day", Span("whole", first, end)),))


def days(event: Event, number: int, length: int = 1) -> Scoped:
    """The same event in each of n consecutive windows of days."""
    regions = tuple(of(length * i, length * (i + 1)) for i in range(number))
    return Scoped((event,) * number, regions, (length,) * number)


# -- values of the specification


@pytest.mark.slow
def test_year_of_daily_releases_costs_a_day_once() -> None:
    for contribution in (Contribution(), SHARED):
        year = days(Gaussian(1 / MU, contribution), 365)
        assert year.epsilon(DELTA) == pytest.approx(1.0, rel=1e-9)
        assert year.epsilon(DELTA, units=30) == pytest.approx(6.58, abs=0.005)
        root = Gaussian(1 / MU, count=30).epsilon(DELTA)
        assert year.epsilon(DELTA, units=30) == pytest.approx(root, rel=1e-9)
        assert year.epsilon(DELTA, units=365) == pytest.approx(31.0, abs=0.05)
        # No person is in more days than exist.
        assert year.epsilon(DELTA, units=1000) == pytest.approx(31.0, abs=0.05)


def test_elements_of_a_release_add_up_on_shared_coordinates() -> None:
    event = days(Gaussian(1 / MU, SHARED), 73, length=5)
    assert event.epsilon(DELTA, units=30) == pytest.approx(17.4, abs=0.01)
    bound = Gaussian(1 / (math.sqrt(30 * 5) * MU)).epsilon(DELTA)
    assert event.epsilon(DELTA, units=30) == pytest.approx(bound, rel=1e-9)


# -- a search over divisions

EVENTS: dict[str, Event] = {
    "gaussian": Gaussian(4.0),
    "stronger": Gaussian(2.0, count=2),
    "shared": Gaussian(6.0, SHARED),
    "capped": Gaussian(5.0, Contribution(layout="shared", cells=2)),
    "kept": Gaussian(6.0, Contribution(max_elements=3)),
    "laplace": Laplace(9.0, Contribution(norm="l1")),
    "selection": Selection(4.0, 40.0, 2),
    "named in piles": Selection(5.0, 60.0, 3, SHARED),
    "sampled": SampledGaussian(2.0, 0.05, 20),
    "sampled wholly": SampledGaussian(3.0, 0.1, 9, sampling="users"),
    "two": Gaussian(5.0) + PureDP(0.05, level="element"),
    "zcdp": ZCDP(0.01, "element"),
}
# Which days each event is of, out of six, as (first, end).
LAYOUTS: dict[str, list[tuple[int, int]]] = {
    "apart": [(0, 1), (1, 2), (2, 4)],
    "nested": [(0, 6), (1, 3), (2, 3)],
    "chained": [(0, 3), (2, 5), (4, 6)],
    "alike": [(0, 2), (0, 2), (2, 6)],
}


def divisions(regions: Sequence[tuple[int, int]], units: int) -> Iterator[tuple[int, ...]]:
    """Numbers of a person's elements by region: the elements are distinct days."""
    for held in itertools.combinations(range(6), min(units, 6)):
        yield tuple(sum(first <= day < end for day in held) for first, end in regions)


def paid(events: Sequence[Event], division: Sequence[int], **asked: Any) -> Loss:
    """Cost for a person with this division of elements, by the first bound on each loss."""
    losses = [
        replace(event.loss(k, **asked), others=())
        for event, k in zip(events, division, strict=True)
        if k
    ]
    return sum(losses, Loss())


PRODUCT = [
    (names, layout, units, relation)
    for names in itertools.combinations(EVENTS, 3)
    for layout in LAYOUTS
    for units in (1, 2, 3)
    for relation in ("zero_out", "replace")
]


@pytest.mark.slow(cases=80)
@pytest.mark.proof("search", "Scoped")
@pytest.mark.parametrize(("names", "layout", "units", "relation"), PRODUCT)
def test_no_division_costs_more(
    names: tuple[str, ...], layout: str, units: int, relation: Any
) -> None:
    events, spans = [EVENTS[name] for name in names], LAYOUTS[layout]
    regions = tuple(of(*span) for span in spans)
    most = tuple(end - first for first, end in spans)
    charged = Scoped(tuple(events), regions, most).loss(units, relation)
    found = [paid(events, each, relation=relation) for each in set(divisions(spans, units))]
    for mine in found:
        if units == 1:
            assert mine.delta(0.5) <= charged.delta(0.5) * (1 + 1e-9)
        else:
            assert within(mine, charged)
            assert within(charged, Compose(tuple(events)).loss(units, relation))
    if units == 1:
        worst = max(mine.delta(0.5) for mine in found)
        assert charged.delta(0.5) == pytest.approx(worst, rel=1e-6)


def within(mine: Loss, charged: Loss) -> bool:
    """Whether each part of a loss is at most another's, so that it costs no more."""
    little = 1 + 1e-9
    # The pair of more units dominates the pair of fewer, and represents it.
    pairs = kinds_of_pairs(charged)
    return (
        mine.mu <= charged.mu * little
        and mine.pure <= charged.pure * little
        and mine.leak <= charged.leak * little
        and mine.rho <= charged.rho * little
        and mine.concentrated <= charged.concentrated * little
        and all(pairs[kind] >= count for kind, count in kinds_of_pairs(mine).items())
    )


def kinds_of_pairs(loss: Loss) -> Counter[str]:
    counts: Counter[str] = Counter()
    for pair, count in loss.pairs:
        counts[type(pair).__name__] += count
    return counts


def test_records_and_users_are_divided_as_well() -> None:
    element = days(Gaussian(4.0), 9)
    # A record is in one element; a replaced one may leave it and enter another.
    one = Gaussian(4.0)
    assert element.epsilon(DELTA, unit=Record()) == one.epsilon(DELTA, unit=Record())
    moved = element.loss(1, "replace", Record()).mu
    alone = one.loss(1, "replace", Record()).mu
    assert alone < moved <= math.sqrt(2) * alone * (1 + 1e-9)
    # A user with at most M elements has M days, or leaves M and enters M others.
    assert element.loss(1, "zero_out", User(4)).mu == pytest.approx(2 * one.loss().mu)
    exchanged = element.loss(1, "replace", User(4)).mu
    assert exchanged >= math.sqrt(8) * one.loss().mu
    assert element.loss(1, "zero_out", User()).mu == math.inf
    # Replaced records are charged in the old and in the new region.
    records = Contribution(block="record", coordinates="one")
    by_record = Scoped(
        (Gaussian(4.0, records),) * 3, tuple(of(i, i + 1) for i in range(3)), (None,) * 3
    )
    assert by_record.loss(1, "zero_out").mu == pytest.approx(0.25)
    assert by_record.loss(1, "replace").mu == pytest.approx(math.sqrt(2) * 0.25)
    # Regions of users: a user inside one is there with all elements.
    users = Scoped(
        (Gaussian(4.0, Contribution(block="user")), Gaussian(2.0, Contribution(block="user"))),
        (of(0, 5), of(5, 9)),
        (None, None),
    )
    for unit in (User(), Element(), Record()):
        expected = Gaussian(2.0, Contribution(block="user")).loss(1, "zero_out", unit).mu
        assert users.loss(1, "zero_out", unit).mu == pytest.approx(expected), unit
    assert users.loss(3, "zero_out", User()).mu == pytest.approx(math.sqrt(0.25 * 9 + 0), rel=0.3)


def test_unbounded_user_is_charged_for_all_regions() -> None:
    everywhere = Scoped((Gaussian(4.0), Gaussian(3.0)), (EVERYTHING, of(0, 1)), (None, 1))
    both = Gaussian(4.0) + Gaussian(3.0)
    assert everywhere.epsilon(DELTA) == pytest.approx(both.epsilon(DELTA), rel=1e-9)
    assert everywhere.loss(4).mu == pytest.approx(math.hypot(2 / 4.0, 1 / 3.0))
    # Rényi divergences of some orders are not divided.
    orders = Scoped((ZCDP(0.01, "element"),) * 2, (of(0, 1), of(1, 2)), (1, 1))
    assert orders.epsilon(DELTA) >= ZCDP(0.01, "element").epsilon(DELTA)


def test_it_is_described_and_checked() -> None:
    event = days(Gaussian(4.0), 3)
    assert Event.from_json(event.to_json()) == event
    assert json.loads(event.to_json())["regions"][2]["sides"][0]["low"] == 2
    assert len(atoms(event.regions)) == 3
    with refuses("events", "must have the same length, not 1, 2 and 1"):
        Scoped((Gaussian(4.0),), (of(0, 1), of(1, 2)), (1,))
    with refuses("most"):
        Scoped((Gaussian(4.0),), (of(0, 1),), (0,))
    with refuses("events", "must contain at least one event"):
        Scoped((), (), ())

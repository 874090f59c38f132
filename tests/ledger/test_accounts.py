"""Accounts against an analyst who chooses each release by the outcomes of those before."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.ledger import cases
from tests.publishing.test_caps import Left, best_delta

import dpgrain as dg
from dpgrain.accounting import ApproximateDP, Contribution, Event, Gaussian, PureDP
from dpgrain.ledger import AnyDays, LastingPromise, accounts
from dpgrain.ledger.accounts import Charged
from dpgrain.ledger.price_units import Units
from dpgrain.ledger.stores.sqlite_store import memory_transaction
from dpgrain.ledger.stores.store_protocol import Transaction
from dpgrain.publishing.prices import Price
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import LabelSet, Region, Side, Span

DAY = cases.on("2026-01-10")
REGIONS = (
    DAY,
    cases.on("2026-01-01", "2026-01-10"),
    cases.on(),
    cases.on("2026-01-10", "2026-02-20"),
)
# One number per user; a part of it changes a sum by no more than all of it.
ONE = Contribution(block="user", coordinates="one")
PROMISES = {
    "day": LastingPromise.of(dg.Element(cases.DAYS), 1.0, 1e-6),
    "day, with pure ε": LastingPromise.of(dg.Element(cases.DAYS), 1.0, 1e-6, pure=0.1),
    "any 7 days": LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(7, "day")),
    "life": LastingPromise.of(dg.User(), 1.0, 1e-6),
    "no leak": LastingPromise.of(dg.User(), 0.5, 1e-5, leak=0.0),
}


@contextmanager
def page_of(promise: LastingPromise) -> Iterator[Transaction]:
    with memory_transaction() as page:
        accounts.activate(page, 1, None)
        yield page


def asked(event: Event, scope: Region) -> dg.Guarantee:
    """A release by users, in a region: a user's day adds all of its values."""
    return dg.Guarantee("user", "", "zero_out", 0.0, event, scope=scope)


def largest(
    page: Transaction, promise: LastingPromise, event: Callable[[float], Event], high: float
) -> float:
    """The largest parameter of an event that the accounts still allow for a day."""
    spent = accounts.spent(page, promise, 1, promise.reach(DAY))
    room = spent.remaining(promise.caps)
    low = 0.0
    for _ in range(50):
        middle = (low + high) / 2
        price = promise.price(asked(event(middle), DAY), room)
        fits = (spent + Units.create(price, promise.caps)).fits
        low, high = (middle, high) if fits else (low, middle)
    return low


def allowed(promise: LastingPromise, turn: float) -> Callable[[int], Left]:
    """The accounts' allowance for a day after n releases, found by requests."""

    def left(done: int) -> Left:
        small = Gaussian(1 / turn, ONE)
        with page_of(promise) as page:
            for place in range(done):
                one = asked(small, REGIONS[place % len(REGIONS)])
                region = promise.reach(one.scope)
                accounts.charge(page, promise, Charged(1, promise.price(one), region))
            return Left(
                largest(page, promise, lambda mu: Gaussian(1 / mu, ONE), 1.0),
                largest(page, promise, PureDP, 2.0),
                largest(page, promise, lambda leak: ApproximateDP(0.0, leak), promise.delta),
            )

    return left


def best(promise: LastingPromise, turns: int) -> float:
    turn = promise.caps.mu / math.sqrt(turns) * (1 - 1e-9)
    return best_delta(promise.epsilon, turn, turns, allowed(promise, turn))


@pytest.mark.slow
@pytest.mark.parametrize("turns", [4, 12, 40])
@pytest.mark.parametrize("name", PROMISES)
def test_no_strategy_over_regions_beats_a_promise(name: str, turns: int) -> None:
    promise = PROMISES[name]
    assert 0.2 * promise.delta < best(promise, turns) <= promise.delta * (1 + 1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_each_cell_of_numbers_has_its_charges(seed: int) -> None:
    # Intervals of numbers with gaps are several parts; each is charged.
    draw = random.Random(seed)
    both = Partition((Rule("day", "day"), Rule("n")))
    promise = LastingPromise.of(dg.Element(both), 9.0, 1e-6)
    days = [cases.on(f"2026-01-0{day}").sides for day in (1, 2)]

    def values() -> Span | LabelSet:
        low = draw.randint(0, 5)
        some = tuple(draw.sample(range(8), draw.randint(1, 2)))
        span = Span("whole", low, low + draw.randint(1, 4))
        kinds: tuple[Span | LabelSet, ...] = (span, LabelSet(some, but=True), LabelSet(some))
        return draw.choice(kinds)

    met: list[Region] = []
    with page_of(promise) as page:
        for turn in range(12):
            sides = days[draw.randrange(2)] if turn == 0 or draw.random() < 0.5 else ()
            met.append(Region((*sides, Side("n", values()))))
            accounts.charge(page, promise, Charged(1, Price(mu=promise.caps.mu / 20), met[-1]))
        one = Units.create(Price(mu=promise.caps.mu / 20), promise.caps).mu
        for day, number in itertools.product(days, range(10)):
            cell = Region((*day, Side("n", LabelSet((number,)))))
            found = accounts.spent(page, promise, 1, cell).mu
            assert found == one * sum(region.meets(cell) for region in met), (cell, met)


def test_daily_releases_cost_30_days_their_root() -> None:
    """► 365 daily releases, element (user, day), M = .2367: a day ε = 1, 30 days 6.58, not 31.0."""
    promise = LastingPromise.of(dg.Element(cases.DAYS), 1.0, 1e-6, leak=0.0)
    with page_of(promise) as page:
        for number in range(30):
            one = cases.of_days(1 / promise.caps.mu, cases.on(f"2026-01-{number + 1:02}"))
            region = promise.reach(one.scope)
            accounts.charge(page, promise, Charged(1, promise.price(one), region))
    many = Gaussian(1 / promise.caps.mu, count=30, contribution=ONE)
    assert many.epsilon(1e-6) == pytest.approx(6.58, abs=0.005)
    assert Gaussian(1 / promise.caps.mu, count=365).epsilon(1e-6) == pytest.approx(31.0, abs=0.05)


def test_weekly_blocks_cost_a_day_s_squared() -> None:
    """► weekly blocks, promise for a day, M = .2367: sd 5.975ρ (signed 8.449ρ), not 4.225ρ."""
    from dpgrain.scope.partitions import Partition, Rule

    promise = LastingPromise.of(dg.Element(cases.DAYS), 1.0, 1e-6, leak=0.0)
    weeks = Partition((Rule("day", "week"),))
    for coordinates, sd in (("one", 4.225), ("nonnegative", 5.975), ("signed", 8.449)):
        contribution = Contribution(coordinates=coordinates)  # type: ignore[arg-type]

        def share(sd: float, contribution: Contribution = contribution) -> float:
            event = Gaussian(sd, contribution)
            one = dg.Guarantee("element", str(weeks), "zero_out", 1e-6, event, partition=weeks)
            return Units.create(promise.price(one), promise.caps).share

        assert share(sd * 1.0005) <= 1 < share(sd * 0.9995)


# A unit is known by two columns of small whole numbers, in each of which it may lack a value.
UNITS = tuple(itertools.product((*range(6), None), repeat=2))
values = st.one_of(
    st.builds(Span, st.just("whole"), st.integers(-1, 4), st.integers(1, 7)),
    st.builds(
        LabelSet, st.lists(st.integers(0, 5), min_size=1, max_size=2).map(tuple), st.booleans()
    ),
)


def sides(column: str) -> st.SearchStrategy[Side]:
    made = st.builds(Side, st.just(column), values, st.booleans(), st.just("BIGINT"))
    return made.filter(lambda side: bool(side) and not side.everything)


regions = st.tuples(sides("a"), sides("b"), st.sampled_from(["a", "b", "ab"])).map(
    lambda drawn: Region(tuple(side for side in drawn[:2] if side.column in drawn[2]))
)


def only(unit: tuple[int | None, ...]) -> Region:
    return Region(
        tuple(
            Side(column, LabelSet(), missing=True, kind="BIGINT")
            if value is None
            else Side(column, Span("whole", value, value + 1), kind="BIGINT")
            for column, value in zip("ab", unit, strict=True)
        )
    )


# The units of each record, and no other.
ALONE = {unit: only(unit) for unit in UNITS}


@pytest.mark.slow
@example(
    [
        Region((Side("b", Span("whole", 0, 6), kind="BIGINT"),)),
        Region((Side("a", LabelSet((2,)), kind="BIGINT"),)),
        Region((Side("a", Span("whole", 0, 5), kind="BIGINT"),)),
    ]
)
@given(st.lists(regions, min_size=1, max_size=4))
def test_every_unit_of_a_region_is_charged(charged: list[Region]) -> None:
    promise = PROMISES["day"]
    price = Price(mu=promise.caps.mu / 4)
    with page_of(promise) as page:
        for region in charged:
            accounts.charge(page, promise, Charged(1, price, region))
        one = Units.create(price, promise.caps)
        for unit, here in ALONE.items():
            met = [region for region in charged if region.meets(here)]
            spent = accounts.spent(page, promise, 1, here)
            assert spent.mu >= len(met) * one.mu, f"{unit} was in {len(met)} regions"

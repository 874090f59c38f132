"""Prices of events: reference pairs that dominate them, at every ε and in both orders."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import laplace as laplace_law
from tests.accounting.events.test_base import EVENTS
from tests.refusals import refuses
from tests.tables.cases import one_sentence

from dpgrain.accounting import (
    ApproximateDP,
    Contribution,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Loss,
    PureDP,
    SampledGaussian,
    gaussian_delta,
    gaussian_epsilon,
)
from dpgrain.accounting.losses.gaussian import gaussian_mu, pure_mu
from dpgrain.accounting.losses.pairs import MixturePair, ResponsePair
from dpgrain.publishing import Caps, price
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import Price, _Curve, neighbours_for_unit, price_for_unit
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import EVERYTHING, LabelSet, Region, Side, days
from dpgrain.units import PLAIN_UNITS, RELATIONS, Element, Level, Relation, User

WIDE = Price(pure=0.0, mu=3.0, leak=1e-4)
USER = Contribution(block="user")
# Each look at such a curve composes hundreds of rounds.
COMPOSED_SLOWLY = {name for name in EVENTS if name.startswith(("users", "pairs-"))}


def exactly(loss: Loss, count: int) -> Loss:
    """The closed parts of a loss, composed as pairs of laws."""
    pairs: list[tuple[Any, int]] = []
    if loss.mu > 0:
        pairs.append((MixturePair(((1.0, loss.mu),), ((1.0, 0.0),)), count))
    if loss.pure > 0:
        pairs.append((ResponsePair(loss.pure), count))
    return Loss(leak=count * loss.leak, pairs=tuple(pairs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("caps", "relation"),
    [(WIDE, "zero_out"), (WIDE, "replace"), (Price(2.0, 2.0, 1e-5), "zero_out")],
    ids=["zero_out", "replace", "with pure"],
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow(full=True) if name in COMPOSED_SLOWLY else ())
        for name in EVENTS
    ],
)
def test_a_price_is_above_the_curve_of_its_event(
    name: str, caps: Price, relation: Relation
) -> None:
    event = EVENTS[name]
    unit = PLAIN_UNITS[event.level]
    own = price(event, relation, unit, caps)
    if own.share_of(caps) > 1:
        pytest.skip("no price within these caps")
    loss, reference = event.loss(1, relation, unit), Caps(own)
    count = getattr(event, "count", 1)
    if not loss.pairs and not loss.renyi and math.isfinite(loss.pure) and len(event.parts) == 1:
        one = dataclasses.replace(event, count=1) if count > 1 else event  # type: ignore[type-var]
        loss = exactly(one.loss(1, relation, unit), count)
        # A choice of bounded range costs less than any pure mechanism: its dominating pair is
        # known.
        if choices := [other for other in one.loss(1, relation, unit).others if not other.pairs]:
            loss = exactly(choices[0], count)
    elif loss.pairs:
        loss = loss.best_at(caps.leak)
    # A curve priced as pure is evaluated at one point, and above it.
    for epsilon in np.linspace(own.pure, 5.0, 9):
        known = min(loss.delta(float(epsilon)), event.delta(float(epsilon), relation=relation))
        # Composed numerically ε is known to 3e-4.
        assert known <= reference.delta(float(epsilon) * (1 - 5e-4)) * (1 + 1e-4) + 1e-300


def test_most_events_have_a_price() -> None:
    for name in ("gaussian-twice", "laplace", "pure", "truncated-geometric", "soft-core", "best"):
        event = EVENTS[name]
        assert price(event, "zero_out", PLAIN_UNITS[event.level], WIDE).share_of(WIDE) <= 1


@pytest.mark.parametrize(("epsilon", "mu"), [(0.1, 0.1253), (1.0, 1.2279), (5.0, 4.9418)])
def test_pure_mechanisms_are_below_the_gaussian_and_touch_it(epsilon: float, mu: float) -> None:
    """►: randomised response, at every γ; and no smaller μ is enough."""
    found = pure_mu(epsilon)
    assert found == pytest.approx(2 * _normal_quantile(1 / (1 + math.exp(-epsilon))), rel=1e-8)
    if epsilon == 0.1:
        assert found == pytest.approx(mu, abs=5e-5)

    def response(x: float) -> float:
        return max((math.exp(epsilon) - math.exp(x)) / (1 + math.exp(epsilon)), 0.0)

    grid = np.linspace(-8, 8, 321)
    # Negative ε are the other order of the neighbours.
    assert all(max(response(x), 1 - math.exp(x)) <= gaussian_delta(x, found) + 1e-15 for x in grid)
    assert any(max(response(x), 1 - math.exp(x)) > gaussian_delta(x, found * 0.999) for x in grid)


def _normal_quantile(p: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(p))


def test_small_pure_parts_lose_no_digits() -> None:
    for epsilon in (1e-300, 1e-12, 1e-6, 1e-4, 1e-3):
        exact = math.sqrt(math.pi / 2) * epsilon * (1 - epsilon**2 * (1 / 12 - math.pi / 96))
        assert exact * (1 - 1e-12) <= pure_mu(epsilon) <= exact * (1 + 1e-6)
    assert pure_mu(0.0) == 0.0
    assert pure_mu(math.inf) == math.inf


def test_prices_of_choices_and_names() -> None:
    """►: a choice of η-bounded range costs half of an η-DP mechanism."""
    choice = price(ExponentialMechanism(10.0, one_way=True), "zero_out", User(), WIDE)
    assert choice.mu == pytest.approx(0.0627, abs=5e-5)
    assert price(PureDP(0.1), "zero_out", User(), WIDE).mu == pytest.approx(0.1253, abs=5e-5)
    leaky = price(ApproximateDP(0.1, 1e-8), "zero_out", User(), WIDE)
    assert (leaky.mu, leaky.leak) == pytest.approx((0.1253, 1e-8), abs=5e-5)
    # Several are priced one by one, and add their squares.
    many = price(
        Laplace(10.0, Contribution(block="user", norm="l1"), 100), "zero_out", User(), WIDE
    )
    assert many.mu == pytest.approx(10 * pure_mu(0.1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "mu", "exact"),
    [
        (SampledGaussian(1.0, 0.01, 1000), 0.473, 2.125),
        (SampledGaussian(2.0, 0.05, 500), 0.6204, None),
    ],
)
def test_prices_of_sampled_runs(event: Event, mu: float, exact: float | None) -> None:
    """►: a run on samples has nearly the price of the Gaussian with its ε."""
    curve = _Curve.create(event.loss(), 1e-7)
    found = curve.min_mu(1e-7, 3.0)
    assert found == pytest.approx(mu, rel=3e-3)
    if exact is not None:
        assert event.epsilon(1e-6) == pytest.approx(exact, abs=2e-3)
        assert Caps(Price(mu=found, leak=1e-7)).epsilon(1e-6) == pytest.approx(2.131, abs=0.01)


def test_curve_is_compared_with_the_whole_gaussian() -> None:
    """The Laplace mechanism: its exact curve, on a finer grid than the evaluated one."""
    rate = 0.7

    class Exact:
        def delta(self, epsilon: float) -> float:
            return max(-math.expm1((epsilon - rate) / 2), 0.0)

        def epsilon(self, delta: float) -> float:
            return max(rate + 2 * math.log1p(-delta), 0.0)

        def bounds(self, delta: float) -> tuple[float, float]:
            return self.epsilon(delta), self.epsilon(delta)

    # The closed form equals the distribution's.
    assert Exact().delta(0.3) == pytest.approx(
        laplace_law.cdf((rate - 0.3) / 2) - math.exp(0.3) * laplace_law.cdf(-(rate + 0.3) / 2)
    )
    curve = _Curve.create(Loss.from_curve(Exact()), 1e-7)
    mu = curve.min_mu(1e-7, 3.0)
    grid = np.linspace(0, rate * 1.2, 5001)
    slack = [gaussian_delta(float(x), mu) + 1e-7 - Exact().delta(float(x)) for x in grid]
    assert 0 <= min(slack) < 1e-4
    assert mu < pure_mu(rate)
    for smaller in (0.5, 0.9, 0.99):
        assert not curve.below(smaller * mu, 1e-7)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["pure", "mu", "leak"])
def test_nan_fits_nowhere(place: str, value: float) -> None:
    assert Price(**{place: value}).share_of(Price(1e300, 1e150, 1.0)) == math.inf


def test_event_without_a_price_is_rejected_by_it() -> None:
    assert price(Gaussian(1e-9, USER), "zero_out", User(), WIDE).share_of(WIDE) > 1
    unbounded = price(Gaussian(5.0), "zero_out", User(), WIDE)
    assert unbounded.share_of(WIDE) == math.inf
    # A curve never gets below no leak at all.
    none = Price(0.0, 3.0, 0.0)
    run = SampledGaussian(1.5, 0.02, 60, level="user")
    assert price(run, "zero_out", User(), none).share_of(none) == math.inf


def test_composed_prices_follow_from_their_parts() -> None:
    parts = [Gaussian(5.0, USER), PureDP(0.2), ApproximateDP(0.1, 1e-8), ExponentialMechanism(30.0)]
    for some in itertools.combinations(parts, 2):
        both = price(some[0] + some[1], "zero_out", User(), WIDE)
        apart = sum((price(part, "zero_out", User(), WIDE) for part in some), Price())
        assert (both.mu, both.leak) == pytest.approx((apart.mu, apart.leak))


@pytest.mark.parametrize("units", [1, 2, 7])
@pytest.mark.parametrize("relation", RELATIONS)
def test_price_of_several_units_covers_all(units: int, relation: Relation) -> None:
    shared = Contribution(layout="shared")
    for event in (
        Gaussian(20.0),
        Gaussian(40.0, shared, count=3),
        Laplace(90.0, Contribution(norm="l1")),
        ApproximateDP(0.01, 0.0, "element"),
    ):
        loss = event.loss(units, relation, Element())
        found = price(event, relation, Element(), WIDE, units=units)
        for epsilon in (0.0, 0.05, 0.3, 1.0):
            told = gaussian_delta(epsilon, found.mu) + found.leak
            assert loss.delta(epsilon) <= told * (1 + 1e-6) + 1e-15


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

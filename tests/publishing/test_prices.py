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
)
from dpgrain.accounting.losses.gaussian import pure_mu
from dpgrain.accounting.losses.pairs import MixturePair, ResponsePair
from dpgrain.publishing import Caps, Price, price
from dpgrain.publishing.prices import _Curve
from dpgrain.units import PLAIN_UNITS, RELATIONS, Element, Relation, User

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
    curve = _Curve.of(event.loss(), 1e-7)
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
    curve = _Curve.of(Loss.from_curve(Exact()), 1e-7)
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

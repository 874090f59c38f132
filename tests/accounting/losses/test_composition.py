"""Losses on a grid and sampling, against the oracle, Google's library and closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests import oracle
from tests.accounting.losses import sampling_rates

from dpgrain.accounting import SampledGaussian
from dpgrain.accounting.losses.composition import _infinite, composed_epsilon
from dpgrain.accounting.losses.curves import GroupCurve
from dpgrain.accounting.losses.discretization import GridDistribution, LossDistribution
from dpgrain.accounting.losses.pairs import (
    DominatingPair,
    MixturePair,
    ResponsePair,
    binomial_weights,
)
from dpgrain.units import Relation

Array = NDArray[np.float64]


# ---------------------------------------------------------------------------------- pairs are drawn


@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
@pytest.mark.parametrize(("units", "rounds"), [(1, 2), (1, 4), (3, 3)])
def test_a_few_rounds_are_convolved(units: int, rounds: int, relation: Relation) -> None:
    rate, sd = 0.2, 1.5
    p, q = sampling_rates.pair_of(rate, units, relation)
    for epsilon in (0.5, 2.0):
        gamma = math.exp(epsilon)
        exact = max(oracle.rounds(a, b, sd, rounds, gamma) for a, b in ((p, q), (q, p)))
        found = SampledGaussian(sd, rate, rounds).delta(epsilon, units=units, relation=relation)
        assert found == pytest.approx(exact, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "sd", "rounds", "delta"), sampling_rates.GOOGLE)
def test_the_poisson_sampled_gaussian_is_googles(
    rate: float, sd: float, rounds: int, delta: float
) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    above, below = (
        pld.from_gaussian_mechanism(
            sd, value_discretization_interval=1e-4, sampling_prob=rate, pessimistic_estimate=up
        )
        .self_compose(rounds)
        .get_epsilon_for_delta(delta)
        for up in (True, False)
    )
    lower, upper = SampledGaussian(sd, rate, rounds).epsilon(delta, bounds=True)
    assert below <= upper
    assert lower <= above
    assert upper == pytest.approx(above, rel=1e-3)


# ------------------------------------------------------------------------------------------ extremes


EXTREMES = [
    # rate, sd, rounds, units, delta
    pytest.param(1e-6, 0.3, 1, 1, 1e-30, marks=pytest.mark.slow(full=True)),
    pytest.param(1e-6, 0.3, 1_000_000, 1, 1e-5, marks=pytest.mark.slow(full=True)),
    (1e-6, 1e4, 1_000_000, 1, 1e-9),
    (1e-3, 1.0, 1_000_000, 1, 1e-6),
    (0.01, 1e4, 1, 1, 1e-30),
    pytest.param(0.01, 0.3, 100, 1, 1e-300, marks=pytest.mark.slow(full=True)),
    (0.01, 1.0, 1000, 1, 1e-300),
    (0.5, 10.0, 10_000, 1, 1e-30),
    (0.5, 0.3, 40, 1, 1e-5),
    (1 - 1e-12, 3.0, 100, 1, 1e-5),
    (1 - 1e-12, 1e4, 1, 1, 1e-5),
    (0.01, 50.0, 100, 200, 1e-5),
    (0.001, 0.5, 10, 200, 1e-9),
    pytest.param(*(0.3, 1e4, 1_000_000, 1, 0.2), marks=pytest.mark.slow(full=True)),
    (0.9, 1.0, 1, 1, 0.9),
]


@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
@pytest.mark.parametrize(("rate", "sd", "rounds", "units", "delta"), EXTREMES)
def test_extremes_return_valid_results(
    rate: float, sd: float, rounds: int, units: int, delta: float, relation: Relation
) -> None:
    event = SampledGaussian(sd, rate, rounds)
    asked: dict[str, Any] = {"units": units, "relation": relation}
    lower, upper = event.epsilon(delta, bounds=True, **asked)
    assert 0 <= lower <= upper < math.inf
    assert (
        sampling_rates.least_epsilon(rate, units, sd, rounds, delta, relation) * (1 - 1e-9) <= upper
    )
    mu = units * (2 if relation == "replace" else 1) * math.sqrt(rounds) / sd
    always = oracle.solve(lambda e: oracle.gaussian(e, mu), delta, mu * mu + 40 * mu)
    assert upper <= always * (1 + 3e-4) + 1e-6
    if units == 1 and relation == "zero_out" and rate < 0.9:
        assert upper <= sampling_rates.moments(rate, sd, rounds, delta) * (1 + 1e-9)


@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
@pytest.mark.parametrize(
    "epsilon",
    [
        1e-3,
        pytest.param(1.0, marks=pytest.mark.slow(full=True)),
        20.0,
        pytest.param(500.0, marks=pytest.mark.slow(full=True)),
    ],
)
def test_delta_at_any_epsilon(epsilon: float, relation: Relation) -> None:
    for rate, sd, rounds in ((0.01, 1.0, 100), (0.5, 0.5, 3), (1e-6, 5.0, 10_000)):
        found = SampledGaussian(sd, rate, rounds).delta(epsilon, relation=relation)
        assert 0 <= found <= 1
        # For one round in closed form: δ = q·δ_G(ln(1 + (e^ε − 1)/q)); more rounds only cost more.
        inner = epsilon + math.log(-math.expm1(-epsilon) / rate + math.exp(-epsilon))
        assert found >= rate * oracle.gaussian(inner, 1 / sd) * (1 - 1e-9)
        mu = math.sqrt(rounds) * (2 if relation == "replace" else 1) / sd
        assert found <= oracle.gaussian(epsilon, mu) * (1 + 1e-2) + 1e-290


def test_mass_at_infinite_loss_counts_once_for_each_composition() -> None:
    class Part:
        infinite = 1e-9

    part: Any = Part()
    assert _infinite([(part, 1000), (part, 1)]) == pytest.approx(1001e-9)
    assert _infinite([(part, 1000)]) >= 1000e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("odds", "count", "delta"),
    [
        (0.8054156897752429, 2, 6.178574912177239e-18),
        (12.28192014926571, 1, 3.7575058959295196e-20),
        (0.8, 2, 1e-30),
        (3.0, 5, 1e-25),
    ],
)
def test_grid_position_is_not_mistaken_for_an_answer(odds: float, count: int, delta: float) -> None:
    """Below the largest loss a window is empty; a query at a smaller ε is not a bound."""
    claimed = composed_epsilon(((ResponsePair(odds), count),), delta)
    # All responses are true with a probability far above δ, and show count·odds.
    chance = (1 + math.exp(-odds)) ** -count
    assert chance * -math.expm1(claimed * (1 + 1e-9) - count * odds) <= delta


@pytest.mark.parametrize(
    ("rate", "rounds", "delta"),
    [(1e-4, 100, 1e-5), (1e-4, 100, 1e-10), (1e-5, 1000, 1e-8), (1e-6, 10**6, 1e-8)],
)
def test_rare_losses_beyond_the_answer_do_not_spoil_it(
    rate: float, rounds: int, delta: float
) -> None:
    """Losses with negligible δ enter Rényi divergences: ε was up to ten times too large."""
    event = SampledGaussian(1.0, rate, rounds)
    low, high = event.epsilon(delta, bounds=True)
    assert 0 < low <= high <= 1.005 * low
    assert delta * 0.98 <= event.delta(high) <= delta * 1.02


def of_several(elements: int, rate: float, shift: float) -> MixturePair:
    """Some elements of one person, each drawn on its own."""
    weights = binomial_weights(elements, rate)
    return MixturePair(tuple((w, j * shift) for j, w in enumerate(weights)), ((1.0, 0.0),))


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("elements", "rate", "shift", "rounds"),
    [(16, 0.0044, 0.67, 40), (16, 0.0044, 0.67, 10), (30, 0.001, 1.5, 30), (8, 0.01, 1.0, 20)],
)
@pytest.mark.parametrize("delta", [1e-3, 1e-8])
def test_negligible_parts_do_not_affect_the_rest(
    elements: int, rate: float, shift: float, rounds: int, delta: float
) -> None:
    """Rarely are all of many elements sampled: ε of 16 was a quarter too large."""
    several = ((of_several(elements, rate, shift), rounds),)
    claimed = composed_epsilon(several, delta)
    one = SampledGaussian(1 / shift, rate, rounds).loss()
    assert claimed <= GroupCurve(one, elements).epsilon(delta)
    assert composed_epsilon(several, delta, upper=False) >= claimed * 0.998


@dataclass(frozen=True)
class Whole(DominatingPair):
    """Mixtures on a grid that includes negligibly rare losses."""

    pair: MixturePair

    def coarse_distribution(self) -> LossDistribution:
        return self.pair.coarse_distribution()

    def losses(
        self, step: float, tail: float, floor: float, *, upper: bool = True
    ) -> GridDistribution:
        return self.pair.losses(step, min(tail, 1e-28), floor, upper=upper)


def test_wrapped_mass_is_excluded_from_lower_bounds() -> None:
    """A lower bound below the ε of a window must exclude the mass from above it."""
    pair = of_several(16, 0.0044, 1 / 1.49)
    for rounds, delta in ((10, 1e-20), (40, 1e-10), (3, 1e-8)):
        largest = composed_epsilon(((pair, rounds),), delta)
        assert composed_epsilon(((Whole(pair), rounds),), delta, upper=False) <= largest

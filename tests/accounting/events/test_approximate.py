"""Events that are near to an ideal: the cost of the variation, and no less."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.accounting.events import near

from dpgrain.accounting import (
    Event,
    Gaussian,
    PureDP,
    SampledGaussian,
    StatisticallyClose,
    gaussian_delta,
)

Array = NDArray[np.float64]


# The neighbours' laws, and the same moved by η towards and away from an event.
def moved(epsilon: float, variation: float) -> tuple[Array, Array]:
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    return np.array([p + variation, 1 - p - variation]), np.array(
        [1 - p - variation, p + variation]
    )


def moved_by(law: Array, variation: float, random: np.random.Generator) -> Array:
    """Move mass of at most η from one outcome of a law to another."""
    start, end = random.permutation(len(law))[:2]
    mass = min(variation, law[start])
    result = law.copy()
    result[start] -= mass
    result[end] += mass
    return result


def twice(pair: tuple[Array, Array]) -> tuple[Array, Array]:
    p, q = pair
    return np.multiply.outer(p, p).ravel(), np.multiply.outer(q, q).ravel()


def hockey(p: Array, q: Array, epsilon: float) -> float:
    ratio = math.exp(epsilon)
    return float(max(np.maximum(p - ratio * q, 0).sum(), np.maximum(q - ratio * p, 0).sum()))


@pytest.mark.proof("audit", "StatisticallyClose")
@pytest.mark.parametrize("variation", [1e-2, 1e-5])
def test_variation_costs_exactly_its_charge(variation: float) -> None:
    event = StatisticallyClose(PureDP(1.0), variation)
    p, q = moved(1.0, variation)
    for epsilon in (0.0, 0.3, 0.7, 1.0, 1.4):
        # Up to the ε of the ideal the pair needs all of it.
        found = event.delta(epsilon)
        assert found >= hockey(p, q, epsilon) * (1 - 1e-9)
        if epsilon <= 1.0:
            assert found == pytest.approx(hockey(p, q, epsilon), rel=1e-6)
    # The cost is (1 + e^ε)·η, not η.
    assert event.delta(1.0) > 3.7 * variation
    # More is never promised at a larger ε.
    assert event.delta(5.0) == pytest.approx(event.delta(1.0), rel=1e-6)


@pytest.mark.proof("search", "StatisticallyClose")
@pytest.mark.parametrize("seed", range(20))
def test_no_pair_near_an_ideal_one_costs_more(seed: int) -> None:
    """Pairs of distributions within η of ε₁-DP ones."""
    random = np.random.default_rng(seed)
    claimed, variation = random.uniform(0.1, 2.0), 10 ** random.uniform(-5, -1.5)
    event = StatisticallyClose(PureDP(claimed), variation)
    asked = {epsilon: event.delta(epsilon) for epsilon in (0.0, claimed / 2, claimed, 2 * claimed)}
    largest = 0.0
    for number in range(400):
        if number % 2:
            # Randomised response with each outcome split in two.
            p, q = moved(claimed, 0.0)
            split = random.uniform(0.3, 0.7, size=2)
            p, q = (np.concatenate([law * split, law * (1 - split)]) for law in (p, q))
        else:
            # Normalised, the laws differ by a factor of at most e^ε₁.
            p = random.dirichlet(np.ones(4))
            q = p * np.exp(random.choice([0.0, claimed / 2], size=4))
        p, q = (moved_by(law / law.sum(), variation, random) for law in (p, q))
        for epsilon, delta in asked.items():
            assert hockey(p, q, epsilon) <= delta * (1 + 1e-9)
        largest = max(largest, hockey(p, q, claimed))
    assert largest == pytest.approx(asked[claimed], rel=1e-6)


@pytest.mark.parametrize("variation", [1e-3, 1e-6])
def test_composed_it_covers_pairs_composed(variation: float) -> None:
    both, still = twice(moved(0.5, variation)), twice(moved(0.5, 0.0))
    one = StatisticallyClose(PureDP(0.5), variation)
    apart, together = one + one, StatisticallyClose((PureDP(0.5), PureDP(0.5)), 2 * variation)
    for epsilon in (0.0, 0.4, 0.8, 1.0):
        exact = hockey(*both, epsilon)
        assert exact <= apart.delta(epsilon) <= exact + 12 * variation + 2e-3
        assert exact <= together.delta(epsilon)
        assert exact > hockey(*still, epsilon)


def test_it_is_paid_once_for_any_number_of_people() -> None:
    variation = 1e-9
    event = StatisticallyClose(Gaussian(20.0), variation)
    for units in (1, 3, 5):
        plain = Gaussian(20.0).delta(0.2, units=units)
        paid = event.delta(0.2, units=units) - plain
        assert paid == pytest.approx((1 + math.exp(0.2)) * variation, rel=1e-3)


def test_its_curve_is_the_sum_and_its_inverse() -> None:
    event = StatisticallyClose(Gaussian(4.0), 1e-8)
    for epsilon in (0.1, 0.5, 1.0):
        expected = gaussian_delta(epsilon, 0.25) + (1 + math.exp(epsilon)) * 1e-8
        assert event.delta(epsilon) == pytest.approx(expected, rel=1e-9)
        found = event.epsilon(expected)
        assert epsilon * (1 - 1e-6) <= found <= epsilon * (1 + 1e-6)
        low, high = event.epsilon(expected, bounds=True)
        assert low <= epsilon * (1 + 1e-9)
        assert high == found
        assert low >= 0.999 * high
    # Below the smallest value there is no ε.
    assert event.epsilon(2e-8) == math.inf
    assert StatisticallyClose(Gaussian(4.0), 0.0).epsilon(2e-8) == Gaussian(4.0).epsilon(2e-8)
    assert StatisticallyClose(Gaussian(1e-4), 1e-9).epsilon(0.5) == math.inf


@pytest.mark.slow
def test_bounds_enclose_exact_values() -> None:
    # One round of sampling: δ₁(ε) = q·δ_G(ln(1 + (e^ε − 1)/q)), computed on a grid.
    rate, noise, epsilon = 0.01, 0.8, 0.5
    inner = math.log1p(math.expm1(epsilon) / rate)
    exact = rate * gaussian_delta(inner, 1 / noise) + (1 + math.exp(epsilon)) * 1e-8
    event = StatisticallyClose(SampledGaussian(noise, rate), 1e-8)
    low, high = event.epsilon(exact, bounds=True)
    assert epsilon * (1 - 1e-3) <= low < epsilon < high <= epsilon * (1 + 3e-4)


def test_nothing_of_the_ideal_is_not_nothing() -> None:
    # The sum does not move, but the views may be 2η apart.
    event = StatisticallyClose(PureDP(0.0), 1e-4)
    assert event.delta(0.0) == pytest.approx(2e-4, rel=1e-6)


def test_event_has_json_and_rejects_invalid_parameters() -> None:
    event = StatisticallyClose((Gaussian(4.0), Gaussian(5.0)), 1e-8)
    assert Event.from_json(event.to_json()) == event
    assert StatisticallyClose(Gaussian(4.0), 1e-8).events == (Gaussian(4.0),)
    near.refused(
        lambda: StatisticallyClose((), 1e-8),
        lambda: StatisticallyClose(Gaussian(4.0), -1e-8),
        lambda: StatisticallyClose(Gaussian(4.0), 1.0),
        lambda: StatisticallyClose(Gaussian(4.0), math.nan),
    )

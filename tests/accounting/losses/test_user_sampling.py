"""Whole users are sampled: no vectors violate the bound of the two sides."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from dpgrain.accounting import SampledGaussian
from dpgrain.accounting.losses.composition import composed_delta
from dpgrain.accounting.losses.user_sampling import TwoSidedPair, _Side
from dpgrain.units import Relation

Array = NDArray[np.float64]
PLACES = np.linspace(-9.0, 13.0, 400)


def plane(rate: float, mean: Array) -> Array:
    """Masses of (1−q)N(0) + qN(mean) in the cells of the plane."""
    ends = [np.diff(np.concatenate([[0.0], ndtr(PLACES - m), [1.0]])) for m in (*mean, 0.0)]
    return np.asarray((1 - rate) * np.outer(ends[2], ends[2]) + rate * np.outer(ends[0], ends[1]))


def hockey_stick(p: Array, q: Array, gamma: float) -> float:
    return float(np.maximum(p - gamma * q, 0.0).sum())


def exact(rate: float, up: float, down: float, gamma: float) -> float:
    """H_γ of (1−q)N(0) + qN(up) against the same of down, for γ ≥ 1, by the place of one threshold."""
    low, high = (up + down) / 2, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        top = 1 - rate + rate * math.exp(up * middle - up * up / 2)
        bottom = 1 - rate + rate * math.exp(down * middle - down * down / 2)
        low, high = (low, middle) if top > gamma * bottom else (middle, high)

    def beyond(mean: float) -> float:
        return float((1 - rate) * ndtr(-low) + rate * ndtr(mean - low))

    return beyond(up) - gamma * beyond(down)


@pytest.mark.parametrize("rate", [0.01, 0.3])
@pytest.mark.parametrize(
    ("above", "below"), [((3, 2), (2, 1)), ((1.5, 0.5), (1, 0)), ((2, -1), (2, -1))]
)
def test_each_order_has_the_curve_of_its_side(
    rate: float, above: tuple[float, float], below: tuple[float, float]
) -> None:
    pair = TwoSidedPair(rate, above, below)
    for epsilon in (0.01, 0.3, 1.0, 2.0):
        truth = max(exact(rate, *side, math.exp(epsilon)) for side in (above, below))
        assert truth <= composed_delta(((pair, 1),), epsilon) <= truth * (1 + 1e-2) + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.02, 0.5])
@pytest.mark.parametrize("noise", [0.7, 3.0])
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("units", [1, 2])
def test_no_vectors_of_three_elements_violate_the_bound(
    rate: float, noise: float, relation: Relation, units: int
) -> None:
    event = SampledGaussian(noise, rate, sampling="users")
    rng, largest = np.random.default_rng(5), 0.0
    angles = [0.0, 0.6, math.pi / 2, 2.5, math.pi, *rng.uniform(0, math.pi, 3)]
    for angle, some, rest in itertools.product(angles, range(1, units + 1), (1.0, 0.5)):
        # Some of the elements are empty before, or others are not as long as they may be.
        change = some * np.array([math.cos(angle), math.sin(angle)])
        others = np.array([rest * (3 - some), 0.0])
        after = others - change if relation == "replace" else others
        p, q = plane(rate, (others + change) / noise), plane(rate, after / noise)
        for epsilon in (0.0, 0.1, 0.5, 1.5):
            shown = max(hockey_stick(a, b, math.exp(epsilon)) for a, b in ((p, q), (q, p)))
            claim = event.delta(epsilon, units=units, relation=relation, max_elements=3)
            assert shown <= claim + 1e-12
            largest = max(largest, shown / claim)
    # The claim is attained but for the cells of the plane.
    assert largest > 0.97


def test_a_smaller_move_would_be_exceeded() -> None:
    rate, gamma = 0.1, math.exp(0.4)
    shown = hockey_stick(
        plane(rate, np.array([3.0, 0.0])), plane(rate, np.array([2.0, 0.0])), gamma
    )
    assert composed_delta(((TwoSidedPair(rate, (3, 2.1), (2, 1.1)), 1),), 0.4) < shown
    # As if the removed part could be orthogonal to the others in both orders.
    assert composed_delta(((TwoSidedPair(rate, (2, 1), (2, 1)), 1),), 0.4) < shown


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_several_rounds_are_between_shown_and_revealed_bounds(relation: Relation) -> None:
    event = SampledGaussian(4.0, 0.05, 300, sampling="users")
    asked = {"relation": relation}
    one, all_ = (event.epsilon(1e-5, max_elements=m, relation=relation) for m in (3, 1))
    shown = SampledGaussian(4.0, 0.05, 300).epsilon(1e-5, relation=relation)
    assert all_ == pytest.approx(shown, rel=1e-3)
    # The pairs of a Gram matrix valid for all tests at once cost 1.56 and 3.13.
    most = {"zero_out": 1.48, "replace": 2.93}[relation]
    assert shown < one < most
    assert one < event.epsilon(1e-5, relation=relation), asked


@pytest.mark.parametrize("theta", [0.5, 7.0, 63.0, 500.0])
@pytest.mark.parametrize("up", [3.0, 0.75])
def test_moments_include_losses_missed_by_the_grid(theta: float, up: float) -> None:
    rate, down = 0.05, up * 2 / 3
    above, below = (up, down), (down, down * 2 - up)
    high = up + theta * (up - down)
    logs: dict[str, Array] = {}
    places = np.linspace(-12.0, high + 12.0, 200_001)
    for name, mean in (("up", up), ("down", down), ("rest", below[0]), ("least", below[1])):
        drawn = math.log(rate) - (places - mean) ** 2 / 2
        logs[name] = np.logaddexp(math.log(1 - rate) - places**2 / 2, drawn)
    logs = {name: log - math.log(2 * math.pi) / 2 for name, log in logs.items()}
    right, left = logs["up"] > logs["down"], logs["rest"] > logs["least"]
    width = math.log(places[1] - places[0])
    positive = logs["up"] + theta * (logs["up"] - logs["down"])
    negative = logs["least"] + theta * (logs["least"] - logs["rest"])
    laws = np.concatenate([logs["up"][right], logs["least"][left]])
    nothing = math.log(1 - float(np.exp(laws + width).sum()))
    parts = np.concatenate([positive[right], negative[left]]) + width
    truth = float(np.logaddexp.reduce(np.append(parts, nothing)))
    claim = TwoSidedPair(rate, above, below).log_moment(theta)
    assert truth - 1e-6 <= claim <= truth + 1e-2 * (1 + truth)


@pytest.mark.parametrize(("up", "apart"), [(8000.3, 1.1), (777.7, 0.01)])
def test_the_slip_covers_the_rounding_of_losses(up: float, apart: float) -> None:
    down = up - apart
    grid = TwoSidedPair(0.3, (up, down), (up, down)).losses(apart / 50, 1e-12, 1e-12)
    side = _Side.create(0.3, (up, down))
    places = np.linspace(side.first, side.first + 20, 501)
    # So far from 0, the loss equals the loss of two normal distributions.
    exact = [
        (Fraction(up) - Fraction(down)) * (Fraction(x) - (Fraction(up) + Fraction(down)) / 2)
        for x in places.tolist()
    ]
    misses = np.abs(np.array([float(x) for x in exact]) - side.mixtures.loss(places)[0])
    assert 0 < float(misses.max()) <= grid.slip < 1e-6


@pytest.mark.parametrize("step", [0.5, 0.13, 0.01])
@pytest.mark.parametrize("floor", [0.05, 1e-3, 1e-9])
def test_the_law_is_above_the_curve_at_every_gamma(step: float, floor: float) -> None:
    rate, above, below = 0.3, (1.5, 1.0), (1.0, 0.5)
    for pair in (TwoSidedPair(rate, above, below), TwoSidedPair(rate, below, above)):
        grid = pair.losses(step, floor, floor)
        for law in (grid.law, pair.coarse_distribution()):
            for loss in (*np.linspace(-3, 3, 121), -step, -step / 2, step / 2, -10.0, 10.0):
                gamma = math.exp(loss)
                if gamma >= 1:
                    truth = exact(rate, *pair.above, gamma)
                else:
                    truth = 1 - gamma + gamma * exact(rate, *pair.below, 1 / gamma)
                more = law.values + grid.slip > loss
                weights = -np.expm1(loss - law.values[more] - grid.slip)
                claim = law.infinite + float(law.mass[more] @ weights)
                assert claim >= truth - 1e-15

"""One round on mixtures is the integral of its mixtures, in both directions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from numpy.typing import NDArray
from tests import oracle
from tests.accounting.losses import sampling_rates

from dpgrain.accounting import SampledGaussian
from dpgrain.accounting.losses.composition import composed_delta, composed_epsilon
from dpgrain.accounting.losses.pairs import MixturePair
from dpgrain.units import Relation

Array = NDArray[np.float64]


@settings(max_examples=60, derandomize=True, deadline=None, phases=[Phase.generate])
@given(pair=sampling_rates.mixtures, step=sampling_rates.steps, tail=sampling_rates.small)
def test_total_masses(pair: MixturePair, step: float, tail: float) -> None:
    above, below = (pair.losses(step, tail, 1e-9, upper=upper) for upper in (True, False))
    total = float(above.mass.sum()) + above.infinite
    assert 1 - 1e-12 <= total <= 1 + 1e-9
    assert above.infinite <= 1.01 * tail + 1e-300
    assert float(below.mass.sum()) + below.infinite <= 1 + 1e-12
    for found in (above, below):
        assert (found.mass >= 0).all()
    # Under Q: no more than 1 where the bound is from above.
    losses = step * np.arange(above.low, above.low + above.mass.size)
    assert float(above.mass @ np.exp(-losses)) <= 1 + 1e-9


def test_swapped_is_the_other_way_round() -> None:
    # Outputs of (Q, P) equal outputs of (P, Q) with the distributions swapped: H_γ(Q‖P) = 1 − γ +
    # γ·H_{1/γ}(P‖Q).
    pair = MixturePair(((0.9, 0.0), (0.1, 2.0)), ((1.0, 0.0),))
    assert pair.swapped != pair
    assert pair.swapped.swapped == pair
    epsilons = np.linspace(-2.0, 2.0, 9)
    there = sampling_rates.sticks(pair.losses(1e-3, 1e-15, 1e-15), epsilons)
    back = sampling_rates.sticks(pair.swapped.losses(1e-3, 1e-15, 1e-15), -epsilons)
    assert back == pytest.approx(-np.expm1(-epsilons) + np.exp(-epsilons) * there, abs=1e-6)
    mirror = MixturePair(((0.9, 0.0), (0.1, 2.0)), ((0.9, 0.0), (0.1, -2.0)))
    assert mirror.swapped is mirror


@pytest.mark.parametrize("rounds", [1, 20])
def test_both_directions_are_evaluated(rounds: int) -> None:
    # The first way round is the worse one of this pair, so that the answers differ by a lot.
    pair = MixturePair(((0.9, 0.0), (0.1, 2.0)), ((1.0, 0.0),))
    there, back = ((pair, rounds),), ((pair.swapped, rounds),)
    assert composed_delta(there, 1.0) == composed_delta(back, 1.0)
    assert composed_epsilon(there, 1e-4) == composed_epsilon(back, 1e-4)
    exact = oracle.hockey_stick(oracle.sampled(0.1, [2.0]), [(1.0, [0.0])], 1.0, math.e)
    assert composed_delta(back, 1.0) >= exact - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("relation", sampling_rates.RELATIONS)
@pytest.mark.parametrize("units", [1, 2, 5])
def test_one_round_is_the_integral_of_its_mixtures(units: int, relation: Relation) -> None:
    for rate, sd in ((0.02, 0.7), (0.3, 2.0), (0.8, 4.0)):
        event, (p, q) = SampledGaussian(sd, rate), sampling_rates.pair_of(rate, units, relation)
        for epsilon in (0.1, 1.0, 3.0):
            gamma = math.exp(epsilon)
            exact = max(oracle.hockey_stick(a, b, sd, gamma) for a, b in ((p, q), (q, p)))
            found = event.delta(epsilon, units=units, relation=relation)
            assert exact - 1e-9 <= found
            if exact > 1e-6:
                lower, upper = event.epsilon(exact, units=units, relation=relation, bounds=True)
                assert lower * (1 - 1e-5) <= epsilon <= upper * (1 + 1e-5)
                assert upper <= epsilon * (1 + 2e-3)

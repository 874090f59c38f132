"""The curve of one draw from two mixtures, against arithmetic with fifty digits."""

from __future__ import annotations

import math

import mpmath
import pytest

from dpgrain.accounting import SampledGaussian
from dpgrain.accounting.losses.mixture_curve import OneRoundCurve
from dpgrain.accounting.losses.pairs import MixturePair, sampled_pair
from dpgrain.units import RELATIONS, Relation

RATES = [1e-9, 1e-4, 0.01, 0.5, 0.999]
SHIFTS = [1e-3, 0.2, 1.0, 30.0]


def exact(pair: MixturePair, epsilon: float) -> mpmath.mpf:
    """P(x > x*) − e^ε·Q(x > x*), the place being found by bisection."""
    with mpmath.workdps(60):

        def density(parts: tuple[tuple[float, float], ...], x: mpmath.mpf) -> mpmath.mpf:
            return sum(mpmath.mpf(w) * mpmath.exp(m * x - mpmath.mpf(m) ** 2 / 2) for w, m in parts)

        def tail(parts: tuple[tuple[float, float], ...], x: mpmath.mpf) -> mpmath.mpf:
            return sum(mpmath.mpf(w) * mpmath.erfc((x - m) / mpmath.sqrt(2)) / 2 for w, m in parts)

        odds = mpmath.exp(mpmath.mpf(epsilon))
        low, high = mpmath.mpf(-200), mpmath.mpf(200)
        if density(pair.p, high) <= odds * density(pair.q, high):
            return mpmath.mpf(0)
        for _ in range(190):
            middle = (low + high) / 2
            above = density(pair.p, middle) > odds * density(pair.q, middle)
            low, high = (low, middle) if above else (middle, high)
        return tail(pair.p, high) - odds * tail(pair.q, high)


def pairs(rate: float, shift: float) -> list[MixturePair]:
    found = [sampled_pair(rate, shift, -shift), sampled_pair(rate, shift, 0.0)]
    return [pair for pair in found if isinstance(pair, MixturePair)]


@pytest.mark.parametrize(
    ("rate", "shift", "epsilon"),
    [
        # The loss is far below the rounding of its largest exponent.
        (1.064502375482664e-29, 0.7837786626504715, 1.0645023750672281e-29),
        (1e-25, 0.5, 0.9e-25),
        # It is within rounding of ε on a long way.
        (0.5, 100.0, 0.0),
        (1 - 1e-9, 60.0, 1e-12),
        # The largest loss is just above ε.
        (1 - 1e-13, 3.0, 29.9),
        (0.999, 1.0, math.log(1000.0) * (1 - 1e-9)),
    ],
)
def test_thresholds_are_found_between_nearly_equal_losses(
    rate: float, shift: float, epsilon: float
) -> None:
    for pair in pairs(rate, shift):
        swapped = pair.swapped
        assert isinstance(swapped, MixturePair)
        curve = pair.curve(1, 0.0)
        assert isinstance(curve, OneRoundCurve)
        truth = max(exact(pair, epsilon), exact(swapped, epsilon))
        assert truth <= curve.delta(epsilon) <= 1
        assert curve.delta(epsilon) <= truth * (1 + 1e-4) + 2e-15


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("shift", SHIFTS)
def test_it_is_the_exact_curve_rounded_up(rate: float, shift: float) -> None:
    for pair in pairs(rate, shift):
        swapped = pair.swapped
        assert isinstance(swapped, MixturePair)
        curve = pair.curve(1, 0.0)
        assert isinstance(curve, OneRoundCurve)
        for epsilon in (0.0, rate * shift, shift, shift * shift / 2, 3 * shift + shift * shift / 2):
            truth = max(exact(pair, epsilon), exact(swapped, epsilon))
            answer = curve.delta(epsilon)
            # Its rounding is in proportion to the mass beyond the place, which is large up to here.
            rounding = 2e-15 if epsilon <= rate * shift else 1e-300
            assert truth <= answer <= truth * (1 + 1e-5) + rounding


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-30, 1e-200])
def test_epsilon_is_the_inverse(rate: float, shift: float, delta: float) -> None:
    for pair in pairs(rate, shift):
        curve = pair.curve(1, 0.0)
        assert curve is not None
        epsilon = curve.epsilon(delta)
        assert curve.delta(epsilon) <= delta
        low, high = curve.bounds(delta)
        assert low <= high == epsilon
        if rate < 0.9 * delta:
            assert epsilon <= 2e-9
        if 1e-6 < epsilon < 100:
            swapped = pair.swapped
            assert isinstance(swapped, MixturePair)
            below = max(exact(pair, low), exact(swapped, low)) if low > 0 else 1
            assert below >= delta * (1 - 1e-12)
            assert low >= epsilon * (1 - 2e-3)


def test_one_sided_bounded_loss_is_large_in_other_order() -> None:
    # e^ε is beyond all floats, and the loss of the other order is at most ln 2.
    event = SampledGaussian(0.02, 0.5)
    for delta in (1e-5, 1e-30, 1e-200):
        epsilon = event.epsilon(delta)
        # The other block is not sampled with probability ½, and the sum is at most 60 sd away.
        assert 50**2 / 2 - 50 * 60 < epsilon < 50**2 / 2 + 50 * 60
        assert delta * (1 - 1e-6) < event.delta(epsilon) <= delta


@pytest.mark.parametrize("rate", [1e-9, 1e-4, 0.3])
@pytest.mark.parametrize("sd", [1e-3, 0.02, 1.0, 30.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_delta_above_the_sampling_probability_covers_everything(
    rate: float, sd: float, relation: Relation
) -> None:
    """Between the two blocks the loss of negligible noise is flat."""
    event = SampledGaussian(sd, rate)
    for delta in (0.5, 1.01 * rate):
        assert event.epsilon(delta, relation=relation) == 0
    for delta in (0.99 * rate, 0.5 * rate, 1e-3 * rate):
        epsilon = event.epsilon(delta, relation=relation)
        assert 0 <= epsilon < (2 / sd) ** 2 + 60 / sd
        assert event.delta(epsilon, relation=relation) <= delta


def test_mixture_is_not_evaluated_within_compositions() -> None:
    (pair, *_) = pairs(0.1, 1.0)
    assert pair.curve(2, 0.0) is None
    assert pair.curve(1, 0.5) is None
    assert OneRoundCurve((pair,)).epsilon(0.0) == math.inf


def test_an_event_of_one_round_is_answered_by_it() -> None:
    one, event = SampledGaussian(1.0, 0.01), SampledGaussian(1.0, 0.01, 2)
    low, high = one.epsilon(1e-30, bounds=True)
    assert high * (1 - 1e-8) < low <= high < event.epsilon(1e-30)

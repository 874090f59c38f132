"""Curves of δ at each ε: the worst of several, several steps, and the way back to ε."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mpmath
import pytest

from dpgrain.accounting.losses.curves import (
    GroupCurve,
    OffsetCurve,
    ResponsesCurve,
    WorstCurve,
    inverse,
)


@dataclass(frozen=True)
class Exponential:
    """δ(ε) = e^{−rate·ε}/2, a curve with a known inverse."""

    rate: float

    def delta(self, epsilon: float) -> float:
        return math.exp(-self.rate * epsilon) / 2

    def epsilon(self, delta: float) -> float:
        return max(-math.log(2 * delta) / self.rate, 0.0)

    def bounds(self, delta: float) -> tuple[float, float]:
        return self.epsilon(delta), self.epsilon(delta)


@pytest.mark.parametrize("delta", [0.4, 0.01, 1e-9])
def test_the_inverse_is_rounded_up_and_near(delta: float) -> None:
    curve = Exponential(3.0)
    found = inverse(curve, delta)
    assert curve.delta(found) <= delta
    assert found == pytest.approx(curve.epsilon(delta), rel=1e-8)
    assert inverse(curve, 0.5) == 0


def test_unreachable_delta_has_no_epsilon() -> None:
    class Flat(Exponential):
        def delta(self, epsilon: float) -> float:
            return 0.1

    assert inverse(Flat(1.0), 0.05) == math.inf


def test_worst_of_several_is_the_pointwise_maximum() -> None:
    slow, fast = Exponential(1.0), Exponential(4.0)
    worst = WorstCurve((fast, slow))
    assert worst.delta(2.0) == slow.delta(2.0)
    assert worst.epsilon(1e-6) == slow.epsilon(1e-6)
    assert worst.bounds(1e-6) == slow.bounds(1e-6)


def test_several_steps_cost_at_most_the_formula() -> None:
    one, epsilon = Exponential(5.0), 1.5
    assert GroupCurve(one, 1).delta(epsilon) == pytest.approx(one.delta(epsilon))
    three = GroupCurve(one, 3)
    stated = sum(math.exp(i * epsilon / 3) * one.delta(epsilon / 3) for i in range(3))
    assert one.delta(epsilon) < three.delta(epsilon) <= stated * (1 + 1e-12)
    assert three.delta(three.epsilon(1e-3)) <= 1e-3


def test_a_moved_curve_is_the_other_one_at_less() -> None:
    moved = OffsetCurve(Exponential(2.0), 0.5)
    assert moved.delta(1.5) == pytest.approx(Exponential(2.0).delta(1.0))
    assert moved.delta(0.4) == 1.0
    assert moved.epsilon(1e-3) == pytest.approx(Exponential(2.0).epsilon(1e-3) + 0.5)
    assert moved.bounds(1e-3)[0] <= moved.epsilon(1e-3) == moved.bounds(1e-3)[1]


# ------------------------------------------------------------------------------------- responses


@pytest.mark.parametrize("count", [1, 3, 40, 1000])
@pytest.mark.parametrize("odds", [1e-12, 1e-3, 0.7, 30.0, 700.0])
def test_responses_are_a_sum_of_fractions_rounded_up(odds: float, count: int) -> None:
    curve = ResponsesCurve(odds, count)
    for share in (0.0, 1e-6, 0.3, 0.5, 1 - 1e-9):
        epsilon = share * count * odds
        with mpmath.workdps(60):
            chance, truth = (1 + mpmath.exp(-mpmath.mpf(odds))) ** -count, mpmath.mpf(0)
            for false in range(count // 2 + 1):
                loss = (count - 2 * false) * mpmath.mpf(odds) - mpmath.mpf(epsilon)
                if loss > 0:
                    truth -= mpmath.binomial(count, false) * chance * mpmath.expm1(-loss)
                chance *= mpmath.exp(-mpmath.mpf(odds))
            assert min(truth, 1) <= curve.delta(epsilon) <= truth * (1 + 1e-5) + 1e-320


def test_denormal_values_do_not_count_as_zero() -> None:
    # All responses are true with probability e^−6444, and show 1,000.
    many = ResponsesCurve(0.1, 10_000)
    assert many.delta(999.0) > 0
    assert many.epsilon(0.0) >= 1000
    assert many.delta(many.epsilon(0.0)) == 0


def test_bounds_of_responses_are_on_both_sides() -> None:
    for odds, delta in ((30.0, 1 - 1e-9), (20.0, 1 - 1e-8), (1.0, 0.1)):
        exact = odds + math.log1p(-delta * (1 + math.exp(-odds)))
        low, high = ResponsesCurve(odds, 1).bounds(delta)
        assert low <= exact <= high
        assert low > 0.9 * high

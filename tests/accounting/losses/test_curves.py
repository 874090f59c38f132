"""Curves of δ at each ε: the worst of several, several steps, and the way back to ε."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from dpgrain.accounting.losses.curves import Group, Worst, inverse


@dataclass(frozen=True)
class Exponential:
    """δ(ε) = e^{−rate·ε}/2, a curve whose inverse is known."""

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


def test_a_delta_that_no_epsilon_reaches_has_none() -> None:
    class Flat(Exponential):
        def delta(self, epsilon: float) -> float:
            return 0.1

    assert inverse(Flat(1.0), 0.05) == math.inf


def test_the_worst_of_several_is_the_largest_at_each_place() -> None:
    slow, fast = Exponential(1.0), Exponential(4.0)
    worst = Worst((fast, slow))
    assert worst.delta(2.0) == slow.delta(2.0)
    assert worst.epsilon(1e-6) == slow.epsilon(1e-6)
    assert worst.bounds(1e-6) == slow.bounds(1e-6)


def test_several_steps_cost_the_sum_of_the_formula_or_less() -> None:
    one, epsilon = Exponential(5.0), 1.5
    assert Group(one, 1).delta(epsilon) == pytest.approx(one.delta(epsilon))
    three = Group(one, 3)
    stated = sum(math.exp(i * epsilon / 3) * one.delta(epsilon / 3) for i in range(3))
    assert one.delta(epsilon) < three.delta(epsilon) <= stated * (1 + 1e-12)
    assert three.delta(three.epsilon(1e-3)) <= 1e-3

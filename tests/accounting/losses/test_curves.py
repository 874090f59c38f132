"""Curves of δ at each ε: the worst of several, several steps, and the way back to ε."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from dpgrain.accounting.losses.curves import Group, Moved, Responses, Worst, inverse


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


def test_a_moved_curve_is_the_other_one_at_less() -> None:
    moved = Moved(Exponential(2.0), 0.5)
    assert moved.delta(1.5) == pytest.approx(Exponential(2.0).delta(1.0))
    assert moved.delta(0.4) == 1.0
    assert moved.epsilon(1e-3) == pytest.approx(Exponential(2.0).epsilon(1e-3) + 0.5)
    assert moved.bounds(1e-3)[0] <= moved.epsilon(1e-3) == moved.bounds(1e-3)[1]


@pytest.mark.parametrize(("odds", "count"), [(0.1, 1), (0.1, 100), (3.0, 7), (1e-3, 400)])
def test_responses_have_their_law(odds: float, count: int) -> None:
    curve, right = Responses(odds, count), 1 / (1 + math.exp(-odds))
    for epsilon in (0.0, 0.3 * odds * count, 0.9 * odds * count, odds * count):
        truth = 0.0
        for false in range(count + 1):
            chance = math.comb(count, false) * right ** (count - false) * (1 - right) ** false
            loss = (count - 2 * false) * odds
            truth += chance * max(-math.expm1(epsilon - loss), 0.0)
        assert truth * (1 - 1e-12) <= curve.delta(epsilon) <= truth * (1 + 1e-6) + 1e-14
    assert curve.epsilon(1e-9) <= odds * count * (1 + 1e-12)
    assert curve.delta(curve.epsilon(1e-6)) <= 1e-6

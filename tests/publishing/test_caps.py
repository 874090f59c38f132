"""The filter of a budget: an adversary who chooses each release by the outcomes of those before.

The adversary's best δ is found by backward induction over the privacy loss so far: at every turn a
small Gaussian release, or one that fills what the budget's check still allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from dpgrain.accounting import (
    ApproximateDP,
    Contribution,
    Event,
    Gaussian,
    Loss,
    PureDP,
    gaussian_delta,
)
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.publishing import Budget, Price, price
from dpgrain.publishing.caps import Caps
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import User

USER = Contribution(block="user")
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Left:
    """The remaining allowance: the μ of a Gaussian, the ε of randomised response, a leak."""

    mu: float
    pure: float
    leak: float


def told(epsilon: float, losses: FloatArray) -> FloatArray:
    """(1 − e^{ε − loss})₊: an outcome's contribution to δ(ε)."""
    return np.maximum(-np.expm1(epsilon - losses), 0.0)


def gaussian_told(epsilon: float, losses: FloatArray, mu: float) -> FloatArray:
    """The mean contribution of an outcome after one more Gaussian release."""
    rest = epsilon - losses
    both: FloatArray = ndtr(mu / 2 - rest / mu) - np.exp(rest + log_ndtr(-mu / 2 - rest / mu))
    return both


def filled(epsilon: float, losses: FloatArray, left: Left) -> FloatArray:
    """The best δ of one last release, at each loss so far."""
    options = [told(epsilon, losses)]
    if left.mu > 0:
        options.append(gaussian_told(epsilon, losses, left.mu))
    truth = 1 / (1 + math.exp(-left.pure))
    options.append(
        truth * told(epsilon, losses + left.pure) + (1 - truth) * told(epsilon, losses - left.pure)
    )
    # A leak may come before any of them.
    best: FloatArray = np.max(options, axis=0)
    return best


def ahead(after: FloatArray, mu: float, step: float) -> FloatArray:
    """The mean of values after a Gaussian release with loss N(μ²/2, μ²)."""
    reach = math.ceil(10 * mu / step)
    moves = np.arange(-reach, reach + 1) * step
    weights = np.exp(-(((moves - mu * mu / 2) / mu) ** 2) / 2)
    # Beyond the last point the outcome has revealed everything.
    padded = np.concatenate([np.zeros(reach), after, np.ones(reach)])
    mean: FloatArray = np.convolve(padded, weights[::-1] / weights.sum(), mode="valid")
    return mean


def best_delta(
    epsilon: float, turn: float, turns: int, left: Callable[[int], Left], *, once: bool = False
) -> float:
    """δ(ε) of the best adaptive strategy.

    Args:
        once: whether leaks must fit in addition to the releases that fill the budget.
    """
    whole = left(0).mu
    # Values grow like e^{εL/μ²} with the loss L: between such close points they are linear.
    step = min(whole**2 / epsilon / 50, turn / 40)
    # 0 is one of them, the adversary's start: values have corners.
    below, above = math.ceil(9 * whole / step), math.ceil((epsilon + 9 * whole) / step)
    losses: FloatArray = step * np.arange(-below, above, dtype=np.float64)
    after: FloatArray | None = None
    for done in range(turns, -1, -1):
        allowed = left(done)
        value = filled(epsilon, losses, allowed)
        leaked = allowed.leak + (1 - allowed.leak) * (told(epsilon, losses) if once else value)
        value = np.maximum(value, leaked)
        if after is not None:
            value = np.maximum(value, ahead(after, turn, step))
        after = value
    assert after is not None
    return float(after[below])


def recomposed(epsilon: float, delta: float, turn: float) -> Callable[[int], Left]:
    """The allowance of a check that recomposes the past exactly and compares it with the limit."""
    whole = gaussian_mu(epsilon, delta)

    def left(done: int) -> Left:
        mu = turn * math.sqrt(done)

        def exact(pure: float) -> float:
            if mu == 0:
                return max((math.exp(pure) - math.exp(epsilon)) / (1 + math.exp(pure)), 0.0)
            below, above = gaussian_delta(epsilon - pure, mu), gaussian_delta(epsilon + pure, mu)
            return (math.exp(pure) * below + above) / (1 + math.exp(pure))

        low, high = 0.0, 2 * epsilon
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if exact(middle) <= delta else (low, middle)
        leak = delta - (gaussian_delta(epsilon, mu) if mu else 0.0)
        return Left(math.sqrt(max(whole**2 - mu**2, 0.0)), low, max(leak, 0.0))

    return left


def of_the_budget(budget: Budget, turn: float) -> Callable[[int], Left]:
    """The budget's allowance: found by requesting the largest release of each type."""
    caps = budget.caps
    small = Gaussian(1 / turn, USER)

    def largest(event: Callable[[float], Event], spent: Price, high: float) -> float:
        low = 0.0
        for _ in range(50):
            middle = (low + high) / 2
            own = price(event(middle), "zero_out", User(), caps.price) if middle else Price()
            low, high = (middle, high) if caps.allow(spent + own) else (low, middle)
        return low

    def left(done: int) -> Left:
        fresh = Budget(budget.epsilon, budget.delta, pure=caps.price.pure, leak=caps.price.leak)
        for _ in range(done):
            fresh.charge(Guarantee("user", "", "zero_out", 0.0, small))
        return Left(
            largest(lambda mu: Gaussian(1 / mu, USER), fresh.spent, 1.0),
            largest(lambda pure: PureDP(pure), fresh.spent, 2.0),
            largest(lambda leak: ApproximateDP(0.0, leak), fresh.spent, budget.delta),
        )

    return left


@pytest.mark.parametrize(
    ("share", "pure", "without", "with_leak"),
    [
        (0.1, 0.716, 1.99e-6, 2.53e-6),
        (0.5, 0.332, 1.84e-6, 2.77e-6),
        (0.9, 0.087, 1.23e-6, 1.91e-6),
    ],
)
def test_recomposing_the_past_is_not_a_filter(
    share: float, pure: float, without: float, with_leak: float
) -> None:
    """One Gaussian, then one of two or three ways to fill the budget: far above the promise."""
    turn = gaussian_mu(1.0, 1e-6) * math.sqrt(share)
    left = recomposed(1.0, 1e-6, turn)

    def no_leak(done: int) -> Left:
        return Left(left(done).mu, left(done).pure, 0.0)

    assert left(1).pure == pytest.approx(pure, abs=5e-4)
    assert best_delta(1.0, turn, 1, no_leak) == pytest.approx(without, rel=0.01)
    assert best_delta(1.0, turn, 1, left, once=True) == pytest.approx(with_leak, rel=0.01)


def test_closed_form_recomposition_is_not_a_filter() -> None:
    """► After .1 of M² the check δ_G(ε − ε₀; μ) ≤ δ admits ε₀ = .709; δ is 1.66 times as large."""
    whole = gaussian_mu(1.0, 1e-6)
    turn = whole * math.sqrt(0.1)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(1.0 - middle, turn) <= 1e-6 else (low, middle)
    assert low == pytest.approx(0.709, abs=5e-4)

    def left(done: int) -> Left:
        return Left(math.sqrt(whole**2 - done * turn**2), low if done else 1.0, 0.0)

    assert best_delta(1.0, turn, 1, left) == pytest.approx(1.66e-6, rel=0.01)
    # After earlier releases the budget admits randomised response only at its price.
    found = best_delta(1.0, turn, 1, of_the_budget(Budget(1.0, 1e-6), turn))
    assert found <= 1e-6 * (1 + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turns", "delta", "times"),
    [(12, 1e-6, 5.0), (40, 1e-6, 9.0), (100, 1e-6, 13.0), (200, 1e-9, 22.0)],
)
def test_recomposition_excess_grows_with_iterations_but_not_the_filter(
    turns: int, delta: float, times: float
) -> None:
    turn = gaussian_mu(1.0, delta) / math.sqrt(turns)
    old = best_delta(1.0, turn, turns, recomposed(1.0, delta, turn), once=True)
    assert old > 0.95 * times * delta
    budget = Budget(1.0, delta)
    turn = budget.caps.price.mu / math.sqrt(turns) * (1 - 1e-9)
    new = best_delta(1.0, turn, turns, of_the_budget(budget, turn))
    # And it is not loose: Gaussians and a leak take all of the promise.
    assert 0.97 * delta <= new <= delta * (1 + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("pure", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_no_strategy_beats_the_filter(epsilon: float, pure: float) -> None:
    for delta, leak, turns in ((1e-6, 1e-7, 8), (1e-5, 0.0, 20), (1e-4, 5e-5, 3)):
        budget = Budget(epsilon, delta, pure=min(pure, epsilon / 2), leak=leak)
        turn = budget.caps.price.mu / math.sqrt(turns)
        found = best_delta(epsilon, turn, turns, of_the_budget(budget, turn))
        assert 0.2 * delta <= found <= delta * (1 + 1e-3)


def test_the_promise_of_caps_of_every_kind() -> None:
    """► E = .1, M = .2, D = 10⁻⁷: δ(1) = 2.14·10⁻⁷; the simpler bound is 3.17·10⁻⁷."""
    assert Caps(Price(0.1, 0.2, 1e-7)).delta(1.0) == pytest.approx(2.14e-7, abs=5e-10)
    assert gaussian_delta(0.9, 0.2) + 1e-7 == pytest.approx(3.17e-7, abs=5e-10)


@pytest.mark.parametrize("planned", [Loss(), Loss(mu=0.05), Loss(mu=0.02, pure=0.1)])
@pytest.mark.parametrize("leak", [0.0, 1e-7, 9e-7])
def test_caps_with_a_plan_include_its_leak(planned: Loss, leak: float) -> None:
    caps = Caps.create(1.0, 1e-6, 0.0, leak, planned)
    # All releases within the limits: one Gaussian, and one that leaks.
    whole = planned + Loss(mu=caps.price.mu, leak=caps.price.leak)
    for epsilon in (0.2, 0.6, 1.0, 3.0):
        assert whole.delta(epsilon) <= caps.delta(epsilon) * (1 + 1e-9)
    assert whole.delta(1.0) <= 1e-6 * (1 + 1e-9)

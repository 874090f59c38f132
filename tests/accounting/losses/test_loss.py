"""Losses against the worst mechanisms that have their parts."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpgrain.accounting import (
    Gaussian,
    Loss,
    PureDP,
)
from dpgrain.accounting.losses.zcdp import ConcentratedCurve

EPSILONS = [0.0, 1e-6, 1e-3, 0.1, 0.5, 1.0, 3.0, 8.0, 20.0, 60.0, 200.0]


def _randomised_response(p: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    truth = 1 / (1 + math.exp(-p))
    return np.array([truth, 1 - truth]), np.array([1 - truth, truth])


def brute_delta(epsilon: float, mu: float, pure: float, leak: float) -> float:
    """H of Gaussian ⊗ randomised response ⊗ leak, by numerical integration over a fine grid."""
    x = np.linspace(-12, mu + 12, 40_001)
    density = [np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (mu, 0.0)]
    one, other = _randomised_response(pure)
    p = np.multiply.outer(density[0], one) * (1 - leak)
    q = np.multiply.outer(density[1], other) * (1 - leak)
    gap = np.maximum(p - math.exp(epsilon) * q, 0).sum(axis=1)
    return float(np.trapezoid(gap, x)) + leak


@pytest.mark.parametrize("mu", [0.0, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("pure", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("leak", [0.0, 1e-3, 0.2])
def test_a_loss_covers_the_worst_mechanisms_with_its_parts(
    mu: float, pure: float, leak: float
) -> None:
    loss = Loss(mu, pure, leak)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0, 6.0):
        true, claimed = brute_delta(epsilon, mu, pure, leak), loss.delta(epsilon)
        assert true <= claimed + 5e-8
        if leak == 0 and (mu == 0 or pure == 0):
            assert claimed == pytest.approx(true, abs=1e-7)


@given(
    st.floats(0, 5),
    st.floats(0, 5),
    st.floats(0, 0.5),
    st.floats(1e-9, 0.9),
)
@settings(deadline=None)
def test_epsilon_and_delta_of_a_loss_invert_each_other(
    mu: float, pure: float, leak: float, delta: float
) -> None:
    loss = Loss(mu, pure, leak)
    epsilon = loss.epsilon(delta)
    if math.isinf(epsilon):
        assert delta <= leak * (1 + 1e-12)
        return
    assert loss.delta(epsilon) <= delta * (1 + 1e-9) + 1e-15
    # Where δ is so large that ε falls below the pure part, the pure part is returned.
    if epsilon > max(1e-3, pure if mu > 0 else 0):
        assert loss.delta(epsilon * (1 - 1e-6) - 1e-9) >= delta * (1 - 1e-9)


def test_losses_add() -> None:
    one, two = Loss(3.0, 0.25, 1e-3), Loss(4.0, 0.5, 1e-4)
    assert one + two == two + one == Loss(5.0, 0.75, 1e-3 + 1e-4, (0.25**2 + 0.5**2) / 2)
    assert one + Loss() == one
    assert (Loss(leak=0.7) + Loss(leak=0.7)).leak == 1.0


def test_extreme_losses() -> None:
    assert Loss().epsilon(0.0) == 0.0
    assert Loss(pure=math.inf).epsilon(0.5) == math.inf
    assert Loss(mu=math.inf).delta(5.0) == 1.0
    assert Loss(mu=1.0, pure=math.inf).delta(5.0) == 1.0
    assert Loss(pure=math.inf).delta(5.0) == 1.0
    assert Loss(leak=0.1).epsilon(0.1) == 0.0
    assert Loss(leak=0.1).epsilon(0.09) == math.inf
    assert Loss(mu=1.0, leak=0.1).epsilon(0.1) == math.inf
    assert Loss(pure=2000.0).epsilon(1e-6) == pytest.approx(2000.0, abs=1e-5)
    assert Loss(pure=2000.0).delta(0.0) == 1.0


def test_small_and_huge_losses_are_not_rounded_away() -> None:
    assert PureDP(1e-17).epsilon(0.0) == 1e-17
    assert PureDP(630.0).epsilon(0.0) == 630.0
    # The smallest float: positive values are not reported as 0.
    assert Gaussian(1e200).delta(1.0) == 5e-324
    assert Gaussian(1e-200).delta(1.0) == 1.0


def test_least_leaking_bounds_are_retained() -> None:
    """Each of six parts may give something away; the last one's second bound is far the better."""
    parts = [Loss(pure=i / 10).or_else(Loss(leak=0.01)) for i in range(1, 7)]
    last = Loss(pure=9.0).or_else(Loss(pure=0.5, leak=1e-9))
    together = sum([*parts, last], Loss())
    assert together.epsilon(1e-6) <= 2.1 + 0.5 + 1e-9
    assert together.delta(2.7) == pytest.approx(1e-9)


# A value of each part of a loss; a new part needs one here.
PARTS: dict[str, Any] = {
    "mu": 0.4,
    "pure": 0.3,
    "leak": 1e-4,
    "pairs": Loss.from_curve(ConcentratedCurve(0.05)).pairs,
    "renyi": tuple((float(order), 0.05 * order) for order in range(2, 60)),
    "concentrated": 0.05,
}


def test_every_part_has_a_value() -> None:
    refinements = {"rho", "others"}
    assert set(PARTS) == {part.name for part in fields(Loss)} - refinements


@pytest.mark.parametrize("name", list(PARTS))
def test_a_loss_is_pure_only_without_other_parts(name: str) -> None:
    assert Loss(**{name: PARTS[name]}).is_pure == (name == "pure")
    if name != "pure":
        impure = Loss(pure=0.1, **{name: PARTS[name]})
        assert not impure.is_pure
        assert impure.or_else(Loss(pure=3.0)).is_pure


@pytest.mark.parametrize("several", list(itertools.combinations(PARTS, 2)))
def test_every_part_adds_to_a_composition(several: tuple[str, str]) -> None:
    one, two = (Loss(**{name: PARTS[name]}) for name in several)
    whole, together = one + two, Loss(**{name: PARTS[name] for name in several})
    for name in PARTS:
        assert getattr(whole, name) == getattr(together, name)
    for part in (one, two):
        assert whole.delta(1.0) > part.delta(1.0) or whole.delta(0.1) > part.delta(0.1)
        assert (part * 3).delta(0.2) > part.delta(0.2)
    assert (one * 3).delta(0.2) == pytest.approx((one + one + one).delta(0.2), rel=1e-6)

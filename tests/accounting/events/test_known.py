"""Mechanisms of which only the promise is known: composition and groups."""

from __future__ import annotations

import math

import pytest

from dpgrain.accounting import (
    ApproximateDP,
    Contribution,
    Gaussian,
    PureDP,
)
from dpgrain.units import Element, Record, User


def test_basic_composition_adds_epsilons_and_deltas() -> None:
    both = ApproximateDP(0.5, 1e-6) + ApproximateDP(0.25, 1e-7)
    assert both.epsilon(1.1e-6) == pytest.approx(0.75)
    assert both.epsilon(1.09e-6) == math.inf
    # The short paper's δᵢ/(1 + e^εᵢ) is less than is true: both leak outright.
    shares = sum(d / (1 + math.exp(e)) for e, d in ((0.5, 1e-6), (0.25, 1e-7)))
    assert both.delta(10.0) == pytest.approx(1.1e-6)
    assert shares < both.delta(10.0)


def test_group_privacy_of_an_approximate_mechanism() -> None:
    # δ_k = Σ_{i<k} e^{iε}δ, the k-fold hybrid argument written out.
    epsilon, delta = 0.3, 1e-6
    event = ApproximateDP(epsilon, delta)
    for k in range(1, 12):
        steps = sum(delta * math.exp(i * epsilon) for i in range(k))
        assert event.loss(k).leak == pytest.approx(steps, rel=1e-12)
        assert event.loss(k).pure == pytest.approx(k * epsilon)
    assert ApproximateDP(0.0, 1e-6).loss(5).leak == pytest.approx(5e-6)
    assert ApproximateDP(30.0, 1e-6).loss(100).leak == 1.0
    # A replacement is a removal and an addition.
    assert event.loss(relation="replace") == event.loss(2)
    assert ApproximateDP(epsilon, delta, relation="replace").loss(relation="replace") == (
        event.loss()
    )


def test_a_finer_unit_inside_a_block_is_billed_as_a_replacement() -> None:
    event = PureDP(0.5)
    assert event.epsilon(unit=Element()) == event.epsilon(unit=Record()) == 1.0
    assert PureDP(0.5, level="element").epsilon(unit=User()) == math.inf
    assert PureDP(0.5, level="element").epsilon(unit=User(max_elements=3)) == 1.5
    assert PureDP(0.5, level="record").epsilon(unit=Element()) == math.inf
    block = Gaussian(3.0, Contribution(block="user"))
    assert block.loss(unit=Element()).mu == pytest.approx(math.sqrt(2) / 3)

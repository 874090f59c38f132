"""Gaussian and Laplace noise: how the loss grows with noise, rounds and units."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dpgrain.accounting import (
    Contribution,
    Gaussian,
    Laplace,
    Selection,
    gaussian_epsilon,
)
from dpgrain.units import RELATIONS


@pytest.mark.parametrize("make", [Gaussian, Laplace, lambda m: Selection(m, 5 * m, 1)])
def test_more_noise_never_costs_more(make: Any) -> None:
    for relation in RELATIONS:
        epsilons = [make(m).delta(0.5, relation=relation) for m in (0.5, 1.0, 2.0, 8.0, 64.0)]
        assert epsilons == sorted(epsilons, reverse=True)


def test_gaussians_add_squares_and_pure_parts_add() -> None:
    both = Gaussian(3.0) + Gaussian(4.0)
    assert both.epsilon(1e-6) == pytest.approx(gaussian_epsilon(1e-6, math.hypot(1 / 3, 1 / 4)))
    assert (Laplace(2.0) + Laplace(4.0)).epsilon() == 0.75
    mixed = Gaussian(3.0) + Laplace(2.0)
    assert mixed.epsilon(1e-6) == pytest.approx(0.5 + Gaussian(3.0).epsilon(1e-6))


def test_curves_go_by_the_root_of_k_and_by_k() -> None:
    for k in (1, 2, 5, 30):
        assert Gaussian(3.0).loss(k).mu == pytest.approx(math.sqrt(k) / 3)
        assert Gaussian(3.0, Contribution(layout="shared")).loss(k).mu == pytest.approx(k / 3)
        assert Laplace(3.0).epsilon(units=k) == pytest.approx(k / 3)


@pytest.mark.parametrize("count", [2, 7])
@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_so_many_sums_cost_what_so_many_events_do(kind: Any, count: int) -> None:
    norm = Contribution(norm=kind.law.norm)
    one, many = kind(2.0, norm).loss(1), kind(2.0, norm, count).loss(1)
    assert many.mu**2 == pytest.approx(count * one.mu**2)
    assert many.pure == pytest.approx(count * one.pure)
    assert many.rho == pytest.approx(count * one.rho)

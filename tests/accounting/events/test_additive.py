"""Gaussian and Laplace noise: how the loss grows with noise, rounds and units."""

from __future__ import annotations

import math

import pytest

from dpgrain.accounting import (
    Contribution,
    Gaussian,
    Laplace,
    gaussian_epsilon,
)


def test_gaussians_add_squares_and_pure_parts_add() -> None:
    both = Gaussian(3.0) + Gaussian(4.0)
    assert both.epsilon(1e-6) == pytest.approx(gaussian_epsilon(1e-6, math.hypot(1 / 3, 1 / 4)))
    assert (Laplace(2.0) + Laplace(4.0)).epsilon() == 0.75
    mixed = Gaussian(3.0) + Laplace(2.0)
    assert mixed.epsilon(1e-6) == pytest.approx(0.5 + Gaussian(3.0).epsilon(1e-6))


def test_curves_scale_with_root_of_k_or_with_k() -> None:
    for k in (1, 2, 5, 30):
        assert Gaussian(3.0).loss(k).mu == pytest.approx(math.sqrt(k) / 3)
        assert Gaussian(3.0, Contribution(layout="shared")).loss(k).mu == pytest.approx(k / 3)
        assert Laplace(3.0).epsilon(units=k) == pytest.approx(k / 3)

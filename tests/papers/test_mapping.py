"""Gradient mappings on losses that are not convex."""

from __future__ import annotations

import numpy as np
import pytest
from tests.optimize.cases import PROBLEMS

from dpgrain._types import FloatArray as Array
from dpgrain.optimize import Box, run
from dpgrain.papers import GradientMapping, gradient_mapping


def test_gradient_mapping_satisfies_its_bound_on_wavy_losses() -> None:
    # f = Σ sin(v): 1-smooth; the mean squared mapping is at most 2(f(start) − inf f)/(size·T), size 1.
    start, rounds, domain = np.array([0.3, 2.0, 5.0]), 60, Box(-4.0, 6.0)
    norms: list[float] = []
    run(
        GradientMapping(1.0, 1, domain),
        np.cos,
        start,
        rounds,
        lambda state: norms.append(state.norm),
    )
    assert np.mean(np.square(norms)) <= 2 * (np.sin(start).sum() + 3) / rounds
    assert norms[-1] < 1e-6


def test_mapping_run_returns_a_queried_point() -> None:
    asked: list[Array] = []

    def oracle(v: Array) -> Array:
        asked.append(v)
        return np.cos(v)

    for chosen in (1, 5, 20):
        asked.clear()
        end = run(GradientMapping(0.3, chosen), oracle, np.zeros(2), 20)
        assert end == pytest.approx(asked[chosen - 1])


def test_mapping_is_0_at_constrained_minima_and_gradient_inside() -> None:
    p = PROBLEMS["in a ball"]
    at_best = gradient_mapping(p.best, p.gradient(p.best), 0.5, p.domain)
    assert at_best == pytest.approx(0, abs=1e-12)
    inside = np.array([0.1, 0.0, 0.0])
    small = gradient_mapping(inside, p.gradient(inside), 0.01, p.domain)
    assert small == pytest.approx(p.gradient(inside))

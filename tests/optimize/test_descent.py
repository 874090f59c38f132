"""Steps of gradient descent reach the rates of their schedules under noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.optimize import cases

from dpgrain.optimize import Constant, Sgd, Solver, StronglyConvex, Uniform, Weighted
from dpgrain.papers import DecreasingRestart

Array = NDArray[np.float64]


def test_strongly_convex_steps_reach_one_over_k_under_noise() -> None:
    p = cases.PROBLEMS["bowl"]
    found = cases.slope(lambda k: Sgd(StronglyConvex(1.0, 2.0), average=Weighted(1.0)), p, 3.0, 8)
    assert -1.25 < found < -0.8


def test_a_decreasing_restart_reaches_one_over_k_under_noise() -> None:
    p = cases.PROBLEMS["bowl"]

    def make(k: int) -> Solver[Any]:
        restart = DecreasingRestart(1.0, 1.0, k)
        return Sgd(restart, average=restart)

    assert -1.25 < cases.slope(make, p, 3.0, 8) < -0.8


def test_kinks_cost_one_over_the_root_of_k() -> None:
    # Steps of the order 1/√T from far away, on a loss without curvature.
    p = cases.PROBLEMS["absolute"]
    found = cases.slope(lambda k: Sgd(Constant(1.3 / np.sqrt(k)), average=Uniform()), p, 0.0, 1)
    assert -0.65 < found < -0.35

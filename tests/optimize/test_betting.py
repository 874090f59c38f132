"""Betting needs no steps: it does not know the scale of gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.optimize import cases

from dpgrain.optimize import (
    Adagrad,
    CoinBetting,
    Solver,
    run,
)

Array = NDArray[np.float64]


@pytest.mark.parametrize("factor", [1e-6, 1e3])
def test_adaptive_steps_do_not_know_the_scale_of_gradients(factor: float) -> None:
    p = cases.PROBLEMS["valley"]
    solvers: list[Solver[Any]] = [Adagrad(1.0), CoinBetting()]
    for solver in solvers:
        plain = run(solver, p.gradient, np.zeros(3), 100)
        scaled = run(solver, lambda v: factor * p.gradient(v), np.zeros(3), 100)
        assert scaled == pytest.approx(plain, rel=1e-9)

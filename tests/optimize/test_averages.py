"""Averages are the stated weighted means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refuses

from dpgrain._types import FloatArray as Array
from dpgrain.optimize import Average, Last, Power, RandomIterate, Sgd, Tail, Uniform, Weighted, run
from dpgrain.papers import DecreasingRestart, GradientMapping


def history(average: Average, rounds: int) -> tuple[Array, Array]:
    """The average, and all iterates, of a run with gradients of −1 and steps 1/√k."""
    seen: list[Array] = []
    solver = Sgd(Power(1.0), average=average)
    end = run(solver, lambda v: -np.ones(1), np.zeros(1), rounds, lambda s: seen.append(s.theta))
    return end, np.array(seen)[:, 0]


def test_averages_are_the_stated_weighted_means() -> None:
    k = np.arange(1, 41)
    restart = DecreasingRestart(1.0, 0.5, 40)
    quadratic_weights = np.where(k <= 20, 0.0, (8.0 + k - 21) ** 2)
    short = DecreasingRestart(100.0, 0.5, 40)
    cases: list[tuple[Average, NDArray[Any]]] = [
        (Uniform(), np.ones(40)),
        (Weighted(0.0), np.ones(40)),
        (Weighted(1.0), k * 1.0),
        (Weighted(2.0), k * (k + 1.0)),
        (Last(), (k == 40) * 1.0),
        (Tail(30), (k > 30) * 1.0),
        (RandomIterate(7), (k == 7) * 1.0),
        (restart, quadratic_weights),
        (short, (1 - 0.5 / 200) ** -(k * 1.0)),
    ]
    for average, weights in cases:
        end, seen = history(average, 40)
        assert end[0] == pytest.approx(float(weights @ seen / weights.sum())), average


def test_every_iterate_is_as_likely_as_any_other() -> None:
    rng = np.random.default_rng(0)
    drawn = [RandomIterate.draw(4, rng).chosen for _ in range(4000)]
    found = [GradientMapping.draw(1.0, 4, rng).chosen for _ in range(4000)]
    for chosen in (drawn, found):
        counts = np.bincount(chosen, minlength=5)
        assert counts[0] == 0
        assert counts[1:] == pytest.approx(1000, abs=140)


def test_nothing_is_drawn_of_no_iterates() -> None:
    with refuses("rounds", "not 0"):
        RandomIterate.draw(0, np.random.default_rng(0))

"""Fresh users in each round; batches grow and phases converge by the theorems."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.papers.recipes import programs
from tests.refusals import refuses

from dpgrain.papers import (
    AcSa,
    PanPrivateAgd,
    Recipe,
    ShuffleAgd,
    ShuffleAgdSmoothed,
    ShuffleGd,
    ShuffleRestarts,
    ShuffleSgd,
    Task,
)

Array = NDArray[Any]


def test_fresh_users_need_numbers() -> None:
    names = np.array([f"u{i}" for i in programs.USERS])
    for name in ("sgd", "agd", "pan", "betting fresh", "gd strong"):
        with refuses("users", "required"):
            programs.run(programs.RECIPES[name], users=None)
        # With a list of users the type of a column is not an error: one malformed label turns it
        # into text.
        odd = np.array([*map(str, programs.USERS[:-1]), "oops"])
        assert (
            programs.run(programs.RECIPES[name], users=odd, n_users=400).guarantee.epsilon() <= 8.0
        )
    # If all users are in every round there are no positions.
    for name in ("gd", "betting"):
        assert programs.run(programs.RECIPES[name], users=names).guarantee.epsilon() <= 8.0


def slope(of: Callable[[float], float], values: tuple[float, ...]) -> float:
    """The exponent of power-law growth."""
    logs = np.log(values), np.log([of(value) for value in values])
    return float(np.polyfit(*logs, 1)[0])


@pytest.mark.parametrize(
    ("recipe", "users", "dimension", "epsilon"),
    [
        # b as in Theorems 4.1, 4.3 and 4.7, if noise outweighs sampling.
        (ShuffleSgd(replace(programs.KINKS, records=10**6)), 0.0, 1 / 2, -1.0),
        (ShuffleAgd(replace(programs.SMOOTH, records=10**6)), 3 / 5, 1 / 5, -2 / 5),
        (ShuffleAgdSmoothed(replace(programs.KINKS, records=10**6)), 1 / 3, 1 / 3, -2 / 3),
        (PanPrivateAgd(replace(programs.SMOOTH, records=10**6)), 3 / 5, 1 / 5, -2 / 5),
        (PanPrivateAgd(replace(programs.KINKS, records=10**6)), 1 / 3, 1 / 3, -2 / 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Recipe) else f"{value:.2f}",
)
def test_batches_grow_by_the_theorem(
    recipe: Recipe, users: float, dimension: float, epsilon: float
) -> None:
    def batch(n: float = 50_000.0, d: float = 4.0, asked: float = 0.5) -> float:
        program = recipe.plan(Task.of(int(n), (0.0,) * int(d), asked, 1e-6))
        return int(n) / program.rounds

    assert slope(lambda n: batch(n=n), (1e4, 1e5)) == pytest.approx(users, abs=0.03)
    assert slope(lambda d: batch(d=d), (4, 16, 64)) == pytest.approx(dimension, abs=0.03)
    # The least noise is nearly as 1/ε.
    noise = slope(lambda e: Task.of(1, (0.0,), e, 1e-6).noise(), (0.1, 0.4))
    assert -1 < noise < -0.9
    assert slope(lambda e: batch(asked=e), (0.1, 0.4)) == pytest.approx(-epsilon * noise, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [ShuffleRestarts, PanPrivateAgd, ShuffleGd], ids=lambda make: make.__name__
)
def test_phases_come_nearer(make: Any) -> None:
    task = Task.of(20_000, (0.0,) * 4, 2.0, 1e-6)
    for known in (programs.STRONG, programs.BOTH):
        program = make(replace(known, distance=10.0, strength=0.2)).plan(task)
        assert 1 < len(program.stages) <= 8
        if make is ShuffleGd:
            sizes = [len(phase.users) for phase in program.localisation.phases()]
            assert all(1.9 * few < many for few, many in itertools.pairwise(sizes))
            continue
        distances = [stage.solver.distance for stage in program.stages]
        # 2G/λ for the first.
        assert distances[0] == pytest.approx(10.0)
        assert distances == sorted(distances, reverse=True)
        assert distances[-1] < distances[0] / 2
        assert (program.stages[0].smoothing is None) == (known is programs.BOTH)
    assert len(make(replace(programs.BOTH, distance=10.0), count=1).plan(task).stages) == 1


def test_restarts_begin_within_the_last_bound() -> None:
    known = replace(programs.BOTH, distance=10.0, strength=0.2)
    first, second = ShuffleRestarts(known, count=2, rounds=9).plan(programs.TASK).stages
    assert isinstance(first.solver, AcSa)
    assert isinstance(second.solver, AcSa)
    near = math.sqrt(2 * first.solver.excess() / 0.2)
    # The bound is computed before the noise is calibrated, and almost equal.
    assert second.solver.distance == pytest.approx(min(near, 10.0), rel=0.05)

"""Floors of linear programs are below the largest sum, by no more than the tolerance."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.owners.cases import by_program, sharing_of, some_rows

from dpgrain.owners import program, simplex
from dpgrain.owners.sharing import Sharing


def _floor(sharing: Sharing, tolerance: int = 1) -> float:
    (floor,) = program.floors(sharing, np.array([tolerance]))
    return float(floor / 2**program.STEP_BITS)


def test_random_rows() -> None:
    rng = np.random.default_rng(6)
    for _ in range(100):
        sharing = sharing_of(some_rows(rng, 8, 5, 4), rng.integers(0, 10, 5).tolist(), 1000)
        assert by_program(sharing) - 1 <= _floor(sharing) <= by_program(sharing) + 1e-6


@pytest.mark.parametrize("solver", ["fails", "lies", "nothing"])
def test_a_solver_that_is_wrong_changes_nothing(solver: str) -> None:
    rng, real = np.random.default_rng(8), linprog

    def wrong(*parts: object, **named: object) -> object:
        result = real(*parts, **named)
        if solver == "fails":
            result.status, result.x = 4, None
        elif solver == "lies":
            result.x = result.x * 1.5 + 0.1
            result.ineqlin.marginals[:] = 0.0
        else:
            result.x[:] = np.nan
        return result

    with mock.patch.object(program, "linprog", wrong):
        for _ in range(20):
            sharing = sharing_of(some_rows(rng, 8, 5, 4), rng.integers(1, 10, 5).tolist(), 1000)
            assert by_program(sharing) - 1 <= _floor(sharing) <= by_program(sharing) + 1e-6


def test_rounded_numbers_are_enough() -> None:
    rng = np.random.default_rng(9)
    with mock.patch.object(simplex, "largest", side_effect=AssertionError):
        sharing = sharing_of(some_rows(rng, 60, 12, 4), 9, 2**20)
        assert _floor(sharing, 2**10) == pytest.approx(by_program(sharing), rel=1e-6)


def test_cells_are_solved_apart() -> None:
    ring = [((0, 1), 100), ((1, 2), 100), ((0, 2), 100)]
    shared = sharing_of([*ring, *(((a + 3, b + 3), 50) for (a, b), _ in ring)], 100)
    cell = np.array([0, 0, 0, 1, 1, 1])
    two = Sharing(shared.amount, shared.row, shared.person, shared.bound, cell, 3)
    assert program.floors(two, np.array([1, 1, 1])) == [150 << 10, 150 << 10, 0]

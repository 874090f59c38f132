"""Projections against their variational inequality, brute force and known points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpgrain.errors import ParameterError
from dpgrain.optimize import Affine, Ball, Box, Domain, Simplex, Unconstrained

Array = NDArray[np.float64]

A, B = np.array([[1.0, 2.0, -1.0, 0.5], [0.0, 1.0, 1.0, 0.0]]), np.array([1.0, -2.0])
BOUNDED: list[Domain] = [
    Ball(1.5),
    Ball(0.5, (1.0, 0.0, -2.0, 0.0)),
    Box(-0.5, 1.0),
    Box((-1.0, 0.0, 0.0, 2.0), (0.0, 0.0, 3.0, 2.5)),
    Simplex(),
    Simplex(3.0),
    Affine(A, B),
]
name = repr


@pytest.mark.parametrize("domain", BOUNDED, ids=name)
def test_a_projection_is_the_nearest_point(domain: Domain) -> None:
    # p is the projection of v iff ⟨v − p, w − p⟩ ≤ 0 for every w of the set.
    rng = np.random.default_rng(0)
    far = rng.normal(size=(50, 4)) * 3
    inside = domain.project(rng.normal(size=(200, 4)) * 5)
    for v, p in zip(far, domain.project(far), strict=True):
        assert ((inside - p) @ (v - p)).max() <= 1e-9


@pytest.mark.parametrize("domain", BOUNDED, ids=name)
def test_projecting_twice_changes_nothing_by_row(domain: Domain) -> None:
    far = np.random.default_rng(1).normal(size=(30, 4)) * 3
    once = domain.project(far)
    assert domain.project(once) == pytest.approx(once, abs=1e-12)
    assert np.array([domain.project(v) for v in far]) == pytest.approx(once, abs=1e-12)


CONSTRAINTS: list[tuple[Domain, list[Any]]] = [
    (Ball(1.5), [{"type": "ineq", "fun": lambda v: 1.5**2 - v @ v}]),
    (Box(-0.5, 1.0), [{"type": "ineq", "fun": lambda v: np.concatenate([v + 0.5, 1 - v])}]),
    (
        Simplex(2.0),
        [{"type": "ineq", "fun": lambda v: v}, {"type": "eq", "fun": lambda v: v.sum() - 2}],
    ),
    (Affine(A, B), [{"type": "eq", "fun": lambda v: A @ v - B}]),
]


@pytest.mark.parametrize(("domain", "constraints"), CONSTRAINTS, ids=lambda v: "")
def test_projections_solve_the_quadratic_program(domain: Domain, constraints: list[Any]) -> None:
    for v in np.random.default_rng(2).normal(size=(4, 4)) * 2:

        def distance(w: Array, v: Array = v) -> float:
            return float(((w - v) ** 2).sum())

        best = minimize(distance, np.full(4, 0.5), method="SLSQP", constraints=constraints)
        assert distance(domain.project(v)) <= best.fun + 1e-6
        assert domain.project(v) == pytest.approx(best.x, abs=2e-3)


def test_points_inside_are_unchanged() -> None:
    point = np.array([0.1, 0.2, 0.3, 0.4])
    for domain in (Unconstrained(), Ball(1.0), Box(0.0, 1.0), Simplex()):
        assert domain.project(point) == pytest.approx(point, abs=1e-15)


def test_known_projections() -> None:
    assert Ball(2.0, 1.0).project(np.array([1.0, 9.0])) == pytest.approx([1.0, 3.0])
    assert Simplex().project(np.zeros(4)) == pytest.approx(np.full(4, 0.25))
    assert Affine([[3.0, 4.0]], [25.0]).project(np.zeros(2)) == pytest.approx([3.0, 4.0])
    # Equations may repeat.
    twice = Affine([[1.0, 1.0], [2.0, 2.0]], [2.0, 4.0])
    assert twice.project(np.zeros(2)) == pytest.approx([1.0, 1.0])


def test_overflowed_points_do_not_enter_a_ball() -> None:
    huge = Ball(1.0).project(np.array([1e200, 1e200]))
    assert np.linalg.norm(huge) <= 1 + 1e-12


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ball(0.0),
        lambda: Ball(np.inf),
        lambda: Box(1.0, 0.0),
        lambda: Box((0.0, 1.0), (1.0, 0.5)),
        lambda: Simplex(0.0),
        lambda: Affine([[1.0, 1.0], [1.0, 1.0]], [1.0, 2.0]),
        lambda: Affine([[1.0, 1.0]], [1.0, 2.0]),
    ],
)
def test_empty_sets_are_rejected(make: Any) -> None:
    with pytest.raises(ParameterError):
        make()

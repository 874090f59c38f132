"""Solvers × problems against known optima and rates, with and without noise in the gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.optimize import cases

from dpgrain.errors import ParameterError
from dpgrain.optimize import (
    Adagrad,
    Ball,
    CoinBetting,
    Constant,
    FullMatrixAdagrad,
    Power,
    RandomIterate,
    Sgd,
    Solver,
    StronglyConvex,
    Tail,
    Unconstrained,
    Weighted,
    run,
)
from dpgrain.papers import AcSa, DecreasingRestart, GradientMapping, StronglyConvexAcSa

Array = NDArray[np.float64]


T = 800


def falling(problem: cases.Problem) -> Solver[Any]:
    return Sgd(Power(2 / min(problem.smoothness, 2.0)), problem.domain, Weighted(3.0))


def steady(problem: cases.Problem, noise: float) -> Solver[Any]:
    size = 1 / (problem.smoothness + noise * np.sqrt(T) / problem.distance)
    return Sgd(Constant(size), problem.domain, Tail(T // 2))


def strongly(problem: cases.Problem) -> Solver[Any]:
    shift = 2 * problem.smoothness / problem.strength
    return Sgd(StronglyConvex(problem.strength, shift), problem.domain, Weighted(1.0))


def restarted(problem: cases.Problem) -> Solver[Any]:
    restart = DecreasingRestart(problem.smoothness, problem.strength, T)
    return Sgd(restart, problem.domain, restart)


SOLVERS: dict[str, Callable[[cases.Problem, float], Solver[Any]]] = {
    "sgd": lambda p, noise: falling(p),
    "steady": lambda p, noise: steady(p, noise),
    "strongly convex": lambda p, noise: strongly(p),
    "restart": lambda p, noise: restarted(p),
    "adagrad": lambda p, noise: Adagrad(1.0, p.domain),
    "coin": lambda p, noise: CoinBetting(),
    "full matrix": lambda p, noise: FullMatrixAdagrad(noise=noise * np.sqrt(T)),
    "ac-sa": lambda p, noise: AcSa(p.smoothness, T, noise, p.distance, p.domain),
    "ac-sa strong": lambda p, noise: StronglyConvexAcSa(p.smoothness, p.strength, p.domain),
}
# These go wherever gradients lead.
UNBOUNDED = {"coin", "full matrix"}
SMOOTH_ONLY = {"steady", "ac-sa"}
STRONG_ONLY = {"strongly convex", "restart", "ac-sa strong"}


# The excess after 800 exact gradients, at most.
EXACT = {"ac-sa": 1e-5, "restart": 1e-7, "ac-sa strong": 1e-4, "steady": 1e-6}
CASES = [
    (solver, problem)
    for solver in SOLVERS
    for problem, p in cases.PROBLEMS.items()
    if not (solver in SMOOTH_ONLY and np.isinf(p.smoothness))
    and not (solver in STRONG_ONLY and p.strength == 0)
    and not (solver in UNBOUNDED and not isinstance(p.domain, Unconstrained))
]


@pytest.mark.parametrize(("solver", "problem"), CASES)
def test_every_solver_finds_the_minimum(solver: str, problem: str) -> None:
    p = cases.PROBLEMS[problem]
    end = run(SOLVERS[solver](p, 0.0), p.gradient, np.zeros(3), T)
    assert p.domain.project(end) == pytest.approx(end, abs=1e-9)
    kinked = 0.05 if np.isinf(p.smoothness) else 0.01
    assert -1e-12 <= p.excess(end) <= EXACT.get(solver, kinked)


@pytest.mark.parametrize(("solver", "problem"), CASES)
def test_every_solver_averages_noise_away(solver: str, problem: str) -> None:
    p, noise = cases.PROBLEMS[problem], 1.0
    excess = [
        p.excess(run(SOLVERS[solver](p, noise), cases.noisy(p, noise, seed), np.zeros(3), T))
        for seed in range(3)
    ]
    # The order of σD/√T, several times less than one gradient's noise.
    assert np.mean(excess) <= 0.12 * (1 + p.distance / 2)


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_steps_go_against_the_gradient(solver: str) -> None:
    p = cases.PROBLEMS["bowl"]
    made = SOLVERS[solver](p, 0.0)
    state = made.init(np.zeros(3))
    moved = made.finish(made.step(state, np.array([1.0, -1.0, 0.0])))
    assert moved[0] < 0 < moved[1]
    assert moved[2] == 0


def test_start_is_projected_but_not_modified() -> None:
    start = np.full(3, 5.0)
    solvers: list[Solver[Any]] = [Sgd(Power(1.0), Ball(1.0)), AcSa(1.0, 3, domain=Ball(1.0))]
    for solver in solvers:
        assert np.linalg.norm(solver.point(solver.init(start))) <= 1 + 1e-12
        run(solver, lambda v: v, start, 3)
    assert (start == 5.0).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(0.0),
        lambda: Power(-1.0),
        lambda: Power(1.0, 1.5),
        lambda: StronglyConvex(0.0),
        lambda: Tail(-1),
        lambda: Weighted(-1.0),
        lambda: RandomIterate(0),
        lambda: Adagrad(0.0),
        lambda: CoinBetting(0.0),
        lambda: AcSa(0.0, 10),
        lambda: AcSa(1.0, 0),
        lambda: AcSa(1.0, 10, -1.0),
        lambda: AcSa(1.0, 10, 1.0, 0.0),
        lambda: StronglyConvexAcSa(1.0, 2.0),
        lambda: DecreasingRestart(1.0, 2.0, 10),
        lambda: DecreasingRestart(1.0, 0.5, 0),
        lambda: GradientMapping(0.0, 1),
        lambda: GradientMapping.draw(1.0, 0, np.random.default_rng(0)),
        lambda: run(Sgd(Constant(1.0)), lambda v: v, np.zeros(1), 0),
    ],
)
def test_invalid_solver_numbers_are_rejected(make: Any) -> None:
    with pytest.raises(ParameterError):
        make()

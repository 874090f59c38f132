"""Steps along principal axes equal full-matrix steps, with unknown axes and scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refuses

from dpgrain.optimize import CoinBetting, FullMatrixAdagrad, Last, run

Array = NDArray[np.float64]
Oracle = Callable[[Array], Array]


def valley(
    dimension: int, condition: float, seed: int = 0
) -> tuple[Oracle, Callable[[Array], float]]:
    """The gradient of a rotated quadratic with equally important axes, and its excess."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    bends = np.geomspace(1, 1 / condition, dimension)
    best = turn @ (rng.choice([-1.0, 1.0], size=dimension) / np.sqrt(bends))
    curvature = (turn * bends) @ turn.T

    def excess(theta: Array) -> float:
        return float((theta - best) @ curvature @ (theta - best) / dimension)

    return lambda theta: curvature @ (theta - best), excess


def noisy(gradient: Oracle, sd: float, seed: int = 1) -> Oracle:
    rng = np.random.default_rng(seed)
    return lambda theta: gradient(theta) + sd * rng.normal(size=len(theta))


def dense(solver: FullMatrixAdagrad, oracle: Oracle, start: Array, rounds: int) -> list[Array]:
    """The iterates by (p, p) matrices and their eigenvectors, by the formulas."""
    p, theta = len(start), start
    total, squares, won = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    iterates = [theta]
    for _ in range(rounds):
        gradient = oracle(theta)
        total = total + gradient
        squares += np.outer(gradient, gradient)
        won += np.outer(gradient, start - theta)
        sums, axes = np.linalg.eigh(squares)
        scales = np.sqrt(np.maximum(sums, 0) + 3 * solver.noise**2)
        own = np.diag(axes.T @ won @ axes) / scales
        together = np.trace(won) / np.linalg.norm(scales)
        reach = solver.wealth + np.maximum(np.maximum(own, together), 0)
        theta = start - axes @ (reach * (axes.T @ total) / scales)
        iterates.append(theta)
    return iterates


@pytest.mark.parametrize("dimension", [1, 2, 7, 40])
def test_steps_agree_with_full_matrices(dimension: int) -> None:
    gradient, _ = valley(dimension, 100.0)
    solver, start = FullMatrixAdagrad(0.5, noise=0.3), np.full(dimension, 0.2)
    expected = dense(solver, noisy(gradient, 0.05), start, 25)
    state, oracle = solver.init(start), noisy(gradient, 0.05)
    for theta in expected[:-1]:
        assert solver.point(state) == pytest.approx(theta, rel=1e-7, abs=1e-9)
        state = solver.step(state, oracle(solver.point(state)))
    assert solver.point(state) == pytest.approx(expected[-1], rel=1e-7, abs=1e-9)


def test_axes_stay_orthonormal_and_keep_the_sum_of_squares() -> None:
    solver, rng = FullMatrixAdagrad(noise=1.0), np.random.default_rng(3)
    state, total = solver.init(np.zeros(5)), np.zeros((5, 5))
    for _ in range(2000):
        gradient = rng.normal(size=5) * [1e3, 1.0, 1.0, 1e-3, 0.0]
        total += np.outer(gradient, gradient)
        state = solver.step(state, gradient)
    assert state.axes @ state.axes.T == pytest.approx(np.eye(4), abs=1e-10)
    kept = (state.axes.T * state.lengths**2) @ state.axes
    assert kept == pytest.approx(total, rel=1e-6, abs=1e-6 * total[1, 1])


def test_a_turned_problem_has_the_turned_solution() -> None:
    gradient, _ = valley(6, 50.0)
    turn = np.linalg.qr(np.random.default_rng(4).normal(size=(6, 6)))[0]
    plain = run(FullMatrixAdagrad(), gradient, np.zeros(6), 40)
    turned = run(FullMatrixAdagrad(), lambda v: turn @ gradient(turn.T @ v), np.zeros(6), 40)
    assert turned == pytest.approx(turn @ plain, rel=1e-6, abs=1e-8)
    by_coordinate = run(CoinBetting(), lambda v: turn @ gradient(turn.T @ v), np.zeros(6), 40)
    assert by_coordinate != pytest.approx(
        turn @ run(CoinBetting(), gradient, np.zeros(6), 40), 0.01
    )


@pytest.mark.parametrize("factor", [1e-150, 1e-6, 1e3, 1e150])
def test_the_scale_of_gradients_does_not_matter(factor: float) -> None:
    gradient, _ = valley(4, 10.0)
    plain = run(FullMatrixAdagrad(noise=0.2), gradient, np.zeros(4), 60)
    scaled = run(
        FullMatrixAdagrad(noise=0.2 * factor), lambda v: factor * gradient(v), np.zeros(4), 60
    )
    assert scaled == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("sd", [0.0, 0.003])
@pytest.mark.parametrize("condition", [30.0, 1000.0])
def test_half_the_coin_betting_rounds_suffice_in_valleys(condition: float, sd: float) -> None:
    gradient, excess = valley(10, condition)

    def ends(rounds: int, *, full: bool) -> float:
        # The same promise: the noise of all rounds together does not depend on their number.
        oracle = noisy(gradient, sd * np.sqrt(rounds))
        near = run(CoinBetting(), oracle, np.zeros(10), rounds // 5)
        reach, left = 2 * float(np.median(np.abs(near))), rounds - rounds // 5
        noise = sd * np.sqrt(rounds * left)
        solver: Any = FullMatrixAdagrad(reach, noise) if full else CoinBetting()
        return excess(run(solver, oracle, near, left))

    assert ends(50, full=True) < 0.8 * ends(100, full=False)


def test_reach_grows_to_distant_solutions() -> None:
    far = np.array([75.0, 0.1])
    last = FullMatrixAdagrad(average=Last())
    assert run(last, lambda v: v - far, np.zeros(2), 100) == pytest.approx(far, abs=0.1)


def test_stated_noise_shortens_steps() -> None:
    rng = np.random.default_rng(5)
    gradients = rng.normal(size=(50, 20))
    lengths = []
    for noise in (0.0, np.sqrt(50)):
        solver = FullMatrixAdagrad(noise=noise, average=Last())
        state = solver.init(np.zeros(20))
        for gradient in gradients:
            state = solver.step(state, gradient)
        lengths.append(float(np.linalg.norm(solver.finish(state))))
    assert lengths[1] < lengths[0] / 3


def test_gradients_of_zero_leave_the_start() -> None:
    assert run(FullMatrixAdagrad(), lambda v: 0 * v, np.ones(3), 4).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("given", [{"wealth": 0.0}, {"noise": -1.0}, {"noise": float("nan")}])
def test_invalid_solver_numbers_are_rejected(given: dict[str, Any]) -> None:
    with refuses(next(iter(given))):
        FullMatrixAdagrad(**given)

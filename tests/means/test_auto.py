"""The loss of ``auto`` compared with the best method in hindsight, and with clipping at worst."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.means import cases
from tests.programs import experiment

from dpgrain.inputs.population import Population
from dpgrain.means import Vectors, clipped
from dpgrain.means.problem import Candidate, Problem, get_method
from dpgrain.means.total_error import UserCount
from dpgrain.means.user_mean import AUTO
from dpgrain.noise import SeededSource
from dpgrain.publishing import Promise
from dpgrain.units import User

program = experiment("choice_of_means")
Array = NDArray[np.float64]


def problem_of(X: Array, epsilon: float, radius: float | None) -> Problem:
    promise = Promise(User(), epsilon, 1e-6, "zero_out")
    n, d = X.shape
    return Problem(n, d, promise, 1.0, radius, Population.create(None, promise).event)


def rms(plan: Candidate, X: Array, epsilon: float, repeats: int) -> float:
    """Return the rms error of a private mean over runs with the true roster."""
    sd = Population.create(None, Promise(User(), epsilon, 1e-6, "zero_out")).noise_sd
    squares = []
    for seed in range(repeats):
        found = float(round(len(X) + sd * np.random.default_rng(seed).normal()))
        number = UserCount(found, sd, len(X)) if plan.counts else None
        value = plan.run(Vectors(X), SeededSource(seed), number).value
        squares.append(float(np.sum((value - X.mean(axis=0)) ** 2)))
    return math.sqrt(np.mean(squares))


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize(
    ("n", "m", "d"), [(1000, 100, 1), (1000, 1, 10), (3000, 10, 1), (3000, 10, 10), (3000, 10, 100)]
)
@pytest.mark.parametrize("law", program.STATED, ids=lambda law: law.__name__)
def test_auto_is_near_the_best_in_hindsight(
    law: Callable[..., Array], n: int, m: int, d: int
) -> None:
    X = clipped(law(np.random.default_rng(1), n, m, d), 1.0)
    true = min(float(np.quantile(np.linalg.norm(X - X.mean(axis=0), axis=1), 0.95)), 1.0)
    errors: dict[str, float] = {}
    for name in ("clip", "recentred"):
        plan = get_method(name).make(problem_of(X, 1.0, None))
        errors[name] = rms(plan, X, 1.0, 10 if d == 100 else 30)
    best = min(errors["recentred"], get_method("clip").make(problem_of(X, 1.0, None)).expected)
    for radius in (None, true, min(3 * true, 1.0), max(true / 10, 1e-5)):
        chosen = AUTO.make(problem_of(X, 1.0, radius)).method
        assert errors[chosen] <= 1.5 * best


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(("epsilon", "d"), [(0.5, 1), (1.0, 1), (1.0, 2), (3.0, 1), (1.0, 10)])
def test_hidden_users_cost_auto_at_most_a_factor_three(epsilon: float, d: int) -> None:
    # All sit at one end of the ball but k users, who sit at the other.
    X = np.zeros((2000, d))
    X[:, 0] = 0.9
    problem = problem_of(X, epsilon, None)
    plan, clip = AUTO.make(problem), get_method("clip").make(problem)
    assert plan.method == "recentred"
    # The noise of clipping equals k users, up to a factor.
    noise = clip.expected * len(X)
    for times in (0.5, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0):
        X[: round(times * noise), 0] = -0.9
        assert rms(plan, X, epsilon, 60) < 3 * clip.expected


@pytest.mark.parametrize("radius", [0.001, 0.5, 10.0])
def test_stated_radius_does_not_change_autos_release(radius: float) -> None:
    X = np.random.default_rng(1).normal(size=(900, 2))
    known, unknown = (cases.mean(X, epsilon=1.0, radius=each) for each in (radius, None))
    assert known.value.tolist() == unknown.value.tolist()
    assert known.method == "recentred"

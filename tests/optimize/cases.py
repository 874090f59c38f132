"""Problems with known minima, and the solvers that find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain.optimize import (
    Ball,
    Constant,
    Domain,
    Last,
    Logistic,
    LossFunction,
    Regularised,
    Sgd,
    Simplex,
    Solver,
    run,
)
from dpgrain.optimize.domains import EVERYWHERE

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    value: Callable[[Array], float]
    gradient: Callable[[Array], Array]
    best: Array
    smoothness: float
    strength: float = 0.0
    domain: Domain = EVERYWHERE

    def excess(self, theta: Array) -> float:
        return self.value(theta) - self.value(self.best)

    @property
    def distance(self) -> float:
        return float(np.linalg.norm(self.best))


def quadratic(curvatures: list[float], best: list[float]) -> Problem:
    bends, centre = np.array(curvatures), np.array(best)
    return Problem(
        lambda v: float((bends * (v - centre) ** 2).sum() / 2),
        lambda v: bends * (v - centre),
        centre,
        max(curvatures),
        min(curvatures),
    )


def of_records(loss: LossFunction, smoothness: float, strength: float = 0.0) -> Problem:
    """The mean loss of 200 records, with its minimum by a long, exact method."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (X @ [2.0, -1.0, 0.5] + rng.logistic(size=200) / 2 > 0).astype(float)

    def value(v: Array) -> float:
        return float(loss.value(v, X, y).mean())

    def gradient(v: Array) -> Array:
        return np.asarray(loss.gradient(v, X, y).mean(axis=0))

    best = run(Sgd(Constant(1 / smoothness), average=Last()), gradient, np.zeros(3), 3000)
    assert np.linalg.norm(gradient(best)) < 1e-9
    return Problem(value, gradient, best, smoothness, strength)


PROBLEMS = {
    "bowl": quadratic([1.0, 1.0, 1.0], [1.0, -2.0, 0.5]),
    "valley": quadratic([1.0, 0.3, 0.05], [1.0, -2.0, 1.5]),
    "logistic": of_records(Logistic(), 0.25),
    "ridge": of_records(Regularised(Logistic(), 0.1), 0.35, 0.1),
    "in a ball": Problem(
        lambda v: float(((v - 3.0) ** 2).sum() / 2),
        lambda v: v - 3.0,
        np.full(3, 2 / np.sqrt(3)),
        1.0,
        1.0,
        Ball(2.0),
    ),
    "on a simplex": Problem(
        lambda v: float(((v - [0.9, 0.5, -1.0]) ** 2).sum() / 2),
        lambda v: v - [0.9, 0.5, -1.0],
        np.array([0.7, 0.3, 0.0]),
        1.0,
        1.0,
        Simplex(),
    ),
    "absolute": Problem(
        lambda v: float(np.abs(v - [1.0, -0.5, 2.0]).sum()),
        lambda v: np.sign(v - [1.0, -0.5, 2.0]),
        np.array([1.0, -0.5, 2.0]),
        np.inf,
    ),
}


def noisy(problem: Problem, noise: float, seed: int) -> Callable[[Array], Array]:
    """Gradients with Gaussian noise of this root mean square norm."""
    rng, p = np.random.default_rng(seed), len(problem.best)
    return lambda v: problem.gradient(v) + noise / np.sqrt(p) * rng.standard_normal(p)


def slope(make: Callable[[int], Solver[Any]], p: Problem, noise: float, runs: int) -> float:
    """The exponent of the excess in the number of rounds, by least squares over 50 to 800."""
    rounds = np.array([50, 100, 200, 400, 800])
    found = [
        np.mean([p.excess(run(make(k), noisy(p, noise, s), np.zeros(3), k)) for s in range(runs)])
        for k in rounds.tolist()
    ]
    return float(np.polyfit(np.log(rounds), np.log(found), 1)[0])

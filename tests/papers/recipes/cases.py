"""Recipes with a curator, and the planned tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain.optimize import (
    Ball,
    Constant,
    Sgd,
)
from dpgrain.papers import (
    Concentrated,
    Known,
    PhasedErmSco,
    Recipe,
    Task,
    UserLevelAgd,
    UserLevelSgd,
    UserLevelSgdStronglyConvex,
    WinsorizedErm,
)

Array = NDArray[Any]
KNOWN = Known(distance=2.0, smoothness=1.0, strength=0.2, records=10)
RECIPES: dict[str, Recipe] = {
    "winsorized": WinsorizedErm(KNOWN, rounds=12),
    "winsorized strong": WinsorizedErm(KNOWN, kind="strongly_convex", rounds=20),
    "winsorized any": WinsorizedErm(KNOWN, kind="nonconvex", rounds=12),
    "phased": PhasedErmSco(KNOWN, count=2),
    "sgd": UserLevelSgd(KNOWN, rounds=12, smoothing="ball"),
    "sgd moreau": UserLevelSgd(KNOWN, rounds=12, smoothing="moreau"),
    "agd": UserLevelAgd(replace(KNOWN, smoothness=math.inf), rounds=12),
    "agd smooth": UserLevelAgd(KNOWN, rounds=12),
    "sgd strong": UserLevelSgdStronglyConvex(KNOWN, rounds=6, count=2),
    "sgd strong plain": UserLevelSgdStronglyConvex(KNOWN, rounds=6, count=2, steps="plain"),
    "concentrated": Concentrated(KNOWN),
    "concentrated steps": Concentrated(KNOWN, solver=Sgd(Constant(0.1), Ball(2.0))),
}


@dataclass
class Seen:
    """A loss with records that reveal the current users; targets are users' numbers."""

    calls: list[set[float]] = field(default_factory=list)

    def value(self, theta: Array, X: Array, y: Array) -> Array:
        return np.zeros(len(X))

    def gradient(self, theta: Array, X: Array, y: Array) -> Array:
        self.calls.append(set(y.tolist()))
        return np.zeros((len(X), len(theta)))


TASK = Task.of(400, (0.0, 0.0), 8.0, 1e-6)
TRUTH = np.array([0.8, -0.4])


def people(n: int, per_user: int = 10, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, n * per_user), np.ones(n * per_user)]) / math.sqrt(2)
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-(X @ TRUTH)))).astype(float)
    return X, y, np.repeat(np.arange(n), per_user)


X, Y, USERS = people(400)


def excess(theta: Array, rows: Array) -> float:
    """The expected log-loss above the true model's."""
    p, z = 1 / (1 + np.exp(-(rows @ TRUTH))), rows @ theta
    true = rows @ TRUTH
    return float(np.mean(np.logaddexp(0, z) - p * z - np.logaddexp(0, true) + p * true))

"""Rows, classes and models that are fitted to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def people(n: int = 600, per_user: int = 6, d: int = 3, seed: int = 0) -> tuple[Array, ...]:
    """Features, probabilities' logits, users and elements of n users with so many records each."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n * per_user, d))
    z = 3 * X[:, 0] - 2 * X[:, 1] + 0.5
    users = np.repeat(np.arange(n), per_user)
    elements = np.tile(np.arange(per_user) // 2, n)
    return X, z, users, elements


X, Z, USERS, ELEMENTS = people()
RNG = np.random.default_rng(1)
BINARY = (RNG.random(len(Z)) < 1 / (1 + np.exp(-Z))).astype(int)


ROWS = np.random.default_rng(3).normal(size=(1000, 2))
SIDE = ROWS[:, 0] > 0

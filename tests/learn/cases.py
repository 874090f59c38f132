"""Rows, classes and fitted models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgrain.inputs.array_blocks import default_unit
from dpgrain.learn import LinearModel
from dpgrain.learn.rows import ArrayRows
from dpgrain.learn.tuning import tuned_query
from dpgrain.publishing import publish

Array = NDArray[Any]
Model = TypeVar("Model", bound=LinearModel)


def people(n: int = 600, per_user: int = 6, d: int = 3, seed: int = 0) -> tuple[Array, ...]:
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


def fit_tuned(
    model: Model, X: Any, y: Any, *, users: Any = None, elements: Any = None, grid: Any
) -> Model:
    config = model.set_params(tune=grid).config()
    promise = replace(config.promise, unit=default_unit(config.unit, users, config.n_users))
    query: Any = tuned_query(config, promise, ArrayRows.create(X, y, users, elements))
    fitted = publish(query)
    model.__dict__.update({name: vars(fitted)[name] for name in vars(fitted) if name.endswith("_")})
    return model

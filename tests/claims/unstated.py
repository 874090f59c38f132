"""Fits and means of users with an unknown number of users."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dpgrain.learn import (
    LinearModel,
)
from dpgrain.units import Element, Record, Unit, User

N, EACH, D = 40, 3, 2
# Between the largest δ for N users and for N + 1 users: a warning would reveal which.
DELTA = (1 / (10 * N) + 1 / (10 * (N + 1))) / 2
UNITS: tuple[Unit, ...] = (User(), User(max_elements=2), Element(), Record())


class Table:
    """Rows of N users, and of one more; who adds nothing to any sum has features and targets of 0."""

    def __init__(self, users: int, *, silent: bool = False) -> None:
        rng = np.random.default_rng(7)
        rows = (N + 1) * EACH
        self.X = rng.uniform(-1, 1, size=(rows, D))
        self.y = (self.X[:, 0] + rng.normal(size=rows) > 0).astype(int)
        self.users = pd.Series(np.repeat(np.arange(N + 1), EACH), name="person")
        self.elements = pd.Series(np.tile(np.arange(EACH), N + 1), name="page")
        if silent:
            self.X[N * EACH :], self.y[N * EACH :] = 0, 0
        kept = users * EACH
        self.X, self.y = self.X[:kept], self.y[:kept]
        self.users, self.elements = self.users[:kept], self.elements[:kept]

    def cells(self, unit: Unit) -> pd.Series | None:
        """The elements, if the unit requires them."""
        asked = isinstance(unit, Element) or (isinstance(unit, User) and unit.max_elements)
        return self.elements if asked else None


def fit(table: Table, *, kind: type[LinearModel], **options: Any) -> LinearModel:
    """A fit without an intercept: who has features of 0 then adds nothing to it."""
    made = {"delta": DELTA, "rounds": 5, "fit_intercept": False, "random_state": 1, **options}
    cells = table.cells(made["unit"])
    return kind(**made).fit(table.X, table.y, users=table.users, elements=cells)

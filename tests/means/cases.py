"""Users with a requested mean, by every method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpgrain.means.user_mean import (
    MeanOfUsers,
    mean_of_users,
)

Array = NDArray[np.float64]


N, D, EACH = 1200, 4, 3
PLACE = 3.0
# Distance of users' vectors from their mean.
RADIUS = 0.3


def rows(seed: int = 0) -> tuple[Array, NDArray[np.intp]]:
    users = np.repeat(np.arange(N), EACH)
    rng = np.random.default_rng(seed)
    away = rng.normal(size=(N, D))
    away *= RADIUS * rng.uniform(0.8, 1, size=(N, 1)) / np.linalg.norm(away, axis=1, keepdims=True)
    return (PLACE + away)[users], users


def mean(records: Any = None, users: Any = None, **options: Any) -> MeanOfUsers:
    if records is None:
        records, users = rows()
    if "n_users" not in options:
        # As a caller who knows it would state it.
        known = pd.Series(range(len(records)) if users is None else users)
        options["n_users"] = max(known.nunique(), 1)
    values = {"bound": 10.0, "epsilon": 4.0, "delta": 1e-6, "random_state": 1}
    stated: dict[str, Any] = {**values, **options}
    return mean_of_users(records, users=users, **stated)

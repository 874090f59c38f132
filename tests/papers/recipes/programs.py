"""Recipes without a curator, and the planned tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray
from tests.papers.recipes.cases import people

from dpgrain.learn import Minimum, minimise
from dpgrain.optimize import Logistic
from dpgrain.papers import (
    Known,
    PanPrivateAgd,
    PanPrivateConcentrated,
    Recipe,
    ShuffleAgd,
    ShuffleAgdSmoothed,
    ShuffleConcentrated,
    ShuffleGd,
    ShuffleRestarts,
    ShuffleSgd,
    Task,
)
from dpgrain.units import Trust

Array = NDArray[Any]
KINKS = Known(distance=2.0, records=4)
SMOOTH = replace(KINKS, smoothness=0.25)
STRONG, BOTH = replace(KINKS, strength=0.1), replace(SMOOTH, strength=0.1)
RECIPES: dict[str, Any] = {
    "sgd": ShuffleSgd(KINKS, rounds=7),
    "agd": ShuffleAgd(SMOOTH),
    "agd poisson": ShuffleAgd(SMOOTH, rounds=7, protocol="poisson"),
    "smoothed": ShuffleAgdSmoothed(KINKS, rounds=7),
    "restarts": ShuffleRestarts(BOTH, count=2),
    "restarts kinks": ShuffleRestarts(STRONG, count=3, rounds=4),
    "gd": ShuffleGd(SMOOTH, rounds=6),
    "gd kinks": ShuffleGd(KINKS, rounds=6, honest_fraction=0.7),
    "gd strong": ShuffleGd(BOTH, count=2, rounds=4),
    "pan": PanPrivateAgd(SMOOTH),
    "pan kinks": PanPrivateAgd(KINKS, rounds=7),
    "pan strong": PanPrivateAgd(BOTH, count=2),
    "pan strong kinks": PanPrivateAgd(STRONG, count=2, rounds=4),
    "betting": ShuffleConcentrated(KINKS, rounds=6),
    "betting fresh": ShuffleConcentrated(KINKS, interaction="sequential", honest_fraction=0.9),
    "betting pan": PanPrivateConcentrated(KINKS),
}
PHASED = ("restarts", "restarts kinks", "gd strong", "pan strong", "pan strong kinks")
FULL = ("gd", "gd kinks", "gd strong", "betting")
ONE_EACH = ("agd", "smoothed", "restarts", "gd", "pan", "betting")
TASK = Task.of(400, (0.0, 0.0), 8.0, 1e-6)


X, Y, USERS = people(400, per_user=4)


def run(recipe: Recipe, loss: Any = None, **options: Any) -> Minimum:
    asked: dict[str, Any] = {"users": USERS, "epsilon": 8.0, "n_users": 400, "random_state": 0}
    asked |= options
    return minimise(loss or Logistic(), X, Y, [0.0, 0.0], solver=recipe, **asked)


TRUSTS: dict[Trust, str] = {
    "shuffle": "a trusted shuffler",
    "pan": "the internal state is seen at most once",
}

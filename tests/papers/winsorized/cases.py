"""A winsorized mean with its options, and a goodness-of-fit test of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from dpgrain.papers.winsorized.winsorized import Winsorized
from dpgrain.testing.mean_contract import BLOCKS, DIMENSION, Array
from dpgrain.units import Relation

# Each assertion on random numbers fails by chance with probability below this.
CHANCE = 1e-7
RELATIONS: tuple[Relation, ...] = ("zero_out", "replace")
RADIUS, BOUND = 0.2, 3.0


def mean_of(**options: Any) -> Winsorized:
    values = {
        "radius": RADIUS,
        "bound": BOUND,
        "dimension": DIMENSION,
        "noise_multiplier": 0.5,
        "range_epsilon": 8.0,
        "n_users": BLOCKS,
        "rounds": 3,
    }
    return Winsorized(**{**values, **options})


def is_law(found: NDArray[Any], law: Array) -> bool:
    """Whether counts pass a chi-square test, with rare outcomes merged."""
    if found[law == 0].any():
        return False
    order = np.argsort(law)
    counts, law = found[order].astype(np.float64), law[order] * found.sum()
    rare = int(np.searchsorted(np.cumsum(law), 20.0)) + 1
    counts = np.append(counts[:rare].sum(), counts[rare:])
    law = np.append(law[:rare].sum(), law[rare:])
    statistic = float(((counts - law) ** 2 / law).sum())
    return bool(statistic < chi2.ppf(1 - CHANCE, max(len(law) - 1, 1)))


def scores(values: Any, bins: int) -> Array:
    values = np.asarray(values)
    return np.array([max((values < x).sum(), (values > x).sum()) for x in range(bins)])


def exponential(values: Any, bins: int, rate: float) -> Array:
    weights = np.exp(-rate * (scores(values, bins) - scores(values, bins).min()))
    return np.asarray(weights / weights.sum())

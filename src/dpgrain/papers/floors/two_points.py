"""Floors by two points: data sets with distant sums and overlapping outputs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.units import Relation

# Number of group sizes to try; every one gives a valid floor.
SIZES = 240
MOST_COPIES = 4096
# Max contributors of an item that are counted one by one.
_MOST_HOLDERS = 10_000_000


def min_users_with_item(epsilon: float, delta: float, chance: float = 0.5) -> int:
    """Return the fewest contributors for any private rule to select an item.

    Args:
        epsilon: the promised ε for one contributor.
        delta: the promised δ, in (0, 1).
        chance: the required probability of selection.

    Raises:
        ParameterError: if a parameter is out of range, or ε and δ are so small that more than ten
            million contributors would be necessary.

    Source: the optimal rule of Desfontaines, Voss, Gipson & Mandayam 2022, π_c = min(e^ε π_{c−1} +
    δ, 1 − e^{−ε}(1 − π_{c−1} − δ), 1).

    >>> min_users_with_item(1.0, 1e-5), min_users_with_item(1.0, 1e-5, 0.75)
    (12, 12)
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=False, delta=delta)
    chance = _validate.fraction(chance=chance)
    # Without the second half of the rule, which selects no more, this number of steps reaches the
    # probability.
    steps = math.log1p(math.expm1(min(epsilon, 700.0)) * (chance / delta)) / epsilon
    if steps > _MOST_HOLDERS:
        raise ParameterError(
            f"epsilon = {epsilon:g} and delta = {delta:g} must be larger, because more than ten "
            "million users with an item would be needed."
        )
    named, holders = 0.0, 0
    while named < chance:
        # For a negligible ε, only δ adds up.
        grown = math.exp(min(epsilon, 700.0)) * named + delta
        named = min(grown, 1 - math.exp(-epsilon) * (1 - named - delta), 1.0)
        holders += 1
    return holders


def steps_between(users: int, relation: Relation) -> int:
    """Return the steps between data sets that differ in ``users`` users' records."""
    return users if relation == "replace" else 2 * users


def group_delta(epsilon: float, delta: float, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the δ of several steps at ε times their number, at most 1."""
    grown = np.minimum(steps * min(epsilon, 700.0), 700.0)
    return np.minimum(delta * np.expm1(grown) / math.expm1(min(epsilon, 700.0)), 1.0)


def two_points_floor(epsilon: float, delta: float, n: int, apart: float) -> float:
    """Return the floor of n clipped vectors that each change a sum by ``apart``."""
    # If the distance of data sets is more than a few ε, their outputs barely overlap.
    most = min(n, 2 + math.ceil(min(8 / epsilon, MOST_COPIES)))
    steps = np.unique(np.rint(np.geomspace(1, most, SIZES)))
    shared = 2 * (1 - group_delta(epsilon, delta, steps))
    shared /= np.exp(np.minimum(steps * min(epsilon, 700.0), 700.0)) + 1
    return float(np.max(steps * apart / 2 * np.sqrt(shared)))

"""Fingerprints: an accurate mean of many coordinates reveals who is in it."""

from __future__ import annotations

import math

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.papers.floors.two_points import MOST_COPIES, SIZES, group_delta
from dpgrain.units import Relation

# Number of box sizes or gaps of worlds to try; every one gives a valid floor.
GAPS = 240


def traced_mean(
    epsilon: float, delta: float, n: int, records: int, dimension: int, relation: Relation
) -> float:
    """Return the floor for users with several records and a uniform mean on [−a, a]^d."""
    box = _boxes(epsilon, n, records, dimension)
    slope = n * math.sinh(min(epsilon, 350.0)) * box**2 * math.sqrt(records)
    left = dimension * box**2 * (1 / 3 - 4 * box * n * records * (1 + box) * delta)
    if relation == "zero_out":
        # Without a user, only the guarantee bounds the error.
        left -= slope * 2 * box * math.sqrt(dimension * delta)
        slope = slope * math.exp(min(epsilon, 350.0) / 2)
    left = np.maximum(left, 0.0)
    error = 2 * left / (slope + np.hypot(slope, 2 * np.sqrt(left)) + 5e-324)
    return float(error.max()) / math.sqrt(dimension)


def traced_loss(epsilon: float, delta: float, n: int, records: int, dimension: int) -> float:
    """Return the floor of linear losses on a box in the ball, for either relation."""
    box = _boxes(epsilon, n, records, dimension)
    traced = math.sinh(min(epsilon, 350.0)) * math.sqrt(records / dimension) / 2
    floors = box / 2 - n * box**2 * (traced + records * (1 + box) * delta)
    return max(float(floors.max()), 0.0)


def _boxes(epsilon: float, n: int, records: int, dimension: int) -> FloatArray:
    least = 1e-3 * math.sqrt(dimension / records) / (n * math.sinh(min(max(epsilon, 1e-6), 350.0)))
    return np.geomspace(max(min(least, 1e-3), 1e-100), 1.0, GAPS)


def fingerprints_floor(epsilon: float, delta: float, n: int, dimension: int, steps: int) -> float:
    """Return the floor of n clipped vectors of many coordinates, in groups of copies."""
    most = min(n, 2 + math.ceil(min(8 / (steps * epsilon), MOST_COPIES)))
    copies = np.unique(np.rint(np.geomspace(1, most, SIZES)))[:, None]
    people = np.floor(np.geomspace(1, n, SIZES)[None, :] / copies)
    # For groups larger than n there are no people; these drop out at the end.
    spread = np.sqrt(2 * dimension / (3 * np.maximum(people, 1)))
    # If ε is so large that nothing is private, the floor is 0.
    with np.errstate(over="ignore"):
        slope = np.maximum(people, 1) * np.sinh(steps * copies * epsilon)
    left = dimension / 3 - 8 * dimension * people * group_delta(epsilon, delta, steps * copies)
    left = np.maximum(left, 0.0)
    # The error is the root of a² + slope·a = left, without cancellation.
    error = 2 * left / (slope + np.hypot(slope, 2 * np.sqrt(left)) + 5e-324) - spread
    sums = np.where(people >= 1, copies * people * error, 0.0) / math.sqrt(dimension)
    return float(max(np.max(sums), 0.0))

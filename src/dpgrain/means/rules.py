"""Rules that map each vector separately, by public numbers: clipping, and a weight next to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain._clipping import clipped, finite
from dpgrain._types import FloatArray, IntArray
from dpgrain.means.grid import tiles
from dpgrain.means.protocol import Contributions


def by_radius(contributions: Contributions, centre: FloatArray, radii: FloatArray) -> IntArray:
    """Count vectors by the first radius that holds them, and at the end those that no radius holds.

    Args:
        contributions: the vectors of blocks.
        centre: (d,) a public point.
        radii: the radii, rising.

    >>> from dpgrain.means.protocol import Vectors
    >>> vectors = Vectors([[3.0, 4.0], [1.0, 0.0]], dimension=2)
    >>> by_radius(vectors, np.zeros(2), np.array([1.0, 2.0])).tolist()
    [1, 0, 1]
    """
    counts = np.zeros(len(radii) + 1, dtype=np.int64)
    for vectors in tiles(contributions):
        counts += np.bincount(
            np.searchsorted(radii, _distances(vectors, centre)), minlength=len(counts)
        )
    return counts


@dataclass(frozen=True)
class Weighted:
    """The rule for shortening vectors, with a public weight as one more coordinate of each.

    Args:
        bound: the length that a vector has at most.
        weight: the weight.

    >>> Weighted(1.0, 0.5)(np.array([[3.0], [0.5]])).tolist()
    [[1.0, 0.5], [0.5, 0.5]]
    """

    bound: float
    weight: float

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Return the vectors with their weights."""
        weights = np.full((len(vectors), 1), self.weight)
        return np.hstack([clipped(vectors, self.bound), weights])

    @property
    def norm(self) -> float:
        """The largest norm of a vector with its weight."""
        return math.hypot(self.bound, self.weight)


@dataclass(frozen=True, eq=False)
class LeftOut:
    """The rule for what clipping around a centre removes from each vector, with a public weight.

    Args:
        centre: (d,) a public point of norm at most ``bound``.
        radius: the largest distance from the centre that is not clipped.
        bound: the largest norm of a vector.
        weight: the weight.

    Formal guarantee: a vector within the bound, less its clipped difference to the centre, lies on the
    segment between the centre and the vector (or is the centre), so its norm is at most the bound.

    >>> rule = LeftOut(np.zeros(2), 2.0, 9.0, 0.5)
    >>> rule(np.array([[3.0, 4.0], [1.0, 0.0]])).round(1).tolist()
    [[1.8, 2.4, 0.5], [0.0, 0.0, 0.5]]
    """

    centre: FloatArray
    radius: float
    bound: float
    weight: float

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Return the vectors with their weights."""
        with np.errstate(all="ignore"):
            # An overflow depends on one user's vector; a warning would reveal it.
            kept = clipped(finite(vectors - self.centre), self.radius)
            return Weighted(self.bound, self.weight)(finite(vectors - kept))


def _distances(vectors: FloatArray, centre: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        # A distance that overflows is beyond all radii; a warning would reveal it.
        distances: FloatArray = np.linalg.norm(finite(vectors - centre), axis=1)
    return distances

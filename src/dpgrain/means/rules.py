"""Rules of public numbers for each vector alone: a weight beside it, or its distance."""

from __future__ import annotations

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


@dataclass(frozen=True, eq=False)
class Beyond:
    """The rule for the distance of each vector beyond a radius from a centre.

    Args:
        centre: (d,) a public point.
        radius: the distance from which on a vector counts.

    >>> Beyond(np.zeros(2), 2.0)(np.array([[3.0, 4.0], [1.0, 0.0]])).tolist()
    [[3.0], [0.0]]
    """

    centre: FloatArray
    radius: float

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Return (blocks, 1) the excess of each; a distance that overflows counts as none."""
        away = _distances(vectors, self.centre) - self.radius
        return np.maximum(np.where(np.isfinite(away), away, 0.0), 0.0)[:, None]


def _distances(vectors: FloatArray, centre: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        # A distance that overflows is beyond all radii; a warning would reveal it.
        distances: FloatArray = np.linalg.norm(finite(vectors - centre), axis=1)
    return distances

"""Rules that map each vector separately by public numbers: clipping, with a weight."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.means.grid import tiles
from dpgrain.means.mean_protocol import Contributions
from dpgrain.numerics.row_clipping import clipped, zero_nonfinite_rows


def count_by_radius(
    contributions: Contributions, centre: FloatArray, radii: FloatArray
) -> IntArray:
    """Count vectors by the first ascending radius around a centre that contains them.

    The last count is for vectors outside all radii.

    >>> from dpgrain.means.mean_protocol import Vectors
    >>> vectors = Vectors([[3.0, 4.0], [1.0, 0.0]], dimension=2)
    >>> count_by_radius(vectors, np.zeros(2), np.array([1.0, 2.0])).tolist()
    [1, 0, 1]
    """
    counts = np.zeros(len(radii) + 1, dtype=np.int64)
    for vectors in tiles(contributions):
        counts += np.bincount(
            np.searchsorted(radii, _distances(vectors, centre)), minlength=len(counts)
        )
    return counts


@dataclass(frozen=True)
class WeightedClip:
    """Rule that clips vectors, and appends a public weight as a coordinate.

    >>> WeightedClip(1.0, 0.5)(np.array([[3.0], [0.5]])).tolist()
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
        """Largest norm of a vector with its weight."""
        return math.hypot(self.bound, self.weight)


@dataclass(frozen=True, eq=False)
class ExcessVector:
    """Rule for the clipped-off part of a vector, with a public weight.

    The centre has norm at most ``bound``.

    Formal guarantee: a vector within the bound, minus its clipped difference to the centre, is on
    the segment between the centre and the vector (or equals the centre), so its norm is at most the
    bound.

    >>> rule = ExcessVector(np.zeros(2), 2.0, 9.0, 0.5)
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
            clipped_rows = clipped(zero_nonfinite_rows(vectors - self.centre), self.radius)
            return WeightedClip(self.bound, self.weight)(
                zero_nonfinite_rows(vectors - clipped_rows)
            )


def _distances(vectors: FloatArray, centre: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        # An overflowing distance is beyond all radii; a warning would reveal it.
        distances: FloatArray = np.linalg.norm(zero_nonfinite_rows(vectors - centre), axis=1)
    return distances

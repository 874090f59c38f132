"""Rules that map each vector separately by public numbers: clipping, with a weight.

Vectors of users weighted by records have a last coordinate: their number of records, or its share
of the largest number that counts.
"""

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


@dataclass(frozen=True)
class RecordShares:
    """Rule from numbers of records, in the last coordinate, to shares of the largest number.

    >>> RecordShares(200)(np.array([[3.0, 50.0], [0.5, 900.0]])).tolist()
    [[3.0, 0.25], [0.5, 1.0]]
    """

    most: int

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Return the vectors with their shares."""
        return np.hstack([vectors[:, :-1], np.minimum(vectors[:, -1:], self.most) / self.most])


@dataclass(frozen=True, eq=False)
class WeightedDifference:
    """Rule for differences from a centre times shares, next to weighted shares, clipped together.

    Formal guarantee: a vector x with share a becomes (a(x − centre), a·weight), clipped to the norm
    of ``clip``; a clipped vector has the same centre and less weight.

    >>> rule = WeightedDifference(np.zeros(1), WeightedClip(3.0, 4.0))
    >>> rule(np.array([[3.0, 0.5], [30.0, 0.1]])).round(6).tolist()
    [[1.5, 2.0], [3.0, 0.4]]
    """

    centre: FloatArray
    clip: WeightedClip

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Return the weighted differences with their weights."""
        shares = vectors[:, -1:]
        with np.errstate(all="ignore"):
            # An overflow depends on one user's vector; a warning would reveal it.
            rows = np.hstack([shares * (vectors[:, :-1] - self.centre), shares * self.clip.weight])
            return clipped(zero_nonfinite_rows(rows), self.clip.norm)


@dataclass(frozen=True, eq=False)
class WeightedExcess:
    """Rule for the weight that :class:`WeightedDifference` clips off, times the vectors.

    The centre is in the ball with the radius ``bound.bound``.

    Formal guarantee: for a vector x in this ball, with share a and the part f of its weight that
    remains, the result is a((1 − f)x + f·centre), of norm at most a·bound.

    >>> around = WeightedDifference(np.zeros(1), WeightedClip(3.0, 4.0))
    >>> WeightedExcess(around, WeightedClip(30.0, 9.0))(np.array([[3.0, 1.0], [12.0, 1.0]])).round(3)
    array([[0.   , 9.   ],
           [7.257, 9.   ]])
    """

    around: WeightedDifference
    bound: WeightedClip

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Return the clipped-off parts with the weights of vectors."""
        shares, centre = vectors[:, -1:], self.around.centre
        with np.errstate(all="ignore"):
            remains = self.around(vectors)[:, -1:] / (shares * self.around.clip.weight)
            points = (1 - remains) * vectors[:, :-1] + remains * centre
            rows = np.hstack([shares * points, shares * self.bound.weight])
            return clipped(zero_nonfinite_rows(rows), self.bound.norm)


def share_by_radius(
    contributions: Contributions, centre: FloatArray, radii: FloatArray, parts: int
) -> IntArray:
    """Add shares, in 1/``parts`` rounded down, by the first radius that contains share·distance.

    The last sum is for vectors outside all radii.

    >>> from dpgrain.means.mean_protocol import Vectors
    >>> vectors = Vectors([[4.0, 0.25], [9.0, 1.0]], dimension=2)
    >>> share_by_radius(vectors, np.zeros(1), np.array([1.0, 2.0]), 8).tolist()
    [2, 0, 8]
    """
    sums = np.zeros(len(radii) + 1, dtype=np.int64)
    for vectors in tiles(contributions):
        shares = vectors[:, -1]
        distances = _distances(shares[:, None] * vectors[:, :-1], shares[:, None] * centre)
        np.add.at(
            sums, np.searchsorted(radii, distances), np.floor(shares * parts).astype(np.int64)
        )
    return sums


def _distances(vectors: FloatArray, centre: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        # An overflowing distance is beyond all radii; a warning would reveal it.
        distances: FloatArray = np.linalg.norm(zero_nonfinite_rows(vectors - centre), axis=1)
    return distances

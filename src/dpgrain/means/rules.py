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
    """Count vectors by the first ascending radius that contains them, (radii + 1,)."""
    counts = np.zeros(len(radii) + 1, dtype=np.int64)
    for vectors in tiles(contributions):
        counts += np.bincount(
            np.searchsorted(radii, _distances(vectors, centre)), minlength=len(counts)
        )
    return counts


@dataclass(frozen=True)
class WeightedClip:
    """Rule that clips vectors, and appends a public weight as a coordinate."""

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

    Formal guarantee: for a vector within the bound, the part is on the segment between centre and
    vector (or is the centre), so its norm is at most the bound if the centre's is.
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
    """Rule from record counts, the last coordinate, to shares of the largest number."""

    most: int

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Return the vectors with their shares."""
        return np.hstack([vectors[:, :-1], np.minimum(vectors[:, -1:], self.most) / self.most])


@dataclass(frozen=True, eq=False)
class WeightedDifference:
    """Rule for differences from a centre times shares, next to weighted shares.

    Formal guarantee: a vector x with share a becomes (a(x − centre), a·weight), clipped to the norm
    of ``clip``; a clipped vector has the same centre and less weight.
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
    """Rule for the weight that :class:`WeightedDifference` clips off, times vectors.

    Formal guarantee: for a vector x in the ball, with share a and the part f of its weight that
    remains, the result is a((1 − f)x + f·centre), of norm at most a·bound, with ‖centre‖ ≤ bound.
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
    """Add shares, in 1/``parts``, by the first radius ≥ share·distance, (radii + 1,)."""
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

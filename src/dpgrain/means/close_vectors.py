"""Exact counts of vectors close to each vector, on an integer grid.

With floating-point products, a change of one row could change the last digit of another pair's
distance, so one user's data would affect other users' counts. Distances are therefore compared as
exact integers. Integer products are exact in any order if no partial sum exceeds 2^53. Vectors too
distant for that are compared with an error bound, and undecided pairs are subtracted as integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray, IntArray

# Max absolute coordinate in steps.
_LARGEST_STEPS = 2.0**60
# Largest squared norm from the centre, in squared steps, with exact products: 2·‖a‖‖b‖ + ‖a‖² +
# ‖b‖² ≤ 2^52.
_EXACT_SQUARE = 2.0**50
# Steps of a difference larger than any requested distance.
_FAR_STEPS = 1 << 26
# Rows of a tile, and undecided pair entries processed at a time.
_TILE_ROWS, _OPEN_ENTRIES = 2048, 1 << 21
# Rows from which the centre is chosen; at least one in the second number of rows must be near it.
_SAMPLE_ROWS, _FEW_OF_ROWS = 64, 8


def on_grid(vectors: FloatArray, step: float) -> IntArray:
    """Return vectors, (n, d), in integer steps rounded to nearest; 0 if not finite.

    Formal guarantee: each row depends only on the same row.
    """
    finite = np.isfinite(vectors).all(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        steps: FloatArray = np.where(finite, vectors, 0.0).astype(np.float64) / step
    np.clip(steps, -_LARGEST_STEPS, _LARGEST_STEPS, out=steps)
    return np.rint(steps, out=steps).astype(np.int64)


def close(vectors: FloatArray, step: float, squared: Sequence[int]) -> IntArray:
    """Count vectors within each distance of each vector, (number of distances, n).

    Formal guarantee: counts are exact for the rounded vectors, in any order of rows, and depend on
    other rows only through whether they are close. ``squared`` are in steps, at most 2^51.
    """
    counts = np.zeros((len(squared), len(vectors)), dtype=np.int64)
    left = np.arange(len(vectors))
    while left.size:
        rows = _Rows(vectors, step, left)
        # If few vectors are near the centre, most are isolated, and rounding leaves few pairs
        # undecided.
        done = rows.exact if rows.exact * _FEW_OF_ROWS >= left.size else left.size
        edges = [*range(0, done, _TILE_ROWS), *range(done, left.size, _TILE_ROWS), left.size]
        for first in pairwise(edge for edge in edges if edge <= done):
            factor = rows.left_factor(*first)
            for second in pairwise(edge for edge in edges if edge >= first[0]):
                apart = rows.squared_distances(factor, first, second, squared)
                for row, limit in zip(counts, squared, strict=True):
                    _count(apart <= limit + 0.5, row, rows.order, first, second)
        left = rows.order[done:]
    return counts


def _count(
    near: NDArray[np.bool_],
    counts: IntArray,
    order: NDArray[np.intp],
    first: tuple[int, int],
    second: tuple[int, int],
) -> None:
    """Add a tile of pairs to the counts of its rows and off-diagonal columns."""
    counts[order[slice(*first)]] += np.count_nonzero(near, axis=1)
    if first != second:
        counts[order[slice(*second)]] += np.count_nonzero(near, axis=0)


class _Rows:
    """Vectors on a grid around a centre, which returns tiles of their distances.

    The centre determines how many pairs a product decides, but never the results.
    """

    def __init__(self, vectors: FloatArray, step: float, which: NDArray[np.intp]) -> None:
        self._vectors, self._step, self.order = vectors, step, which
        self._d = vectors.shape[1]
        sample = self._steps(which[:: -(-which.size // _SAMPLE_ROWS)])
        middle = np.median(sample.astype(np.float64), axis=0)
        self._centre = sample[np.abs(sample - middle).max(axis=1, initial=0.0).argmin()]
        tiles = pairwise([*range(0, which.size, _TILE_ROWS), which.size])
        squares = np.concatenate([_squares(self._from_centre(*tile)) for tile in tiles])
        # Rows with exact products come first.
        sorted_ = np.argsort(squares > _EXACT_SQUARE, kind="stable")
        self.order, self._squares = which[sorted_], squares[sorted_]
        self.exact = int((squares <= _EXACT_SQUARE).sum())

    def _steps(self, which: NDArray[np.intp]) -> IntArray:
        return on_grid(self._vectors[which], self._step)

    def _from_centre(self, first: int, last: int) -> FloatArray:
        rows: FloatArray = (self._steps(self.order[first:last]) - self._centre).astype(np.float64)
        return rows

    def left_factor(self, first: int, last: int) -> FloatArray:
        """Return rows as the left factor of the product for squared distances."""
        rows, squares = self._from_centre(first, last), self._squares[first:last, None]
        return np.hstack([-2.0 * rows, squares, np.ones_like(squares)])

    def _right_factor(self, first: int, last: int) -> FloatArray:
        rows, squares = self._from_centre(first, last), self._squares[first:last, None]
        return np.hstack([rows, np.ones_like(squares), squares])

    def squared_distances(
        self,
        left: FloatArray,
        first: tuple[int, int],
        second: tuple[int, int],
        squared: Sequence[int],
    ) -> FloatArray:
        """Return a tile's squared distances, on the correct side of requested ones."""
        apart: FloatArray = left @ self._right_factor(*second).T
        mine, theirs = self._squares[slice(*first)], self._squares[slice(*second)]
        if max(mine[-1], theirs[-1]) > _EXACT_SQUARE:
            for rows, columns in self._undecided(apart, mine, theirs, squared):
                apart[rows, columns] = self._exact_distances(first[0] + rows, second[0] + columns)
        return apart

    def _undecided(
        self, apart: FloatArray, mine: FloatArray, theirs: FloatArray, squared: Sequence[int]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield, in batches, the pairs that rounding may have put on the wrong side."""
        # The error of a product of d+2 terms in any order is (d+2)u·Σ|terms|; norms and rounded
        # integers also have errors: four times the bound covers all.
        unit = (4 * self._d + 32) * 2.0**-52
        error = unit * (np.sqrt(mine)[:, None] + np.sqrt(theirs)[None, :]) ** 2
        error[(mine[:, None] <= _EXACT_SQUARE) & (theirs[None, :] <= _EXACT_SQUARE)] = 0.0
        unsure = np.zeros(apart.shape, dtype=np.bool_)
        for limit in squared:
            unsure |= np.abs(apart - (limit + 0.5)) <= error
        rows, columns = np.nonzero(unsure)
        most = max(1, _OPEN_ENTRIES // max(self._d, 1))
        for first in range(0, len(rows), most):
            yield rows[first : first + most], columns[first : first + most]

    def _exact_distances(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> FloatArray:
        gaps = self._steps(self.order[rows]) - self._steps(self.order[columns])
        # Sums are exact up to 2^53; a partial sum above that remains above it.
        return _squares(np.minimum(np.abs(gaps), _FAR_STEPS + 1).astype(np.float64))


def _squares(rows: FloatArray) -> FloatArray:
    result: FloatArray = np.einsum("ij,ij->i", rows, rows)
    return result

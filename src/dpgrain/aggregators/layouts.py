"""How the rows of blocks lie, and the kernels that go with it: clipped sums of Σᵢ rᵢxᵢ'/s.

The gradient of a block of s rows is Σᵢ rᵢxᵢ'/s, with one slope rᵢ per record and output. Rows are sorted by
block and blocks by size, once. All kernels work through the rows a tile at a time, so that what they need
besides the rows does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpgrain.aggregators.protocol import Drawn, FloatArray, clipped

Array = NDArray[Any]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

# Entries of X in one tile of rows, 16 MB of float32, and in one of columns.
_ENTRIES = 1 << 22
_COLUMN_ENTRIES = 1 << 18
# Padding by so many rows costs as much as one more size of block does.
_PADDING = 512
# Gram matrices are kept up to so many entries, 32 MB, for blocks of up to so many rows.
_KEPT_ENTRIES = 1 << 22
_KEPT_SIZE = 128
# Entries of an array that is made in between.
_SLICE = 1 << 19
# How far rounding may take a clipped block over the bound, relative to it.
_EXCESS = 5e-6
# Squares of norms outside of this range, in any type, are looked at again.
_SAFE_SQUARES = {4: (1e-30, 1e30), 8: (1e-250, 1e250)}


class SlopedLoss(Protocol):
    """What is needed of a loss: see :class:`dpgrain.optimize.MarginLoss`."""

    @property
    def outputs(self) -> int:
        """Margins per record."""

    def slope(self, z: Any, y: Any) -> Any:
        """The derivative of each record's loss in its margins, (m,) or (m, outputs)."""


@dataclass(frozen=True)
class Model:
    """A loss of margins at one parameter.

    Args:
        loss: the loss.
        weights: (C, p), of the type of the features: C outputs, p coordinates with the intercept's.
    """

    loss: SlopedLoss
    weights: Array

    def slopes(self, X: Any, y: Array) -> Array:  # noqa: N803
        """(m, C) the slopes of the rows of X."""
        z = X @ self.weights.T if len(self.weights) > 1 else X @ self.weights[0]
        return np.asarray(self.loss.slope(z, y)).reshape(len(y), -1)


class Layout(Protocol):
    """The rows of all blocks."""

    def clipped_sum(self, model: Model, clip: float, drawn: Drawn | None) -> FloatArray:
        """(C, p)"""

    def vectors(self, model: Model, drawn: Drawn) -> FloatArray:
        """(drawn, C · p)"""


@dataclass(frozen=True)
class Order:
    """Which rows each block has; blocks without rows are left out, the others sorted by size.

    Args:
        rows: (m,) indices of rows, block by block.
        codes: (b,) the blocks.
        starts: (b + 1,): block ``codes[i]`` has ``rows[starts[i]:starts[i + 1]]``.
        blocks: how many blocks there are, with those that have no rows.
    """

    rows: IntArray
    codes: IntArray
    starts: IntArray
    blocks: int

    @staticmethod
    def of(codes: IntArray, kept: BoolArray, blocks: int) -> Order:
        """The order of rows with these blocks, of those rows that are kept."""
        held = np.bincount(codes[kept], minlength=blocks)
        by_size = np.argsort(held, kind="stable")
        by_size = by_size[held[by_size] > 0]
        place = np.zeros(blocks, dtype=np.intp)
        place[by_size] = np.arange(len(by_size))
        rows = np.flatnonzero(kept)
        rows = rows[np.argsort(place[codes[rows]], kind="stable")]
        starts = np.concatenate([[0], np.cumsum(held[by_size])]).astype(np.intp)
        return Order(rows, by_size, starts, blocks)

    @cached_property
    def sizes(self) -> IntArray:
        """(b,) rows of each block, ascending."""
        return np.diff(self.starts)

    @cached_property
    def _places(self) -> IntArray:
        """(blocks,) where each block is, −1 if it has no rows."""
        places = np.full(self.blocks, -1, dtype=np.intp)
        places[self.codes] = np.arange(len(self.codes))
        return places

    def places(self, drawn: Drawn | None) -> IntArray:
        """Where the drawn blocks are, sorted; of those that have rows."""
        if drawn is None:
            return np.arange(len(self.codes))
        places = np.sort(self._places[drawn])
        return places[np.searchsorted(places, 0) :]

    def tiles(self, places: IntArray, most: int) -> Iterator[tuple[IntArray, Any]]:
        """The blocks at these places and where their rows are, about so many rows at a time.

        A block with more rows than that is alone. Rows are a slice where no block is left out.
        """
        tile = (np.cumsum(self.sizes[places]) - 1) // max(most, 1)
        for some in np.split(places, np.flatnonzero(np.diff(tile)) + 1):
            if len(some) == 0:
                continue
            if some[-1] - some[0] + 1 == len(some):
                yield some, slice(self.starts[some[0]], self.starts[some[-1] + 1])
            else:
                yield some, _ranges(self.starts[some], self.sizes[some])


def finite(values: Array) -> Array:
    """The values, with 0 for those that are not finite."""
    good = np.isfinite(values)
    return values if good.all() else np.where(good, values, values.dtype.type(0))


# ------------------------------------------------------------------- many coordinates


@dataclass(frozen=True)
class DenseRows:
    """Rows as they are used for products with matrices.

    The squared norm of a block's sum is Σᵢⱼ ⟨xᵢ,xⱼ⟩⟨rᵢ,rⱼ⟩: two small Gram matrices, of which the first
    does not change. The sum itself is formed only where that costs less, or is not precise.

    Args:
        X: (m, p).
        y: (m,).
        order: the blocks.
    """

    X: Array
    y: Array
    order: Order

    @staticmethod
    def of(X: Array, y: Array, order: Order, intercept: bool) -> DenseRows:  # noqa: N803
        """Lay rows out."""
        rows = np.ones((len(order.rows), X.shape[1] + intercept), dtype=X.dtype)
        most = max(1, _ENTRIES // max(X.shape[1], 1))
        for first in range(0, len(rows), most):
            part = slice(first, first + most)
            rows[part, : X.shape[1]] = finite(X[order.rows[part]])
        return DenseRows(rows, y[order.rows], order)

    def clipped_sum(self, model: Model, clip: float, drawn: Drawn | None) -> FloatArray:
        """The sum of the clipped mean gradients of the drawn blocks."""
        total = np.zeros(model.weights.shape)
        places = self.order.places(drawn)
        cut = np.searchsorted(self.order.sizes[places], self._largest_gram(model), side="right")
        for some, rows in self.order.tiles(places[:cut], self._most):
            total += self._by_gram(model, clip, some, self.X[rows], self.y[rows])
        for some, rows in self.order.tiles(places[cut:], self._most):
            total += self._by_forming(model, clip, self.order.sizes[some], rows)
        return total

    def vectors(self, model: Model, drawn: Drawn) -> FloatArray:
        """The mean gradients of the drawn blocks."""
        out = np.zeros((self.order.blocks, 0)) if len(drawn) == 0 else None
        del out
        found = np.zeros((len(drawn), model.weights.size))
        for i, place in enumerate(self.order.unsorted(drawn)):
            if place >= 0:
                rows = slice(self.order.starts[place], self.order.starts[place + 1])
                found[i] = self._formed(model, rows).ravel() / self.order.sizes[place]
        return found

    @property
    def _most(self) -> int:
        return max(1, _ENTRIES // max(self.X.shape[1], 1))

    # Gram matrices

    @cached_property
    def _kept(self) -> dict[int, tuple[int, FloatArray]]:
        """By size of block: the first block's place, and the Gram matrices (n, s, s) of all."""
        sizes, firsts, counts = np.unique(
            self.order.sizes, return_index=True, return_counts=True
        )
        used = np.cumsum(counts * sizes**2)
        fit = (used <= _KEPT_ENTRIES) & (sizes <= _KEPT_SIZE)
        kept = {}
        for s, first, n in zip(sizes[fit].tolist(), firsts[fit].tolist(), counts[fit], strict=True):
            start = self.order.starts[first]
            kept[s] = first, _gram(self.X[start : start + n * s].reshape(n, s, -1))
        return kept

    def _largest_gram(self, model: Model) -> int:
        """Up to this size of block, Gram matrices cost less than forming the block's sum."""
        outputs, p = model.weights.shape
        # s²(p + C) products made here against some 5·p·C to form the sum, its norm, and add it.
        return max(max(self._kept, default=0), int((5 * p * outputs / (p + outputs)) ** 0.5))

    def _by_gram(
        self, model: Model, clip: float, places: IntArray, X: Array, y: Array  # noqa: N803
    ) -> FloatArray:
        """The clipped sum of a tile of blocks, from norms by Gram matrices."""
        sizes, slopes = self.order.sizes[places], model.slopes(X, y)
        precise = slopes.astype(np.float64)
        squares, spread = self._norms(places, X, precise)
        scale, doubtful = _scales(squares, spread, sizes, clip, X)
        factors = np.repeat(np.where(doubtful, 0.0, scale), sizes)
        precise_scaled = precise * factors[:, None]
        if doubtful.any():
            # A slope that is not finite would stay so.
            precise_scaled[np.repeat(doubtful, sizes)] = 0.0
        total = (precise_scaled.astype(X.dtype).T @ X).astype(np.float64)
        ends = np.cumsum(sizes)
        for i in np.flatnonzero(doubtful):
            own = slice(ends[i] - sizes[i], ends[i])
            total += _clipped(precise[own].T @ X[own].astype(np.float64) / sizes[i], clip)
        return total

    def _norms(
        self, places: IntArray, X: Array, slopes: FloatArray  # noqa: N803
    ) -> tuple[FloatArray, FloatArray]:
        """Squared norms of the sums of blocks, and the sums S of the norms of their gradients."""
        squares, spread = np.empty(len(places)), np.empty(len(places))
        row = 0
        for s, own in _runs(self.order.sizes[places]):
            n = own.stop - own.start
            rows = slice(row, row + n * s)
            row = rows.stop
            if s in self._kept:
                first, kept = self._kept[s]
                inner = kept[_span(places[own] - first)]
            else:
                inner = _gram(X[rows].reshape(n, s, -1))
            squares[own], spread[own] = _norms(inner, slopes[rows].reshape(n, s, -1))
        return squares, spread

    # Forming

    def _by_forming(self, model: Model, clip: float, sizes: IntArray, rows: Any) -> FloatArray:
        """The clipped sum of a tile of blocks, each formed, in the cache where it fits."""
        if len(sizes) == 1:
            return _clipped(self._formed(model, rows) / sizes[0], clip)
        X, y = self.X[rows], self.y[rows]  # noqa: N806
        slopes = model.slopes(X, y)
        total, formed = np.zeros_like(model.weights), np.empty_like(model.weights)
        rest = np.zeros(model.weights.shape)
        low, high = _SAFE_SQUARES[X.itemsize]
        end = 0
        for s in sizes.tolist():
            own = slice(end, end + s)
            end += s
            np.matmul(slopes[own].T, X[own], out=formed)
            square = _square(formed)
            if low < square < high:
                formed *= min(1 / s, clip / square**0.5)
                total += formed
            else:
                rest += _clipped(formed.astype(np.float64) / s, clip)
        rest += total
        return rest

    def _formed(self, model: Model, rows: slice) -> FloatArray:
        """The sum of the gradients of rows, however many."""
        total = np.zeros(model.weights.shape)
        for first in range(rows.start, rows.stop, self._most):
            own = slice(first, min(first + self._most, rows.stop))
            total += model.slopes(self.X[own], self.y[own]).T @ self.X[own]
        return total


def _gram(X: Array) -> FloatArray:  # noqa: N803
    """(n, s, s) inner products of the rows of blocks, (n, s, p), in float64."""
    n, s, p = X.shape
    out = np.empty((n, s, s))
    step = max(1, _SLICE // max(s * p, 1))
    for first in range(0, n, step):
        part = X[first : first + step].astype(np.float64)
        np.matmul(part, part.transpose(0, 2, 1), out=out[first : first + step])
    return out


def _norms(inner: FloatArray, slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """‖Σᵢ rᵢxᵢ'‖² and Σᵢ ‖rᵢ‖‖xᵢ‖ of blocks, from ⟨xᵢ,xⱼ⟩ (n, s, s) and r (n, s, C)."""
    if slopes.shape[2] == 1:
        other = slopes * slopes.transpose(0, 2, 1)
    else:
        other = slopes @ slopes.transpose(0, 2, 1)
    both = np.einsum("nii,nii->ni", inner, other)
    return np.einsum("nij,nij->n", inner, other), np.sqrt(both).sum(axis=1)


def _scales(
    squares: FloatArray, spread: FloatArray, sizes: IntArray, clip: float, X: Array  # noqa: N803
) -> tuple[FloatArray, BoolArray]:
    """What sums of blocks are multiplied by, and which of them must be formed in float64 instead.

    Let n be the norm of a block's sum and S = Σᵢ ‖rᵢ‖‖xᵢ‖ ≥ n. Where gradients cancel, S ≫ n, and
    rounding, which is relative to S, would take the block over the bound:

    - n² is a sum of s² products of sums of p and C products, all in float64, and S² bounds the sum of
      their absolute values. Its error is at most (p + C + s² + 2)·2⁻⁵³·S², here with (p + C + s²)·2⁻⁵²·S²;
      it is added to n², so that no norm is taken for smaller than it is, and must be small beside it.
    - The scaled rows are added up in the type of X. An addition errs by at most u = eps/2 of what has been
      added, and by eps/4 in the root of the mean square; s of them by √s·eps/4·wS, w being the scale.
    """
    eps64, eps = np.finfo(np.float64).eps, np.finfo(X.dtype).eps
    low, high = _SAFE_SQUARES[8]
    error = (X.shape[1] + sizes**2) * eps64 * spread**2
    norms = np.sqrt(squares + error)
    scale = np.minimum(1 / sizes, clip / norms)
    may_clip = norms > clip * sizes
    imprecise = may_clip & (error > _EXCESS * squares)
    rounded = np.sqrt(sizes) * eps / 4 * scale * spread > _EXCESS * clip
    unsafe = ~((squares > low) & (squares < high)) & (spread != 0)
    return scale, imprecise | rounded | unsafe


def _square(values: Array) -> float:
    """Σ v², in parts that are short enough for sums in float32."""
    flat = values.reshape(-1)
    whole = len(flat) // 1024 * 1024
    parts = flat[:whole].reshape(-1, 1024)
    square = np.vecdot(parts, parts).sum(dtype=np.float64) + flat[whole:] @ flat[whole:]
    return float(square)


def _clipped(mean: FloatArray, clip: float) -> FloatArray:
    """A vector of any shape, clipped; 0 if it is not finite."""
    if not np.isfinite(mean).all():
        return np.zeros_like(mean)
    return clipped(mean.reshape(1, -1), clip).reshape(mean.shape)


def _runs(sizes: IntArray) -> Iterator[tuple[int, slice]]:
    """Each of sorted sizes, and where it stands.

    >>> list(_runs(np.array([1, 1, 3])))
    [(1, slice(0, 2, None)), (3, slice(2, 3, None))]
    """
    edges = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
    for first, end in zip(edges[:-1], edges[1:], strict=True):
        yield int(sizes[first]), slice(first, end)


def _span(indices: IntArray) -> Any:
    """Sorted indices, as a slice where none is left out."""
    if indices[-1] - indices[0] + 1 == len(indices):
        return slice(indices[0], indices[-1] + 1)
    return indices


def _ranges(starts: IntArray, sizes: IntArray) -> IntArray:
    """The indices in ranges, one after the other.

    >>> _ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))

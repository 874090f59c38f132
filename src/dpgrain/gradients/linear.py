"""Clipped sums of the gradients of linear models, block by block, without a gradient per record.

The gradient of a record is slope ⊗ features, so that a block's gradient R'X, and its norm, come from
two thin matrices. For each size of block the cheapest of three ways is used (docs/architecture.md):

- *one record*: the norm is |slope|·‖x‖;
- *Gram*: ‖R'X‖² = Σ (XX')∘(RR'), and one product gives the sum of all blocks of a tile;
- *formed*: R'X itself is made, clipped and added at once, while it is in the cache.

In single precision the norm loses digits where gradients cancel. A block whose norm is not certain to
1e-5, and that may have to be clipped, is formed again in double precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpgrain._types import Array, FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.means.protocol import Drawn
from dpgrain.optimize.losses import MarginLoss

# A tile has at most this many bytes of features and this many rows, and at most this many bytes of
# gradients are formed at once.
_TILE_BYTES, _FORMED_BYTES, _TILE_ROWS = 1 << 23, 1 << 21, 1 << 14
# The products XX' of blocks of at most this many rows are kept, if all fit into this many bytes.
_KEPT_BLOCK_ROWS, _KEPT_BYTES = 128, 1 << 25
# Tiles are kept, with the matrices that add up their blocks, if there are at most this many rows.
_KEPT_ROWS = 1 << 22
# A Gram matrix pays while its s²(p+C) operations are at most this many times the p·C numbers of a
# formed gradient. The factor was measured.
_GRAM_OPERATIONS_PER_NUMBER = 10
# Gradients with at most this many entries are formed for a whole slice of blocks at once.
_SMALL_ENTRIES = 1 << 13
# Features and targets are kept in a public range of sizes, by the bytes of their type.
_NUMBER_RANGE = {4: (1e-30, 1e30), 8: (1e-100, 1e100)}
# A record's gradient that is longer than this many clipping bounds, by the bytes of its type, is
# shortened to them. Then rounding, which depends on where rows lie, changes a block by a small share
# of the bound only.
_LONGEST_CLIPS = {4: 1e4, 8: 1e6}
# Outside of this range the squares of clipping bounds lose digits in single precision, and then
# vanish or overflow.
_SINGLE_CLIPS = 1e-10, 1e10


@dataclass(frozen=True, eq=False)
class LinearBlocks:
    """Rows of features and targets, arranged by block; :meth:`arrange` makes it.

    Args:
        X: (m, p) the features, dense or CSR, with a last column of ones for an intercept; the rows of
            one block are together, and small blocks come first.
        y: (m,) the targets.
        sizes: (g,) the sizes of the blocks that have rows, ascending.
        names: (g,) the codes that the caller gave to these blocks.
        blocks: the number of blocks, with the empty ones.
    """

    X: Any
    y: Array
    sizes: IntArray
    names: IntArray
    blocks: int

    @staticmethod
    def arrange(
        X: Any,
        y: ArrayLike,
        codes: ArrayLike,
        *,
        intercept: bool,
        blocks: int | None = None,
    ) -> LinearBlocks:
        """Sort rows by the size of their block.

        Args:
            X: (m, d) features, float32 or float64, dense or CSR; a number that is not finite counts
                as 0.
            y: (m,) targets; a row whose target is not finite is left out.
            codes: (m,) the block of each row, from 0.
            intercept: add a feature that is 1.
            blocks: the number of blocks; by default the largest code and one.

        Raises:
            ParameterError: if shapes do not fit.

        >>> from dpgrain.optimize import Squared
        >>> rows = LinearBlocks.arrange(np.eye(2), [1.0, 8.0], [0, 1], intercept=False)
        >>> rows.gradients(Squared(), np.zeros(2)).clipped_sum(2.0).round(9).tolist()
        [-1.0, -2.0]
        """
        features = X.tocsr() if sparse.issparse(X) else np.asarray(X)
        targets, block_of = np.asarray(y), np.asarray(codes, dtype=np.int64)
        if features.ndim != 2 or not features.shape[0] == len(targets) == len(block_of):
            raise ParameterError(
                "X, y and codes must have as many rows as each other, not shapes "
                f"{features.shape}, {targets.shape} and {block_of.shape}."
            )
        count = int(block_of.max(initial=-1)) + 1 if blocks is None else blocks
        kept = np.flatnonzero(np.isfinite(targets))
        counts = np.bincount(block_of[kept], minlength=count)
        # Small blocks come first, and the rows of a block keep their order.
        order = kept[np.lexsort((block_of[kept], counts[block_of[kept]]))]
        names = np.lexsort((np.arange(count), counts))
        names = names[counts[names] > 0]
        rows = _rows(features, order, intercept=intercept)
        with np.errstate(all="ignore"):
            kept_targets = _tame(targets[order].astype(np.float64)).astype(rows.dtype)
        return LinearBlocks(rows, _tame(kept_targets), counts[names], names, count)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.y)

    @property
    def width(self) -> int:
        """The number of features of a row, with that of the intercept."""
        return int(self.X.shape[1])

    def gradients(self, loss: MarginLoss, theta: FloatArray) -> LinearGradients:
        """Return the mean gradients of all blocks at θ, as contributions.

        Args:
            loss: the loss as a function of margins.
            theta: (C·p,) the weights, flattened row by row from (C, p).
        """
        return LinearGradients(self, loss, np.asarray(theta, dtype=np.float64))

    @cached_property
    def starts(self) -> IntArray:
        """(g + 1,) the first row of each block, and the number of rows."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def places(self) -> IntArray:
        """(blocks,) the place of each block in the arrangement, −1 for an empty one."""
        places = np.full(self.blocks, -1)
        places[self.names] = np.arange(len(self.names))
        return places

    @cached_property
    def squares(self) -> Array:
        """(m,) the squared norm of each row, in double precision."""
        with np.errstate(all="ignore"):
            if sparse.issparse(self.X):
                return _squares(self.X.astype(np.float64))
            squared_norms: Array = np.einsum("ij,ij->i", self.X, self.X, dtype=np.float64)
            return squared_norms

    @cached_property
    def grams(self) -> dict[int, Array]:
        """By the size s of blocks, (n, s, s) their products XX' in double precision.

        It is empty if the products of all sizes do not fit.
        """
        sizes, counts = np.unique(self.sizes, return_counts=True)
        wanted = (sizes > 1) & (sizes <= _KEPT_BLOCK_ROWS)
        if sparse.issparse(self.X) or 8 * (counts * sizes**2)[wanted].sum() > _KEPT_BYTES:
            return {}
        grams = {}
        for size, count in zip(sizes[wanted].tolist(), counts[wanted].tolist(), strict=True):
            first = int(self.starts[np.searchsorted(self.sizes, size)])
            most = max(1, _TILE_BYTES // (8 * size * self.width))
            grams[size] = np.empty((count, size, size))
            for begin in range(0, count, most):
                end = min(begin + most, count)
                rows = self.X[first + begin * size : first + end * size].astype(np.float64)
                by_block = rows.reshape(-1, size, self.width)
                np.matmul(by_block, by_block.swapaxes(1, 2), out=grams[size][begin:end])
        return grams

    def tiles(self, drawn: Drawn | None) -> Iterable[_Tile]:
        """Return tiles of the blocks that are drawn, with bounded rows unless one block has more."""
        if drawn is None:
            return self._all if self.rows <= _KEPT_ROWS else self._cut(np.arange(len(self.sizes)))
        places = self.places[drawn]
        return self._cut(np.sort(places[places >= 0]))

    @cached_property
    def _all(self) -> list[_Tile]:
        """The tiles of all blocks: views of the rows, with the matrices that add them up."""
        return list(self._cut(np.arange(len(self.sizes))))

    def _cut(self, places: IntArray) -> Iterator[_Tile]:
        most = int(
            np.clip(_TILE_BYTES / max(self.width * self.X.dtype.itemsize, 1), 64, _TILE_ROWS)
        )
        ends = np.cumsum(self.sizes[places])
        first = 0
        while first < len(places):
            done = ends[first - 1] if first else 0
            last = max(int(np.searchsorted(ends, done + most, side="right")), first + 1)
            yield self._tile(places[first:last])
            first = last

    def _tile(self, places: IntArray) -> _Tile:
        sizes = self.sizes[places]
        starts = np.cumsum(sizes) - sizes
        if places[-1] - places[0] == len(places) - 1:
            rows: Any = slice(int(self.starts[places[0]]), int(self.starts[places[-1] + 1]))
        else:
            rows = np.repeat(self.starts[places] - starts, sizes) + np.arange(int(sizes.sum()))
        return _Tile(places, sizes, starts, self.X[rows], self.y[rows], self.squares[rows])


@dataclass(frozen=True, eq=False)
class _Tile:
    """Some whole blocks: their places in the arrangement, sizes, starts in the tile, and rows."""

    places: IntArray
    sizes: IntArray
    starts: IntArray
    X: Any
    y: Array
    squares: Array

    @cached_property
    def longest(self) -> float:
        """The norm of the longest row."""
        return float(np.sqrt(self.squares.max(initial=0.0)))

    def doubled(self) -> _Tile:
        """Return the same tile in double precision."""
        X = self.X.astype(np.float64)
        return replace(self, X=X, y=self.y.astype(np.float64))

    @cached_property
    def classes(self) -> list[tuple[int, slice, slice]]:
        """The sizes of blocks in the tile, each with its blocks and their rows."""
        sizes, firsts = np.unique(self.sizes, return_index=True)
        lasts = np.append(firsts[1:], len(self.sizes))
        begins = self.starts[firsts]
        ends = begins + sizes * (lasts - firsts)
        ranges = zip(sizes, firsts, lasts, begins, ends, strict=True)
        return [(int(s), slice(int(a), int(b)), slice(int(c), int(d))) for s, a, b, c, d in ranges]

    @cached_property
    def gather(self) -> Any:
        """(blocks, rows) the matrix that adds up each block's rows, once their slopes are its data."""
        ends = np.append(self.starts, len(self.y)).astype(np.int32)
        shape = (len(self.sizes), len(self.y))
        return sparse.csr_array(
            (np.empty_like(self.y), np.arange(shape[1], dtype=np.int32), ends), shape
        )

    def sums(self, slopes: Array) -> Any:
        """Return (blocks, p) the sum of slope·row over each block, for one output, row after row."""
        # A dense product would add up rows in an order that depends on the other blocks.
        self.gather.data = slopes
        return self.gather @ self.X


@dataclass(frozen=True, eq=False)
class LinearGradients:
    """The mean gradient of each block at one θ, formed only where it must be.

    Args:
        rows: the blocks.
        loss: the loss as a function of margins.
        theta: (C·p,) the weights, flattened row by row from (C, p).

    Formal guarantee: the vector that :meth:`clipped_sum` adds for a block has norm at most
    clip·(1 + 1e-5) in single precision (1 + 1e-12 in double), up to the rounding of the sum; a test
    searches for worse.
    """

    rows: LinearBlocks
    loss: MarginLoss
    theta: FloatArray

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.rows.blocks

    @property
    def dimension(self) -> int:
        """The length of a gradient."""
        return len(self.theta)

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """Return (dimension,) the sum of the clipped mean gradients of the (drawn) blocks."""
        total = np.zeros((self.loss.outputs, self.rows.width))
        with np.errstate(all="ignore"):
            # A value that overflows is somebody's, and no warning may tell of it.
            for tile in self.rows.tiles(drawn):
                single = (
                    tile.X.dtype == np.float32 and not _SINGLE_CLIPS[0] <= clip <= _SINGLE_CLIPS[1]
                )
                self._add(tile.doubled() if single else tile, clip, total)
        return total.ravel()

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """Return (blocks, dimension) the mean gradients of the (drawn) blocks, not clipped."""
        which = np.arange(self.blocks) if drawn is None else np.asarray(drawn)
        out = np.zeros((len(which), self.loss.outputs, self.rows.width))
        row = np.full(self.blocks, -1)
        row[which] = np.arange(len(which))
        with np.errstate(all="ignore"):
            for tile in self.rows.tiles(np.sort(which)):
                # A sparse product goes row by row, so that a margin does not depend on where its row
                # lies.
                slopes = self._slopes(sparse.csr_array(tile.X), tile.y)
                into = row[self.rows.names[tile.places]]
                if self.loss.outputs == 1:
                    sums = tile.sums(slopes[:, 0])
                    dense = sums.toarray() if sparse.issparse(sums) else sums
                    out[into, 0] = dense / tile.sizes[:, None]
                    continue
                for i, start, size in zip(into, tile.starts, tile.sizes, strict=True):
                    own = slice(int(start), int(start + size))
                    out[i] = _formed(tile.X[own], slopes[own]) / size
        flat = out.reshape(len(which), -1)
        flat[~np.isfinite(flat).all(axis=1)] = 0.0
        return flat

    def _slopes(self, X: Any, y: Array) -> Array:
        """Return (m, C) the slopes of rows, in the type of the features."""
        weights = self.theta.reshape(self.loss.outputs, -1).astype(X.dtype)
        margins = X @ weights[0] if self.loss.outputs == 1 else X @ weights.T
        return self.loss.slope(margins, y).reshape(len(y), self.loss.outputs)

    def _add(self, tile: _Tile, clip: float, total: FloatArray) -> None:
        """Add the clipped gradients of a tile's blocks."""
        if len(tile.y) > _TILE_ROWS and len(tile.sizes) == 1:
            self._add_alone(tile, clip, total)
            return
        slopes = self._slopes(tile.X, tile.y)
        if not np.isfinite(slopes.sum()):
            # A block with a slope that is not finite counts as a zero gradient.
            wrong = np.logical_or.reduceat(~np.isfinite(slopes).all(axis=1), tile.starts)
            slopes = np.where(np.repeat(wrong, tile.sizes)[:, None], 0, slopes)
        steepest = self.loss.lipschitz
        if not np.isfinite(steepest):
            steepest = float(np.abs(slopes).sum(axis=1).max())
        if steepest * tile.longest > _LONGEST_CLIPS[slopes.dtype.itemsize] * clip:
            slopes = _within(slopes, tile.squares, clip)
        if self.loss.outputs == 1:
            self._add_single(tile, slopes[:, 0], clip, total)
        else:
            self._add_several(tile, slopes, clip, total)

    def _add_alone(self, tile: _Tile, clip: float, total: FloatArray) -> None:
        """Add one block with more rows than a tile, whose gradient is formed in double precision."""
        gradient = np.zeros_like(total)
        for first in range(0, len(tile.y), _TILE_ROWS):
            own = slice(first, first + _TILE_ROWS)
            slopes = self._slopes(tile.X[own], tile.y[own])
            gradient += _formed(tile.X[own], _within(slopes, tile.squares[own], clip))
        total += _shortened(gradient / len(tile.y), clip)

    def _add_single(self, tile: _Tile, slopes: Array, clip: float, total: FloatArray) -> None:
        """Add the blocks of a tile with one output, where each block's sum is formed as a vector.

        The vector that is measured is the one that is added, so that its norm is certain, however much
        cancels.
        """
        if tile.sizes[-1] == 1:
            squares = slopes.astype(np.float64) ** 2 * tile.squares
            weights = _weights(squares, tile.sizes, clip).astype(slopes.dtype)
            total[0] += (slopes * weights) @ tile.X
            return
        sums = tile.sums(slopes)
        squares = _squares(sums)
        if not np.isfinite(squares.sum()):
            sums = _without(sums, ~np.isfinite(squares))
        total[0] += _weights(squares, tile.sizes, clip) @ sums

    def _add_several(self, tile: _Tile, slopes: Array, clip: float, total: FloatArray) -> None:
        """Add the blocks of a tile with several outputs.

        The norms come from the cheapest way for each size, and the sum from one product for all.
        """
        weights = np.zeros(len(tile.sizes), dtype=slopes.dtype)
        for size, own, rows in tile.classes:
            r = slopes[rows]
            if size == 1:
                squares = np.einsum("ij,ij->i", r, r, dtype=np.float64) * tile.squares[rows]
                weights[own] = _weights(squares, np.ones(len(r)), clip)
            elif size in self.rows.grams and self._kept_pays(size):
                weights[own] = self._by_kept_gram(tile, own, rows, r, clip, total)
            elif sparse.issparse(tile.X) or not self._gram_pays(size):
                self._add_formed(tile, slopes, own, clip, total)
            elif self.dimension <= _SMALL_ENTRIES and size > 4:
                self._add_slices(tile.X[rows], r, size, clip, total)
            else:
                weights[own] = self._by_gram(tile, own, rows, r, clip, total)
        weighted = slopes * np.repeat(weights, tile.sizes)[:, None]
        total += (tile.X.T @ weighted).T if sparse.issparse(tile.X) else weighted.T @ tile.X

    def _kept_pays(self, size: int) -> bool:
        # It takes s²(C + 8) numbers instead of s·p·C products, which were measured to be about eight
        # times quicker.
        return 8 * size * (self.loss.outputs + 8) <= self.dimension

    def _gram_pays(self, size: int) -> bool:
        p, outputs = self.rows.width, self.loss.outputs
        return size**2 * (p + outputs) <= _GRAM_OPERATIONS_PER_NUMBER * p * outputs

    def _by_kept_gram(
        self, tile: _Tile, own: slice, rows: slice, r: Array, clip: float, total: FloatArray
    ) -> Array:
        """Return the weights of equal blocks from their kept products XX', in double precision."""
        size = int(tile.sizes[own.start])
        first = int(np.searchsorted(self.rows.sizes, size))
        places, grams = tile.places[own] - first, self.rows.grams[size]
        near = places[-1] - places[0] == len(places) - 1
        gram = grams[places[0] : places[-1] + 1] if near else grams[places]
        by_block = r.astype(np.float64).reshape(-1, size, self.loss.outputs)
        squares = np.einsum("nij,nij->n", gram, by_block @ by_block.swapaxes(1, 2))
        lengths = self._lengths(tile, rows, r, size)
        # These norms are right, but the sum of all blocks errs by about u·Σ‖x‖|r| in single precision.
        norms = np.sqrt(np.maximum(squares, 0))
        error = 4 * float(np.finfo(r.dtype).eps) / 2 * lengths
        doubtful = ~((error <= 1e-5 * norms) | (norms + error <= clip * size))
        return self._settled(tile, rows, r, squares, doubtful, clip, total)

    @staticmethod
    def _lengths(tile: _Tile, rows: slice, r: Array, size: int) -> FloatArray:
        """Return Σ|slope|·‖x‖ over each of equal blocks."""
        squares = np.einsum("ij,ij->i", r, r, dtype=np.float64) * tile.squares[rows]
        total: FloatArray = np.sqrt(squares).reshape(-1, size).sum(axis=1, dtype=np.float64)
        return total

    def _settled(
        self,
        tile: _Tile,
        rows: slice,
        r: Array,
        squares: Array,
        doubtful: NDArray[np.bool_],
        clip: float,
        total: FloatArray,
    ) -> Array:
        """Return the weights of equal blocks; those in doubt are formed and added here, and weigh 0."""
        size = len(r) // len(squares)
        weights = _weights(np.maximum(squares, 0), np.full(len(squares), size), clip)
        for place in np.flatnonzero(doubtful):
            own = slice(rows.start + place * size, rows.start + (place + 1) * size)
            mean = _formed(tile.X[own], r[place * size : (place + 1) * size]) / size
            total += _shortened(mean, clip)
        weights[doubtful] = 0
        return weights

    def _add_slices(self, X: Array, r: Array, size: int, clip: float, total: FloatArray) -> None:
        """Form, clip and add the small gradients of equal blocks, a slice of blocks at a time."""
        rows, by_block = X.reshape(-1, size, X.shape[1]), r.reshape(-1, size, r.shape[1])
        most = max(1, _FORMED_BYTES // (self.dimension * X.dtype.itemsize))
        for first in range(0, len(rows), most):
            some = slice(first, first + most)
            formed = (by_block[some].swapaxes(1, 2) @ rows[some]).reshape(-1, self.dimension)
            squares = _squares(formed)
            if not np.isfinite(squares.sum()):
                formed = _without(formed, ~np.isfinite(squares))
            weights = _weights(squares, np.full(len(formed), size), clip)
            total += (weights @ formed).reshape(total.shape)

    def _by_gram(
        self, tile: _Tile, own: slice, rows: slice, r: Array, clip: float, total: FloatArray
    ) -> Array:
        """Return the weights of equal blocks from products XX' that are made here."""
        size = int(tile.sizes[own.start])
        X = tile.X[rows].reshape(-1, size, self.rows.width)
        by_block = r.reshape(-1, size, self.loss.outputs)
        products = by_block @ by_block.swapaxes(1, 2)
        squares = np.einsum("nij,nij->n", X @ X.swapaxes(1, 2), products)
        doubtful = _doubtful(squares, self._lengths(tile, rows, r, size), clip * size)
        return self._settled(tile, rows, r, squares, doubtful, clip, total)

    def _add_formed(
        self, tile: _Tile, slopes: Array, own: slice, clip: float, total: FloatArray
    ) -> None:
        """Form, clip and add each gradient while it is in the cache; its norm is then certain."""
        part = np.zeros((self.loss.outputs, self.rows.width), dtype=slopes.dtype)
        for start, size in zip(tile.starts[own].tolist(), tile.sizes[own].tolist(), strict=True):
            rows = slice(start, start + size)
            X, r = tile.X[rows], slopes[rows]
            columns: Any = slice(None)
            if sparse.issparse(X):
                columns, inverse = np.unique(X.indices, return_inverse=True)
                short = sparse.csr_array((X.data, inverse, X.indptr), (size, len(columns)))
                gradient = (short.T @ r).T
            else:
                gradient = r.T @ X
            square = np.asarray([np.vdot(gradient, gradient)])
            if np.isfinite(square[0]):
                gradient *= _weights(square, np.asarray([size]), clip)[0]
                part[:, columns] += gradient
        total += part


def _rows(X: Any, order: IntArray, *, intercept: bool) -> Any:
    """Return rows in an order, 0 for numbers that are not finite, and ones for an intercept."""
    kind = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    with np.errstate(all="ignore"):
        if sparse.issparse(X):
            rows = X[order].astype(kind)
            rows.data = _tame(rows.data)
            ones = sparse.csr_array(np.ones((len(order), 1), dtype=kind))
            return sparse.hstack([rows, ones], format="csr") if intercept else rows
        dense = np.ones((len(order), X.shape[1] + intercept), dtype=kind)
        dense[:, : X.shape[1]] = X[order]
        return _tame(dense)


def _tame(numbers: Array) -> Array:
    """Move numbers into the range whose squares are finite and not 0; what is not finite becomes 0."""
    least, most = _NUMBER_RANGE[numbers.dtype.itemsize]
    large = np.abs(numbers)
    if large.size == 0 or (large.max() <= most and large[large > 0].min(initial=most) >= least):
        # No number is NaN here, since NaN would have made a comparison false.
        return numbers
    zeroed = np.where(np.isfinite(numbers) & (large >= least), numbers, 0)
    tamed: Array = np.clip(zeroed, -most, most)
    return tamed


def _squares(sums: Any) -> Array:
    """Return the squared norm of each row."""
    if sparse.issparse(sums):
        return np.asarray(sums.multiply(sums).sum(axis=1)).ravel()
    squares: Array = np.einsum("ij,ij->i", sums, sums)
    return squares


def _without(sums: Any, rows: NDArray[np.bool_]) -> Any:
    """Return a matrix with these rows set to 0, even if they hold NaN."""
    if not sparse.issparse(sums):
        return np.where(rows[:, None], 0, sums)
    copy = sums.tocsr().copy()
    copy.data[np.repeat(rows, np.diff(copy.indptr))] = 0
    return copy


def _within(slopes: Array, squares: Array, clip: float) -> Array:
    """Scale down the slopes of records longer than _LONGEST_CLIPS clipping bounds; (m, C)."""
    most = _LONGEST_CLIPS[slopes.dtype.itemsize] * clip
    steep = np.abs(slopes[:, 0]) if slopes.shape[1] == 1 else np.linalg.norm(slopes, axis=1)
    lengths = steep * np.sqrt(squares)
    if lengths.max(initial=0.0) <= most:
        return slopes
    shortened: Array = slopes * np.minimum(1.0, most / lengths)[:, None].astype(slopes.dtype)
    return shortened


def _formed(X: Any, slopes: Array) -> FloatArray:
    """Return (C, p) the gradient R'X in double precision."""
    gradient: FloatArray = (X.T.astype(np.float64) @ slopes.astype(np.float64)).T
    return gradient


def _shortened(vector: FloatArray, clip: float) -> FloatArray:
    """Scale a vector down to norm ``clip`` if it is longer; return 0 if it is not finite."""
    norm = float(np.linalg.norm(vector))
    if not np.isfinite(norm):
        return np.zeros_like(vector)
    return vector * min(1.0, clip / norm) if norm > 0 else vector


def _weights(squares: Array, sizes: Any, clip: float, kind: Any = None) -> Array:
    """Return the factors of sums of blocks, min(1, clip·s/norm)/s, with norms rounded up a little.

    A square that is not finite has the factor 0.
    """
    kind = squares.dtype if kind is None else kind
    norms = np.sqrt(squares.astype(np.float64)) * ((1 + 50 * np.finfo(kind).eps) / clip)
    weights: Array = 1 / np.maximum(sizes, norms)
    if not np.isfinite(norms.sum()):
        weights[~np.isfinite(norms)] = 0
    return weights.astype(kind)


def _doubtful(squares: Array, lengths: Array, most: float) -> NDArray[np.bool_]:
    """Mark Gram norms that are uncertain beyond 1e-5, given Σ|slope|·‖x‖, and may exceed the bound."""
    # In the square rounding errs by about 8u(Σ‖x‖|r|)², as measured (docs/theory.md, "Gradient
    # steps").
    error = 4 * float(np.finfo(squares.dtype).eps) * lengths.astype(np.float64) ** 2
    square = squares.astype(np.float64)
    within = (square + error <= most**2) | (square >= 4e4 * error)
    doubtful: NDArray[np.bool_] = ~within | ~np.isfinite(square)
    return doubtful

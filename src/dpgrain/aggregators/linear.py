"""Clipped sums of the gradients of linear models, block by block, without a gradient per record.

The gradient of a record is slope ⊗ features, so that a block's gradient R'X, and its norm, come from
two thin matrices. Per size of block the cheapest of three ways is taken (docs/architecture.md):

- one record: the norm is |slope|·‖x‖;
- *Gram*: ‖R'X‖² = Σ (XX')∘(RR'), and one product for the sum of all blocks of a tile;
- *formed*: R'X itself, in cache, clipped and added at once.

In single precision the norm loses digits where gradients cancel; blocks whose norm is not certain to
1e-5, and that may have to be clipped, are formed again in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpgrain.aggregators.protocol import Drawn, FloatArray
from dpgrain.errors import ParameterError
from dpgrain.optimize.losses import MarginLoss

Array: TypeAlias = NDArray[Any]

# Bytes of features in a tile, and of gradients that are formed at once; most rows of a tile.
_TILE, _FORMED, _ROWS = 1 << 23, 1 << 21, 1 << 14
# Bytes that the products XX' of all blocks may take to be kept.
_KEPT = 1 << 25
# A Gram matrix costs s²(d+C), a formed gradient about ten times less per number: measured.
_CROSSOVER = 10
# Below this many numbers a gradient is formed for a whole slice of blocks at once.
_SMALL = 1 << 13


@dataclass(frozen=True, eq=False)
class LinearBlocks:
    """Rows of features and targets, arranged by block; made by :meth:`arrange`.

    Args:
        X: (m, d) the features, rows of one block together, small blocks first; dense or CSR.
        y: (m,) the targets.
        sizes: (g,) the sizes of the blocks that have rows, ascending.
        names: (g,) what the caller calls them.
        blocks: how many blocks there are, with the empty ones.
        intercept: whether each row has one more feature, 1.
    """

    X: Any
    y: Array
    sizes: NDArray[np.int64]
    names: NDArray[np.int64]
    blocks: int
    intercept: bool

    @staticmethod
    def arrange(
        X: Any,  # noqa: N803
        y: ArrayLike,
        codes: ArrayLike,
        *,
        intercept: bool,
        blocks: int | None = None,
    ) -> LinearBlocks:
        """Sort rows by the size of their block.

        Args:
            X: (m, d) features, float32 or float64, dense or CSR; what is not finite counts as 0.
            y: (m,) targets; a row whose target is not finite is left out.
            codes: (m,) the block of each row, from 0.
            intercept: add a feature that is 1.
            blocks: how many blocks there are; by default the largest code and one.

        Raises:
            ParameterError: if shapes do not fit.

        >>> from dpgrain.optimize import Squared
        >>> rows = LinearBlocks.arrange(np.eye(2), [1.0, 8.0], [0, 1], intercept=False)
        >>> rows.gradients(Squared(), np.zeros(2)).clipped_sum(2.0).round(9).tolist()
        [-1.0, -2.0]
        """
        features = X.tocsr() if sparse.issparse(X) else np.asarray(X)
        if features.dtype not in (np.float32, np.float64):
            features = features.astype(np.float64)
        targets, of = np.asarray(y), np.asarray(codes, dtype=np.int64)
        if features.ndim != 2 or not features.shape[0] == len(targets) == len(of):
            raise ParameterError(
                "X, y and codes must have as many rows as each other, not shapes "
                f"{features.shape}, {targets.shape} and {of.shape}."
            )
        there = int(of.max(initial=-1)) + 1 if blocks is None else blocks
        kept = np.flatnonzero(np.isfinite(targets))
        counts = np.bincount(of[kept], minlength=there)
        # Small blocks first; rows of a block keep their order.
        order = kept[np.lexsort((of[kept], counts[of[kept]]))]
        names = np.lexsort((np.arange(there), counts))
        names = names[counts[names] > 0]
        return LinearBlocks(
            _finite(features[order]),
            targets[order].astype(features.dtype),
            counts[names],
            names,
            there,
            intercept,
        )

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.y)

    @property
    def features(self) -> int:
        """How many features there are, without the intercept."""
        return int(self.X.shape[1])

    def gradients(self, loss: MarginLoss, theta: FloatArray) -> LinearGradients:
        """The mean gradients of all blocks at θ, as contributions.

        Args:
            loss: the loss as a function of margins.
            theta: (C·(d + intercept),) flat, row by row of (C, d + intercept).
        """
        return LinearGradients(self, loss, np.asarray(theta, dtype=np.float64))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each block begins, and the end: (g + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Where each block stands in the arrangement, −1 for an empty one: (blocks,)."""
        places = np.full(self.blocks, -1)
        places[self.names] = np.arange(len(self.names))
        return places

    @cached_property
    def squares(self) -> Array:
        """(m,) the squared norm of each row, with the intercept."""
        if sparse.issparse(self.X):
            total = np.asarray(self.X.multiply(self.X).sum(axis=1)).ravel()
        else:
            total = np.einsum("ij,ij->i", self.X, self.X)
        return total + int(self.intercept)

    @cached_property
    def grams(self) -> dict[int, Array]:
        """XX' of all blocks of a size, (n, s, s), where those of all sizes may be kept."""
        sizes, counts = np.unique(self.sizes, return_counts=True)
        wanted = (sizes > 1) & (sizes <= 64)
        if sparse.issparse(self.X) or self._bytes((counts * sizes**2)[wanted].sum()) > _KEPT:
            return {}
        found = {}
        for size, count in zip(sizes[wanted].tolist(), counts[wanted].tolist(), strict=True):
            first = int(self.starts[np.searchsorted(self.sizes, size)])
            rows = self.X[first : first + size * count].reshape(count, size, -1)
            found[size] = _gram(rows, intercept=self.intercept)
        return found

    def _bytes(self, numbers: float) -> float:
        return numbers * float(self.X.dtype.itemsize)

    def tiles(self, drawn: Drawn | None) -> Iterator[_Tile]:
        """The blocks that are drawn, some at a time: bounded rows, but for one block alone."""
        places = np.arange(len(self.sizes)) if drawn is None else self.places[drawn]
        if drawn is not None:
            places = np.sort(places[places >= 0])
        most = int(np.clip(_TILE / max(self._bytes(self.features), 1), 64, _ROWS))
        ends = np.cumsum(self.sizes[places])
        first = 0
        while first < len(places):
            done = ends[first - 1] if first else 0
            last = max(int(np.searchsorted(ends, done + most, side="right")), first + 1)
            yield self._tile(places[first:last])
            first = last

    def _tile(self, places: NDArray[np.int64]) -> _Tile:
        sizes = self.sizes[places]
        if places[-1] - places[0] == len(places) - 1:
            rows: Any = slice(int(self.starts[places[0]]), int(self.starts[places[-1] + 1]))
        else:
            before = np.cumsum(sizes) - sizes
            rows = np.repeat(self.starts[places] - before, sizes) + np.arange(int(sizes.sum()))
        return _Tile(places, sizes, self.X[rows], self.y[rows], self.squares[rows])


@dataclass(frozen=True, eq=False)
class _Tile:
    """Some whole blocks: their places, sizes, and rows."""

    places: NDArray[np.int64]
    sizes: NDArray[np.int64]
    X: Any
    y: Array
    squares: Array

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each block begins."""
        return np.cumsum(self.sizes) - self.sizes

    def classes(self) -> Iterator[tuple[int, slice, slice]]:
        """Each size of block that is there, with its blocks and its rows."""
        sizes, firsts = np.unique(self.sizes, return_index=True)
        lasts = np.append(firsts[1:], len(self.sizes))
        starts = self.starts
        for size, first, last in zip(sizes.tolist(), firsts.tolist(), lasts.tolist(), strict=True):
            begin = int(starts[first])
            yield size, slice(first, last), slice(begin, begin + size * (last - first))


@dataclass(frozen=True, eq=False)
class LinearGradients:
    """The mean gradient of each block at one θ, formed only where it must be.

    Args:
        rows: the blocks.
        loss: the loss.
        theta: (C·(d + intercept),).

    Formal guarantee: what :meth:`clipped_sum` adds for a block has norm at most clip·(1 + 1e-5) in
    single precision (1 + 1e-12 in double), up to the rounding of the sum; a test searches for worse.
    """

    rows: LinearBlocks
    loss: MarginLoss
    theta: FloatArray

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.rows.blocks

    @property
    def dimension(self) -> int:
        """The length of a gradient."""
        return len(self.theta)

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """The sum over (drawn) blocks of their mean gradients, clipped: (dimension,)."""
        total = np.zeros((self.loss.outputs, self.rows.features + 1))
        with np.errstate(all="ignore"):
            # Whatever overflows is somebody's value: no warning may tell of it.
            for tile in self.rows.tiles(drawn):
                self._add(tile, clip, total)
        return (total if self.rows.intercept else total[:, :-1]).ravel()

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """The mean gradients of the blocks, (number of blocks, dimension)."""
        which = np.arange(self.blocks) if drawn is None else np.asarray(drawn)
        out = np.zeros((len(which), self.loss.outputs, self.rows.features + 1))
        row = np.full(self.blocks, -1)
        row[which] = np.arange(len(which))
        with np.errstate(all="ignore"):
            for tile in self.rows.tiles(np.sort(which)):
                slopes = self._slopes(tile.X, tile.y)
                for i, (start, size) in enumerate(zip(tile.starts, tile.sizes, strict=True)):
                    own = slice(int(start), int(start + size))
                    mean = self._formed(tile.X[own], slopes[own]) / size
                    out[row[self.rows.names[tile.places[i]]]] = mean
        out = out if self.rows.intercept else out[:, :, :-1]
        flat = out.reshape(len(which), -1)
        flat[~np.isfinite(flat).all(axis=1)] = 0.0
        return flat

    def _slopes(self, X: Any, y: Array) -> Array:  # noqa: N803
        """The slopes of rows, (m, C), in the type of the features."""
        weights = self.theta.reshape(self.loss.outputs, -1)
        margins = X @ weights[:, : self.rows.features].T.astype(X.dtype)
        if self.rows.intercept:
            margins += weights[:, -1].astype(X.dtype)
        slopes = self.loss.slope(margins[:, 0] if self.loss.outputs == 1 else margins, y)
        return slopes.reshape(len(y), self.loss.outputs)

    def _formed(self, X: Any, slopes: Array) -> FloatArray:  # noqa: N803
        """R'(X, 1) in double precision: (C, d + 1), the last column 0 without an intercept."""
        exact = slopes.astype(np.float64)
        biases = exact.sum(axis=0) * self.rows.intercept
        return np.column_stack([(X.T.astype(np.float64) @ exact).T, biases])

    def _add(self, tile: _Tile, clip: float, total: FloatArray) -> None:
        """Add the clipped gradients of a tile's blocks."""
        if len(tile.y) > _ROWS and len(tile.sizes) == 1:
            self._add_alone(tile, clip, total)
            return
        slopes = self._slopes(tile.X, tile.y)
        wrong = np.logical_or.reduceat(~np.isfinite(slopes).all(axis=1), tile.starts)
        if wrong.any():
            slopes = np.where(np.repeat(wrong, tile.sizes)[:, None], 0, slopes)
        if self.loss.outputs == 1:
            self._add_single(tile, slopes[:, 0], clip, total)
        else:
            self._add_several(tile, slopes, clip, total)

    def _add_alone(self, tile: _Tile, clip: float, total: FloatArray) -> None:
        """One block with more rows than are looked at together: formed in double precision."""
        gradient = np.zeros_like(total)
        for first in range(0, len(tile.y), _ROWS):
            own = slice(first, first + _ROWS)
            slopes = self._slopes(tile.X[own], tile.y[own])
            gradient += self._formed(tile.X[own], slopes)
        total += _shortened(gradient / len(tile.y), clip)

    def _add_single(self, tile: _Tile, slopes: Array, clip: float, total: FloatArray) -> None:
        """One output: a block's sum is a vector, and all of a tile's are formed."""
        if tile.sizes[-1] == 1:
            weights = _weights(slopes * slopes * tile.squares, tile.sizes, clip)
            weighted = slopes * weights.astype(slopes.dtype)
            total[0, :-1] += weighted @ tile.X
            total[0, -1] += weighted.sum(dtype=np.float64)
            return
        ends = np.append(tile.starts, len(slopes))
        gather = sparse.csr_array((slopes, np.arange(len(slopes)), ends))
        sums, biases = gather @ tile.X, np.add.reduceat(slopes, tile.starts)
        dense = not sparse.issparse(sums)
        squares = np.einsum("ij,ij->i", sums, sums) if dense else _squares(sums)
        if self.rows.intercept:
            squares = squares + biases**2
        weights = _weights(squares, tile.sizes, clip).astype(slopes.dtype)
        unknown = ~np.isfinite(squares)
        if unknown.any():
            sums, biases = _without(sums, unknown), np.where(unknown, 0, biases)
        total[0, :-1] += weights @ sums
        total[0, -1] += weights @ biases

    def _add_several(self, tile: _Tile, slopes: Array, clip: float, total: FloatArray) -> None:
        """Several outputs: norms by the cheapest way for each size, then one product for all."""
        weights = np.zeros(len(tile.sizes))
        squares = np.zeros(len(tile.sizes), dtype=slopes.dtype)
        left = np.ones(len(tile.sizes), dtype=bool)
        numbers = self.loss.outputs * self.rows.features
        for size, own, rows in tile.classes():
            if size == 1:
                squares[own] = np.einsum("ij,ij->i", slopes[rows], slopes[rows])
                squares[own] *= tile.squares[rows]
            elif sparse.issparse(tile.X) or not self._by_gram(size):
                self._add_formed(tile, slopes, own, size, clip, total)
                left[own] = False
            elif numbers <= _SMALL and size > 4 and size not in self.rows.grams:
                squares[own] = self._formed_squares(tile, slopes, rows, size)
            else:
                by_class = slopes[rows].reshape(-1, size, self.loss.outputs)
                gram = self._kept_gram(tile, own, rows, size)
                squares[own] = np.einsum("nij,nij->n", gram, by_class @ by_class.swapaxes(1, 2))
        if not left.any():
            return
        found = self._certain(tile, slopes, squares, clip, total, left)
        weights[left] = found[left]
        weighted = slopes * np.repeat(weights, tile.sizes)[:, None].astype(slopes.dtype)
        total[:, :-1] += (tile.X.T @ weighted).T if sparse.issparse(tile.X) else weighted.T @ tile.X
        total[:, -1] += weighted.sum(axis=0, dtype=np.float64)

    def _by_gram(self, size: int) -> bool:
        d, outputs = self.rows.features, self.loss.outputs
        return size in self.rows.grams or size**2 * (d + outputs) <= _CROSSOVER * d * outputs

    def _kept_gram(self, tile: _Tile, own: slice, rows: slice, size: int) -> Array:
        """XX' of the blocks of a size in a tile, as kept, or made now."""
        if size in self.rows.grams:
            first = int(np.searchsorted(self.rows.sizes, size))
            places = tile.places[own] - first
            if places[-1] - places[0] == len(places) - 1:
                return self.rows.grams[size][places[0] : places[-1] + 1]
            return self.rows.grams[size][places]
        by_class = tile.X[rows].reshape(-1, size, self.rows.features)
        return _gram(by_class, intercept=self.rows.intercept)

    def _formed_squares(self, tile: _Tile, slopes: Array, rows: slice, size: int) -> Array:
        """The squared norms of small gradients, formed for a slice of blocks at a time."""
        outputs = self.loss.outputs
        X = tile.X[rows].reshape(-1, size, self.rows.features)  # noqa: N806
        by_class = slopes[rows].reshape(-1, size, outputs)
        most = max(1, int(_FORMED / self.rows._bytes(outputs * self.rows.features)))
        squares = np.zeros(len(X), dtype=slopes.dtype)
        for first in range(0, len(X), most):
            some = slice(first, first + most)
            formed = by_class[some].swapaxes(1, 2) @ X[some]
            squares[some] = np.einsum("nij,nij->n", formed, formed)
        if self.rows.intercept:
            biases = by_class.sum(axis=1)
            squares += np.einsum("ni,ni->n", biases, biases)
        return squares

    def _add_formed(
        self, tile: _Tile, slopes: Array, own: slice, size: int, clip: float, total: FloatArray
    ) -> None:
        """Each gradient formed, clipped and added while it is in cache."""
        starts, intercept = tile.starts, self.rows.intercept
        part = np.zeros((self.loss.outputs, self.rows.features), dtype=slopes.dtype)
        for place in range(own.start, own.stop):
            rows = slice(int(starts[place]), int(starts[place]) + size)
            X, r = tile.X[rows], slopes[rows]  # noqa: N806
            if sparse.issparse(X):
                columns: Any
                columns, inverse = np.unique(X.indices, return_inverse=True)
                short = sparse.csr_array((X.data, inverse, X.indptr), (size, len(columns)))
                gradient = (short.T @ r).T
            else:
                columns, gradient = slice(None), r.T @ X
            bias = r.sum(axis=0) * intercept
            # What is added is what was measured, so that its norm is certain, however much cancels.
            square = np.vdot(gradient, gradient) + np.vdot(bias, bias)
            weight = _weights(np.asarray([square]), np.asarray([size]), clip)[0]
            if np.isfinite(square):
                part[:, columns] += gradient * gradient.dtype.type(weight)
                total[:, -1] += weight * bias
        total[:, :-1] += part

    def _certain(
        self,
        tile: _Tile,
        slopes: Array,
        squares: Array,
        clip: float,
        total: FloatArray,
        left: NDArray[np.bool_] | None = None,
    ) -> FloatArray:
        """The weights of blocks; those whose norm is in doubt are added here, and weigh 0."""
        lengths = np.sqrt(np.einsum("ij,ij->i", slopes, slopes) * tile.squares)
        long = np.add.reduceat(lengths, tile.starts)
        doubtful = _doubtful(squares, long, tile.sizes * clip, slopes.dtype)
        doubtful &= (tile.sizes > 1) | ~np.isfinite(squares)
        if left is not None:
            doubtful &= left
        weights = _weights(squares, tile.sizes, clip, slopes.dtype)
        starts = tile.starts
        for place in np.flatnonzero(doubtful):
            rows = slice(int(starts[place]), int(starts[place] + tile.sizes[place]))
            mean = self._formed(tile.X[rows], slopes[rows]) / tile.sizes[place]
            total += _shortened(mean, clip)
        weights[doubtful] = 0.0
        return weights


def _finite(X: Any) -> Any:  # noqa: N803
    """Features with 0 for whatever is not finite."""
    values = X.data if sparse.issparse(X) else X
    wrong = ~np.isfinite(values)
    if wrong.any():
        values[wrong] = 0
    return X


def _gram(rows: Array, *, intercept: bool) -> Array:
    """XX' of each of (n, s, d), and 1 for the intercept: (n, s, s)."""
    gram: Array = rows @ rows.swapaxes(1, 2)
    return gram + 1 if intercept else gram


def _without(sums: Any, rows: NDArray[np.bool_]) -> Any:
    """A matrix with these rows 0, whatever is in them."""
    if not sparse.issparse(sums):
        return np.where(rows[:, None], 0, sums)
    kept = sums.tocsr().copy()
    kept.data[np.repeat(rows, np.diff(kept.indptr))] = 0
    return kept


def _squares(sums: Any) -> Array:
    return np.asarray(sums.multiply(sums).sum(axis=1)).ravel()


def _shortened(vector: FloatArray, clip: float) -> FloatArray:
    """A vector scaled down to norm ``clip`` if it is longer; 0 if it is not finite."""
    norm = float(np.linalg.norm(vector))
    if not np.isfinite(norm):
        return np.zeros_like(vector)
    return vector * min(1.0, clip / norm) if norm > 0 else vector


def _weights(squares: Array, sizes: Any, clip: float, dtype: Any = None) -> FloatArray:
    """What a block's sum is multiplied by: min(1, clip·s/norm)/s, its norm rounded up a little."""
    dtype = squares.dtype if dtype is None else dtype
    norms = np.sqrt(np.asarray(squares, dtype=np.float64)) * (1 + 50 * np.finfo(dtype).eps)
    # min(1, clip·s/norm)/s; a norm that is not finite weighs 0.
    with np.errstate(all="ignore"):
        weights: FloatArray = 1 / np.maximum(sizes, norms / clip)
    return np.where(np.isfinite(norms), weights, 0.0)


def _doubtful(squares: Array, lengths: Array, most: Any, dtype: Any) -> NDArray[np.bool_]:
    """Whether a norm is uncertain beyond 1e-5, from Σ|slope|·‖x‖, and may exceed the bound."""
    # Rounding errs by about 8ε(Σ‖x‖|r|)² in the square (docs/architecture.md): measured, and where that
    # matters the norm is made again in double precision.
    error = 8 * float(np.finfo(dtype).eps) / 2 * np.asarray(lengths, dtype=np.float64) ** 2
    square = np.asarray(squares, dtype=np.float64)
    long = ~(square + error <= np.asarray(most, dtype=np.float64) ** 2)
    doubtful: NDArray[np.bool_] = ~(square >= 4e4 * error) & long
    return doubtful | ~np.isfinite(square)

"""Clipped sums of block gradients of linear models, without per-record gradients.

The gradient of a record is slope ⊗ features, so a block's gradient R'X and its norm follow from two
thin matrices. Rows are read once, tile by tile. Only the size of a block determines its method, so
a block's contribution does not depend on other blocks. With one output there are three methods:

- *one row*: the norm is |slope|·‖x‖;
- *gathered*: one sparse product adds the rows of all small blocks of a tile, in order;
- *multiplied*: a separate product per block, efficient from :data:`_SMALL_BYTES` on.

With several outputs there are four methods for the factor that clips the gradient R'X:

- *one row*: the norm is |slope|·‖x‖;
- *Gram*: ‖R'X‖² = Σ (XX')∘(RR') in double precision, with products XX' that are cached if they fit
  into memory, otherwise recomputed to the same bits;
- *formed in slices*: small gradients R'X of many blocks are formed, clipped and added at once;
- *formed*: each R'X is formed, clipped and added separately, while it is in the cache.

With one output, norms are computed for the vectors that are added, and are certain even if terms
cancel. A Gram norm loses digits if gradients cancel. If the norm of a block is not accurate to 1e-5
(1e-12 in double precision), and the block may require clipping, its gradient is formed in double
precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, TypeVar

import numpy as np
from scipy import sparse
from threadpoolctl import ThreadpoolController

from dpgrain._types import Array, BoolArray, FloatArray
from dpgrain.gradients.tiles import (
    LONGEST_CLIPS,
    MAX_CACHED_ROWS,
    TILE_ROWS,
    UNCERTAINTY,
    LinearBlocks,
    Places,
    Tile,
    block_gradient,
    clipped_vector,
    factors,
    limit_slopes,
    squared_norms,
    zero_rows,
)
from dpgrain.means.mean_protocol import Drawn
from dpgrain.numerics.row_products import grouped_products, squares
from dpgrain.optimize.loss_functions import MarginLoss

Item = TypeVar("Item")
Result = TypeVar("Result")

# Bytes of features below which a block is gathered: by measurement, one call per block then takes
# longer than it saves.
_SMALL_BYTES = 1600
# Range of clipping bounds with accurate squares in single precision; outside it they lose digits,
# then underflow or overflow.
_SINGLE_CLIPS = 1e-10, 1e10
# Tiles added up sequentially, for any number of threads, so that the sum does not depend on it.
_RUN_TILES = 8
# Share of sampled blocks above which, by measurement, reading all blocks is faster than gathering
# the sampled rows.
_LEAST_SHARE_READ = 0.3
# Share of the largest gradient norm of a record below which no record is clipped, however norms are
# rounded.
_CERTAINLY_SHORT_SHARE = 0.999


@dataclass(frozen=True, eq=False)
class LinearGradients:
    """Mean gradient of each block at one θ, (C·p,), formed only where necessary.

    Formal guarantee: :meth:`clipped_sum` adds a vector of norm at most ``clip`` per block, up to
    the rounding of the sum: the bound is reduced by the error of norms, 1e-5 (1e-12 in double).
    """

    rows: LinearBlocks
    loss: MarginLoss
    theta: FloatArray

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.rows.blocks

    @property
    def dimension(self) -> int:
        """Length of a gradient."""
        return len(self.theta)

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """Return the sum of clipped mean gradients of the (sampled) blocks, (dimension,)."""
        several = self.loss.outputs > 1
        clip /= 1 + UNCERTAINTY[self.rows.X.dtype.itemsize]
        self.rows.prepare(several=several, by_gram=self._by_gram)
        counted = None
        if drawn is not None and not several and len(drawn) >= _LEAST_SHARE_READ * self.blocks:
            counted, drawn = self.rows.among(drawn), None
        cuts = self.rows.cuts(drawn, several=several)
        runs = [cuts[first : first + _RUN_TILES] for first in range(0, len(cuts), _RUN_TILES)]
        total: FloatArray = np.zeros((self.loss.outputs, self.rows.width))
        for part in parallel_map(partial(self._run, clip, counted), runs):
            total += part
        return total.ravel()

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """Return the unclipped mean gradients of (sampled) blocks, (blocks, dimension).

        A vector does not depend on other blocks, to the last bit.
        """
        which = np.arange(self.blocks) if drawn is None else np.asarray(drawn)
        places, cuts = self.rows.places[which], self.rows.cuts(which, several=False)
        # Blocks are formed in the order of their rows.
        if len(cuts) == 1 and places[0] >= 0 and (np.diff(places) > 0).all():
            return self._means(self.rows.tile(cuts[0]))
        order = np.argsort(places, kind="stable")
        order = order[np.searchsorted(places[order], 0) :]
        out, done = np.zeros((len(which), self.dimension)), 0
        for cut in cuts:
            means = self._means(self.rows.tile(cut))
            out[order[done : done + len(means)]] = means
            done += len(means)
        return out

    def _by_gram(self, size: int) -> bool:
        """Return True if the norms of blocks of this size are computed from products XX'."""
        outputs, dense = self.loss.outputs, not sparse.issparse(self.rows.X)
        return (
            outputs > 1 and clipping_method(size, outputs, self.rows.width, dense=dense) == "gram"
        )

    def _means(self, tile: Tile) -> FloatArray:
        """Return mean gradients of a tile's blocks, (blocks, dimension); 0 if not finite."""
        with np.errstate(all="ignore"):
            # Overflow depends on one user's value, which a warning would reveal. Margins are
            # computed row by row.
            margins = self.loss.margins(self.theta.astype(tile.X.dtype), tile.X)
            slopes = self.loss.slope(margins, tile.y).reshape(len(tile.y), self.loss.outputs)
            slopes = self._weighted(tile, slopes)
            means = _formed_each(tile, slopes) if slopes.shape[1] > 1 else _gathered(tile, slopes)
            if not np.isfinite(means.sum()):
                means[~np.isfinite(means).all(axis=1)] = 0.0
        return means

    def _run(self, clip: float, counted: Array | None, cuts: list[Places]) -> FloatArray:
        """Return the sum of the clipped gradients of counted blocks in some tiles, (C, p)."""
        total: FloatArray = np.zeros((self.loss.outputs, self.rows.width))
        with np.errstate(all="ignore"):
            # Overflow depends on one user's value, which a warning would reveal.
            for cut in cuts:
                tile = self.rows.tile(cut)
                single = tile.X.dtype == np.float32
                if single and not _SINGLE_CLIPS[0] <= clip <= _SINGLE_CLIPS[1]:
                    tile = tile.doubled()
                self._add(tile, clip, None if counted is None else counted[cut], total)
        return total

    def _slopes(self, X: Any, y: Array) -> Array:
        """Return the slopes of rows, (m, C), in the dtype of the features."""
        weights = self.theta.reshape(self.loss.outputs, -1).astype(X.dtype)
        # A sparse product computes each row separately.
        margins = X @ weights.T if sparse.issparse(X) else grouped_products(X, weights)
        if self.loss.outputs == 1:
            margins = margins[:, 0]
        return self.loss.slope(margins, y).reshape(len(y), self.loss.outputs)

    def _weighted(self, tile: Tile, slopes: Array) -> Array:
        """Return slopes times min(size, most)/most for a tile of blocks weighted by records."""
        most = self.rows.max_records
        if most == 1:
            return slopes
        shares = (np.minimum(tile.sizes, most) / most).astype(slopes.dtype)
        weighted: Array = slopes * np.repeat(shares, tile.sizes)[:, None]
        return weighted

    def _add(self, tile: Tile, clip: float, counted: Array | None, total: FloatArray) -> None:
        """Add the clipped gradients of a tile's counted blocks."""
        if len(tile.y) > TILE_ROWS and len(tile.sizes) == 1:
            if counted is None or counted[0]:
                self._add_large_block(tile, clip, total)
            return
        slopes = self._slopes(tile.X, tile.y)
        if counted is not None:
            # A block with zero slopes contributes nothing.
            slopes = np.where(np.repeat(counted, tile.sizes)[:, None], slopes, 0)
        if not np.isfinite(slopes.sum()):
            # A block with a non-finite slope is treated as a zero gradient.
            wrong = np.logical_or.reduceat(~np.isfinite(slopes).all(axis=1), tile.starts)
            slopes = np.where(np.repeat(wrong, tile.sizes)[:, None], 0, slopes)
        slopes = self._weighted(tile, slopes)
        steepest = self.loss.lipschitz
        if not np.isfinite(steepest):
            steepest = float(np.abs(slopes).sum(axis=1).max())
        most = _CERTAINLY_SHORT_SHARE * LONGEST_CLIPS[slopes.dtype.itemsize] * clip
        if steepest * float(tile.longest.max()) > most:
            slopes = limit_slopes(slopes, tile.X, clip)
        if self.loss.outputs == 1:
            _add_single(tile, slopes[:, 0], clip, total)
        else:
            add_multi_output(self.rows, tile, slopes, clip, total)

    def _add_large_block(self, tile: Tile, clip: float, total: FloatArray) -> None:
        """Add one block with more rows than a tile, with a gradient in double precision."""
        gradient = np.zeros_like(total)
        for first in range(0, len(tile.y), TILE_ROWS):
            own = slice(first, first + TILE_ROWS)
            slopes = self._slopes(tile.X[own], tile.y[own])
            gradient += block_gradient(tile.X[own], limit_slopes(slopes, tile.X[own], clip))
        # The mean gradient times min(size, most)/most.
        divisor = max(len(tile.y), self.rows.max_records)
        total += clipped_vector(gradient / divisor, clip)


def _gathered(tile: Tile, slopes: Array) -> FloatArray:
    """Return mean gradients of blocks with one output, added row by row, (blocks, p)."""
    if tile.sizes[-1] == 1 and not sparse.issparse(tile.X):
        sums = slopes * tile.X
    else:
        sums = tile.gathered(slice(0, len(tile.sizes)), slice(0, len(tile.y)), slopes[:, 0])
    dense: Array = sums.toarray() if sparse.issparse(sums) else sums
    means = dense.astype(np.float64, copy=False)
    return means if tile.sizes[-1] == 1 else np.divide(means, tile.sizes[:, None], out=means)


def _formed_each(tile: Tile, slopes: Array) -> FloatArray:
    """Return separately computed mean gradients with several outputs, (blocks, C·p)."""
    means = np.empty((len(tile.sizes), slopes.shape[1] * tile.X.shape[1]))
    for place, (start, size) in enumerate(zip(tile.starts, tile.sizes, strict=True)):
        own = slice(int(start), int(start + size))
        means[place] = (block_gradient(tile.X[own], slopes[own]) / size).ravel()
    return means


def _add_single(tile: Tile, slopes: Array, clip: float, total: FloatArray) -> None:
    """Add the blocks of a tile with one output, each size by its own method."""
    row_bytes = tile.X.shape[1] * tile.X.dtype.itemsize
    small = -(-_SMALL_BYTES // row_bytes) if not sparse.issparse(tile.X) else TILE_ROWS + 1
    alone, few = np.searchsorted(tile.sizes, [2, max(small, 2)]).tolist()
    end = int(tile.sizes[alone:few].sum()) + alone
    if alone:
        total[0] += _clipped_rows(slopes[:alone], tile.longest[:alone], clip) @ tile.X[:alone]
    if alone < few:
        sums = tile.gathered(slice(alone, few), slice(alone, end), slopes[alone:end])
        total[0] += _added(sums, tile.sizes[alone:few], clip)
    if few < len(tile.sizes):
        for size, blocks, rows in tile.classes:
            if blocks.start >= few:
                X = tile.X[rows].reshape(-1, size, tile.X.shape[1])
                sums = np.matmul(slopes[rows].reshape(-1, 1, size), X)[:, 0]
                total[0] += _added(sums, size, clip)


def _clipped_rows(slopes: Array, longest: Array, clip: float) -> Array:
    """Return the slopes of one-row blocks, scaled so that slope·row is clipped."""
    norms = np.abs(slopes)
    norms *= longest
    return slopes * factors(norms, 1, clip)


def _added(sums: Any, sizes: Any, clip: float) -> Array:
    """Return the sum of clipped means from the blocks' sums, (p,)."""
    norms = squared_norms(sums)
    if not np.isfinite(norms.sum()):
        sums = zero_rows(sums, ~np.isfinite(norms))
    total: Array = factors(np.sqrt(norms, out=norms), sizes, clip) @ sums
    return total


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply a function to all items in parallel, and return the results in order.

    BLAS then uses one thread, because its threads would wait for each other longer than they
    compute on small tiles.
    """
    blas = _blas()
    threads = max((library.num_threads for library in blas.lib_controllers), default=1)
    with blas.limit(limits=1):
        if threads == 1 or len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(threads, len(items))) as pool:
            return list(pool.map(work, items))


@cache
def _blas() -> Any:
    """Return the BLAS libraries of this process; cached, because the search is slow."""
    return ThreadpoolController().select(user_api="blas")


# Maximum bytes of gradients formed at once.
_FORMED_BYTES = 1 << 21
# Maximum operations of a Gram matrix, s²(p+C), relative to the p·C entries of a formed gradient;
# the second number applies if the matrix is small enough to cache. Measured.
_GRAM_OPERATIONS, _KEPT_OPERATIONS = 10, 50
# Maximum entries of a gradient for which the gradients of a whole slice of blocks are formed at
# once.
_SMALL_ENTRIES = 1 << 13


def add_multi_output(
    rows: LinearBlocks, tile: Tile, slopes: Array, clip: float, total: FloatArray
) -> None:
    """Add the clipped mean gradients of a tile's blocks to ``total``, (C, p)."""
    weights = np.zeros(len(tile.sizes), dtype=slopes.dtype)
    outputs, width = total.shape
    for size, own, some in tile.classes:
        r = slopes[some]
        if size == 1:
            norms = np.sqrt(squares(r, np.float64)) * tile.longest[own]
            weights[own] = factors(norms, 1, clip)
            continue
        match clipping_method(size, outputs, width, dense=not sparse.issparse(tile.X)):
            case "gram":
                weights[own] = _by_gram(rows, tile, own, some, r, clip, total)
            case "slices":
                _add_slices(tile.X[some], r, size, clip, total)
            case "formed":
                _add_formed(tile, slopes, own, clip, total)
    weighted = slopes * np.repeat(weights, tile.sizes)[:, None]
    total += (tile.X.T @ weighted).T if sparse.issparse(tile.X) else weighted.T @ tile.X


def clipping_method(
    size: int, outputs: int, width: int, *, dense: bool
) -> Literal["gram", "slices", "formed"]:
    """Choose the clipping method of multi-row blocks by their size and public numbers."""
    operations = size**2 * (width + outputs)
    # A cached Gram matrix needs s²(C + 8) numbers instead of s·p·C products; measured to be about
    # eight times faster.
    caching_pays = 8 * size * (outputs + 8) <= outputs * width
    most = _KEPT_OPERATIONS if caching_pays else _GRAM_OPERATIONS
    if not dense or operations > most * width * outputs:
        return "formed"
    if not caching_pays and outputs * width <= _SMALL_ENTRIES and size > 4:
        return "slices"
    return "gram" if size <= MAX_CACHED_ROWS else "formed"


def _by_gram(
    rows: LinearBlocks,
    tile: Tile,
    own: slice,
    some: slice,
    r: Array,
    clip: float,
    total: FloatArray,
) -> Array:
    """Return the weights of equal-sized blocks from products XX' in double precision."""
    gram = rows.block_grams(tile, own, some)
    by_block = r.astype(np.float64).reshape(len(gram), -1, r.shape[1])
    size = by_block.shape[1]
    agreements = by_block @ by_block.swapaxes(1, 2)
    agreements *= gram
    result = agreements.reshape(len(gram), -1).sum(axis=1)
    doubtful = _doubtful(result, _lengths(gram, r, size), clip * size, r.dtype)
    return _settled(tile, some, r, np.sqrt(np.maximum(result, 0)), doubtful, clip, total)


def _lengths(gram: Array, r: Array, size: int) -> FloatArray:
    """Return Σ|slope|·‖x‖ for each of several equal-sized blocks."""
    rows = np.einsum("nii->ni", gram).ravel()
    lengths = np.sqrt(squares(r, np.float64) * rows)
    total: FloatArray = lengths.reshape(-1, size).sum(axis=1)
    return total


def _settled(
    tile: Tile,
    some: slice,
    r: Array,
    norms: Array,
    doubtful: BoolArray,
    clip: float,
    total: FloatArray,
) -> Array:
    """Return the weights of equal-sized blocks; add doubtful ones here, with weight 0."""
    size = len(r) // len(norms)
    weights = factors(norms, size, clip)
    for place in np.flatnonzero(doubtful):
        own = slice(some.start + place * size, some.start + (place + 1) * size)
        mean = block_gradient(tile.X[own], r[place * size : (place + 1) * size]) / size
        total += clipped_vector(mean, clip)
    weights[doubtful] = 0
    return weights


def _add_slices(X: Array, r: Array, size: int, clip: float, total: FloatArray) -> None:
    """Form, clip and add small gradients of equal-sized blocks, one slice at a time."""
    rows, by_block = X.reshape(-1, size, X.shape[1]), r.reshape(-1, size, r.shape[1])
    most = max(1, _FORMED_BYTES // (total.size * X.dtype.itemsize))
    for first in range(0, len(rows), most):
        some = slice(first, first + most)
        vectors = (by_block[some].swapaxes(1, 2) @ rows[some]).reshape(-1, total.size)
        result = squared_norms(vectors)
        if not np.isfinite(result.sum()):
            vectors = zero_rows(vectors, ~np.isfinite(result))
        weights = factors(np.sqrt(result, out=result), size, clip)
        total += (weights @ vectors).reshape(total.shape)


def _add_formed(tile: Tile, slopes: Array, own: slice, clip: float, total: FloatArray) -> None:
    """Form, clip and add each gradient while it is in the cache, with an accurate norm."""
    part = np.zeros(total.shape, dtype=slopes.dtype)
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
        norm = np.sqrt(np.asarray([np.vdot(gradient, gradient)]))
        if np.isfinite(norm[0]):
            gradient *= factors(norm, size, clip)[0]
            part[:, columns] += gradient
    total += part


def _doubtful(squared: FloatArray, lengths: FloatArray, most: float, kind: Any) -> BoolArray:
    """Mark blocks with a norm or vector that is too uncertain compared with the bound.

    ``found`` are squared norms from Gram matrices, and ``lengths`` Σ|slope|·‖x‖, both (n,). Blocks
    with norms from ``most`` on are clipped.
    """
    # The error of the square is about 8u(Σ‖x‖|r|)², as measured, and the error of the added vector
    # about 4u(Σ‖x‖|r|) in its own dtype (docs/theory, "Gradient steps").
    of_square = 4 * float(np.finfo(np.float64).eps) * lengths**2
    of_vector = 2 * float(np.finfo(kind).eps) * lengths
    square = np.maximum(squared, 0)
    share = UNCERTAINTY[np.dtype(kind).itemsize]
    certain = of_square / 2 + of_vector * np.sqrt(square) <= share * square
    short = (np.sqrt(square + of_square) + of_vector <= most) & (of_vector <= share * most)
    doubtful: BoolArray = ~(certain | short) | ~np.isfinite(squared)
    return doubtful

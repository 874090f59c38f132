"""Rows of linear models, arranged by block and divided into cache-sized tiles.

Small blocks come first, so that blocks of equal size are adjacent. Features are copied once, in
bounded batches; the rest is a few numbers per block, and the products XX' of some blocks
(:meth:`LinearBlocks.block_grams`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from dpgrain._types import Array, BoolArray, FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.means.mean_protocol import Drawn
from dpgrain.numerics.row_products import squares

# Maximum bytes of features in a tile, with one output and with several, which need more work per
# row. Results of a tile stay in the cache; in smaller tiles, call overhead dominates. Measured.
_TILE_BYTES, _TILE_BYTES_OF_SEVERAL = 1 << 22, 1 << 23
TILE_ROWS = 1 << 15
# Bytes of rows copied at a time, because several copies exist at once.
_COPIED_BYTES = 1 << 19
# Minimum rows of a tile, for any width.
_FEWEST_TILE_ROWS = 64
# Maximum rows of a block for cached products XX', and maximum bytes of cached products.
MAX_CACHED_ROWS, _KEPT_BYTES = 128, 1 << 25
# Public range of absolute values of features and targets, by bytes of their dtype.
_NUMBER_RANGE = {4: (1e-30, 1e30), 8: (1e-100, 1e100)}

#: Indices of the blocks of a tile: a slice if they are consecutive.
Places: TypeAlias = "slice | IntArray"


@dataclass(frozen=True, eq=False)
class LinearBlocks:
    """Rows of features, (m, p), and targets by block; created by :meth:`arrange`."""

    X: Any
    y: Array
    sizes: IntArray  # ascending sizes of nonempty blocks, (g,)
    names: IntArray  # their codes, (g,)
    blocks: int  # with empty ones
    max_records: int = 1  # blocks with fewer rows have less weight
    _grams: dict[int, Array] = field(default_factory=dict, init=False)  # products XX', by size
    # Tiles of all blocks, by their indices: views, and matrices that sum their rows.
    _tiles: dict[tuple[int, int], Tile] = field(default_factory=dict, init=False)

    @staticmethod
    def arrange(
        X: Any,
        y: ArrayLike,
        codes: ArrayLike,
        *,
        intercept: bool,
        blocks: int | None = None,
        indices: IntArray | None = None,
        read: Callable[[Any], Any] | None = None,
        max_records: int = 1,
    ) -> LinearBlocks:
        """Sort rows of ``X``, (m, d), by the size of their block.

        Non-finite features are treated as 0, and rows with a non-finite target are dropped.
        ``read`` transforms some rows, each separately.
        """
        features = X.tocsr() if sparse.issparse(X) else np.asarray(X)
        targets, block_of = np.asarray(y), np.asarray(codes, dtype=np.int64)
        count_of_rows = len(targets) if indices is None else len(indices)
        if (
            features.ndim != 2
            or features.shape[0] != len(targets)
            or count_of_rows != len(block_of)
        ):
            raise ParameterError(
                "X, y and codes must have the same number of rows, not shapes "
                f"{features.shape}, {targets.shape} and {block_of.shape}."
            )
        count = int(block_of.max(initial=-1)) + 1 if blocks is None else blocks
        order, sizes, names = _order(targets, block_of, count, indices)
        # Features keep their dtype, or are stored in double precision.
        own = features.dtype in (np.float32, np.float64)
        kind = features.dtype if own else np.dtype(np.float64)
        # Targets come first, because the rows leave little memory for intermediate results.
        with np.errstate(all="ignore"):
            cached_targets = _tame(_tame(targets[order].astype(np.float64)).astype(kind))
        rows = _rows(features, order, read, kind, intercept=intercept)
        return LinearBlocks(rows, cached_targets, sizes, names, count, max_records)

    @property
    def width(self) -> int:
        """Number of features of a row, including the intercept."""
        return int(self.X.shape[1])

    @cached_property
    def starts(self) -> IntArray:
        """First row of each block, followed by the number of rows, (g + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def places(self) -> IntArray:
        """Index of each block in the arrangement, (blocks,); −1 for an empty block."""
        places = np.full(self.blocks, -1)
        places[self.names] = np.arange(len(self.names))
        return places

    @cached_property
    def longest(self) -> Array:
        """Largest row norm of each block in the features' dtype, (g,)."""
        longest = np.empty(len(self.sizes), dtype=self.X.dtype)
        with np.errstate(all="ignore"):
            for places in self._whole[False]:
                first, last = int(self.starts[places.start]), int(self.starts[places.stop])
                norms = np.sqrt(squared_norms(self.X[first:last], np.float64))
                longest[places] = np.maximum.reduceat(norms, self.starts[places] - first)
        return longest

    def prepare(self, *, several: bool, by_gram: Callable[[int], bool]) -> None:
        """Compute what tiles share, before threads need it."""
        _ = self.longest
        for places in self._whole[several]:
            if (places.start, places.stop) not in self._tiles:
                self._tiles[places.start, places.stop] = self._view(places)
        sizes, counts = np.unique(self.sizes, return_counts=True)
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            room = _KEPT_BYTES - sum(gram.nbytes for gram in self._grams.values())
            new = size not in self._grams and 8 * count * size**2 <= room
            if new and size > 1 and by_gram(size):
                self._grams[size] = self._compute_grams(size, count)

    def _compute_grams(self, size: int, count: int) -> Array:
        """Return the products XX' of all blocks of a size, (count, size, size)."""
        first = int(self.starts[np.searchsorted(self.sizes, size)])
        most = max(1, _TILE_BYTES_OF_SEVERAL // (8 * size * self.width))
        grams = np.empty((count, size, size))
        for begin in range(0, count, most):
            some = slice(first + begin * size, first + min(begin + most, count) * size)
            grams[begin : begin + most] = _grams(self.X[some], size)
        return grams

    def block_grams(self, tile: Tile, blocks: slice, rows: slice) -> Array:
        """Return the products XX' of equal-sized blocks, (n, s, s), cached or recomputed.

        Both give the same bits. ``blocks`` and ``rows`` are slices of the tile.
        """
        size = int(tile.sizes[blocks.start])
        cached = self._grams.get(size)
        if cached is None:
            return _grams(tile.X[rows], size)
        first = int(np.searchsorted(self.sizes, size))
        if isinstance(tile.places, slice):
            begin = tile.places.start - first
            return cached[begin + blocks.start : begin + blocks.stop]
        return cached[tile.places[blocks] - first]

    def cuts(self, drawn: Drawn | None, *, several: bool) -> list[Places]:
        """Divide the sampled blocks into tiles, with bounded rows unless one block has more."""
        if drawn is None:
            return list(self._whole[several])
        places = self.places[drawn]
        places = np.sort(places[places >= 0])
        bounds = self._bounds(np.cumsum(self.sizes[places]), several=several)
        return [_near(places[first:last]) for first, last in bounds]

    def among(self, drawn: Drawn) -> BoolArray:
        """Return True for each nonempty block in the sample, (g,)."""
        result = np.zeros(len(self.sizes), dtype=bool)
        places = self.places[drawn]
        result[places[places >= 0]] = True
        return result

    def tile(self, places: Places) -> Tile:
        """Return the tile of blocks given by :meth:`cuts`; tiles of all blocks are cached."""
        if isinstance(places, slice):
            cached = self._tiles.get((places.start, places.stop))
            return self._view(places) if cached is None else cached
        sizes = self.sizes[places]
        starts = np.cumsum(sizes) - sizes
        rows = np.repeat(self.starts[places] - starts, sizes) + np.arange(int(sizes.sum()))
        return Tile(places, sizes, self.X[rows], self.y[rows], self.longest[places])

    def _view(self, places: slice) -> Tile:
        rows = slice(int(self.starts[places.start]), int(self.starts[places.stop]))
        return Tile(places, self.sizes[places], self.X[rows], self.y[rows], self.longest[places])

    @cached_property
    def _whole(self) -> dict[bool, list[slice]]:
        """Indices of the tiles of all blocks, for one output and for several."""
        return {
            several: [slice(*bounds) for bounds in self._bounds(self.starts[1:], several=several)]
            for several in (False, True)
        }

    def _bounds(self, ends: IntArray, *, several: bool) -> Iterator[tuple[int, int]]:
        """Yield the first block of each tile and the end of its last, from blocks' ends."""
        row_bytes = max(self.width * self.X.dtype.itemsize, 1)
        tile_bytes = _TILE_BYTES_OF_SEVERAL if several else _TILE_BYTES
        most = int(np.clip(tile_bytes // row_bytes, _FEWEST_TILE_ROWS, TILE_ROWS))
        first = 0
        while first < len(ends):
            done = ends[first - 1] if first else 0
            last = max(int(np.searchsorted(ends, done + most, side="right")), first + 1)
            yield first, last
            first = last


@dataclass(frozen=True, eq=False)
class Tile:
    """Whole blocks, in ascending order and size, with their rows."""

    places: Places
    sizes: IntArray
    X: Any
    y: Array
    longest: Array
    # Matrices of :meth:`gathered`, by the blocks that they sum.
    _gathers: dict[tuple[int, int], Any] = field(default_factory=dict, init=False)

    def doubled(self) -> Tile:
        """Return the tile in double precision."""
        X, y, longest = (part.astype(np.float64) for part in (self.X, self.y, self.longest))
        return replace(self, X=X, y=y, longest=longest)

    @property
    def starts(self) -> IntArray:
        """First row of each block."""
        starts: IntArray = np.cumsum(self.sizes) - self.sizes
        return starts

    @cached_property
    def classes(self) -> list[tuple[int, slice, slice]]:
        """Block sizes in the tile, each with the slices of its blocks and their rows."""
        sizes, firsts = np.unique(self.sizes, return_index=True)
        lasts = np.append(firsts[1:], len(self.sizes))
        begins = self.starts[firsts]
        ends = begins + sizes * (lasts - firsts)
        ranges = zip(sizes, firsts, lasts, begins, ends, strict=True)
        return [(int(s), slice(int(a), int(b)), slice(int(c), int(d))) for s, a, b, c, d in ranges]

    def gathered(self, blocks: slice, rows: slice, slopes: Array) -> Any:
        """Return the sums of slope·row over blocks, added row by row, (blocks, p)."""
        # A dense product would add rows in an order that depends on other blocks.
        gather = self._gathers.get((blocks.start, blocks.stop))
        if gather is None:
            sizes = self.sizes[blocks]
            ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
            shape = (len(sizes), int(ends[-1]))
            columns = _COLUMNS[: shape[1]]
            if len(columns) < shape[1]:
                columns = np.arange(shape[1], dtype=np.int32)
            gather = sparse.csr_array((slopes, columns, ends), shape)
            self._gathers[blocks.start, blocks.stop] = gather
        gather.data = slopes
        return gather @ self.X[rows]


# Shared columns of the matrices that sum consecutive rows.
_COLUMNS = np.arange(TILE_ROWS, dtype=np.int32)


def _grams(rows: Array, size: int) -> Array:
    """Return separate products XX' of equal-sized blocks, in double precision."""
    by_block = rows.astype(np.float64).reshape(-1, size, rows.shape[1])
    products: Array = np.matmul(by_block, by_block.swapaxes(1, 2))
    return products


def squared_norms(rows: Any, kind: Any = None) -> Array:
    """Return the squared norm of each row, (m, p), dense or CSR, in a dtype or the rows' own."""
    if sparse.issparse(rows):
        own = rows if kind is None else rows.astype(kind)
        return np.asarray(own.multiply(own).sum(axis=1)).ravel()
    return squares(rows, kind)


def _near(places: IntArray) -> Places:
    """Return consecutive indices as a slice, so that their rows are not copied."""
    first, end = int(places[0]), int(places[-1]) + 1
    return slice(first, end) if end - first == len(places) else places


def _order(
    targets: Array, block_of: IntArray, count: int, indices: IntArray | None
) -> tuple[IntArray, IntArray, IntArray]:
    """Return rows by block, small blocks first, with the blocks' sizes and names."""
    finite = np.isfinite(targets if indices is None else targets[indices])
    block_of = block_of if finite.all() else block_of[finite]
    counts = np.bincount(block_of, minlength=count)
    names = np.argsort(counts, kind="stable")
    names = names[counts[names] > 0]
    place = np.zeros(count, dtype=np.int32)
    place[names] = np.arange(len(names))
    # The rows of a block retain their order.
    order = np.argsort(place[block_of], kind="stable")
    if not finite.all():
        order = np.flatnonzero(finite)[order]
    order = order if indices is None else indices[order]
    # 32-bit indices suffice for most tables.
    few = len(targets) <= np.iinfo(np.int32).max
    return order.astype(np.int32) if few else order, counts[names], names


def _rows(
    X: Any, order: IntArray, read: Callable[[Any], Any] | None, kind: Any, *, intercept: bool
) -> Any:
    """Return ordered rows in a dtype, with 0 for non-finite numbers, and ones for an intercept."""
    with np.errstate(all="ignore"):
        if sparse.issparse(X):
            rows = X[order].astype(kind)
            rows = rows if read is None else read(rows)
            rows.data = _tame(rows.data)
            ones = sparse.csr_array(np.ones((len(order), 1), dtype=kind))
            return sparse.hstack([rows, ones], format="csr") if intercept else rows
        dense = np.empty((len(order), X.shape[1] + intercept), dtype=kind)
        most = max(1, _COPIED_BYTES // max(dense.shape[1] * kind.itemsize, 1))
        for first in range(0, len(order), most):
            own = slice(first, first + most)
            # Row norms are rounded differently if the array is stored column by column.
            some = np.ascontiguousarray(X[order[own]], dtype=kind)
            dense[own, : X.shape[1]] = _tame(some if read is None else read(some))
            dense[own, X.shape[1] :] = 1
        return dense


def _tame(numbers: Array) -> Array:
    """Clamp numbers so that squares neither overflow nor underflow; 0 if not finite."""
    least, most = _NUMBER_RANGE[numbers.dtype.itemsize]
    large = np.abs(numbers)
    if large.size == 0 or (large.max() <= most and large[large > 0].min(initial=most) >= least):
        # No NaN remains, because a comparison with NaN is false.
        return numbers
    zeroed = np.where(np.isfinite(numbers) & (large >= least), numbers, 0)
    tamed: Array = np.clip(zeroed, -most, most)
    return tamed


# Largest norm of a record's gradient in clipping bounds, by bytes of its dtype. Rounding, which
# depends on the position of rows, then changes a block by only a small share of the bound.
LONGEST_CLIPS = {4: 1e4, 8: 1e6}
# Largest relative error of the norm of a block's vector, by bytes of the features' dtype.
UNCERTAINTY = {4: 1e-5, 8: 1e-12}
# Units of roundoff by which norms are rounded up.
_ROUNDOFFS = 50


def zero_rows(sums: Any, rows: BoolArray) -> Any:
    """Set rows of a dense or CSR matrix, (n, p), to 0, even if they contain NaN."""
    if not sparse.issparse(sums):
        return np.where(rows[:, None], 0, sums)
    copy = sums.tocsr().copy()
    copy.data[np.repeat(rows, np.diff(copy.indptr))] = 0
    return copy


def limit_slopes(slopes: Array, X: Any, clip: float) -> Array:
    """Scale down the slopes, (m, C), of records above :data:`LONGEST_CLIPS` bounds."""
    most = LONGEST_CLIPS[slopes.dtype.itemsize] * clip
    steep = np.abs(slopes[:, 0]) if slopes.shape[1] == 1 else np.linalg.norm(slopes, axis=1)
    lengths = steep * np.sqrt(squared_norms(X, np.float64))
    if lengths.max(initial=0.0) <= most:
        return slopes
    limited: Array = slopes * np.minimum(1.0, most / lengths)[:, None].astype(slopes.dtype)
    return limited


def block_gradient(X: Any, slopes: Array) -> FloatArray:
    """Return the gradient R'X of one block in double precision, (C, p)."""
    gradient: FloatArray = (X.T.astype(np.float64) @ slopes.astype(np.float64)).T
    return gradient


def clipped_vector(vector: FloatArray, clip: float) -> FloatArray:
    """Clip a vector to norm ``clip``; return 0 if it is not finite."""
    norm = float(np.linalg.norm(vector))
    if not np.isfinite(norm):
        return np.zeros_like(vector)
    return vector * min(1.0, clip / norm) if norm > 0 else vector


def factors(norms: Array, sizes: Any, clip: float) -> Array:
    """Return the factors min(1, clip·s/norm)/s of blocks' sums, with norms rounded up.

    ``norms``, (n,), are overwritten; a non-finite norm has factor 0.
    """
    norms *= norms.dtype.type((1 + _ROUNDOFFS * np.finfo(norms.dtype).eps) / clip)
    wrong = None if np.isfinite(norms.sum()) else ~np.isfinite(norms)
    np.maximum(norms, sizes, out=norms)
    np.reciprocal(norms, out=norms)
    if wrong is not None:
        norms[wrong] = 0
    return norms

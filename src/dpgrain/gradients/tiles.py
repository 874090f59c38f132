"""Rows of linear models, arranged by block and cut into tiles of the size of the cache.

Small blocks come first, so that equal blocks lie side by side. Features are copied once, a bounded
number of rows at a time; all else that is kept is a number or two for each block, and the products
XX' of some (:meth:`LinearBlocks.grams_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from dpgrain._rows import squares
from dpgrain._types import Array, BoolArray, FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.means.protocol import Drawn

# Bytes of features in a tile, at most, with one output and with several, where more work is done on
# each row: what is computed of a tile stays in the cache, and in smaller ones the calls take longer
# than the work. All was measured.
_TILE_BYTES, _TILE_BYTES_OF_SEVERAL = 1 << 22, 1 << 23
TILE_ROWS = 1 << 15
# Bytes of rows that are copied at a time, since several copies of them are in hand.
_COPIED_BYTES = 1 << 19
# Rows of a tile, at least, however wide they are.
_FEWEST_TILE_ROWS = 64
# Most rows of a block whose products XX' are used, and bytes of products that are kept.
MOST_KEPT_ROWS, _KEPT_BYTES = 128, 1 << 25
# Range of sizes, public, in which features and targets are kept, by the bytes of their type.
_NUMBER_RANGE = {4: (1e-30, 1e30), 8: (1e-100, 1e100)}

#: The places of the blocks of a tile: a slice where they follow each other.
Places: TypeAlias = "slice | IntArray"


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
        kept: IntArray | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> LinearBlocks:
        """Sort rows by the size of their block.

        Args:
            X: (m, d) features, float32 or float64, dense or CSR; a number that is not finite counts
                as 0.
            y: (m,) targets; a row whose target is not finite is left out.
            codes: the block of each row that counts, from 0.
            intercept: add a feature that is 1.
            blocks: the number of blocks; by default the largest code and one.
            kept: the indices of the rows that count; all by default.
            read: a function of some rows that returns as many in their place; it must read each row by
                itself.

        Raises:
            ParameterError: if shapes do not fit.

        >>> rows = LinearBlocks.arrange(np.eye(3), [1.0, 8.0, 2.0], [0, 0, 1], intercept=False)
        >>> rows.sizes.tolist(), rows.names.tolist(), rows.y.tolist()
        ([1, 2], [1, 0], [2.0, 1.0, 8.0])
        """
        features = X.tocsr() if sparse.issparse(X) else np.asarray(X)
        targets, block_of = np.asarray(y), np.asarray(codes, dtype=np.int64)
        count_of_rows = len(targets) if kept is None else len(kept)
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
        order, sizes, names = _order(targets, block_of, count, kept)
        kind = _kind(features)
        # Targets come first, since the rows leave little memory for what they are made of.
        with np.errstate(all="ignore"):
            kept_targets = _tame(_tame(targets[order].astype(np.float64)).astype(kind))
        rows = _rows(features, order, read, intercept=intercept)
        return LinearBlocks(rows, kept_targets, sizes, names, count)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.y)

    @property
    def width(self) -> int:
        """The number of features of a row, with that of the intercept."""
        return int(self.X.shape[1])

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
    def longest(self) -> Array:
        """(g,) the norm of the longest row of each block, in the type of the features."""
        longest = np.empty(len(self.sizes), dtype=self.X.dtype)
        with np.errstate(all="ignore"):
            for places in self._whole[False]:
                first, last = int(self.starts[places.start]), int(self.starts[places.stop])
                norms = np.sqrt(squared_norms(self.X[first:last]))
                longest[places] = np.maximum.reduceat(norms, self.starts[places] - first)
        return longest

    def prepare(self, *, several: bool, by_gram: Callable[[int], bool]) -> None:
        """Make what tiles share, before threads ask for it.

        Args:
            several: True if there are several outputs.
            by_gram: True for a size of blocks whose products XX' are used.
        """
        _ = self.longest
        for places in self._whole[several]:
            if (places.start, places.stop) not in self._tiles:
                self._tiles[places.start, places.stop] = self._view(places)
        sizes, counts = np.unique(self.sizes, return_counts=True)
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            room = _KEPT_BYTES - sum(kept.nbytes for kept in self._grams.values())
            new = size not in self._grams and 8 * count * size**2 <= room
            if new and size > 1 and by_gram(size):
                self._grams[size] = self._made_grams(size, count)

    def _made_grams(self, size: int, count: int) -> Array:
        """Return (count, size, size) the products XX' of all blocks of a size."""
        first = int(self.starts[np.searchsorted(self.sizes, size)])
        most = max(1, _TILE_BYTES_OF_SEVERAL // (8 * size * self.width))
        grams = np.empty((count, size, size))
        for begin in range(0, count, most):
            some = slice(first + begin * size, first + min(begin + most, count) * size)
            grams[begin : begin + most] = _grams(self.X[some], size)
        return grams

    def grams_of(self, tile: Tile, blocks: slice, rows: slice) -> Array:
        """Return (n, s, s) the products XX' of equal blocks, kept or made again, to the same bits.

        Args:
            tile: where the blocks are.
            blocks: the blocks of the tile, all of one size s.
            rows: their rows in the tile.
        """
        size = int(tile.sizes[blocks.start])
        kept = self._grams.get(size)
        if kept is None:
            return _grams(tile.X[rows], size)
        first = int(np.searchsorted(self.sizes, size))
        if isinstance(tile.places, slice):
            begin = tile.places.start - first
            return kept[begin + blocks.start : begin + blocks.stop]
        return kept[tile.places[blocks] - first]

    @cached_property
    def _grams(self) -> dict[int, Array]:
        """The products XX' that are kept, by the size of blocks."""
        return {}

    def cuts(self, drawn: Drawn | None, *, several: bool) -> list[Places]:
        """Cut the drawn blocks into tiles, with bounded rows unless one block has more.

        Args:
            drawn: the indices of the blocks that count; all by default.
            several: True if there are several outputs.
        """
        if drawn is None:
            return list(self._whole[several])
        places = self.places[drawn]
        places = np.sort(places[places >= 0])
        bounds = self._bounds(np.cumsum(self.sizes[places]), several=several)
        return [_near(places[first:last]) for first, last in bounds]

    def among(self, drawn: Drawn) -> BoolArray:
        """Return (g,) True for each block with rows that is drawn.

        Args:
            drawn: the indices of the blocks that count.
        """
        result = np.zeros(len(self.sizes), dtype=bool)
        places = self.places[drawn]
        result[places[places >= 0]] = True
        return result

    def tile(self, places: Places) -> Tile:
        """Return the tile of the blocks at these places; tiles of all blocks are kept.

        Args:
            places: one of :meth:`cuts`.
        """
        if isinstance(places, slice):
            kept = self._tiles.get((places.start, places.stop))
            return self._view(places) if kept is None else kept
        sizes = self.sizes[places]
        starts = np.cumsum(sizes) - sizes
        rows = np.repeat(self.starts[places] - starts, sizes) + np.arange(int(sizes.sum()))
        return Tile(places, sizes, self.X[rows], self.y[rows], self.longest[places])

    @cached_property
    def _tiles(self) -> dict[tuple[int, int], Tile]:
        """The tiles of all blocks, by their places: views, and matrices that add up their rows."""
        return {}

    def _view(self, places: slice) -> Tile:
        rows = slice(int(self.starts[places.start]), int(self.starts[places.stop]))
        return Tile(places, self.sizes[places], self.X[rows], self.y[rows], self.longest[places])

    @cached_property
    def _whole(self) -> dict[bool, list[slice]]:
        """The places of the tiles of all blocks, for one output and for several."""
        return {
            several: [slice(*bounds) for bounds in self._bounds(self.starts[1:], several=several)]
            for several in (False, True)
        }

    def _bounds(self, ends: IntArray, *, several: bool) -> Iterator[tuple[int, int]]:
        """Yield the first block of each tile and the one after its last, given where blocks end."""
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
    """Some whole blocks and their rows.

    Args:
        places: the places of the blocks in the arrangement, ascending.
        sizes: the sizes of the blocks, ascending.
        X: (rows, p) the features.
        y: (rows,) the targets.
        longest: the norm of the longest row of each block.
    """

    places: Places
    sizes: IntArray
    X: Any
    y: Array
    longest: Array

    def doubled(self) -> Tile:
        """Return the same tile in double precision."""
        X, y, longest = (part.astype(np.float64) for part in (self.X, self.y, self.longest))
        return replace(self, X=X, y=y, longest=longest)

    @property
    def starts(self) -> IntArray:
        """The first row of each block."""
        starts: IntArray = np.cumsum(self.sizes) - self.sizes
        return starts

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
    def gathers(self) -> dict[tuple[int, int], Any]:
        """The matrices that :meth:`gathered` has used, by the blocks that they add up."""
        return {}

    def gathered(self, blocks: slice, rows: slice, slopes: Array) -> Any:
        """Return (blocks, p) the sum of slope·row over each of some blocks, row after row.

        Args:
            blocks: the blocks, one after the other.
            rows: their rows.
            slopes: (rows,) the slopes of these rows.
        """
        # A dense product would add up rows in an order that depends on the other blocks.
        gather = self.gathers.get((blocks.start, blocks.stop))
        if gather is None:
            sizes = self.sizes[blocks]
            ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
            shape = (len(sizes), int(ends[-1]))
            columns = _COLUMNS[: shape[1]]
            if len(columns) < shape[1]:
                columns = np.arange(shape[1], dtype=np.int32)
            gather = sparse.csr_array((slopes, columns, ends), shape)
            self.gathers[blocks.start, blocks.stop] = gather
        gather.data = slopes
        return gather @ self.X[rows]


# The columns of matrices that add up rows one after the other are the same for all tiles.
_COLUMNS = np.arange(TILE_ROWS, dtype=np.int32)


def _grams(rows: Array, size: int) -> Array:
    """Return the products XX' of equal blocks in double precision, each from its own rows alone."""
    by_block = rows.astype(np.float64).reshape(-1, size, rows.shape[1])
    products: Array = np.matmul(by_block, by_block.swapaxes(1, 2))
    return products


def squared_norms(rows: Any) -> FloatArray:
    """Return the squared norm of each row, in double precision.

    Args:
        rows: (m, p) numbers, dense or CSR.
    """
    if sparse.issparse(rows):
        doubled = rows.astype(np.float64)
        return np.asarray(doubled.multiply(doubled).sum(axis=1)).ravel()
    return squares(rows, np.float64)


def _near(places: IntArray) -> Places:
    """Return places that follow each other as a slice, so that their rows are not copied."""
    first, end = int(places[0]), int(places[-1]) + 1
    return slice(first, end) if end - first == len(places) else places


def _order(
    targets: Array, block_of: IntArray, count: int, kept: IntArray | None
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the rows in the order of their blocks, small blocks first, and blocks' sizes and names."""
    there = np.isfinite(targets if kept is None else targets[kept])
    block_of = block_of if there.all() else block_of[there]
    counts = np.bincount(block_of, minlength=count)
    names = np.argsort(counts, kind="stable")
    names = names[counts[names] > 0]
    place = np.zeros(count, dtype=np.int32)
    place[names] = np.arange(len(names))
    # The rows of a block keep their order.
    order = np.argsort(place[block_of], kind="stable")
    if not there.all():
        order = np.flatnonzero(there)[order]
    order = order if kept is None else kept[order]
    # Half of the bytes are enough for most tables.
    few = len(targets) <= np.iinfo(np.int32).max
    return order.astype(np.int32) if few else order, counts[names], names


def _rows(X: Any, order: IntArray, read: Callable[[Any], Any] | None, *, intercept: bool) -> Any:
    """Return rows in an order, 0 for numbers that are not finite, and ones for an intercept."""
    kind = _kind(X)
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
            # A norm of a row is rounded in another way where rows are stored column by column.
            some = np.ascontiguousarray(X[order[own]], dtype=kind)
            dense[own, : X.shape[1]] = _tame(some if read is None else read(some))
            dense[own, X.shape[1] :] = 1
        return dense


def _kind(X: Any) -> np.dtype[Any]:
    """Return the type in which features are kept: their own, or double precision."""
    return X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)


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

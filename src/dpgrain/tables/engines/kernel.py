"""The one kernel for contribution bounding, on integers.

Every engine hands over *keys*, sorted: ``user | cell | item`` packed into 63 bits, one key per record
(or one per pair with its total). The kernel groups them into pairs (user, item) and blocks
(user, cell), clips each block to its bound, truncates it to a grid toward zero, checks the squared
norm in integers, and adds the integers up. Integer sums do not depend on order, so the result is
the same for any engine, batch size, thread count and row order.

Overflow: sums are taken modulo 2^64. Adding noise modulo 2^64 is post-processing of adding it
without bound, so a wrap costs accuracy and never privacy.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import BoolArray, FloatArray, IntArray

# Largest total of a pair, at which it saturates: below it a float64 sum of integers is exact in any
# order, and once a partial sum exceeds it, it stays above.
SATURATION = 2.0**53
# Bits of the fraction of a block's weight, which is a whole number of 2^-10ths.
WEIGHT_BITS = 10
# Users whose blocks are pooled at once: user, row and weight are packed into 63 bits, which leaves 32
# for the row.
_POOLED_USERS = 1 << 20
# Factor that lowers the scale to the bound, by more than float64 rounding can raise it.
_SAFETY_FACTOR = 1.0 - 2.0**-40
# Bits of the fraction of what an item needs, as a part of what its holders gave it before.
_NEED_BITS = 12
#: The most that an item needs. The sum of so many squares is exact for 2^25 items.
MAX_NEED = 1 << 14


@dataclass(frozen=True)
class KeyLayout:
    """The packing of keys, and the cell of each item.

    Args:
        items: number of items V; codes are sorted by cell, so that blocks are contiguous.
        cells: number of cells K.
        cell_of: (V,) the cell of each item, or None where the cell is another column.
    """

    items: int
    cells: int
    cell_of: IntArray | None

    @property
    def item_bits(self) -> int:
        """The bits of the item code."""
        return max(self.items - 1, 1).bit_length()

    @property
    def cell_bits(self) -> int:
        """The bits of the cell code in the key; 0 where the item gives the cell."""
        return 0 if self.cell_of is not None else max(self.cells - 1, 1).bit_length()

    @property
    def user_shift(self) -> int:
        """The bits below the user code."""
        return self.item_bits + self.cell_bits


@dataclass(frozen=True)
class Grid:
    """Clipping bounds and the grid that contributions are truncated to.

    Args:
        bounds: (K,) or (1,) clipping bounds ρ.
        bits: the grid step is a power of two with 2^(bits−1) < ρ/step ≤ 2^bits.
        norm: the norm that is clipped.
    """

    bounds: FloatArray
    bits: int
    norm: Literal["l2", "l1"] = "l2"

    @cached_property
    def step(self) -> FloatArray:
        """The grid steps h, (K,) or (1,)."""
        _, exponent = np.frexp(self.bounds)
        # frexp: ρ = m·2^e with ½ ≤ m < 1; an exact power of two would waste a bit.
        exact = np.ldexp(1.0, exponent - 1) == self.bounds
        return np.asarray(np.ldexp(1.0, exponent - exact - self.bits), dtype=np.float64)

    @cached_property
    def radius(self) -> FloatArray:
        """The bounds in grid steps, ρ/h, (K,) or (1,); at most 2^bits, and exact."""
        return self.bounds / self.step

    @cached_property
    def limit(self) -> IntArray:
        """The limit of a block's integers, ⌊(ρ/h)²⌋ (l2) or ⌊ρ/h⌋ (l1), (K,) or (1,)."""
        whole = np.floor(self.radius)
        if self.norm == "l1":
            return whole.astype(np.int64)
        # (w+f)² = w² + (2w+f)f: the first is exact in int64, the second below 2^32; lowered by more
        # than its rounding, and exactly 0 where f is.
        rest = self.radius - whole
        square = whole.astype(np.int64) ** 2
        return square + np.floor((2 * whole + rest) * rest * (1 - 2.0**-50)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Pools:
    """Pools of cells whose blocks share a row of bins, with a scale and a weight for each cell.

    Args:
        edges: (B+1,) increasing; bin i holds norms ÷ scale in (edges[i], edges[i+1]], smaller ones have
            no bin, and the last bin has no upper end.
        pool: (K,) the pool of each cell, from 0 to P−1.
        scale: (K,) the scale of the norms of each cell.
        weight: (K,) the weight of a block of each cell in 2^-10ths of 1, from 1 to 1024.
        count: the number P of pools.
        most: the number of one user's blocks that a bin counts at most.
    """

    edges: FloatArray
    pool: IntArray
    scale: FloatArray
    weight: IntArray
    count: int
    max_blocks: int

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of pools and of bins."""
        return self.count, self.edges.size - 1


@dataclass(frozen=True, eq=False)
class Routes:
    """The items to which users turn their weight, with what each needs, for a second round of counts.

    Args:
        rank: (V,) the place of each item in the order in which users take items; −1 where it has none.
        items: (n,) the items that have a place, in that order.
        needs: (n,) what each needs from a holder, from 1 to :data:`MAX_NEED`.
        room: the squared needs that a holder of one item has room for; of t items, t times that.
    """

    rank: IntArray
    items: IntArray
    needs: IntArray
    capacity: int

    @staticmethod
    def after(first: IntArray, ahead: BoolArray, enough: float) -> Routes:
        """Return the routes after a first round; all of it is a function of each item's own count.

        Args:
            first: (V,) noisy counts of the first round.
            ahead: (V,) whether an item takes part in the second; its count is above 0 then.
            enough: the count that is enough.

        Whoever holds t items gave an item 1/√t, and gives it now enough ÷ count times as much, from the
        largest count on. Among equal counts the public order decides.
        """
        items = np.flatnonzero(ahead)
        items = items[np.argsort(-first[items], kind="stable")]
        rank = np.full(first.size, -1, dtype=np.int64)
        rank[items] = np.arange(items.size)
        needs = np.ceil(enough * 2.0**_NEED_BITS / first[items])
        needs = np.clip(needs, 1.0, MAX_NEED).astype(np.int64)
        return Routes(rank, items, needs, 1 << 2 * _NEED_BITS)


def clipped_sum(
    keys: IntArray,
    totals: FloatArray | None,
    layout: KeyLayout,
    grid: Grid,
    out: IntArray,
    *,
    unit: float = 1.0,
    indicator: bool = False,
    max_items: int | None = None,
    max_elements: int | None = None,
) -> None:
    """Add the clipped blocks of whole users to integer sums.

    Args:
        keys: (r,) sorted keys of whole users, one per record or one per pair.
        totals: (r,) the number of ``unit``s that each key counts for (integers), or None for 1.
        layout: the packing of keys.
        grid: the bounds and the grid.
        out: (V,) sums in grid steps, added to in place, modulo 2^64.
        unit: the value of one count.
        indicator: count each pair as 1, whatever its total.
        max_items: the number of items of a block that are kept, the first in the public order.
        max_elements: the number of blocks of a user that are kept, the first in the public order.
    """
    pairs, sums, blocks = _blocks(keys, totals, layout, max_elements)
    if max_items is not None:
        pairs, sums, blocks = blocks.keep(blocks.among_first_items(max_items), pairs, sums)
    if indicator:
        sums = np.ones_like(sums)
    codes = pairs & ((1 << layout.item_bits) - 1)
    np.add.at(out, codes, blocks.clip(sums, grid, unit))


def routed_sum(
    keys: IntArray,
    _: FloatArray | None,
    layout: KeyLayout,
    routes: Routes,
    out: IntArray,
    *,
    grid: Grid,
    max_items: int,
    max_elements: int | None = None,
) -> None:
    """Add up what users give to the items that they take, each a vector of norm 1.

    A user takes items in the order of the routes while there is room for what they need, and at least
    one; and gives to each in proportion to what it needs.

    Args:
        keys: (r,) sorted keys of whole users, one per record or one per pair.
        layout: the packing of keys, in one cell.
        routes: the order of the items, and what each needs.
        out: (V,) sums in grid steps, added to in place, modulo 2^64.
        grid: the bound 1 and its grid.
        max_items: the number of items of a block that take part, the first in the public order.
        max_elements: the number of blocks of a user that are kept, the first in the public order.
    """
    pairs, sums, blocks = _blocks(keys, None, layout, max_elements)
    pairs, sums, blocks = blocks.keep(blocks.among_first_items(max_items), pairs, sums)
    held = blocks.lengths
    rank = routes.rank[pairs & ((1 << layout.item_bits) - 1)]
    ahead = rank >= 0
    owner = np.repeat(np.arange(held.size), held)[ahead]
    # Each user's items in the order of the routes.
    packed = (owner << layout.item_bits) | rank[ahead]
    packed.sort()
    taken = _Blocks.split(packed, layout)
    needs = routes.needs[packed & ((1 << layout.item_bits) - 1)]
    needed = np.cumsum(needs * needs)
    before = needed[taken.starts] - needs[taken.starts] ** 2
    needed -= np.repeat(before, taken.lengths)
    within = needed <= np.repeat(held[taken.user] * routes.capacity, taken.lengths)
    within[taken.starts] = True
    packed, weights, taken = taken.keep(within, packed, needs.astype(np.float64))
    items = routes.items[packed & ((1 << layout.item_bits) - 1)]
    np.add.at(out, items, taken.clip(weights, grid, 1.0))


def set_fingerprint(keys: IntArray, layout: KeyLayout) -> int:
    """Return a mark of the sets of items that users hold; those of several calls add up, mod 2^64.

    Equal sets have equal marks, whatever codes their users have, and others differ but by chance.

    Args:
        keys: (r,) sorted keys of whole users, one per record or one per pair.
        layout: the packing of keys.
    """
    pairs = keys[_is_new(keys)]
    starts = np.flatnonzero(_is_new(pairs >> layout.user_shift))
    coordinates = (pairs & ((1 << layout.user_shift) - 1)).astype(np.uint64)
    return int(_mix(_sum_runs(_mix(coordinates), starts)).sum().astype(np.int64))


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words with their bits mixed, as the generator SplitMix64 does."""
    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


def norm_histogram(
    keys: IntArray,
    totals: FloatArray | None,
    layout: KeyLayout,
    edges: FloatArray,
    out: IntArray,
    *,
    norm: Literal["l2", "l1"] = "l2",
    unit: float = 1.0,
    indicator: bool = False,
    max_elements: int | None = None,
) -> None:
    """Count the blocks of whole users by cell and size of norm; an empty block has no bin.

    Args:
        keys: (r,) sorted keys of whole users, one per record or one per pair.
        totals: (r,) the number of ``unit``s that each key counts for (integers), or None for 1.
        layout: the packing of keys.
        edges: (B,) increasing; bin i holds norms in (edges[i−1], edges[i]], the first from 0, the last
            without upper end.
        out: (rows, B) counts, added to in place, with one row per cell or one for all.
        norm: the norm that is binned.
        unit: the value of one count.
        indicator: count each pair as 1, whatever its total.
        max_elements: the number of blocks of a user that are kept, the first in the public order.
    """
    _, sums, blocks = _blocks(keys, totals, layout, max_elements)
    if indicator:
        sums = np.ones_like(sums)
    rows, bins = out.shape
    norms = blocks.norms(sums, norm) * unit
    index = np.minimum(np.searchsorted(edges, norms), bins - 1)
    if rows > 1:
        index += blocks.cell * bins
    held = norms > 0
    np.add.at(out.reshape(-1), index if held.all() else index[held], 1)


def pooled_counts(
    keys: IntArray,
    totals: FloatArray | None,
    layout: KeyLayout,
    pools: Pools,
    out: IntArray,
    *,
    norm: Literal["l2", "l1"] = "l2",
    unit: float = 1.0,
    indicator: bool = False,
    max_elements: int | None = None,
) -> None:
    """Count the weighted blocks of whole users by pool and size of norm ÷ scale.

    No user adds more than ``pools.max_blocks`` to any bin. The bound is kept for each bin by itself, in
    integers, so that a block moves a bin by its weight at most and no other bin than its own.

    Args:
        keys: (r,) sorted keys of whole users, one per record or one per pair.
        totals: (r,) the number of ``unit``s that each key counts for (integers), or None for 1.
        layout: the packing of keys, where the item gives the cell.
        pools: the pools, and what is counted in each.
        out: (P, B) counts in 2^-10ths of a block, added to in place.
        norm: the norm that is binned.
        unit: the value of one count.
        indicator: count each pair as 1, whatever its total.
        max_elements: the number of blocks of a user that are kept, the first in the public order.
    """
    _, sums, blocks = _blocks(keys, totals, layout, max_elements)
    if indicator:
        sums = np.ones_like(sums)
    size = blocks.norms(sums, norm) * unit / pools.scale[blocks.cell]
    bins = np.minimum(np.searchsorted(pools.edges, size) - 1, out.shape[1] - 1)
    row = pools.pool[blocks.cell] * out.shape[1] + bins
    weight = pools.weight[blocks.cell]
    users = np.append(np.flatnonzero(_is_new(blocks.user))[::_POOLED_USERS], blocks.user.size)
    for first, last in itertools.pairwise(users.tolist()):
        some = first + np.flatnonzero(bins[first:last] >= 0)
        _add_limited(
            blocks.user[some], row[some], weight[some], pools.max_blocks << WEIGHT_BITS, out
        )


def _add_limited(
    users: IntArray, rows: IntArray, weights: IntArray, most: int, out: IntArray
) -> None:
    """Add the weights of each user to rows of counts, at most ``most`` to each.

    Args:
        users: (b,) sorted users, at most ``_POOLED_USERS`` of them.
        rows: (b,) the place in ``out`` that each weight is added to.
        weights: (b,) weights from 1 to 2^10.
        most: the largest sum that one user adds to one place.
        out: the counts, added to in place.
    """
    np.add.at(out.reshape(-1), rows, weights)
    rank, row_bits = np.cumsum(_is_new(users)) - 1, out.size.bit_length()
    # Whoever sorts these sorts by user and row, with the weight beside them.
    packed = (((rank << row_bits) | rows) << WEIGHT_BITS) | (weights - 1)
    packed.sort()
    places = packed >> WEIGHT_BITS
    # So many blocks of one user in one place stay within the bound.
    within = most >> WEIGHT_BITS
    if (places[within:] != places[: max(places.size - within, 0)]).all():
        return
    starts = np.flatnonzero(_is_new(places))
    sums = _sum_runs((packed & ((1 << WEIGHT_BITS) - 1)) + 1, starts)
    beyond = np.maximum(sums - most, 0)
    np.subtract.at(out.reshape(-1), places[starts] & ((1 << row_bits) - 1), beyond)


def blocks_per_item(
    keys: IntArray,
    layout: KeyLayout,
    out: IntArray,
    *,
    max_items: int | None = None,
    max_elements: int | None = None,
) -> None:
    """Count the blocks that hold each coordinate: nothing is clipped.

    Args:
        keys: (r,) sorted keys of whole users, one per record or one per pair.
        layout: the packing of keys.
        out: (V,) counts, added to in place.
        max_items: the number of items of a block that are kept, the first in the public order.
        max_elements: the number of blocks of a user that are kept, the first in the public order.
    """
    pairs = keys[_is_new(keys)]
    for limit, first in (
        (max_elements, _Blocks.among_first_blocks),
        (max_items, _Blocks.among_first_items),
    ):
        if limit is not None:
            pairs = pairs[first(_Blocks.split(pairs, layout), limit)]
    out += np.bincount(pairs & ((1 << layout.item_bits) - 1), minlength=out.size)


def users_by_contribution(
    keys: IntArray, totals: FloatArray | None, layout: KeyLayout, edges: IntArray, out: IntArray
) -> None:
    """Count users by how many pairs they hold, and by how many records.

    Args:
        keys: (r,) sorted keys of whole users, one per record or one per pair.
        totals: (r,) the number of records that each key counts for, or None for 1.
        layout: the packing of keys.
        edges: (B,) the largest number in each bin, increasing; the last bin has no end.
        out: (2, B) counts of users, by pairs and by records, added to in place.
    """
    pairs, sums = pair_totals(keys, totals)
    starts = np.flatnonzero(_is_new(pairs >> layout.user_shift))
    for row, held in enumerate((np.diff(starts, append=pairs.size), _sum_runs(sums, starts))):
        bins = np.minimum(np.searchsorted(edges, held), edges.size - 1)
        out[row] += np.bincount(bins, minlength=edges.size)


def record_sum(
    codes: IntArray, totals: FloatArray | None, grid: Grid, out: IntArray, *, unit: float = 1.0
) -> None:
    """Add records, each clipped to the bound by itself, to integer sums.

    Args:
        codes: (r,) item codes.
        totals: (r,) values in multiples of ``unit`` (integers), or None for 1.
        grid: one bound and its grid.
        out: (V,) sums in grid steps, added to in place, modulo 2^64.
        unit: the value of one count.
    """
    if not out.size:
        # Where no item was selected there is no bound, and nothing to add up.
        return
    one = unit / float(grid.step[0])
    limit = math.floor(float(grid.radius[0]))
    if totals is None:
        counts = np.bincount(codes, minlength=out.size).astype(np.int64)
        out += counts * math.floor(min(one, limit))
    else:
        np.add.at(out, codes, np.floor(np.minimum(totals * one, limit)).astype(np.int64))


def pair_totals(keys: IntArray, totals: FloatArray | None) -> tuple[IntArray, FloatArray]:
    """Merge equal sorted keys, adding their totals up to the saturation.

    >>> pair_totals(np.array([3, 3, 5]), None)
    (array([3, 5]), array([2., 1.]))
    """
    new = _is_new(keys)
    starts = np.flatnonzero(new)
    if totals is None:
        sums = np.diff(starts, append=keys.size).astype(np.float64)
    else:
        sums = np.minimum(_sum_runs(totals, starts), SATURATION)
    return keys[starts], sums


def _blocks(
    keys: IntArray, totals: FloatArray | None, layout: KeyLayout, max_elements: int | None
) -> tuple[IntArray, FloatArray, _Blocks]:
    pairs, sums = pair_totals(keys, totals)
    blocks = _Blocks.split(pairs, layout)
    if max_elements is None:
        return pairs, sums, blocks
    return blocks.keep(blocks.among_first_blocks(max_elements), pairs, sums)


def _is_new(values: IntArray) -> BoolArray:
    """Return whether each value differs from the one before, (n,); true for the first."""
    new = np.ones(values.size, dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _sum_runs(values: NDArray[Any], starts: IntArray) -> NDArray[Any]:
    """Return the sums of the runs that begin at starts, (b,); unlike reduceat, also of no run."""
    return np.add.reduceat(values, starts) if starts.size else values[:0]


@dataclass(frozen=True)
class _Blocks:
    """The blocks (user, cell) in which sorted pairs lie."""

    size: int
    starts: IntArray  # (b,) first pair of each block
    cell: IntArray  # (b,) its cell
    user: IntArray  # (b,) its user

    @staticmethod
    def split(pairs: IntArray, layout: KeyLayout) -> _Blocks:
        owner = pairs >> layout.item_bits
        new = _is_new(owner)
        if layout.cell_of is None:
            starts = np.flatnonzero(new)
            cell = owner[starts] & ((1 << layout.cell_bits) - 1)
        elif layout.cells == 1:
            starts = np.flatnonzero(new)
            cell = np.zeros(starts.size, dtype=np.int64)
        else:
            cells = layout.cell_of[pairs & ((1 << layout.item_bits) - 1)]
            starts = np.flatnonzero(new | _is_new(cells))
            cell = cells[starts]
        return _Blocks(pairs.size, starts, cell, owner[starts] >> layout.cell_bits)

    @property
    def lengths(self) -> IntArray:
        return np.diff(self.starts, append=self.size)

    def among_first_blocks(self, limit: int) -> BoolArray:
        """Return whether each pair's block is among the first ``limit`` of its user, (pairs,)."""
        new_user = np.flatnonzero(np.diff(self.user, prepend=-1))
        rank = np.arange(self.starts.size)
        rank -= np.repeat(new_user, np.diff(new_user, append=self.starts.size))
        return np.repeat(rank < limit, self.lengths)

    def among_first_items(self, limit: int) -> BoolArray:
        """Return whether each pair is among the first ``limit`` of its block, (pairs,)."""
        return np.arange(self.size) - np.repeat(self.starts, self.lengths) < limit

    def keep(
        self, kept: BoolArray, pairs: IntArray, sums: FloatArray
    ) -> tuple[IntArray, FloatArray, _Blocks]:
        """Return the kept pairs and their blocks; what is kept of a block is its beginning."""
        if kept.all():
            return pairs, sums, self
        lengths = _sum_runs(kept.astype(np.int64), self.starts)
        left = lengths > 0
        starts = (np.cumsum(lengths) - lengths)[left]
        blocks = _Blocks(int(lengths.sum()), starts, self.cell[left], self.user[left])
        return pairs[kept], sums[kept], blocks

    def norms(self, sums: FloatArray, norm: Literal["l2", "l1"]) -> FloatArray:
        """Return the norm of each block, (b,); the order of summation is that of the codes."""
        if norm == "l1":
            return np.asarray(_sum_runs(sums, self.starts))
        return np.asarray(np.sqrt(_sum_runs(sums * sums, self.starts)))

    def clip(self, sums: FloatArray, grid: Grid, unit: float) -> IntArray:
        """Scale each block to its bound and truncate it to the grid, in grid steps, (pairs,)."""
        # One bound serves all blocks as it is.
        row = self.cell if grid.bounds.size > 1 else slice(None)
        radius, one = grid.radius[row], unit / grid.step[row]
        norms = self.norms(sums, grid.norm)
        with np.errstate(divide="ignore"):
            # Blocks within the bound are scaled by `one`, for counts a power of two, so exactly.
            scale = np.where(norms * one <= radius, one, radius / norms * _SAFETY_FACTOR)
        scaled = np.repeat(scale, self.lengths)
        np.floor(np.multiply(sums, scaled, out=scaled), out=scaled)
        integers = scaled.astype(np.int64)
        limit = np.broadcast_to(grid.limit[row], self.starts.shape)
        self._shrink(integers, limit, grid.norm)
        return integers

    def _shrink(self, integers: IntArray, limit: IntArray, norm: Literal["l2", "l1"]) -> None:
        """Check the norm of every block in integers; shrink one that rounding took over it."""
        reached = _sum_runs(integers * integers if norm == "l2" else integers, self.starts)
        for block in np.flatnonzero(reached > limit):
            part = slice(self.starts[block], self.starts[block] + self.lengths[block])
            z = integers[part]
            # One step almost always undoes rounding; a block that needs more gets ever larger steps.
            step = 1
            while int((z * z if norm == "l2" else z).sum()) > limit[block]:
                z = np.maximum(z - step, 0)
                step *= 2
            integers[part] = z

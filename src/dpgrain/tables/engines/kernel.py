"""The kernel for contribution bounding, on integers.

Every engine passes sorted *keys*: ``user | cell | item`` packed into 63 bits, one key per record
(or one per pair with its total). The kernel groups keys into pairs (user, item) and blocks (user,
cell), clips each block to its bound, truncates it to a grid towards zero, checks the squared norm
in integers and adds the integers. Integer sums do not depend on the order, so the result is the
same for every engine, batch size, number of threads and row order.

Arguments of kernels: ``keys`` (r,) are of whole users, one per record or one per pair; ``totals``
(r,) are integers in multiples of ``unit``, the value of one count, or None for 1 each. ``indicator``
counts each pair as 1. Of a user, the first ``max_elements`` blocks in the public order count, and
of a block the first ``max_items`` items. ``out`` is updated in place, by default (V,) sums in grid
steps, modulo 2^64.

Overflow: sums are computed modulo 2^64. Adding noise modulo 2^64 is post-processing of adding it
over the integers, so an overflow affects accuracy but never privacy.
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

# Saturation of a pair's total. Below it a float64 sum of integers is exact in any order; a partial
# sum above it stays above.
SATURATION = 2.0**53
# Fraction bits of a block's weight, which is a multiple of 2^-10.
WEIGHT_BITS = 10
# Max users whose blocks are pooled together: user, row and weight are packed into 63 bits, which
# leaves 32 bits for the row.
_POOLED_USERS = 1 << 20
# Factor on the scale that outweighs float64 rounding.
_SAFETY_FACTOR = 1.0 - 2.0**-40
# Fraction bits of an item's need, relative to the weight from its users in the first round.
_NEED_BITS = 12
#: Largest need of an item. Squares add up exactly in int64 for 2^25 items.
MAX_NEED = 1 << 14


@dataclass(frozen=True)
class KeyLayout:
    """Packing of keys, and the cell of each item."""

    items: int  # number V; codes are sorted by cell, so that blocks are contiguous
    cells: int  # number K
    cell_of: IntArray | None  # (V,); None if a separate column contains the cell
    factors: FloatArray | None = None  # (V,) on the totals of each item; None for 1 each

    @property
    def item_bits(self) -> int:
        """Number of bits of the item code."""
        return max(self.items - 1, 1).bit_length()

    @property
    def cell_bits(self) -> int:
        """Number of bits of the cell code in the key; 0 if the item determines the cell."""
        return 0 if self.cell_of is not None else max(self.cells - 1, 1).bit_length()

    @property
    def user_shift(self) -> int:
        """Number of bits below the user code."""
        return self.item_bits + self.cell_bits


@dataclass(frozen=True)
class Grid:
    """Clipping bounds and the grid to which contributions are truncated."""

    bounds: FloatArray  # (K,) or (1,) clipping bounds ρ
    bits: int  # the step is a power of two with 2^(bits−1) < ρ/step ≤ 2^bits
    norm: Literal["l2", "l1"] = "l2"

    @cached_property
    def step(self) -> FloatArray:
        """Grid steps h, (K,) or (1,)."""
        _, exponent = np.frexp(self.bounds)
        # frexp: ρ = m·2^e with ½ ≤ m < 1; an exact power of two would waste a bit.
        exact = np.ldexp(1.0, exponent - 1) == self.bounds
        return np.asarray(np.ldexp(1.0, exponent - exact - self.bits), dtype=np.float64)

    @cached_property
    def radius(self) -> FloatArray:
        """Bounds in grid steps, ρ/h, (K,) or (1,); at most 2^bits, and exact."""
        return self.bounds / self.step

    @cached_property
    def limit(self) -> IntArray:
        """Limit of a block's integers, ⌊(ρ/h)²⌋ (l2) or ⌊ρ/h⌋ (l1), (K,) or (1,)."""
        whole = np.floor(self.radius)
        if self.norm == "l1":
            return whole.astype(np.int64)
        # (w+f)² = w² + (2w+f)f: the first term is exact in int64, the second is below 2^32. The
        # factor exceeds the rounding of the second term, which is exactly 0 if f is 0.
        rest = self.radius - whole
        square = whole.astype(np.int64) ** 2
        return square + np.floor((2 * whole + rest) * rest * (1 - 2.0**-50)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Pools:
    """Pools of cells with a common row of bins, and a scale and weight per cell."""

    edges: FloatArray  # (B+1,) norm ÷ scale; bin i is (edges[i], edges[i+1]], the last one open
    pool: IntArray  # (K,) from 0 to P−1
    scale: FloatArray  # (K,) of the norms in each cell
    weight: IntArray  # (K,) of a block, in multiples of 2^-10, from 1 to 1024
    count: int  # number P
    max_blocks: int  # max blocks of one user in a bin

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of pools and bins."""
        return self.count, self.edges.size - 1


@dataclass(frozen=True, eq=False)
class Routes:
    """Items that receive users' weight in the second round, with their needs."""

    rank: IntArray  # (V,) in the order of selection; −1 for items without a position
    items: IntArray  # (n,) in that order
    needs: IntArray  # (n,) from a user, from 1 to :data:`MAX_NEED`
    capacity: int  # max sum of squared needs of a user with one item; t times that for t

    @staticmethod
    def after(first: IntArray, ahead: BoolArray, enough: float) -> Routes:
        """Compute routes from noisy counts; an item's need only depends on its own count.

        A user with t items contributed 1/√t to an item and now contributes enough ÷ count times as
        much, from the largest count down. Items ``ahead`` must have a positive count.
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
    out: IntArray,
    layout: KeyLayout,
    grid: Grid,
    *,
    unit: float = 1.0,
    indicator: bool = False,
    max_items: int | None = None,
    max_elements: int | None = None,
) -> None:
    """Add the clipped blocks of whole users to integer sums."""
    pairs, sums, blocks = _blocks(keys, totals, layout, max_elements, indicator)
    if max_items is not None:
        pairs, sums, blocks = blocks.keep(blocks.among_first_items(max_items), pairs, sums)
    codes = pairs & ((1 << layout.item_bits) - 1)
    np.add.at(out, codes, blocks.clip(sums, grid, unit))


def clipped_units(
    keys: IntArray,
    totals: FloatArray | None,
    out: IntArray,
    layout: KeyLayout,
    clip: Grid,
    *,
    units: Grid,
    corners: int,
    unit: float = 1.0,
    indicator: bool = False,
    max_elements: int | None = None,
) -> None:
    """Count users' complete and clipped blocks by group, (groups, 2), in grid steps.

    A block adds a vector of norm at most 1, equal in each of its groups.
    """
    pairs, sums, blocks = _blocks(keys, totals, layout, max_elements, indicator)
    clipped = ~blocks.within(sums, clip, unit)[0]
    first = _is_new(pairs >> layout.item_bits)
    group = (pairs & ((1 << layout.item_bits) - 1)) // corners
    first |= _is_new(group)
    _, ones, blocks = blocks.keep(first, pairs, np.ones_like(sums))
    places = 2 * group[first] + np.repeat(clipped, blocks.lengths)
    np.add.at(out.reshape(-1), places, blocks.clip(ones, units, 1.0))


def directions(
    keys: IntArray,
    totals: FloatArray | None,
    out: IntArray,
    layout: KeyLayout,
    edges: FloatArray,
    *,
    units: Grid,
    unit: float = 1.0,
    max_elements: int | None = None,
) -> None:
    """Add the blocks of whole users by item and norm, (V, B), each scaled to norm 1."""
    pairs, sums, blocks = _blocks(keys, totals, layout, max_elements)
    norms = blocks.norms(sums, units.norm)
    bins = np.minimum(np.searchsorted(edges, norms * unit), out.shape[1] - 1)
    scaled = sums / np.repeat(np.maximum(norms, np.finfo(np.float64).tiny), blocks.lengths)
    codes = pairs & ((1 << layout.item_bits) - 1)
    places = codes * out.shape[1] + np.repeat(bins, blocks.lengths)
    np.add.at(out.reshape(-1), places, blocks.clip(scaled, units, 1.0))


def routed_sum(
    keys: IntArray,
    _: FloatArray | None,
    out: IntArray,
    layout: KeyLayout,
    routes: Routes,
    *,
    grid: Grid,
    max_items: int,
    max_elements: int | None = None,
) -> None:
    """Add users' vectors of norm 1 on the items that they select by the routes.

    A user selects items in the order of the routes while the capacity suffices, and at least one.
    The weights are proportional to the needs.
    """
    pairs, sums, blocks = _blocks(keys, None, layout, max_elements)
    pairs, sums, blocks = blocks.keep(blocks.among_first_items(max_items), pairs, sums)
    sizes = blocks.lengths
    rank = routes.rank[pairs & ((1 << layout.item_bits) - 1)]
    ahead = rank >= 0
    owner = np.repeat(np.arange(sizes.size), sizes)[ahead]
    # Sort each user's items by their position in the routes.
    packed = (owner << layout.item_bits) | rank[ahead]
    packed.sort()
    taken = _Blocks.split(packed, layout)
    needs = routes.needs[packed & ((1 << layout.item_bits) - 1)]
    needed = np.cumsum(needs * needs)
    before = needed[taken.starts] - needs[taken.starts] ** 2
    needed -= np.repeat(before, taken.lengths)
    within = needed <= np.repeat(sizes[taken.user] * routes.capacity, taken.lengths)
    within[taken.starts] = True
    packed, weights, taken = taken.keep(within, packed, needs.astype(np.float64))
    items = routes.items[packed & ((1 << layout.item_bits) - 1)]
    np.add.at(out, items, taken.clip(weights, grid, 1.0))


def set_fingerprint(keys: IntArray, layout: KeyLayout) -> int:
    """Return a fingerprint of users' sets of items; several add up modulo 2^64.

    It does not depend on the codes of users. Different sets collide only by coincidence.
    """
    pairs = keys[_is_new(keys)]
    starts = np.flatnonzero(_is_new(pairs >> layout.user_shift))
    coordinates = (pairs & ((1 << layout.user_shift) - 1)).astype(np.uint64)
    return int(_mix(_sum_runs(_mix(coordinates), starts)).sum().astype(np.int64))


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of words as the generator SplitMix64 does."""
    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


def norm_histogram(
    keys: IntArray,
    totals: FloatArray | None,
    out: IntArray,
    layout: KeyLayout,
    edges: FloatArray,
    *,
    norm: Literal["l2", "l1"] = "l2",
    unit: float = 1.0,
    indicator: bool = False,
    max_elements: int | None = None,
) -> None:
    """Count whole users' blocks by cell and norm, (rows, B), without empty ones.

    Bin i contains norms in (edges[i−1], edges[i]]: the first one starts at 0, the last one is open.
    """
    _, sums, blocks = _blocks(keys, totals, layout, max_elements, indicator)
    rows, bins = out.shape
    norms = blocks.norms(sums, norm) * unit
    index = np.minimum(np.searchsorted(edges, norms), bins - 1)
    if rows > 1:
        index += blocks.cell * bins
    nonempty = norms > 0
    np.add.at(out.reshape(-1), index if nonempty.all() else index[nonempty], 1)


def pooled_counts(
    keys: IntArray,
    totals: FloatArray | None,
    out: IntArray,
    layout: KeyLayout,
    pools: Pools,
    *,
    norm: Literal["l2", "l1"] = "l2",
    unit: float = 1.0,
    indicator: bool = False,
    max_elements: int | None = None,
) -> None:
    """Count whole users' blocks by pool and norm ÷ scale, (P, B), in units of 2^-10.

    Formal guarantee: a user adds at most ``pools.max_blocks`` to a bin. The limit applies to each
    bin in integers, so a block changes only its own bin, by at most its weight.
    """
    _, sums, blocks = _blocks(keys, totals, layout, max_elements, indicator)
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
    """Add each user's weights, from 1 to 2^10, to counts, at most ``most`` per count.

    ``users``, (b,), are sorted, and at most ``_POOLED_USERS``; ``rows``, (b,), index ``out``.
    """
    np.add.at(out.reshape(-1), rows, weights)
    rank, row_bits = np.cumsum(_is_new(users)) - 1, out.size.bit_length()
    # Sorting these sorts by user and row, with the weight in the low bits.
    packed = (((rank << row_bits) | rows) << WEIGHT_BITS) | (weights - 1)
    packed.sort()
    places = packed >> WEIGHT_BITS
    # This number of one user's blocks with the same count stays within the limit.
    within = most >> WEIGHT_BITS
    if (places[within:] != places[: max(places.size - within, 0)]).all():
        return
    starts = np.flatnonzero(_is_new(places))
    sums = _sum_runs((packed & ((1 << WEIGHT_BITS) - 1)) + 1, starts)
    beyond = np.maximum(sums - most, 0)
    np.subtract.at(out.reshape(-1), places[starts] & ((1 << row_bits) - 1), beyond)


def blocks_per_item(
    keys: IntArray,
    _: FloatArray | None,
    out: IntArray,
    layout: KeyLayout,
    *,
    max_items: int | None = None,
    max_elements: int | None = None,
) -> None:
    """Count the blocks that contain each coordinate, without clipping, in (V,) ``out``."""
    pairs = keys[_is_new(keys)]
    for limit, first in (
        (max_elements, _Blocks.among_first_blocks),
        (max_items, _Blocks.among_first_items),
    ):
        if limit is not None:
            pairs = pairs[first(_Blocks.split(pairs, layout), limit)]
    out += np.bincount(pairs & ((1 << layout.item_bits) - 1), minlength=out.size)


def users_by_contribution(
    keys: IntArray, totals: FloatArray | None, out: IntArray, layout: KeyLayout, edges: IntArray
) -> None:
    """Count users by their number of pairs and by their number of records, (2, B).

    ``edges`` are the largest numbers in the bins; the last bin has no upper end.
    """
    pairs, sums = pair_totals(keys, totals)
    starts = np.flatnonzero(_is_new(pairs >> layout.user_shift))
    for row, amounts in enumerate((np.diff(starts, append=pairs.size), _sum_runs(sums, starts))):
        bins = np.minimum(np.searchsorted(edges, amounts), edges.size - 1)
        out[row] += np.bincount(bins, minlength=edges.size)


def record_sum(
    codes: IntArray,
    totals: FloatArray | None,
    out: IntArray,
    grid: Grid,
    *,
    unit: float = 1.0,
    indicator: bool = False,
) -> None:
    """Add records, each clipped separately, to integer sums."""
    if not out.size:
        # Without selected items there is no bound.
        return
    one = unit / float(grid.step[0])
    limit = math.floor(float(grid.radius[0]))
    if totals is None or indicator:
        counts = np.bincount(codes, minlength=out.size).astype(np.int64)
        out += counts * math.floor(min(one, limit))
    else:
        np.add.at(out, codes, np.floor(np.minimum(totals * one, limit)).astype(np.int64))


def clipped_records(
    codes: IntArray,
    totals: FloatArray | None,
    out: IntArray,
    clip: Grid,
    *,
    units: Grid,
    corners: int,
    unit: float = 1.0,
) -> None:
    """Count complete and clipped records by group, as :func:`clipped_units` does."""
    if not out.size:
        return
    sizes = np.ones(codes.size) if totals is None else totals
    clipped = sizes * (unit / float(clip.step[0])) > float(clip.radius[0])
    counts = np.bincount(2 * (codes // corners) + clipped, minlength=out.size)
    out += counts.reshape(out.shape) * int(units.radius[0])


def pair_totals(keys: IntArray, totals: FloatArray | None) -> tuple[IntArray, FloatArray]:
    """Merge equal sorted keys and add their totals, up to the saturation."""
    new = _is_new(keys)
    starts = np.flatnonzero(new)
    if totals is None:
        sums = np.diff(starts, append=keys.size).astype(np.float64)
    else:
        sums = np.minimum(_sum_runs(totals, starts), SATURATION)
    return keys[starts], sums


def _blocks(
    keys: IntArray,
    totals: FloatArray | None,
    layout: KeyLayout,
    max_elements: int | None,
    indicator: bool = False,
) -> tuple[IntArray, FloatArray, _Blocks]:
    pairs, sums = pair_totals(keys, totals)
    if layout.factors is not None:
        sums = sums * layout.factors[pairs & ((1 << layout.item_bits) - 1)]
    if indicator:
        sums = np.ones_like(sums)
    blocks = _Blocks.split(pairs, layout)
    if max_elements is None:
        return pairs, sums, blocks
    return blocks.keep(blocks.among_first_blocks(max_elements), pairs, sums)


def _is_new(values: IntArray) -> BoolArray:
    """Return a mask of the first value and those unequal to the previous one, (n,)."""
    new = np.ones(values.size, dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _sum_runs(values: NDArray[Any], starts: IntArray) -> NDArray[Any]:
    """Return the sums of the runs from each start, (b,); unlike reduceat, also no runs."""
    return np.add.reduceat(values, starts) if starts.size else values[:0]


@dataclass(frozen=True)
class _Blocks:
    """Blocks (user, cell) of sorted pairs."""

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
        """Return a mask of pairs in their user's first ``limit`` blocks, (pairs,)."""
        new_user = np.flatnonzero(np.diff(self.user, prepend=-1))
        rank = np.arange(self.starts.size)
        rank -= np.repeat(new_user, np.diff(new_user, append=self.starts.size))
        return np.repeat(rank < limit, self.lengths)

    def among_first_items(self, limit: int) -> BoolArray:
        """Return a mask of the first ``limit`` pairs of each block, (pairs,)."""
        return np.arange(self.size) - np.repeat(self.starts, self.lengths) < limit

    def keep(
        self, selected: BoolArray, pairs: IntArray, sums: FloatArray
    ) -> tuple[IntArray, FloatArray, _Blocks]:
        """Return selected pairs and their blocks; a block must be selected from its start."""
        if selected.all():
            return pairs, sums, self
        lengths = _sum_runs(selected.astype(np.int64), self.starts)
        left = lengths > 0
        starts = (np.cumsum(lengths) - lengths)[left]
        blocks = _Blocks(int(lengths.sum()), starts, self.cell[left], self.user[left])
        return pairs[selected], sums[selected], blocks

    def norms(self, sums: FloatArray, norm: Literal["l2", "l1"]) -> FloatArray:
        """Return the norm of each block, (b,), summed in the order of codes."""
        if norm == "l1":
            return np.asarray(_sum_runs(sums, self.starts))
        return np.asarray(np.sqrt(_sum_runs(sums * sums, self.starts)))

    def within(
        self, sums: FloatArray, grid: Grid, unit: float
    ) -> tuple[BoolArray, FloatArray, FloatArray, FloatArray]:
        """Return a mask of blocks within their bounds, norms, bounds and steps per unit."""
        # A single bound broadcasts to all blocks.
        row = self.cell if grid.bounds.size > 1 else slice(None)
        radius, one = grid.radius[row], unit / grid.step[row]
        norms = self.norms(sums, grid.norm)
        return norms * one <= radius, norms, radius, one

    def clip(self, sums: FloatArray, grid: Grid, unit: float) -> IntArray:
        """Scale each block to its bound and truncate it, in grid steps, (pairs,)."""
        within, norms, radius, one = self.within(sums, grid, unit)
        row = self.cell if grid.bounds.size > 1 else slice(None)
        with np.errstate(divide="ignore"):
            # Blocks within the bound are scaled by `one`, which is a power of two for counts, so
            # exactly.
            scale = np.where(within, one, radius / norms * _SAFETY_FACTOR)
        scaled = np.repeat(scale, self.lengths)
        np.floor(np.multiply(sums, scaled, out=scaled), out=scaled)
        integers = scaled.astype(np.int64)
        limit = np.broadcast_to(grid.limit[row], self.starts.shape)
        self._shrink(integers, limit, grid.norm)
        return integers

    def _shrink(self, integers: IntArray, limit: IntArray, norm: Literal["l2", "l1"]) -> None:
        """Check each block's norm in integers; shrink blocks that exceed it by rounding."""
        reached = _sum_runs(integers * integers if norm == "l2" else integers, self.starts)
        for block in np.flatnonzero(reached > limit):
            part = slice(self.starts[block], self.starts[block] + self.lengths[block])
            z = integers[part]
            # One step almost always suffices; otherwise steps grow.
            step = 1
            while int((z * z if norm == "l2" else z).sum()) > limit[block]:
                z = np.maximum(z - step, 0)
                step *= 2
            integers[part] = z

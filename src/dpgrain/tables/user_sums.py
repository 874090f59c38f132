"""Integer sums of what users hold, bounded block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow.compute

from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import DataError
from dpgrain.tables.arrow_arrays import number_array
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.dictionary import Dictionary, GroupCells
from dpgrain.tables.engines import kernel
from dpgrain.tables.engines.kernel import Grid, KeyLayout, Pools, Routes
from dpgrain.tables.engines.protocol import Engine, Summed, Users
from dpgrain.tables.groups import Groups
from dpgrain.tables.split import Split

# Length of a list of whole-numbered items, from the least to the largest, at most.
_MOST_LISTED_ITEMS = 1 << 21


def candidate_groups(engine: Engine, keys: Sequence[str], value: str | None = None) -> Groups:
    """Return groups that may have rows, among them all that do; private.

    Whole numbers that lie close together are all listed, which is quicker than to look which occur. So
    the caller has to find out afterwards which groups nobody holds.
    """
    if len(keys) == 1 and engine.table.is_integer(keys[0]):
        low, high, rows = engine.extent(keys[0]) or (0, 0, 0)
        if high - low < min(rows // 16, _MOST_LISTED_ITEMS):
            return Groups.of(keys, [number_array(np.arange(low, high + 1, dtype=np.int64))])
    return engine.distinct(keys, value)


class UserContributions:
    """The contributions of users to some groups; rows are read once per question, or less.

    What its methods return is private: it has to be noised before anybody sees it.
    """

    def __init__(
        self,
        engine: Engine,
        blocks: UnitBlocks,
        groups: Groups,
        cells: GroupCells,
        value: str | None = None,
        split: Split | None = None,
        wider: UserContributions | None = None,
    ) -> None:
        self._engine, self._blocks, self._value, self._split = engine, blocks, value, split
        self._unit = 1.0 if split is None else split.unit
        # The group gives the cell, or else another column does.
        shared = blocks.block == "element" and blocks.key is None
        self._cell_column = blocks.cell_column if shared else None
        self.dictionary: Dictionary = engine.dictionary(
            groups,
            cells,
            cell_column=self._cell_column,
            corners=1 if split is None else split.corners,
        )
        self._held: Users | None = None if wider is None else wider._narrowed(self.dictionary)
        # The mark of the rows of a first round.
        self._mark: int | None = None

    def sums(
        self, grid: Grid, *, indicator: bool = False, max_items: int | None = None
    ) -> IntArray:
        """Return the sums of clipped blocks in grid steps, modulo 2^64, (coordinates,)."""
        unit = self._unit
        if self._blocks.block == "record":
            adds = _BoundKernel(_record_sum, (grid,), {"unit": unit, "indicator": indicator})
            return self._records().accumulate(adds, (self.dictionary.layout.items,))
        return self._clipped(
            kernel.clipped_sum,
            grid,
            (self.dictionary.layout.items,),
            unit=unit,
            indicator=indicator,
            max_items=max_items,
        )

    def first_sums(self, grid: Grid, *, max_items: int) -> IntArray:
        """Return the sums of a first round of indicators, (coordinates,), after which may be routed."""
        sums, self._mark = self._marked(
            kernel.clipped_sum, grid, indicator=True, max_items=max_items
        )
        return sums

    def routed(self, routes: Routes, grid: Grid, *, max_items: int) -> IntArray:
        """Return the sums of what whole users give to the items that they take, (coordinates,)."""
        sums, mark = self._marked(kernel.routed_sum, routes, grid=grid, max_items=max_items)
        if mark != self._mark:
            # Whoever newly holds an item would show whether another one gave to it before.
            raise DataError(
                f"{self._engine.table.source.name} returned different rows when it was read "
                "again; write them to Parquet first, and read that."
            )
        return sums

    def _marked(self, added: Callable[..., None], by: Any, **how: Any) -> tuple[IntArray, int]:
        """Add up blocks of whole users, and return the mark of their rows, too."""
        layout = self.dictionary.layout
        if not layout.items:
            return np.zeros(0, dtype=np.int64), 0
        adds = _BoundKernel(_with_mark, (self._adds(added, by, **how), layout))
        out = self._users().accumulate(adds, (layout.items + 1,))
        return out[:-1], int(out[-1])

    def holders(self, *, max_items: int | None = None) -> IntArray:
        """Count the blocks that hold each coordinate, (coordinates,); nothing is clipped."""
        layout = self.dictionary.layout
        if self._blocks.block == "record":
            return self._records().accumulate(_BoundKernel(_count_records), (layout.items,))
        bounds = {"max_items": max_items, "max_elements": self._blocks.max_elements}
        return self._users().accumulate(_BoundKernel(_holders, (layout,), bounds), (layout.items,))

    def norm_counts(
        self, edges: FloatArray, norm: Literal["l2", "l1"], *, indicator: bool = False
    ) -> IntArray:
        """Count the blocks with a norm in each bin, (cells, bins); one row where cells are a column."""
        unit = self._unit
        shape = (self.dictionary.cell_sizes.size, edges.size)
        if self._blocks.block == "record":
            return self._records().accumulate(
                _BoundKernel(_record_norms, (edges,), {"unit": unit}), shape
            )
        return self._clipped(
            kernel.norm_histogram, edges, shape, norm=norm, unit=unit, indicator=indicator
        )

    def pooled_counts(
        self, pools: Pools, norm: Literal["l2", "l1"], *, indicator: bool = False
    ) -> IntArray:
        """Count the weighted blocks by pool and size of norm, (pools, bins), in 2^-10ths of a block."""
        return self._clipped(
            kernel.pooled_counts,
            pools,
            pools.shape,
            norm=norm,
            unit=self._unit,
            indicator=indicator,
        )

    def holdings(self, edges: IntArray) -> IntArray:
        """Count users by their numbers of pairs, and of records, (2, bins)."""
        adds = _BoundKernel(kernel.users_by_contribution, (self.dictionary.layout, edges))
        return self._users().accumulate(adds, (2, edges.size))

    def _clipped(
        self, added: Callable[..., None], by: Any, shape: tuple[int, ...], **how: Any
    ) -> IntArray:
        """Add up blocks of whole users."""
        return self._users().accumulate(self._adds(added, by, **how), shape)

    def _adds(self, added: Callable[..., None], by: Any, **how: Any) -> _BoundKernel:
        """Return a kernel of whole users, which is given the layout and one thing more."""
        how["max_elements"] = self._blocks.max_elements
        return _BoundKernel(added, (self.dictionary.layout, by), how)

    def _users(self) -> Users:
        if self._held is None:
            self._held = self._engine.users(
                self.dictionary,
                value=self._value,
                split=self._split,
                cell_column=self._cell_column,
            )
        return self._held

    def _narrowed(self, other: Dictionary) -> Users | None:
        """Return users' records of some of these groups, if those in memory suffice; else None."""
        mine, theirs = self.dictionary.groups.columns, other.groups.columns
        if self._held is None or self._cell_column is not None or len(mine) != 1:
            return None
        codes = np.full(self.dictionary.layout.items, -1, dtype=np.int64)
        places = pyarrow.compute.index_in(theirs[0], value_set=mine[0]).to_numpy()
        codes[places] = np.arange(other.layout.items)
        return self._held.narrowed(codes, other.layout.user_shift)

    def _records(self) -> Summed:
        return self._engine.records(self.dictionary, value=self._value, split=self._split)


@dataclass(frozen=True)
class _BoundKernel:
    """A kernel with all that it needs to know beside keys, which is public and can be sent anywhere."""

    # The function that adds.
    kernel: Callable[..., None]
    # What it is given between the keys and the sums.
    known: tuple[Any, ...] = ()
    # What it is given by name.
    how: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, keys: IntArray, totals: FloatArray | None, out: IntArray) -> None:
        self.kernel(keys, totals, *self.known, out, **self.how)


def _with_mark(
    keys: IntArray, totals: FloatArray | None, adds: _BoundKernel, layout: KeyLayout, out: IntArray
) -> None:
    """Add up by a kernel, and mark in the last place of the sums which rows it was given."""
    adds(keys, totals, out[:-1])
    out[-1:] += np.int64(kernel.set_fingerprint(keys, layout))


def _holders(
    keys: IntArray, _: FloatArray | None, layout: KeyLayout, out: IntArray, **bounds: int | None
) -> None:
    """Count the blocks of each coordinate, whatever their totals."""
    kernel.blocks_per_item(keys, layout, out, **bounds)


def _count_records(codes: IntArray, _: FloatArray | None, out: IntArray) -> None:
    out += np.bincount(codes, minlength=out.size)


def _record_sum(
    codes: IntArray,
    totals: FloatArray | None,
    grid: Grid,
    out: IntArray,
    *,
    unit: float,
    indicator: bool,
) -> None:
    kernel.record_sum(codes, None if indicator else totals, grid, out, unit=unit)


def _record_norms(
    _: IntArray, totals: FloatArray | None, edges: FloatArray, out: IntArray, *, unit: float
) -> None:
    """Count records by the bin of their size."""
    if totals is not None:
        bins = np.searchsorted(edges, totals[totals > 0] * unit)
        # Where no item was selected there is no cell, and nothing to count.
        out[:1] += np.bincount(np.minimum(bins, edges.size - 1), minlength=edges.size)

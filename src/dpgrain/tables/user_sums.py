"""Integer sums of users' contributions, clipped per block."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow.compute

from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import DataError
from dpgrain.tables.arrow_arrays import number_array
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines import kernel
from dpgrain.tables.engines.kernel import Grid, KeyLayout, Pools, Routes
from dpgrain.tables.engines.protocol import Add, Engine, Summed, Users
from dpgrain.tables.groups import Dictionary, GroupCells, Groups
from dpgrain.tables.split import OfAllGroups, Split

# Maximum range of integer items that are all listed.
_MOST_LISTED_ITEMS = 1 << 21


def candidate_groups(engine: Engine, keys: Sequence[str], value: str | None = None) -> Groups:
    """Return all groups with rows, and possibly others; private.

    Integers in a short range are all listed, which is faster than a search for those that occur.
    The caller must therefore count the holders of each group.
    """
    if len(keys) == 1 and engine.table.is_integer(keys[0]):
        low, high, rows = engine.extent(keys[0]) or (0, 0, 0)
        if high - low < min(rows // 16, _MOST_LISTED_ITEMS):
            return Groups.of(keys, [number_array(np.arange(low, high + 1, dtype=np.int64))])
    return engine.distinct(keys, value)


class UserContributions:
    """Contributions of users to groups; each method reads the rows at most once.

    All results are private and need noise before publication. With ``joined``, the groups only
    select rows, and have common coordinates: the corners of the split.
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
        *,
        joined: bool = False,
    ) -> None:
        self._engine, self._blocks, self._value, self._split = engine, blocks, value, split
        self._unit = 1.0 if split is None else split.unit
        corners = 1 if split is None else split.corners
        if joined:
            # Codes for the common coordinates, although no group has all of them.
            corners = math.ceil(corners / max(len(groups), 1))
        # The group or another column determines the cell.
        shared = blocks.block == "element" and blocks.key is None
        self._cell_column = blocks.cell_column if shared else None
        self.dictionary: Dictionary = engine.dictionary(
            groups, cells, cell_column=self._cell_column, corners=corners
        )
        self._coordinates = self.dictionary.layout.items
        if joined and split is not None:
            self._split = OfAllGroups(split, self.dictionary.layout.item_bits)
            self._coordinates = split.corners
        self._read_users: Users | None = None if wider is None else wider._narrowed(self.dictionary)
        # Checksum of the rows of a first round.
        self._mark: int | None = None

    def sums(
        self, grid: Grid, *, indicator: bool = False, max_items: int | None = None
    ) -> IntArray:
        """Return the sums of clipped blocks in grid steps, modulo 2^64, (coordinates,)."""
        unit, shape = self._unit, (self._coordinates,)
        if self._blocks.block == "record":
            adds = partial(kernel.record_sum, grid=grid, unit=unit, indicator=indicator)
            return self._records().accumulate(adds, shape)
        return self._clipped(
            kernel.clipped_sum,
            shape,
            grid=grid,
            unit=unit,
            indicator=indicator,
            max_items=max_items,
        )

    def clipped_units(self, clip: Grid, units: Grid, *, indicator: bool = False) -> IntArray:
        """Count complete and clipped blocks by group, (groups, 2), in steps of ``units``.

        A block adds a vector of norm at most 1.
        """
        corners = self.dictionary.corners
        how: dict[str, Any] = {"clip": clip, "units": units, "corners": corners, "unit": self._unit}
        shape = (self.dictionary.layout.items // corners, 2)
        if self._blocks.block == "record":
            return self._records().accumulate(partial(kernel.clipped_records, **how), shape)
        return self._clipped(kernel.clipped_units, shape, indicator=indicator, **how)

    def first_sums(self, grid: Grid, *, max_items: int) -> IntArray:
        """Return a first round's sums of indicators, (coordinates,), before :meth:`routed`."""
        sums, self._mark = self._marked(
            kernel.clipped_sum, grid=grid, indicator=True, max_items=max_items
        )
        return sums

    def routed(self, routes: Routes, grid: Grid, *, max_items: int) -> IntArray:
        """Return the sums of users' contributions to their chosen items, (coordinates,)."""
        sums, mark = self._marked(kernel.routed_sum, routes=routes, grid=grid, max_items=max_items)
        if mark != self._mark:
            # A new holder of an item would reveal whether another user contributed to it before.
            raise DataError(
                f"{self._engine.table.source.name} returned different rows when it was read "
                "again; write them to Parquet first, and read that."
            )
        return sums

    def _marked(self, added: Callable[..., None], **how: Any) -> tuple[IntArray, int]:
        """Return the sums of whole users' blocks and the checksum of their rows."""
        layout = self.dictionary.layout
        if not layout.items:
            return np.zeros(0, dtype=np.int64), 0
        adds = partial(_with_mark, adds=self._adds(added, **how), layout=layout)
        out = self._users().accumulate(adds, (layout.items + 1,))
        return out[:-1], int(out[-1])

    def holders(self, *, max_items: int | None = None) -> IntArray:
        """Count the blocks with each coordinate, (coordinates,), without clipping."""
        layout = self.dictionary.layout
        if self._blocks.block == "record":
            return self._records().accumulate(_count_records, (layout.items,))
        return self._clipped(kernel.blocks_per_item, (layout.items,), max_items=max_items)

    def norm_counts(
        self, edges: FloatArray, norm: Literal["l2", "l1"], *, indicator: bool = False
    ) -> IntArray:
        """Count blocks by bins of their norm, (cells, bins); one row if cells are a column."""
        unit = self._unit
        shape = (self.dictionary.cell_sizes.size, edges.size)
        if self._blocks.block == "record":
            return self._records().accumulate(partial(_record_norms, edges=edges, unit=unit), shape)
        return self._clipped(
            kernel.norm_histogram, shape, edges=edges, norm=norm, unit=unit, indicator=indicator
        )

    def directions(self, edges: FloatArray, units: Grid) -> IntArray:
        """Add blocks scaled to norm 1 by coordinate and bin of norm, in steps of ``units``."""
        shape = (self._coordinates, edges.size)
        return self._clipped(kernel.directions, shape, edges=edges, units=units, unit=self._unit)

    def with_factors(self, factors: FloatArray) -> UserContributions:
        """Return the same contributions, with those to each of the (groups,) times a factor."""
        # Both read the same rows.
        self._users()
        result, known = copy.copy(self), self.dictionary
        layout = replace(known.layout, factors=np.repeat(factors, known.corners))
        result.dictionary = replace(known, layout=layout)
        return result

    def pooled_counts(
        self, pools: Pools, norm: Literal["l2", "l1"], *, indicator: bool = False
    ) -> IntArray:
        """Count weighted blocks by pool and bin of norm, (pools, bins), in units of 2^-10."""
        unit = self._unit
        return self._clipped(
            kernel.pooled_counts,
            pools.shape,
            pools=pools,
            norm=norm,
            unit=unit,
            indicator=indicator,
        )

    def holdings(self, edges: IntArray) -> IntArray:
        """Count users by their numbers of pairs and of records, (2, bins)."""
        layout = self.dictionary.layout
        adds = partial(kernel.users_by_contribution, layout=layout, edges=edges)
        return self._users().accumulate(adds, (2, edges.size))

    def _clipped(self, added: Callable[..., None], shape: tuple[int, ...], **how: Any) -> IntArray:
        """Return the sums of whole users' blocks."""
        return self._users().accumulate(self._adds(added, **how), shape)

    def _adds(self, added: Callable[..., None], **how: Any) -> Add:
        """Return a kernel of whole users with its public arguments."""
        layout, most = self.dictionary.layout, self._blocks.max_elements
        return partial(added, layout=layout, max_elements=most, **how)

    def _users(self) -> Users:
        if self._read_users is None:
            self._read_users = self._engine.users(
                self.dictionary, value=self._value, split=self._split, cell_column=self._cell_column
            )
        return self._read_users

    def _narrowed(self, other: Dictionary) -> Users | None:
        """Return users' records of some groups from memory; None if that is impossible."""
        mine, theirs = self.dictionary.groups.columns, other.groups.columns
        if self._read_users is None or self._cell_column is not None or len(mine) != 1:
            return None
        codes = np.full(self.dictionary.layout.items, -1, dtype=np.int64)
        places = pyarrow.compute.index_in(theirs[0], value_set=mine[0]).to_numpy()
        codes[places] = np.arange(other.layout.items)
        return self._read_users.narrowed(codes, other.layout.user_shift)

    def _records(self) -> Summed:
        return self._engine.records(self.dictionary, value=self._value, split=self._split)


def _with_mark(
    keys: IntArray, totals: FloatArray | None, out: IntArray, adds: Add, layout: KeyLayout
) -> None:
    """Add up by a kernel, and add the checksum of its rows to the last entry."""
    adds(keys, totals, out[:-1])
    out[-1:] += np.int64(kernel.set_fingerprint(keys, layout))


def _count_records(codes: IntArray, _: FloatArray | None, out: IntArray) -> None:
    out += np.bincount(codes, minlength=out.size)


def _record_norms(
    _: IntArray, totals: FloatArray | None, out: IntArray, edges: FloatArray, unit: float
) -> None:
    """Count records by bins of their size."""
    if totals is not None:
        bins = np.searchsorted(edges, totals[totals > 0] * unit)
        # Without selected items there is no cell, and nothing to count.
        out[:1] += np.bincount(np.minimum(bins, edges.size - 1), minlength=edges.size)

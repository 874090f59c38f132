"""Integer sums of what users hold, bounded block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa

from dpgrain.data import kernel
from dpgrain.data.blocks import Blocks
from dpgrain.data.engine import Dictionary, Engine
from dpgrain.data.feed import Chunk, Feed
from dpgrain.data.kernel import FloatArray, Grid, IntArray


class Contributions:
    """What users hold of the items of a dictionary; read once per question, or less.

    Args:
        engine: brings the rows.
        item: the item column.
        weight: the weight column; each row counts 1 without one.
        blocks: what is clipped as one.
        items: the items, all different.
        public: whether the items are a public domain.
        unit: weights are truncated to multiples of this; ignored without weights.

    What its methods return is private: it has to be noised before anybody sees it.
    """

    def __init__(
        self,
        engine: Engine,
        item: str,
        weight: str | None,
        blocks: Blocks,
        items: pa.Array,
        *,
        public: bool,
        unit: float = 1.0,
    ) -> None:
        self._engine, self._item, self._weight, self._blocks = engine, item, weight, blocks
        self._unit = 1.0 if weight is None else unit
        self.dictionary: Dictionary = engine.dictionary(
            items,
            blocks.elements,
            public=public,
            cell_column=blocks.column,
            one_cell=blocks.block != "element",
        )
        self._feed: Feed | None = None

    def sums(
        self, grid: Grid, *, indicator: bool = False, max_items: int | None = None
    ) -> IntArray:
        """(V,) sums of clipped blocks in grid steps, modulo 2^64.

        Args:
            grid: the bounds, one per cell or one for all.
            indicator: count each (user, item) pair as 1, whatever its total.
            max_items: keep so many items of each block, the first in the public order.
        """
        layout, unit = self.dictionary.layout, self._unit
        if self._blocks.block == "record":
            out = np.zeros(layout.items, dtype=np.int64)
            for codes, totals in self._records():
                kernel.record_sum(codes, None if indicator else totals, grid, out, unit=unit)
            return out

        def add(keys: IntArray, totals: FloatArray | None, out: IntArray) -> None:
            kernel.clipped_sum(
                keys,
                totals,
                layout,
                grid,
                out,
                unit=unit,
                indicator=indicator,
                max_items=max_items,
                max_elements=self._blocks.max_elements,
            )

        return self._users().accumulate(add, (layout.items,))

    def norm_counts(self, edges: FloatArray, norm: Literal["l2", "l1"]) -> IntArray:
        """(cells, bins) how many blocks have a norm in each bin; one row where cells are a column.

        Args:
            edges: (bins,) upper ends of the bins; the last bin has none.
            norm: the norm that is binned.
        """
        layout, unit = self.dictionary.layout, self._unit
        shape = (self.dictionary.cell_sizes.size, edges.size)
        if self._blocks.block == "record":
            out = np.zeros(shape, dtype=np.int64)
            for _, totals in self._records():
                if totals is not None:
                    bins = np.searchsorted(edges, totals[totals > 0] * unit)
                    out[0] += np.bincount(np.minimum(bins, edges.size - 1), minlength=edges.size)
            return out

        def add(keys: IntArray, totals: FloatArray | None, out: IntArray) -> None:
            kernel.norm_histogram(
                keys,
                totals,
                layout,
                edges,
                out,
                norm=norm,
                unit=unit,
                max_elements=self._blocks.max_elements,
            )

        return self._users().accumulate(add, shape)

    def _users(self) -> Feed:
        if self._feed is None:
            self._feed = self._engine.feed(
                self._item,
                self.dictionary.layout,
                weight=self._weight,
                unit=self._unit,
                cell_column=self._blocks.column,
            )
        return self._feed

    def _records(self) -> Iterator[Chunk]:
        return self._engine.records(self._item, weight=self._weight, unit=self._unit)

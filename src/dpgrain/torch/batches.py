"""Batches of bounded size from the drawn blocks of a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpgrain._types import IndexArray
from dpgrain.inputs.array_blocks import ArrangedRows
from dpgrain.torch.layout import BlockLayout


@dataclass(frozen=True)
class PhysicalBatch:
    """Rows that the network reads together: whole blocks, or a part of one block."""

    rows: IndexArray  # indices in the data set, grouped by block
    layout: BlockLayout
    part: bool = False
    records: int = 0  # the block's total number of rows in its last ``part``, otherwise 0
    last: bool = False


@dataclass(frozen=True)
class BlockRows:
    """Rows of each block: block i has ``rows[starts[i]:starts[i + 1]]``."""

    rows: IndexArray
    starts: IndexArray

    @staticmethod
    def arrange(rows: ArrangedRows) -> BlockRows:
        """Group rows by block, and preserve their order within a block."""
        order = np.argsort(rows.blocks, kind="stable")
        starts = np.searchsorted(rows.blocks[order], np.arange(len(rows.owners) + 1))
        return BlockRows(rows.indices[order], starts)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.starts) - 1

    def by_size(self, drawn: IndexArray | None = None) -> IndexArray:
        """Return blocks in the order of batches, smallest first; by default all blocks."""
        blocks = np.arange(self.blocks) if drawn is None else drawn
        return blocks[np.argsort(np.diff(self.starts)[blocks], kind="stable")]

    def batches(
        self,
        drawn: IndexArray,
        max_rows: int | None,
        *,
        single: bool = False,
        max_blocks: int | None = None,
    ) -> Iterator[PhysicalBatch]:
        """Yield the batches of one step; split blocks with more than ``max_rows`` rows."""
        drawn = self.by_size(drawn)
        sizes = np.diff(self.starts)[drawn]
        limit = max(int(sizes.max(initial=1)), int(sizes.sum())) if max_rows is None else max_rows
        large = int(np.searchsorted(sizes, limit, side="right"))
        most = 1 if single else max_blocks or len(drawn)
        ends = [*_ends(sizes[:large], limit, most)]
        for first, stop in zip([0, *ends], ends, strict=False):
            rows = np.concatenate([self._rows(block) for block in drawn[first:stop]])
            yield PhysicalBatch(rows, BlockLayout.of(sizes[first:stop]), last=stop == len(drawn))
        for place in range(large, len(drawn)):
            yield from self._parts(drawn[place], limit, last=place == len(drawn) - 1)

    def _rows(self, block: int) -> IndexArray:
        return self.rows[self.starts[block] : self.starts[block + 1]]

    def _parts(self, block: int, limit: int, *, last: bool) -> Iterator[PhysicalBatch]:
        rows = self._rows(block)
        for first in range(0, len(rows), limit):
            some, ends = rows[first : first + limit], first + limit >= len(rows)
            layout, records = BlockLayout.of([len(some)]), len(rows) if ends else 0
            yield PhysicalBatch(some, layout, part=True, records=records, last=last and ends)


def _ends(sizes: IndexArray, limit: int, max_blocks: int) -> Iterator[int]:
    """Yield the ends of greedily filled batches, with at least one whole block each."""
    first = filled = 0
    for place, size in enumerate(sizes.tolist()):
        if filled and (filled + size > limit or place - first == max_blocks):
            yield place
            first, filled = place, 0
        filled += size
    if filled:
        yield len(sizes)

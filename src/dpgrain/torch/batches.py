"""From the drawn blocks of a step to batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpgrain._types import IndexArray
from dpgrain.arrays.blocks import Rows
from dpgrain.torch.layout import Layout


@dataclass(frozen=True)
class Batch:
    """Rows read together by the network: whole blocks, or a part of one.

    Args:
        rows: (rows,) their places in the data set, one block after the other.
        layout: the blocks; a part counts as one.
        part: True if these are some of the rows of one block.
        records: the number of rows of the whole block that this part ends; 0 where more follow.
        last: True if no other batch of the step follows.
    """

    rows: IndexArray
    layout: Layout
    part: bool = False
    records: int = 0
    last: bool = False


@dataclass(frozen=True)
class Blocks:
    """The rows of each block, one after the other.

    Args:
        rows: (rows,) places in the data set.
        starts: (blocks + 1,) the first place of each block in ``rows``, and the end.
    """

    rows: IndexArray
    starts: IndexArray

    @staticmethod
    def arrange(found: Rows) -> Blocks:
        """Put rows in the order of their blocks, and in their own order within a block."""
        order = np.argsort(found.blocks, kind="stable")
        starts = np.searchsorted(found.blocks[order], np.arange(len(found.owners) + 1))
        return Blocks(found.kept[order], starts)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.starts) - 1

    def by_size(self, drawn: IndexArray | None = None) -> IndexArray:
        """Return blocks in their order in batches: small ones first.

        Args:
            drawn: the blocks; all by default.
        """
        blocks = np.arange(self.blocks) if drawn is None else drawn
        return blocks[np.argsort(np.diff(self.starts)[blocks], kind="stable")]

    def batches(
        self, drawn: IndexArray, max_rows: int | None, *, single: bool = False
    ) -> Iterator[Batch]:
        """Yield the batches of one step.

        Args:
            drawn: (blocks drawn,) which blocks take part.
            max_rows: the most rows of a batch; None for any number. A block with more rows has batches
                of its own.
            single: True if each block has a batch of its own.

        >>> blocks = Blocks(np.arange(6), np.array([0, 4, 5, 6]))
        >>> [batch.rows.tolist() for batch in blocks.batches(np.arange(3), 3)]
        [[4, 5], [0, 1, 2], [3]]
        """
        drawn = self.by_size(drawn)
        sizes = np.diff(self.starts)[drawn]
        most = max(int(sizes.max(initial=1)), int(sizes.sum())) if max_rows is None else max_rows
        large = int(np.searchsorted(sizes, most, side="right"))
        ends = [*_ends(sizes[:large], 0 if single else most)]
        for first, stop in zip([0, *ends], ends, strict=False):
            rows = np.concatenate([self._rows(block) for block in drawn[first:stop]])
            yield Batch(rows, Layout.of(sizes[first:stop]), last=stop == len(drawn))
        for place in range(large, len(drawn)):
            yield from self._parts(drawn[place], most, last=place == len(drawn) - 1)

    def _rows(self, block: int) -> IndexArray:
        return self.rows[self.starts[block] : self.starts[block + 1]]

    def _parts(self, block: int, most: int, *, last: bool) -> Iterator[Batch]:
        rows = self._rows(block)
        for first in range(0, len(rows), most):
            some, ends = rows[first : first + most], first + most >= len(rows)
            layout, records = Layout.of([len(some)]), len(rows) if ends else 0
            yield Batch(some, layout, part=True, records=records, last=last and ends)


def _ends(sizes: IndexArray, most: int) -> Iterator[int]:
    """Yield where batches of whole blocks end, as many blocks in each as fit, and at least one."""
    filled = 0
    for place, size in enumerate(sizes.tolist()):
        if filled and filled + size > most:
            yield place
            filled = 0
        filled += size
    if filled:
        yield len(sizes)

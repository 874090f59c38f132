"""The blocks of a batch: rows that lie one block after the other, small blocks first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any

from dpgrain.torch.library import torch


@dataclass(frozen=True)
class Layout:
    """The sizes of the blocks of a batch, in the order of its rows.

    Args:
        sizes: (blocks,) the number of rows of each block, ascending and at least 1.

    Blocks of one size follow each other, so that they are views of the batch and nothing is copied.

    >>> Layout((1, 1, 3)).classes
    [(1, 0, 2), (3, 2, 1)]
    """

    sizes: tuple[int, ...]

    @staticmethod
    def of(sizes: Iterable[int]) -> Layout:
        """Return the layout of blocks of these sizes, which must be ascending."""
        return Layout(tuple(int(size) for size in sizes))

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.sizes)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.starts[-1]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first row of each block, and the number of rows."""
        return (0, *accumulate(self.sizes))

    @cached_property
    def classes(self) -> list[tuple[int, int, int]]:
        """The blocks by size: the size, the first block that has it, and how many have it."""
        result, first = [], 0
        for size, same in groupby(self.sizes):
            count = len(list(same))
            result.append((size, first, count))
            first += count
        return result

    def times(self, count: int) -> Layout:
        """Return the layout of as many rows for each of these.

        Args:
            count: the number of rows that each row becomes.
        """
        return self if count == 1 else Layout(tuple(size * count for size in self.sizes))

    def rows_of(self, block: int) -> slice:
        """Return the rows of one block."""
        return slice(self.starts[block], self.starts[block + 1])

    def views(self, *tensors: Any) -> Iterator[tuple[slice, tuple[Any, ...]]]:
        """Yield, size by size, the blocks that have it and the (blocks, size, …) views of tensors.

        Args:
            tensors: (rows, …) each.
        """
        for size, first, count in self.classes:
            rows = slice(self.starts[first], self.starts[first + count])
            blocks = slice(first, first + count)
            yield blocks, tuple(t[rows].reshape(count, size, *t.shape[1:]) for t in tensors)

    def per_row(self, values: Any) -> Any:
        """Return the value of each row's block, (rows,), from (blocks,) values."""
        sizes = torch.tensor(self.sizes, device=values.device)
        return torch.repeat_interleave(values, sizes, output_size=self.rows)

    def per_block(self, rows: Any) -> Any:
        """Return (blocks, …) the sums of (rows, …) over the rows of each block."""
        return torch.cat([view.sum(1) for _, (view,) in self.views(rows)])

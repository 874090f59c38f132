"""Layout of the blocks of a batch, in consecutive rows and by ascending size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any

from dpgrain.torch import devices
from dpgrain.torch.library import torch


@dataclass(frozen=True)
class BlockLayout:
    """Sizes of a batch's blocks in the order of its rows, ascending and at least 1.

    Blocks of the same size are adjacent, so that views need no copies.
    """

    sizes: tuple[int, ...]

    @staticmethod
    def of(sizes: Iterable[int]) -> BlockLayout:
        """Return the layout of blocks with ascending sizes."""
        return BlockLayout(tuple(int(size) for size in sizes))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.sizes)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.starts[-1]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """First row of each block, followed by the number of rows."""
        return (0, *accumulate(self.sizes))

    @cached_property
    def classes(self) -> list[tuple[int, int, int]]:
        """Blocks by size: the size, its first block, and its number of blocks."""
        result, first = [], 0
        for size, same in groupby(self.sizes):
            count = len(list(same))
            result.append((size, first, count))
            first += count
        return result

    def times(self, count: int) -> BlockLayout:
        """Return the layout after each row is replaced by ``count`` rows."""
        if count not in self._multiples:
            self._multiples[count] = BlockLayout(tuple(size * count for size in self.sizes))
        return self._multiples[count]

    def block_slice(self, block: int) -> slice:
        """Return the rows of one block."""
        return slice(self.starts[block], self.starts[block + 1])

    def views(self, *tensors: Any) -> Iterator[tuple[slice, tuple[Any, ...]]]:
        """Yield the blocks of each size, with (blocks, size, …) views of the tensors."""
        for size, first, count in self.classes:
            rows = slice(self.starts[first], self.starts[first + count])
            blocks = slice(first, first + count)
            yield blocks, tuple(t[rows].reshape(count, size, *t.shape[1:]) for t in tensors)

    def per_row(self, values: Any) -> Any:
        """Return the value of each row's block, (rows,), from (blocks,) values."""
        sizes = self.sizes_on(values.device)
        return torch.repeat_interleave(values, sizes, output_size=self.rows)

    def sizes_on(self, device: Any) -> Any:
        """Return the sizes as a tensor, (blocks,), copied to a device only once."""
        return self._copied("sizes", self.sizes, device)

    def ends_on(self, device: Any) -> Any:
        """Return the row after each block as a 32-bit tensor, (blocks,)."""
        return self._copied("ends", self.starts[1:], device)

    def _copied(self, name: str, numbers: tuple[int, ...], device: Any) -> Any:
        if (name, device) not in self._copies:
            kind = "int32" if name == "ends" else "int64"
            self._copies[name, device] = devices.copied(numbers, kind, device)
        return self._copies[name, device]

    @cached_property
    def _copies(self) -> dict[tuple[str, Any], Any]:
        """Tensors by name and device."""
        return {}

    @cached_property
    def _multiples(self) -> dict[int, BlockLayout]:
        """Layouts with several rows for each row, by their number."""
        return {1: self}

    def segment_sums(self, rows: Any) -> Any:
        """Return the sums over the rows of each block, (blocks, …), by one kernel."""
        # "unsafe" omits a check for which a GPU would wait.
        sizes = self.sizes_on(rows.device)
        return torch.segment_reduce(rows, "sum", lengths=sizes, axis=0, unsafe=True)

    def per_block(self, rows: Any) -> Any:
        """Return the sums over the rows of each block, (blocks, …), from (rows, …)."""
        sums = [view.sum(1) for _, (view,) in self.views(rows)]
        return sums[0] if len(sums) == 1 else torch.cat(sums)

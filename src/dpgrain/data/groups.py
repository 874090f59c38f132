"""Groups: the rows of keys that estimates are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute

from dpgrain.data.kernel import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Groups:
    """Keys of groups: items, pairs of an item and a month, or the one group of everything.

    Args:
        names: the key columns, none for the group of everything.
        columns: one array per name.
        size: how many groups.

    >>> Groups.product(("shop", "year"), [pa.array(["a", "b"]), pa.array([2024])]).size
    2
    """

    names: tuple[str, ...]
    columns: tuple[pa.Array, ...]
    size: int

    @staticmethod
    def of(names: Sequence[str], columns: Sequence[pa.Array]) -> Groups:
        """The groups with these keys, row by row; no keys mean the one group of everything."""
        return Groups(tuple(names), tuple(columns), len(columns[0]) if columns else 1)

    @staticmethod
    def product(names: Sequence[str], values: Sequence[pa.Array]) -> Groups:
        """Every combination of the values of each key, the first key varying slowest."""
        places = np.indices([len(column) for column in values]).reshape(len(values), -1)
        columns = [column.take(pa.array(at)) for column, at in zip(values, places, strict=True)]
        return Groups.of(names, columns)

    def __len__(self) -> int:
        return self.size

    def take(self, order: IntArray) -> Groups:
        """The groups at these places."""
        places = pa.array(order)
        columns = tuple(column.take(places) for column in self.columns)
        return Groups(self.names, columns, len(order))

    def filter(self, kept: BoolArray) -> Groups:
        """The groups where ``kept`` holds."""
        return self.take(np.flatnonzero(kept))

    def order(self) -> IntArray:
        """(V,) the places of the groups in the order of their keys."""
        if not self.names:
            return np.arange(self.size)
        keys = [(name, "ascending") for name in self.names]
        found = pyarrow.compute.sort_indices(self.table(), sort_keys=keys)
        return np.asarray(found.to_numpy(), dtype=np.int64)

    def sorted(self) -> Groups:
        """The groups in the order of their keys."""
        return self.take(self.order())

    def table(self) -> pa.Table:
        """The keys as a table."""
        return pa.table(dict(zip(self.names, self.columns, strict=True)))

    def labels(self) -> list[str]:
        """Each group in words: its keys, joined."""
        if not self.names:
            return ["all"] * self.size
        parts = [[str(value) for value in column.to_pylist()] for column in self.columns]
        return [" · ".join(row) for row in zip(*parts, strict=True)]

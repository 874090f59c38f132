"""Groups of a release: combinations of keys, one per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute

from dpgrain._types import BoolArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.long_labels import SHOWN, is_replacement
from dpgrain.tables.arrow_arrays import number_array


@dataclass(frozen=True)
class Groups:
    """Keys of groups: items, pairs of an item and a month, or the one group of everything.

    >>> Groups.product(("shop", "year"), [pa.array(["a", "b"]), pa.array([2024])]).size
    2
    """

    # The key columns, none for the group of everything.
    names: tuple[str, ...]
    # One array per name.
    columns: tuple[pa.Array, ...]
    # The number of groups.
    size: int

    @staticmethod
    def of(names: Sequence[str], columns: Sequence[pa.Array]) -> Groups:
        """Return groups with one combination of keys per row; one group without keys."""
        return Groups(tuple(names), tuple(columns), len(columns[0]) if columns else 1)

    @staticmethod
    def product(names: Sequence[str], values: Sequence[pa.Array]) -> Groups:
        """Return a group for every combination of key values; the first key varies slowest."""
        places = np.indices([len(column) for column in values]).reshape(len(values), -1)
        columns = [column.take(number_array(at)) for column, at in zip(values, places, strict=True)]
        return Groups.of(names, columns)

    def __len__(self) -> int:
        return self.size

    def take(self, order: IntArray) -> Groups:
        """Return the groups at these indices."""
        places = number_array(order)
        columns = tuple(column.take(places) for column in self.columns)
        return Groups(self.names, columns, len(order))

    def filter(self, included: BoolArray) -> Groups:
        """Return the groups where ``kept`` is true."""
        return self.take(np.flatnonzero(included))

    def order(self) -> IntArray:
        """Return (V,) the indices that sort the groups by their keys."""
        if not self.names:
            return np.arange(self.size)
        # Rename columns, because Arrow treats a name with a leading dot or bracket as a path.
        keys = {f"k{i}": column for i, column in enumerate(self.columns)}
        order = [(name, "ascending") for name in keys]
        places = pyarrow.compute.sort_indices(pa.table(keys), sort_keys=order)
        return np.asarray(places.to_numpy(), dtype=np.int64)

    def sorted(self) -> Groups:
        """Return the groups sorted by their keys."""
        return self.take(self.order())

    def codes_in(self, other: Groups) -> IntArray:
        """Return (V,) the index of each group among other groups by some of its keys."""
        missing = [name for name in other.names if name not in self.names]
        if missing:
            raise ParameterError(
                f"totals have the key {missing[0]!r}, which the parts lack ({', '.join(self.names)})."
            )
        mine = [self.columns[self.names.index(name)].to_pylist() for name in other.names]
        rows = list(zip(*mine, strict=True)) if mine else [()] * self.size
        theirs = zip(*(column.to_pylist() for column in other.columns), strict=True)
        place = {row: i for i, row in enumerate(theirs)} if other.names else {(): 0}
        unknown = [row for row in rows if row not in place]
        if unknown or len(set(rows)) < len(place):
            raise ParameterError(
                "every group of the totals must have parts, and every part a total; release "
                "both with the same public domain."
            )
        return np.array([place[row] for row in rows], dtype=np.int64)

    @property
    def beginning_of_long_labels(self) -> int | None:
        """Number of characters before the hash in labels of long texts; None without such labels."""
        texts = (key for column in self.columns for key in column.unique().to_pylist())
        found = any(isinstance(text, str) and is_replacement(text) for text in texts)
        return SHOWN if found else None

    def table(self) -> pa.Table:
        """Return the keys as a table."""
        return pa.table(dict(zip(self.names, self.columns, strict=True)))

    def labels(self) -> list[str]:
        """Return the name of each group: its keys, joined."""
        if not self.names:
            return ["all"] * self.size
        parts = [[str(value) for value in column.to_pylist()] for column in self.columns]
        return [" · ".join(row) for row in zip(*parts, strict=True)]

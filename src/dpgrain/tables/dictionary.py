"""The groups of a release with their cells, and the codes by which engines and kernel know them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dpgrain._types import IntArray
from dpgrain.tables.engines.kernel import Layout
from dpgrain.tables.groups import Groups


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells that some groups lie in.

    Args:
        labels: (V,) the name that orders cells; null where the group has no cell and is left out.
        codes: (V,) a number for each cell; −1 where the group is left out.
    """

    labels: pa.Array
    codes: IntArray

    @cached_property
    def sizes(self) -> IntArray:
        """The number of groups in each cell, (K,)."""
        return np.unique(self.codes[self.codes >= 0], return_counts=True)[1].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Dictionary:
    """The groups of a release, in the public order of cells and then of keys.

    Args:
        groups: (V,) the groups.
        layout: the packing of the keys of coordinates, with the cell that each lies in.
        cell_sizes: (K,) the number of coordinates in each cell; (1,) where another column has cells.
        given: (V,) the place of each group among those that were given.
        corners: the number of coordinates of each group.
    """

    groups: Groups
    layout: Layout
    cell_sizes: IntArray
    given: IntArray
    corners: int = 1

    @staticmethod
    def of(
        groups: Groups,
        cells: Cells,
        *,
        column_cells: int | None = None,
        corners: int = 1,
        order: IntArray | None = None,
    ) -> Dictionary:
        """Give groups and cells their codes.

        Args:
            groups: different groups, of the types of the key columns.
            cells: the cell of each group.
            column_cells: the number of cells of another column, where that tells the cell.
            corners: the number of coordinates of each group.
            order: the places of the groups that have a cell in the public order, where an engine
                has found it; :func:`public_order` finds it otherwise.
        """
        given = public_order(groups, cells) if order is None else order
        known = groups.take(given)
        if column_cells is not None:
            layout = Layout(len(known) * corners, column_cells, None)
            return Dictionary(known, layout, np.array([layout.items]), given, corners)
        cell = cells.codes[given]
        cell_of = np.cumsum(np.diff(cell, prepend=cell[:1]) != 0, dtype=np.int64)
        sizes = np.bincount(cell_of) * corners
        layout = Layout(len(known) * corners, sizes.size, np.repeat(cell_of, corners))
        return Dictionary(known, layout, sizes, given, corners)

    def cell_rows(self, rows: int) -> IntArray:
        """Return the place of each group's cell in an array of a row per cell, or one for all, (V,)."""
        if rows == 1 or self.layout.cell_of is None:
            return np.zeros(len(self.groups), dtype=np.int64)
        return self.layout.cell_of[:: self.corners]


def public_order(groups: Groups, cells: Cells) -> IntArray:
    """Return the places of the groups that have a cell, (V,), in the order of every engine.

    The order is a public function of each group alone, by the hashes of its cell's and its keys' names:
    what is kept when a bound is enforced may not depend on what else is there.
    """
    labels = cells.labels.to_pylist()
    columns = [column.to_pylist() for column in groups.columns]
    rows = list(zip(*columns, strict=True)) if columns else [()] * len(groups)

    def place(i: int) -> tuple[Any, ...]:
        marks = "".join(map(mark, rows[i]))
        return mark(labels[i]), labels[i], cells.codes[i], marks, rows[i]

    return np.array(sorted(np.flatnonzero(cells.codes >= 0).tolist(), key=place), dtype=np.int64)


def column_order(names: Iterable[int | str]) -> list[int | str]:
    """Return the names of the cells of a column in the public order, as :func:`public_order` has it."""
    return sorted(names, key=lambda name: (mark(name), name))


def mark(name: int | str) -> str:
    """Return the hash of a name: MD5 of its text, which protects nothing but is known everywhere."""
    return hashlib.md5(str(name).encode(), usedforsecurity=False).hexdigest()

"""Rows as they were read, each with its owners, before there are bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.shared_records.sharing import SharedAmounts

# Size of a number in steps up to which a float holds it exactly.
_LARGEST = 2.0**53


@dataclass(frozen=True, eq=False)
class OwnedRows:
    """Rows that have owners, and the owners of each; a person with rows in two cells is two.

    Args:
        row: (E,) the row of each pair of a row and an owner, increasing.
        person: (E,) the owner in the row's cell, once in a row.
        cell_of: (P,) the cell of each person.
        cell: (R,) the cell of each row.
        cells: the number of cells.
        number: (R,) the number of each row, finite; None where rows are counted.
    """

    row: IntArray
    person: IntArray
    cell_of: IntArray
    cell: IntArray
    cells: int
    number: FloatArray | None

    @staticmethod
    def of(
        row: IntArray,
        person: IntArray,
        held: BoolArray,
        cell: IntArray,
        cells: int,
        number: FloatArray | None,
    ) -> OwnedRows:
        """Make it of the rows that are held and have an owner.

        Args:
            row: (E,) the row of each pair, in any order.
            person: (E,) the owner; the same one may stand in a row twice.
            held: (R,) whether a row counts.
            cell: (R,) the cell of each row, from 0; of rows that are held.
            cells: the number of cells.
            number: (R,) the number of each row, or None.
        """
        mine = held[row]
        row, person = row[mine], person[mine]
        people = int(person.max(initial=-1)) + 1
        # Each pair once, by row.
        pair = np.unique(row * people + person)
        row, person = pair // max(people, 1), pair % max(people, 1)
        rows, row = np.unique(row, return_inverse=True)
        cell = cell[rows]
        inside, person = np.unique(person * cells + cell[row], return_inverse=True)
        numbers = None if number is None else number[rows]
        return OwnedRows(row, person, inside % cells, cell, cells, numbers)

    def within(self, bound: IntArray, step: FloatArray) -> SharedAmounts:
        """Return the rows with whole amounts and bounds.

        Args:
            bound: (K,) the bound of each cell, in steps.
            step: (K,) the step of each cell, a power of two.

        What a number adds beyond 0 is cut off to whole steps, and to the bound.
        """
        ones = np.ones(self.cell.size) if self.number is None else np.maximum(self.number, 0.0)
        with np.errstate(over="ignore"):
            steps = np.floor(ones / step[self.cell])
        steps = np.minimum(steps, _LARGEST).astype(np.int64)
        amount = np.minimum(steps, bound[self.cell])
        return SharedAmounts(
            amount, self.row, self.person, bound[self.cell_of], self.cell, self.cells
        )

    def of_cells(self, kept: BoolArray) -> OwnedRows:
        """Return the rows of some cells, which keep their numbers.

        Args:
            kept: (K,) whether a cell is kept.
        """
        rows = kept[self.cell]
        pairs = rows[self.row]
        place = np.cumsum(rows) - 1
        return OwnedRows(
            place[self.row[pairs]],
            self.person[pairs],
            self.cell_of,
            self.cell[rows],
            self.cells,
            None if self.number is None else self.number[rows],
        )

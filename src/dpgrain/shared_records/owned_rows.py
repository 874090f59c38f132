"""Rows with their owners, before clipping bounds are chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.shared_records.sharing import SharedAmounts

# Largest number of steps; floats represent integers up to it exactly.
_LARGEST = 2.0**53


@dataclass(frozen=True, eq=False)
class OwnedRows:
    """Rows with at least one owner; a person with rows in two cells counts as two."""

    row: IntArray  # (E,) sorted; distinct pairs with ``person``
    person: IntArray  # (E,)
    cell_of: IntArray  # (P,) cell of each person
    cell: IntArray  # (R,) cell of each row
    cells: int
    number: FloatArray | None  # (R,) finite; None for counts

    @staticmethod
    def create(
        row: IntArray,
        person: IntArray,
        owned: BoolArray,
        cell: IntArray,
        cells: int,
        number: FloatArray | None,
    ) -> OwnedRows:
        """Select the valid rows with an owner, from pairs in any order, possibly repeated."""
        mine = owned[row]
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
        """Return the rows with integer amounts, rounded down and clamped to [0, bound]."""
        ones = np.ones(self.cell.size) if self.number is None else np.maximum(self.number, 0.0)
        with np.errstate(over="ignore"):
            steps = np.floor(ones / step[self.cell])
        steps = np.minimum(steps, _LARGEST).astype(np.int64)
        amount = np.minimum(steps, bound[self.cell])
        return SharedAmounts(
            amount, self.row, self.person, bound[self.cell_of], self.cell, self.cells
        )

    def of_cells(self, included: BoolArray) -> OwnedRows:
        """Return the rows of the selected cells, which retain their indices."""
        rows = included[self.cell]
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

"""Amounts of records with several owners, and a bound for each person."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain._types import BoolArray, IntArray

# Sentinel for sums that may exceed 64 bits; all bounds are smaller.
_LARGEST = 2**63 - 1


@dataclass(frozen=True, eq=False)
class SharedAmounts:
    """Rows with amounts, their owners, and a bound for each person.

    The clipped sum is the largest Σ w·amount, 0 ≤ w ≤ 1, such that the weighted rows of each person
    add up to at most the bound. A person with rows in two cells counts as two.
    """

    amount: IntArray  # (R,) at least 0
    row: IntArray  # (E,) sorted; distinct pairs with ``person``
    person: IntArray  # (E,)
    bound: IntArray  # (P,) from 0 to 2^62
    cell: IntArray  # (R,); its owners have no rows in other cells
    cells: int

    @staticmethod
    def create(amount: IntArray, row: IntArray, person: IntArray, bound: int) -> SharedAmounts:
        """Return rows of one cell with the same bound for all people."""
        people = int(person.max()) + 1 if person.size else 0
        none = np.zeros(amount.size, dtype=np.int64)
        return SharedAmounts(amount, row, person, np.full(people, bound, dtype=np.int64), none, 1)

    def load(self) -> IntArray:
        """Return the sum of each person's amounts, (P,); sums beyond 64 bits exceed all bounds."""
        return saturating_sums(self.person, self.amount[self.row], self.bound.size)

    def owners(self) -> IntArray:
        """Return the number of owners of each row, (R,)."""
        return np.bincount(self.row, minlength=self.amount.size)

    def person_cells(self) -> IntArray:
        """Return the cell of each person, (P,)."""
        cells = np.zeros(self.bound.size, dtype=np.int64)
        cells[self.person] = self.cell[self.row]
        return cells

    def rows(self, included: BoolArray) -> SharedAmounts:
        """Return the selected rows; people retain their indices."""
        place = np.cumsum(included) - 1
        pairs = included[self.row]
        return SharedAmounts(
            self.amount[included],
            place[self.row[pairs]],
            self.person[pairs],
            self.bound,
            self.cell[included],
            self.cells,
        )


def sums_at(place: IntArray, amount: IntArray, size: int) -> IntArray:
    """Return the sum of the amounts at each index, (size,), modulo 2^64."""
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, place, amount)
    return sums


def saturating_sums(place: IntArray, amount: IntArray, size: int) -> IntArray:
    """Return the sum of amounts ≥ 0 at each index, (size,), or the 64-bit maximum."""
    rough = np.bincount(place, weights=amount, minlength=size)
    return np.where(rough < 1.5 * 2.0**62, sums_at(place, amount, size), _LARGEST)

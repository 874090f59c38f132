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

    The clipped sum of the rows is the largest Σ w·amount with 0 ≤ w ≤ 1 such that the weighted rows
    of each person add up to at most the person's bound. A person with rows in two cells counts as
    two.

    ``amount`` are integers of at least 0, (R,). ``row`` and ``person`` are the distinct pairs of a
    row and an owner, (E,), sorted by row; a row without owners is unbounded. ``bound`` are integers
    between 0 and 2^62, (P,). ``cell`` is the cell of each row, (R,); its owners have no rows in
    other cells.

    >>> two = SharedAmounts.create(np.array([5, 5]), np.array([0, 0, 1]), np.array([0, 1, 1]), 9)
    >>> two.load()
    array([ 5, 10])
    """

    amount: IntArray
    row: IntArray
    person: IntArray
    bound: IntArray
    cell: IntArray
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
    """Return the sum of the amounts at each index, (size,), modulo 2^64.

    >>> sums_at(np.array([0, 2, 2]), np.array([1, 2, 2**60]), 3)
    array([                  1,                   0, 1152921504606846978])
    """
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, place, amount)
    return sums


def saturating_sums(place: IntArray, amount: IntArray, size: int) -> IntArray:
    """Return the sum of non-negative amounts at each index, (size,), at most the 64-bit maximum.

    >>> saturating_sums(np.array([0, 1, 1]), np.array([5, 2**62, 2**62]), 2)
    array([                  5, 9223372036854775807])
    """
    rough = np.bincount(place, weights=amount, minlength=size)
    return np.where(rough < 1.5 * 2.0**62, sums_at(place, amount, size), _LARGEST)

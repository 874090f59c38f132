"""Amounts of records that people share, and the most that may count of one person."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain._types import BoolArray, IntArray

# Sum that stands for all that may be more than 64 bits hold; no bound is as large.
_LARGEST = 2**63 - 1


@dataclass(frozen=True, eq=False)
class SharedAmounts:
    """Rows with amounts, the owners of each, and a bound for each person.

    What counts of the rows is the largest Σ w·amount with 0 ≤ w ≤ 1 such that the rows of each person
    add up to the person's bound at most. A person with rows in two cells is a person of each.

    Args:
        amount: (R,) whole numbers of at least 0, what each row adds.
        row: (E,) the row of each pair of a row and an owner, increasing; a row without owners is free.
        person: (E,) the owner; an owner stands once in a row.
        bound: (P,) whole numbers of at least 0, of at most 2^62.
        cell: (R,) the cell of each row, from 0; its owners have rows in no other.
        cells: the number of cells.

    >>> two = SharedAmounts.of(np.array([5, 5]), np.array([0, 0, 1]), np.array([0, 1, 1]), 9)
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
    def of(amount: IntArray, row: IntArray, person: IntArray, bound: int) -> SharedAmounts:
        """Return rows of one cell, in which the bound of all people is the same."""
        people = int(person.max()) + 1 if person.size else 0
        none = np.zeros(amount.size, dtype=np.int64)
        return SharedAmounts(amount, row, person, np.full(people, bound, dtype=np.int64), none, 1)

    def load(self) -> IntArray:
        """Return the sum of the amounts of each person's rows, (P,), above all bounds if it is more."""
        return saturating_sums(self.person, self.amount[self.row], self.bound.size)

    def owners(self) -> IntArray:
        """Return the number of owners of each row, (R,)."""
        return np.bincount(self.row, minlength=self.amount.size)

    def cell_of_person(self) -> IntArray:
        """Return the cell of each person, (P,)."""
        cells = np.zeros(self.bound.size, dtype=np.int64)
        cells[self.person] = self.cell[self.row]
        return cells

    def rows(self, kept: BoolArray) -> SharedAmounts:
        """Return some of the rows; people keep their numbers."""
        place = np.cumsum(kept) - 1
        pairs = kept[self.row]
        return SharedAmounts(
            self.amount[kept],
            place[self.row[pairs]],
            self.person[pairs],
            self.bound,
            self.cell[kept],
            self.cells,
        )


def sums_at(place: IntArray, amount: IntArray, size: int) -> IntArray:
    """Return the sum of the amounts at each place, (size,), modulo 2^64.

    >>> sums_at(np.array([0, 2, 2]), np.array([1, 2, 2**60]), 3)
    array([                  1,                   0, 1152921504606846978])
    """
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, place, amount)
    return sums


def saturating_sums(place: IntArray, amount: IntArray, size: int) -> IntArray:
    """Return the sum of amounts of at least 0 at each place, (size,), or the largest number of 64 bits.

    >>> saturating_sums(np.array([0, 1, 1]), np.array([5, 2**62, 2**62]), 2)
    array([                  5, 9223372036854775807])
    """
    rough = np.bincount(place, weights=amount, minlength=size)
    return np.where(rough < 1.5 * 2.0**62, sums_at(place, amount, size), _LARGEST)

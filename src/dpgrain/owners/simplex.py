"""The largest sum of rows of any number of owners, in fractions: the simplex method of Bland's rule."""

from __future__ import annotations

from fractions import Fraction

from dpgrain.owners.sharing import Sharing


def largest(sharing: Sharing) -> Fraction:
    """Return the largest sum, exactly; for the few rows of which rounded numbers do not decide.

    Args:
        sharing: rows of one cell.

    >>> import numpy as np
    >>> pairs = np.repeat(np.arange(3), 2), np.array([0, 1, 1, 2, 2, 0])
    >>> largest(Sharing.of(np.array([1, 1, 1]), *pairs, 1))
    Fraction(3, 2)
    """
    rows, people = sharing.amount.size, sharing.bound.size
    limits = [*map(int, sharing.amount), *map(int, sharing.bound)]
    # A line for each limit, of which the last column is what is left; one column for each variable
    # that is not in the basis, at first the shares of rows.
    table = [[Fraction(0)] * rows + [Fraction(limit)] for limit in limits]
    for row in range(rows):
        table[row][row] = Fraction(1)
    for row, person in zip(sharing.row.tolist(), sharing.person.tolist(), strict=True):
        table[rows + person][row] = Fraction(1)
    gain = [Fraction(1)] * rows + [Fraction(0)]
    outside, basis = list(range(rows)), list(range(rows, 2 * rows + people))
    while entering := [(outside[j], j) for j in range(rows) if gain[j] > 0]:
        column = min(entering)[1]
        ratios = [
            (line[-1] / line[column], basis[i], i)
            for i, line in enumerate(table)
            if line[column] > 0
        ]
        leaving = min(ratios)[2]
        _pivot(table, gain, leaving, column)
        outside[column], basis[leaving] = basis[leaving], outside[column]
    return -gain[-1]


def _pivot(table: list[list[Fraction]], gain: list[Fraction], line: int, column: int) -> None:
    """Exchange the variable of a column for the one of a line."""
    chosen, pivot = table[line], table[line][column]
    chosen[column] = Fraction(1)
    table[line] = chosen = [value / pivot for value in chosen]
    for other in (*(each for i, each in enumerate(table) if i != line), gain):
        factor = other[column]
        if factor:
            other[column] = Fraction(0)
            for place, value in enumerate(chosen):
                if value:
                    other[place] -= factor * value

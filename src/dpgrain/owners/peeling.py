"""Rows whose share is known without solving anything, taken out of a problem.

Whoever's rows add up to the bound at most bounds nothing. A row that nobody bounds counts whole. A row
that one person alone bounds comes before those that this person shares with others who bound them: it
adds as much to the sum and takes nothing of anybody else's bound. Both may free other people, so this
is done again and again; what is left has several owners a row, whose bounds all matter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpgrain._types import IntArray
from dpgrain.owners.sharing import Sharing, added, saturated

# Rounds, at most: a long chain of people could take one for each of them, and what is left is solved.
_MOST_ROUNDS = 40


def peeled(sharing: Sharing) -> tuple[IntArray, Sharing]:
    """Take out the rows whose share is known.

    Args:
        sharing: rows of any number of owners.

    Returns:
        (K,) what these rows add in each cell, and the rows that are left, with what is left of bounds.

    Formal guarantee: the largest sum of all rows is what is taken out and the largest sum of the rest.
    Source: docs/theory, "Records with several owners".

    >>> rows = Sharing.of(np.array([4, 3, 9]), np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]), 5)
    >>> taken, rest = peeled(rows)
    >>> taken, rest.amount.size
    (array([9]), 0)
    """
    taken = np.zeros(sharing.cells, dtype=np.int64)
    cell_of = sharing.cell_of_person()
    for _ in range(_MOST_ROUNDS):
        before = sharing
        sharing = _clipped(sharing)
        tight = sharing.load() > sharing.bound
        pairs = tight[sharing.person]
        sharing = replace(sharing, row=sharing.row[pairs], person=sharing.person[pairs])
        owners = sharing.owners()
        free = owners == 0
        taken += added(sharing.cell[free], sharing.amount[free], sharing.cells)
        own = owners[sharing.row] == 1
        mine = sharing.amount[sharing.row[own]]
        wanted = saturated(sharing.person[own], mine, sharing.bound.size)
        given = np.minimum(wanted, sharing.bound)
        taken += added(cell_of, given, sharing.cells)
        sharing = replace(sharing.rows(owners > 1), bound=sharing.bound - given)
        if sharing.amount.size == before.amount.size and not given.any():
            break
    return taken, _clipped(sharing)


def _clipped(sharing: Sharing) -> Sharing:
    """Return the rows with no amount above the bound of an owner, those of none left out."""
    amount = sharing.amount.copy()
    np.minimum.at(amount, sharing.row, sharing.bound[sharing.person])
    return replace(sharing, amount=amount).rows(amount > 0)

"""The Lipschitz extension of a sum of rows that people share: nobody moves it beyond a bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpgrain._types import IntArray
from dpgrain.shared_records.flow import two_owner_flow
from dpgrain.shared_records.sharing import SharedAmounts, saturating_sums, sums_at

# Rounds, at most: a long chain of people could take one for each of them, and what is left is solved.
_MOST_ROUNDS = 40


def extension(sharing: SharedAmounts) -> IntArray:
    """Return twice the largest sum of each cell, whole numbers.

    Args:
        sharing: the rows, of two owners at most each.

    Returns:
        (K,) twice the largest sums.

    Formal guarantee: if the rows that a person owns in a cell are removed, or exchanged for others that
    the person owns, then this moves by at most twice the bound there. Source: docs/theory, "Records
    with several owners".

    >>> import numpy as np
    >>> pairs = np.repeat(np.arange(3), 2), np.array([0, 1, 1, 2, 2, 0])
    >>> extension(SharedAmounts.of(np.array([1, 1, 1]), *pairs, 1)), extension(
    ...     SharedAmounts.of(np.array([1, 1, 1]), *pairs, 2))
    (array([3]), array([6]))
    """
    taken, rest = presolve(sharing)
    taken = 2 * taken
    if not rest.amount.size:
        return taken
    # Of rows with one owner that were left, none is: each has two.
    owners = rest.person.reshape(-1, 2)
    flow = two_owner_flow(owners[:, 0], owners[:, 1], rest.amount, rest.bound)
    return taken + sums_at(rest.cell_of_person(), flow, rest.cells)


def presolve(sharing: SharedAmounts) -> tuple[IntArray, SharedAmounts]:
    """Take out the rows whose share is known.

    Args:
        sharing: rows of any number of owners.

    Returns:
        (K,) what these rows add in each cell, and the rows that are left, with what is left of bounds.

    Formal guarantee: the largest sum of all rows is what is taken out and the largest sum of the rest.
    Source: docs/theory, "Records with several owners".

    >>> rows = SharedAmounts.of(np.array([4, 3, 9]), np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]), 5)
    >>> taken, rest = presolve(rows)
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
        taken += sums_at(sharing.cell[free], sharing.amount[free], sharing.cells)
        own = owners[sharing.row] == 1
        mine = sharing.amount[sharing.row[own]]
        wanted = saturating_sums(sharing.person[own], mine, sharing.bound.size)
        given = np.minimum(wanted, sharing.bound)
        taken += sums_at(cell_of, given, sharing.cells)
        sharing = replace(sharing.rows(owners > 1), bound=sharing.bound - given)
        if sharing.amount.size == before.amount.size and not given.any():
            break
    return taken, _clipped(sharing)


def _clipped(sharing: SharedAmounts) -> SharedAmounts:
    """Return the rows with no amount above the bound of an owner, those of none left out."""
    amount = sharing.amount.copy()
    np.minimum.at(amount, sharing.row, sharing.bound[sharing.person])
    return replace(sharing, amount=amount).rows(amount > 0)

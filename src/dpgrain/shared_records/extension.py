"""Lipschitz extension of a sum of shared rows: one person changes it by at most a bound.

Rows with a known weight are removed from the problem first (:func:`presolve`). The rest is a
maximum flow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpgrain._types import IntArray
from dpgrain.shared_records.flow import two_owner_flow
from dpgrain.shared_records.sharing import SharedAmounts, saturating_sums, sums_at

# Maximum rounds of the presolve, because a chain of people takes one round per person.
_MOST_ROUNDS = 40


def extension(sharing: SharedAmounts) -> IntArray:
    """Return twice the largest clipped sum of each cell, (K,), for rows of at most two owners.

    Formal guarantee: removing or replacing the rows that a person owns in a cell changes the result
    by at most twice the bound of the cell. Source: docs/theory, "Records with several owners".

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
    # The presolve removes all rows with fewer than two owners.
    owners = rest.person.reshape(-1, 2)
    flow = two_owner_flow(owners[:, 0], owners[:, 1], rest.amount, rest.bound)
    return taken + sums_at(rest.cell_of_person(), flow, rest.cells)


def presolve(sharing: SharedAmounts) -> tuple[IntArray, SharedAmounts]:
    """Return the sum of rows with known weights in each cell, (K,), and the remaining problem.

    People with a total of at most their bound impose no constraint. Rows without constrained owners
    have weight 1. A row with exactly one constrained owner precedes the rows that this owner shares
    with other constrained owners: it adds as much to the sum, and uses no other bound. Each step
    can remove other constraints, so both are repeated. The remaining rows have several constrained
    owners.

    Formal guarantee: the largest sum of all rows is the returned sum plus the largest sum of the
    rest. Source: docs/theory, "Records with several owners".

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
        assigned = np.minimum(wanted, sharing.bound)
        taken += sums_at(cell_of, assigned, sharing.cells)
        sharing = replace(sharing.rows(owners > 1), bound=sharing.bound - assigned)
        if sharing.amount.size == before.amount.size and not assigned.any():
            break
    return taken, _clipped(sharing)


def _clipped(sharing: SharedAmounts) -> SharedAmounts:
    """Clamp amounts to the bounds of their owners, and drop rows with amount 0."""
    amount = sharing.amount.copy()
    np.minimum.at(amount, sharing.row, sharing.bound[sharing.person])
    return replace(sharing, amount=amount).rows(amount > 0)

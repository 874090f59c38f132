"""The Lipschitz extension of a sum of rows that people share: nobody moves it beyond a bound."""

from __future__ import annotations

from dpgrain._types import IntArray
from dpgrain.owners.flow import doubled
from dpgrain.owners.peeling import peeled
from dpgrain.owners.sharing import Sharing, added


def extension(sharing: Sharing) -> IntArray:
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
    >>> extension(Sharing.of(np.array([1, 1, 1]), *pairs, 1)), extension(
    ...     Sharing.of(np.array([1, 1, 1]), *pairs, 2))
    (array([3]), array([6]))
    """
    taken, rest = peeled(sharing)
    taken = 2 * taken
    if not rest.amount.size:
        return taken
    # Of rows with one owner that were left, none is: each has two.
    owners = rest.person.reshape(-1, 2)
    flow = doubled(owners[:, 0], owners[:, 1], rest.amount, rest.bound)
    return taken + added(rest.cell_of_person(), flow, rest.cells)

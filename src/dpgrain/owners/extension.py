"""The Lipschitz extension of a sum of rows that people share: nobody moves it beyond a bound."""

from __future__ import annotations

import numpy as np

from dpgrain._types import IntArray
from dpgrain.owners import program
from dpgrain.owners.flow import doubled
from dpgrain.owners.peeling import peeled
from dpgrain.owners.sharing import Sharing, added

# Bits by which the numbers of a linear program are finer than half steps.
_FINER = program.STEP_BITS - 1


def extension(sharing: Sharing, tolerance: IntArray | None = None) -> IntArray:
    """Return twice the largest sum of each cell, whole numbers.

    Args:
        sharing: the rows.
        tolerance: (K,) for rows of any number of owners, whole numbers of at least 1: how far below the
            largest sum of its cell half a number may be; None for rows of two owners at most, which
            need none.

    Returns:
        (K,) twice the largest sums, exactly or within the tolerance.

    Formal guarantee: if the rows that a person owns in a cell are removed, or exchanged for others that
    the person owns, then this moves by at most twice the bound there, and twice the tolerance. Source:
    docs/theory, "Records with several owners".

    >>> pairs = np.repeat(np.arange(3), 2), np.array([0, 1, 1, 2, 2, 0])
    >>> extension(Sharing.of(np.array([1, 1, 1]), *pairs, 1)), extension(
    ...     Sharing.of(np.array([1, 1, 1]), *pairs, 2))
    (array([3]), array([6]))
    """
    taken, rest = peeled(sharing)
    taken = 2 * taken
    if not rest.amount.size:
        return taken
    cell_of = rest.cell_of_person()
    few = rest.owners() <= 2 if tolerance is not None else np.ones(rest.amount.size, dtype=np.bool_)
    if not few.all():
        # Rows of two owners that hang together with others are solved with them.
        parts = program.parts(rest)
        many = np.zeros(int(parts.max()) + 1, dtype=np.bool_)
        many[parts[~few]] = True
        few = ~many[parts]
    if tolerance is not None and not few.all():
        found = program.floors(rest.rows(~few), tolerance)
        taken = taken + np.array([each >> _FINER for each in found], dtype=np.int64)
    pairs = rest.rows(few)
    if pairs.amount.size:
        owners = pairs.person.reshape(-1, 2)
        flow = doubled(owners[:, 0], owners[:, 1], pairs.amount, pairs.bound)
        taken = taken + added(cell_of, flow, rest.cells)
    return taken

"""Rows of three owners and more: a linear program, of which rounded numbers prove how near they are.

The solver's numbers are floats and nothing is taken on trust: of its shares whole numbers are made that
keep to all bounds, whose sum is a floor, and of its prices a ceiling by weak duality, in whole numbers,
too. Where both are too far apart the rows that hang together are solved in fractions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from dpgrain._types import FloatArray, IntArray
from dpgrain.owners import simplex
from dpgrain.owners.sharing import Sharing, added

# Bits of a step below 1 in which floors and ceilings are whole numbers, and of prices.
STEP_BITS, _PRICE_BITS = 10, 40
# Size of a factor that is a little below 1, by more than a quotient of floats is rounded.
_BELOW_ONE = 1.0 - 2.0**-40


@dataclass(frozen=True, eq=False)
class Solved:
    """Floors and ceilings of the largest sums of parts that hang together, in steps of 2^-10.

    Args:
        part: (R,) the part of each row.
        floor: the floor of each part.
        ceiling: the ceiling of each part.
    """

    part: IntArray
    floor: list[int]
    ceiling: list[int]


def floors(sharing: Sharing, tolerance: IntArray) -> list[int]:
    """Return a number at most a tolerance below the largest sum of each cell, and never above it.

    Args:
        sharing: rows of any number of owners.
        tolerance: (K,) whole numbers of at least 1, the public tolerance of each cell.

    Returns:
        A number for each cell, in steps of 2^-10.

    >>> pairs = np.repeat(np.arange(3), 2), np.array([0, 1, 1, 2, 2, 0])
    >>> floors(Sharing.of(np.array([100, 100, 100]), *pairs, 100), np.array([1])) == [150 << 10]
    True
    """
    solved = _solved(sharing)
    cell_of = np.zeros(len(solved.floor), dtype=np.int64)
    cell_of[solved.part] = sharing.cell
    result = []
    for cell, most in enumerate(tolerance.tolist()):
        parts = np.flatnonzero(cell_of == cell).tolist() if sharing.amount.size else []
        gap = {part: solved.ceiling[part] - solved.floor[part] for part in parts}
        known, open_ = Fraction(sum(solved.floor[part] for part in parts)), sum(gap.values())
        for part in sorted(parts, key=lambda each: -gap[each]):
            # Half a step, and a little, is left for numbers that are rounded down at the end.
            if open_ < (most << STEP_BITS) - (1 << STEP_BITS - 1):
                break
            exact = simplex.largest(_part(sharing, solved.part == part)) * 2**STEP_BITS
            known += exact - solved.floor[part]
            open_ -= gap[part]
        result.append(math.floor(known))
    return result


def _part(sharing: Sharing, rows: Any) -> Sharing:
    """Return some rows with the people who own them, as one cell."""
    some = sharing.rows(rows)
    people, person = np.unique(some.person, return_inverse=True)
    none = np.zeros(some.amount.size, dtype=np.int64)
    return Sharing(some.amount, some.row, person, sharing.bound[people], none, 1)


def _solved(sharing: Sharing) -> Solved:
    """Solve all parts at once, in floats, and prove how near that is."""
    rows, people = sharing.amount.size, sharing.bound.size
    pairs = np.ones(sharing.row.size), (sharing.person, sharing.row)
    owned = csr_array(pairs, shape=(people, rows))
    part = parts(sharing)
    shares, prices = np.zeros(rows), np.zeros(people)
    unit = float(max(sharing.bound.max(initial=1), 1))
    if rows:
        found: Any = linprog(
            -np.ones(rows),
            A_ub=owned,
            b_ub=sharing.bound / unit,
            bounds=np.stack([np.zeros(rows), sharing.amount / unit], axis=1),
            method="highs-ipm",
        )
        if found.x is not None and found.status == 0:
            shares, prices = np.asarray(found.x), -np.asarray(found.ineqlin.marginals)
    count = int(part.max(initial=-1)) + 1
    return Solved(
        part,
        _sums(part, _kept(sharing, np.nan_to_num(shares) * unit), count),
        _ceilings(sharing, np.nan_to_num(prices), part, count),
    )


def parts(sharing: Sharing) -> IntArray:
    """Return the part of each row: rows with a common owner are in one, (R,)."""
    rows, people = sharing.amount.size, sharing.bound.size
    joined = np.ones(sharing.row.size, dtype=np.int8), (sharing.row, rows + sharing.person)
    graph = csr_array(joined, shape=(rows + people, rows + people))
    labels = connected_components(graph, directed=False)[1][:rows]
    numbered: IntArray = np.unique(labels, return_inverse=True)[1]
    return numbered


def _kept(sharing: Sharing, shares: FloatArray) -> IntArray:
    """Return shares as whole steps, lowered until they keep to every bound, (R,)."""
    finer = replace(sharing, amount=sharing.amount << STEP_BITS, bound=sharing.bound << STEP_BITS)
    steps = np.floor(shares * 2**STEP_BITS)
    kept: IntArray = np.clip(np.minimum(steps, finer.amount), 0, None).astype(np.int64)
    load = added(finer.person, kept[finer.row], finer.bound.size)
    factor = np.where(load > finer.bound, finer.bound / np.maximum(load, 1) * _BELOW_ONE, 1.0)
    least = np.ones(kept.size)
    np.minimum.at(least, finer.row, factor[finer.person])
    kept = np.where(least < 1, np.floor(kept * least).astype(np.int64), kept)
    # Looked at once more, in whole numbers: rows of a person above the bound count nothing.
    beyond = added(finer.person, kept[finer.row], finer.bound.size) > finer.bound
    kept[finer.row[beyond[finer.person]]] = 0
    return kept


def _ceilings(sharing: Sharing, prices: FloatArray, part: IntArray, count: int) -> list[int]:
    """Return a ceiling for each part: Σ bound·price + Σ amount·(1 − its owners' prices)⁺, in steps."""
    price = np.clip(np.rint(prices * 2.0**_PRICE_BITS), 0, 2.0**_PRICE_BITS).astype(np.int64)
    paid = added(sharing.row, price[sharing.person], sharing.amount.size)
    rest = np.maximum((1 << _PRICE_BITS) - paid, 0)
    part_of = np.zeros(sharing.bound.size, dtype=np.int64)
    part_of[sharing.person] = part[sharing.row]
    bounds = _products(part_of, sharing.bound, price, count)
    amounts = _products(part, sharing.amount, rest, count)
    scale = 1 << (_PRICE_BITS - STEP_BITS)
    return [-(-(a + b) // scale) for a, b in zip(bounds, amounts, strict=True)]


def _products(part: IntArray, one: IntArray, other: IntArray, count: int) -> list[int]:
    """Return the sum of products of whole numbers of each part, of any size."""
    sums = [0] * count
    for place, a, b in zip(part.tolist(), one.tolist(), other.tolist(), strict=True):
        sums[place] += a * b
    return sums


def _sums(part: IntArray, amount: NDArray[Any], count: int) -> list[int]:
    """Return the sum of whole numbers of each part, of any size."""
    half = (1 << 20) - 1
    low, high = added(part, amount & half, count), added(part, amount >> 20, count)
    return [(b << 20) + a for a, b in zip(low.tolist(), high.tolist(), strict=True)]

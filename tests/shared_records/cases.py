"""Small hypergraphs of records and owners, their largest sums by a linear program, and odd rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement
from typing import TypeAlias

import numpy as np
from scipy.optimize import linprog

from dpgrain.shared_records.sharing import SharedAmounts

Row: TypeAlias = tuple[tuple[int, ...], int]


def sharing_of(rows: Sequence[Row], bound: int | Sequence[int], times: int = 1) -> SharedAmounts:
    row = [place for place, (owners, _) in enumerate(rows) for _ in owners]
    person = [owner for owners, _ in rows for owner in owners]
    bounds = [bound] * (max(person, default=-1) + 1) if isinstance(bound, int) else list(bound)
    none = np.zeros(len(rows), dtype=np.int64)
    return SharedAmounts(
        np.array([times * amount for _, amount in rows], dtype=np.int64),
        np.array(row, dtype=np.int64),
        np.array(person, dtype=np.int64),
        times * np.array(bounds, dtype=np.int64),
        none,
        1,
    )


def by_program(sharing: SharedAmounts) -> float:
    """The largest sum, by a linear program that knows no reductions."""
    if not sharing.amount.size:
        return 0.0
    owned = np.zeros((sharing.bound.size, sharing.amount.size))
    owned[sharing.person, sharing.row] = 1
    limits = [(0, amount) for amount in sharing.amount.tolist()]
    return -float(linprog(-np.ones(len(limits)), A_ub=owned, b_ub=sharing.bound, bounds=limits).fun)


def some_rows(rng: np.random.Generator, rows: int, people: int, owners: int) -> list[Row]:
    return [
        (
            tuple(sorted(set(rng.integers(0, people, rng.integers(1, owners + 1)).tolist()))),
            int(rng.integers(0, 8)),
        )
        for _ in range(rows)
    ]


def all_tables(people: int, most: int, owners: int, amounts: Sequence[int]) -> list[list[Row]]:
    """All tables of at most n rows; one order is enough."""
    sets = [each for size in range(1, owners + 1) for each in combinations(range(people), size)]
    kinds = [(each, amount) for each in sets for amount in amounts]
    return [
        list(rows)
        for size in range(most + 1)
        for rows in combinations_with_replacement(kinds, size)
    ]


def without(rows: Sequence[Row], person: int) -> tuple[Row, ...]:
    return tuple(row for row in rows if person not in row[0])

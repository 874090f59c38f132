"""The removed part and the rest have the largest sum of all together."""

from __future__ import annotations

import numpy as np
import pytest
from tests.shared_records.cases import by_program, sharing_of, some_rows

from dpgrain.shared_records.extension import presolve
from dpgrain.shared_records.sharing import SharedAmounts


@pytest.mark.parametrize("owners", [1, 2, 4])
def test_nothing_is_lost(owners: int) -> None:
    rng = np.random.default_rng(owners)
    for _ in range(60):
        rows = some_rows(rng, int(rng.integers(1, 9)), 5, owners)
        sharing = sharing_of(rows, rng.integers(0, 10, 5).tolist())
        taken, rest = presolve(sharing)
        assert float(taken[0]) + by_program(rest) == pytest.approx(by_program(sharing))
        assert not rest.amount.size or rest.owners().min() > 1


def test_a_chain_of_people_is_solved_whole() -> None:
    chain = [((place, place + 1), 3) for place in range(20)]
    taken, rest = presolve(sharing_of(chain, 4))
    assert rest.amount.size == 0
    assert float(taken[0]) == pytest.approx(by_program(sharing_of(chain, 4)))


def test_a_ring_is_left() -> None:
    ring = [((0, 1), 3), ((1, 2), 3), ((0, 2), 3)]
    taken, rest = presolve(sharing_of(ring, 4))
    assert taken.tolist() == [0]
    assert rest.amount.size == 3


def test_cells_are_independent() -> None:
    sharing = sharing_of([((0,), 9), ((1,), 2)], 5)
    sharing.cell[1] = 1
    two = type(sharing)(sharing.amount, sharing.row, sharing.person, sharing.bound, sharing.cell, 2)
    assert presolve(two)[0].tolist() == [5, 2]


def test_rows_exceeding_64_bits_count_up_to_the_bound() -> None:
    """With one owner, only own or also shared rows: an overflowing sum would count as small."""
    size, bound = 2**60, 2**61
    for count in (4, 8, 9, 16, 17):
        alone = np.arange(count), np.zeros(count, dtype=np.int64)
        taken, rest = presolve(SharedAmounts.create(np.full(count, size), *alone, bound))
        assert taken.tolist() == [bound]
        assert rest.amount.size == 0

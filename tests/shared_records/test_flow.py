"""Maximum flows are exact for whole numbers of any size, and half of one is the largest sum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order
from tests.shared_records.cases import by_program, sharing_of, some_rows

from dpgrain.shared_records.flow import maximum_flow, two_owner_flow

# Capacities at which a type of 32 bits, or a float, loses something.
SIZES = (7, 2**31 - 1, 2**31, 2**33, 2**53 + 1, 2**62)


def _network(seed: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    pairs = [(u, v) for u in range(8) for v in range(u + 1, 8) if rng.random() < 0.6]
    tail, head = np.array(pairs).T
    turned = rng.random(tail.size) < 0.3
    tail, head = np.where(turned, head, tail), np.where(turned, tail, head)
    capacity = np.array([int(rng.integers(0, size, endpoint=True)) for _ in pairs])
    return tail, head, capacity // 8


@pytest.mark.parametrize("size", SIZES)
def test_a_flow_is_one_and_no_other_is_larger(size: int) -> None:
    for seed in range(12):
        tail, head, capacity = _network(seed, size)
        flow = maximum_flow(tail, head, capacity, 0, 7)
        assert ((flow >= 0) & (flow <= capacity)).all()
        balance = np.zeros(8, dtype=np.int64)
        np.add.at(balance, head, flow)
        np.subtract.at(balance, tail, flow)
        assert (balance[1:7] == 0).all()
        # The sink cannot be reached through what is left: a cut proves that the flow is largest.
        ahead, back = flow < capacity, flow > 0
        places = (
            np.concatenate([tail[ahead], head[back]]),
            np.concatenate([head[ahead], tail[back]]),
        )
        left = csr_array((np.ones(places[0].size), places), shape=(8, 8))
        reached = breadth_first_order(left, 0, return_predecessors=False)
        assert 7 not in reached


@pytest.mark.parametrize("size", SIZES)
def test_three_people_in_a_ring(size: int) -> None:
    ring = np.array([0, 1, 2]), np.array([1, 2, 0])
    bound = np.full(3, size)
    assert two_owner_flow(*ring, np.full(3, size), bound).tolist() == [size] * 3
    # Two rows of one pair are one, of no more than the bound.
    twice = np.array([0, 0, 1]), np.array([1, 1, 2])
    assert sum(two_owner_flow(*twice, np.array([size, size, size]), bound).tolist()) == 2 * size
    assert two_owner_flow(*ring, np.array([size - 1, 0, 0]), bound).tolist() == [
        size - 1,
        size - 1,
        0,
    ]


def test_twice_the_largest_sum_of_random_rows() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        rows = [row for row in some_rows(rng, 9, 5, 2) if len(row[0]) == 2]
        sharing = sharing_of(rows, rng.integers(0, 10, 5).tolist())
        owners = sharing.person.reshape(-1, 2)
        result = two_owner_flow(owners[:, 0], owners[:, 1], sharing.amount, sharing.bound)
        assert int(result.sum()) == pytest.approx(2 * by_program(sharing))


def test_an_empty_network_has_no_flow() -> None:
    assert maximum_flow(np.array([0]), np.array([1]), np.array([0]), 0, 1).tolist() == [0]

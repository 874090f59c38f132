"""Nobody moves the extension by more than the bound: all small hypergraphs, both relations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order
from tests.shared_records.cases import Row, all_tables, by_program, sharing_of, some_rows, without

from dpgrain.shared_records.extension import extension, maximum_flow, two_owner_flow


def _twice(rows: Sequence[Row], bound: int) -> float:
    """Twice the extension."""
    return float(extension(sharing_of(rows, bound))[0])


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1, 2, 3])
@pytest.mark.parametrize(("people", "amounts"), [(3, (1, 2)), (4, (1,)), (4, (2,))])
def test_no_neighbours_are_farther_apart_than_the_bound(
    people: int, amounts: tuple[int, ...], bound: int
) -> None:
    # Exchanged rows: tables that agree in what a person does not own.
    ends: dict[tuple[int, tuple[Row, ...]], list[float]] = defaultdict(list)
    known: dict[tuple[Row, ...], float] = {}
    for rows in all_tables(people, 4, 2, amounts):
        known[tuple(rows)] = _twice(rows, bound)
    farthest = 0.0
    for table, twice in known.items():
        for person in range(people):
            rest = without(table, person)
            assert 0 <= twice - known[rest] <= 2 * bound, (table, person)
            ends[person, rest].append(twice)
    for values in ends.values():
        farthest = max(farthest, max(values) - min(values))
    assert farthest == 2 * bound


@pytest.mark.parametrize("owners", [1, 2])
def test_it_is_the_value_of_the_linear_program(owners: int) -> None:
    rng = np.random.default_rng(owners)
    for _ in range(100):
        rows = some_rows(rng, int(rng.integers(1, 10)), 5, owners)
        assert _twice(rows, 5) == pytest.approx(2 * by_program(sharing_of(rows, 5)), abs=2e-3)


def test_one_owner_a_row_is_the_usual_clip() -> None:
    rows = [((0,), 4), ((0,), 4), ((1,), 3), ((2,), 9)]
    assert _twice(rows, 6) == 2 * (6 + 3 + 6)


def test_it_is_the_truth_where_nobody_has_more_than_the_bound() -> None:
    rows = [((0, 1), 4), ((1, 2), 3), ((0, 2), 1), ((2,), 3)]
    assert _twice(rows, 7) == 2 * 11


# -- rules that keep some rows by what others hold are not stable --


def _first_of_each(rows: Sequence[Row], bound: int) -> list[Row]:
    """Keep a row if it is among the first of each of its owners."""
    seen: dict[int, int] = defaultdict(int)
    kept = []
    for row in rows:
        if all(seen[owner] < bound for owner in row[0]):
            kept.append(row)
        for owner in row[0]:
            seen[owner] += 1
    return kept


def _while_there_is_room(rows: Sequence[Row], bound: int) -> list[Row]:
    """Keep a row while all of its owners have room; only rows that are kept take it."""
    seen: dict[int, int] = defaultdict(int)
    kept = []
    for row in rows:
        if all(seen[owner] < bound for owner in row[0]):
            kept.append(row)
            for owner in row[0]:
                seen[owner] += 1
    return kept


def test_the_first_rows_of_each_owner_are_not_stable() -> None:
    n = 20
    rows: list[Row] = [((0, i), 1) for i in range(1, n + 1)]
    rows += [((i, n + i), 1) for i in range(1, n + 1)]
    assert len(_first_of_each(rows, 1)) == 1
    assert len(_first_of_each(without(rows, 0), 1)) == n
    assert abs(_twice(rows, 1) - _twice(without(rows, 0), 1)) <= 2


def test_rows_while_there_is_room_are_not_stable() -> None:
    n = 20
    many: list[Row] = [(tuple(range(n + 1)), 1), *(((i,), 1) for i in range(1, n + 1))]
    assert len(_while_there_is_room(many, 1)) == 1
    assert len(_while_there_is_room(without(many, 0), 1)) == n
    # With two owners a row their number moves little, and their sum does not.
    path: list[Row] = [((0, 1), 1)]
    path += [((i, i + 1), (i + 1) % 2) for i in range(1, 2 * n)]
    kept, rest = _while_there_is_room(path, 1), _while_there_is_room(without(path, 0), 1)
    assert abs(len(kept) - len(rest)) <= 1
    assert (sum(x for _, x in kept), sum(x for _, x in rest)) == (n, 0)
    assert abs(_twice(path, 1) - _twice(without(path, 0), 1)) <= 2


def test_a_name_that_goes_from_rows_that_stay_is_not_covered() -> None:
    rows: list[Row] = [((0, i), 1) for i in range(1, 101)]
    named: list[Row] = [((i,), 1) for i in range(1, 101)]
    assert (_twice(rows, 1), _twice(named, 1)) == (2, 200)


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

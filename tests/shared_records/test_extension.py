"""No one changes the extension by more than the bound: all small hypergraphs, both relations."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order
from tests.shared_records.cases import Row, all_tables, by_program, sharing_of, some_rows, without

from dpgrain.auditing.epsilon_bounds import probability_lower_bound, probability_upper_bound
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.publishing import draws
from dpgrain.shared_records.extension import (
    BoundSearch,
    extension,
    maximum_flow,
    presolve,
    two_owner_flow,
)
from dpgrain.shared_records.owned_rows import OwnedRows
from dpgrain.shared_records.sharing import SharedAmounts
from dpgrain.units import RELATIONS, Relation


def _twice(rows: Sequence[Row], bound: int) -> float:
    return float(extension(sharing_of(rows, bound))[0])


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1, 2, 3])
@pytest.mark.parametrize(("people", "amounts"), [(3, (1, 2)), (4, (1,)), (4, (2,))])
def test_no_neighbours_violate_the_bound(people: int, amounts: tuple[int, ...], bound: int) -> None:
    # Replaced rows: tables that agree on rows without the person.
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


def test_it_is_exact_if_no_person_exceeds_the_bound() -> None:
    rows = [((0, 1), 4), ((1, 2), 3), ((0, 2), 1), ((2,), 3)]
    assert _twice(rows, 7) == 2 * 11


# -- rules that count a row depending on other users' rows are not stable --


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
    """Count a row while all of its owners have room; only counted rows use it up."""
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


def test_mapping_between_remaining_rows_is_not_covered() -> None:
    rows: list[Row] = [((0, i), 1) for i in range(1, 101)]
    named: list[Row] = [((i,), 1) for i in range(1, 101)]
    assert (_twice(rows, 1), _twice(named, 1)) == (2, 200)


# Capacities at which a 32-bit type, or a float, loses digits.
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


def _pairs(rows: list[Row] | tuple[Row, ...], unit: float = 1.0) -> OwnedRows:
    row = np.array([i for i, (owners, _) in enumerate(rows) for _ in owners], dtype=np.int64)
    person = np.array([owner for owners, _ in rows for owner in owners], dtype=np.int64)
    held, cell = np.ones(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.int64)
    return OwnedRows.create(
        row, person, held, cell, 1, np.array([x * unit for _, x in rows], dtype=float)
    )


def _looks(search: BoundSearch, pairs: OwnedRows) -> list[int]:
    seen = []

    def noisy(sums: np.ndarray, scale: float, *, source: object) -> np.ndarray:
        seen.append(sums.tolist())
        # Never small, so that all are looked at.
        return sums if len(seen) == 1 else sums + 2**40

    with mock.patch.object(draws, "with_laplace", noisy):
        search.find(pairs, SeededSource(0))
    return [people for (people,) in seen[1:]]


@pytest.mark.slow
@pytest.mark.proof("search", "AboveThreshold")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("people", "most"), [(3, 4), (4, 2)])
def test_one_person_moves_a_query_by_the_sensitivity(
    people: int, most: int, relation: Relation
) -> None:
    search = BoundSearch.create(1.0, 1.0, 4.0, level="user", relation=relation)
    limit, farthest = search.sensitivity * 2**11, 0.0
    tables = all_tables(people, most, 2, (1, 2))
    looks = {tuple(table): _looks(search, _pairs(table)) for table in tables}
    groups: dict[tuple[int, tuple[Row, ...]], list[list[int]]] = defaultdict(list)
    for rows, look in looks.items():
        for person in range(people):
            rest = without(rows, person)
            if relation == "zero_out":
                groups[-1, rest] = [looks[rest], look]
                moved = np.abs(np.subtract(look, looks[rest])).max()
                assert moved <= limit
                farthest = max(farthest, float(moved))
            groups[person, rest].append(look)
    if relation == "replace":
        for values in groups.values():
            moved = np.ptp(np.array(values), axis=0).max()
            assert moved <= limit
            farthest = max(farthest, float(moved))
    # Few rows come near: two people who are full at B and have room at 2B, and a third who shares.
    assert farthest >= 2**11


def test_removal_moves_a_query_by_two_replacement_by_three() -> None:
    # Both are full at 1 and have room for a shared row at 2: a person with two such rows adds 2 to q.
    full: list[Row] = [((1,), 1), ((2,), 1)]
    # Person 3 has room at 1, although the other two are full, and none at 2: a row with it uses 1
    # of q.
    full_later: list[Row] = [((4,), 1), ((5,), 1), ((3, 4), 1), ((3, 5), 1)]
    rest = [*full, *full_later]
    more: list[Row] = [((0, 1), 1), ((0, 2), 1)]
    less: list[Row] = [((0, 3), 1)]
    search = BoundSearch.create(1.0, 1.0, 4.0, level="user", relation="zero_out")
    none, two, one = (_looks(search, _pairs([*rest, *rows]))[0] for rows in ([], more, less))
    assert (two - none, none - one) == (2 * 2**11, 2**11)
    assert two - none <= search.sensitivity * 2**11
    exchanged = BoundSearch.create(1.0, 1.0, 4.0, level="user", relation="replace")
    assert two - one == 3 * 2**11 <= exchanged.sensitivity * 2**11


def test_noise_has_the_charged_scales() -> None:
    search = BoundSearch.create(1.0, 1.0, 8.0, level="user", relation="zero_out")
    scales = []

    def noisy(sums: np.ndarray, scale: float, *, source: object) -> np.ndarray:
        scales.append(scale / 2**11)
        return sums + (2**40 if len(scales) > 1 else 0)

    with mock.patch.object(draws, "with_laplace", noisy):
        search.find(_pairs([((0,), 1)]), SeededSource(0))
    assert scales == pytest.approx([search.threshold_scale, *[search.query_scale] * 3], rel=1e-9)
    assert min(scales[1:]) >= search.query_scale
    assert scales[0] >= search.threshold_scale


def test_query_is_bounded_by_large_people_and_decreases() -> None:
    rng = np.random.default_rng(2)
    search = BoundSearch.create(1.0, 1.0, 64.0, level="user", relation="zero_out")
    for _ in range(20):
        rows: list[Row] = [
            (tuple(sorted({int(a), int(b)})), int(x))
            for a, b, x in zip(*rng.integers(0, 9, (2, 40)), rng.integers(0, 5, 40), strict=True)
        ]
        pairs = _pairs(rows)
        looks = _looks(search, pairs)
        load = pairs.within(np.array([2**40]), np.array([1.0])).load()
        assert looks == sorted(looks, reverse=True)
        for doubled, look in enumerate(looks):
            assert look <= 2**11 * (load >= 2**doubled).sum()


def test_search_ends_if_few_people_have_more() -> None:
    rows: list[Row] = [((i,), 1) for i in range(2000) for _ in range(10)]
    search = BoundSearch.create(5.0, 1.0, 2.0**20, level="user", relation="zero_out")
    found = [float(search.bounds(search.find(_pairs(rows), SeededSource(i)))[0]) for i in range(20)]
    assert min(found) == 16.0
    assert np.median(found) == 16.0
    empty = [float(search.bounds(search.find(_pairs([]), SeededSource(i)))[0]) for i in range(20)]
    assert np.median(empty) == 1.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_event_costs_the_requested_budget(relation: Relation) -> None:
    search = BoundSearch.create(0.3, 1.0, 64.0, level="element", relation=relation)
    assert 0.299 < search.event.epsilon(relation=relation) <= 0.3


# -- an audit: many cells, each a trial ---

TRIALS, LOOKS = 40_000, 8


def all_fail(search: BoundSearch, people: int) -> int:
    """In how many cells, with n people of many rows each, all of several queries fail."""
    owners = np.arange(people * TRIALS)
    pairs = OwnedRows.create(
        owners,
        owners,
        np.ones(owners.size, dtype=np.bool_),
        owners // people,
        TRIALS,
        np.full(owners.size, 2.0**LOOKS),
    )
    return int((search.find(pairs, SystemSource()) == LOOKS).sum())


@pytest.mark.proof("audit", "AboveThreshold")
@pytest.mark.parametrize("relation", RELATIONS)
def test_audit_of_private_bounds(relation: Relation) -> None:
    """Each q is larger by as much as one person moves it, so that all looks fail more often."""
    fewer, more = (1, 3) if relation == "zero_out" else (1, 4)
    scale = 2.0
    search = BoundSearch(1.0, LOOKS, fewer - 3 * scale + 1.0, scale, 1.0, "user", relation)
    hits, false = all_fail(search, more), all_fail(search, fewer)
    low, high = (
        probability_lower_bound(hits, TRIALS, 1e-8),
        probability_upper_bound(false, TRIALS, 1e-8),
    )
    claimed = search.event.epsilon(relation=relation)
    assert 0.1 * claimed < math.log(low / high) <= claimed


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

"""The bound that is found: how far one person moves what decides, and where the search ends."""

from __future__ import annotations

import math
from collections import defaultdict
from unittest import mock

import numpy as np
import pytest
from tests.shared_records.cases import Row, all_tables, without

from dpgrain.auditing.epsilon_bounds import probability_lower_bound, probability_upper_bound
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.publishing import draws
from dpgrain.shared_records.bound import BoundSearch
from dpgrain.shared_records.owned_rows import OwnedRows
from dpgrain.units import RELATIONS, Relation


def _pairs(rows: list[Row] | tuple[Row, ...], unit: float = 1.0) -> OwnedRows:
    row = np.array([i for i, (owners, _) in enumerate(rows) for _ in owners], dtype=np.int64)
    person = np.array([owner for owners, _ in rows for owner in owners], dtype=np.int64)
    held, cell = np.ones(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.int64)
    return OwnedRows.of(
        row, person, held, cell, 1, np.array([x * unit for _, x in rows], dtype=float)
    )


def _looks(search: BoundSearch, pairs: OwnedRows) -> list[int]:
    """The numbers of people, in 2^-11ths, to which noise is added."""
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
def test_one_person_moves_a_look_by_the_sensitivity(
    people: int, most: int, relation: Relation
) -> None:
    search = BoundSearch.of(1.0, 1.0, 4.0, level="user", relation=relation)
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


def test_one_person_may_move_a_look_by_two_people_and_an_exchange_by_three() -> None:
    # Both are full at 1 and have room for a shared row at 2: a person with two such rows adds 2 to q.
    full: list[Row] = [((1,), 1), ((2,), 1)]
    # Person 3 has room at 1, where the other two are full, and none at 2: a row with it takes 1 of q.
    full_later: list[Row] = [((4,), 1), ((5,), 1), ((3, 4), 1), ((3, 5), 1)]
    rest = [*full, *full_later]
    more: list[Row] = [((0, 1), 1), ((0, 2), 1)]
    less: list[Row] = [((0, 3), 1)]
    search = BoundSearch.of(1.0, 1.0, 4.0, level="user", relation="zero_out")
    none, two, one = (_looks(search, _pairs([*rest, *rows]))[0] for rows in ([], more, less))
    assert (two - none, none - one) == (2 * 2**11, 2**11)
    assert two - none <= search.sensitivity * 2**11
    exchanged = BoundSearch.of(1.0, 1.0, 4.0, level="user", relation="replace")
    assert two - one == 3 * 2**11 <= exchanged.sensitivity * 2**11


def test_noise_is_drawn_at_the_scales_that_are_billed() -> None:
    search = BoundSearch.of(1.0, 1.0, 8.0, level="user", relation="zero_out")
    scales = []

    def noisy(sums: np.ndarray, scale: float, *, source: object) -> np.ndarray:
        scales.append(scale / 2**11)
        return sums + (2**40 if len(scales) > 1 else 0)

    with mock.patch.object(draws, "with_laplace", noisy):
        search.find(_pairs([((0,), 1)]), SeededSource(0))
    assert scales == pytest.approx([search.threshold_scale, *[search.query_scale] * 3], rel=1e-9)
    assert min(scales[1:]) >= search.query_scale
    assert scales[0] >= search.threshold_scale


def test_a_look_is_at_most_the_number_of_people_with_as_much_and_does_not_grow() -> None:
    rng = np.random.default_rng(2)
    search = BoundSearch.of(1.0, 1.0, 64.0, level="user", relation="zero_out")
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


def test_the_search_ends_where_few_people_have_more() -> None:
    rows: list[Row] = [((i,), 1) for i in range(2000) for _ in range(10)]
    search = BoundSearch.of(5.0, 1.0, 2.0**20, level="user", relation="zero_out")
    found = [float(search.bounds(search.find(_pairs(rows), SeededSource(i)))[0]) for i in range(20)]
    assert min(found) == 16.0
    assert np.median(found) == 16.0
    empty = [float(search.bounds(search.find(_pairs([]), SeededSource(i)))[0]) for i in range(20)]
    assert np.median(empty) == 1.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_event_costs_what_was_asked(relation: Relation) -> None:
    search = BoundSearch.of(0.3, 1.0, 64.0, level="element", relation=relation)
    assert 0.299 < search.event.epsilon(relation=relation) <= 0.3


# -- an audit: many cells, each a trial ---

TRIALS, LOOKS = 40_000, 8


def all_fail(search: BoundSearch, people: int) -> int:
    """In how many cells, in which so many people have much, no look of several passes."""
    owners = np.arange(people * TRIALS)
    pairs = OwnedRows.of(
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
def test_audit_of_the_bounds_that_are_found(relation: Relation) -> None:
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

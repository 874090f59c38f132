"""Distances between lists of records count users and elements that differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refuses

from dpgrain.errors import ParameterError
from dpgrain.papers.distances import d_element, d_user

WORDS = "abcde"
TOPIC = {"a": "x", "b": "x", "c": "y", "d": "z"}  # "e" is a separate cell
CELLS: list[Callable[[Any], Hashable] | dict[str, str] | None] = [
    None,
    TOPIC,
    lambda word: "all",
    lambda word: word in "ab",
]


people = st.lists(st.sampled_from(WORDS), max_size=4)
rosters = st.integers(0, 4).flatmap(
    lambda n: st.tuples(*[st.lists(people, min_size=n, max_size=n)] * 2)
)


def brute_d_user(x: Sequence[str], y: Sequence[str], cell: Any) -> int:
    named = (
        (lambda word: word)
        if cell is None
        else (lambda word: cell.get(word, ("alone", word)))
        if isinstance(cell, dict)
        else cell
    )
    cells = {named(word) for word in [*x, *y]}
    parts = [[sorted(word for word in side if named(word) == c) for side in (x, y)] for c in cells]
    return sum(left != right for left, right in parts)


@given(people, people, st.sampled_from(CELLS))
def test_d_user_counts_differing_cells(x: list[str], y: list[str], cell: Any) -> None:
    assert d_user(x, y, cell) == brute_d_user(x, y, cell)


@given(people, people, people, st.sampled_from(CELLS))
def test_d_user_is_a_metric_on_multisets(
    x: list[str], y: list[str], z: list[str], cell: Any
) -> None:
    assert d_user(x, y, cell) == d_user(y, x, cell)
    assert d_user(x, z, cell) <= d_user(x, y, cell) + d_user(y, z, cell)
    assert (d_user(x, y, cell) == 0) == (sorted(x) == sorted(y))
    assert d_user(x[::-1], y, cell) == d_user(x, y, cell)


@given(people, people)
def test_a_coarser_partition_never_separates_more(x: list[str], y: list[str]) -> None:
    assert d_user(x, y, lambda word: "all") <= d_user(x, y, TOPIC) <= d_user(x, y)


@given(rosters, st.sampled_from(CELLS))
def test_d_element_is_the_minimum_over_user_orders(
    pair: tuple[list[list[str]], list[list[str]]], cell: Any
) -> None:
    sample, other = pair
    least = min(
        sum(brute_d_user(x, y, cell) for x, y in zip(sample, order, strict=True))
        for order in itertools.permutations(other)
    )
    assert d_element(sample, other, cell) == least


def test_greedy_order_is_not_always_chosen() -> None:
    # Greedy matching pairs the equal users and then pays 3; the best order pays 2.
    sample = [["a"], ["a", "b"]]
    other = [["a", "c"], ["a"]]
    assert d_element(sample, other) == 2
    assert d_element(sample, sample[::-1]) == 0


def test_the_examples_of_the_paper() -> None:
    # Figure 1: transcripts that differ in the counts of "yo" and "bro" are at distance 2.
    one = ["hello"] + ["yo"] * 3 + ["bro"] * 3
    two = ["hello"] + ["yo"] * 50 + ["bro"]
    assert d_user(one, two) == 2
    assert d_user(one, ["dear", "colleague"]) == 5
    # With one cell for everything this is user-level privacy: all users are neighbours.
    everything = dict.fromkeys([*one, *two, "dear", "colleague"], "all")
    assert d_user(one, ["dear", "colleague"], everything) == 1
    # Example 1: one word used arbitrarily more makes neighbours.
    assert d_user(one, one + ["yo"] * 1000) == 1


def test_item_without_a_cell_is_in_no_named_cell() -> None:
    assert d_user(["a"], ["x"], {"a": "x"}) == 2
    assert d_user(["a", "x"], ["a"], {"a": "x"}) == 1
    assert d_user(["a", "x"], [], {"a": "x"}) == 2


def test_lists_of_different_size_are_not_neighbours() -> None:
    with refuses("other", "not 1"):
        d_element([["a"], []], [["a"]])
    assert d_element([], []) == 0
    assert d_element([["a"], []], [["a"], ["a"]]) == 1


@given(people, people, st.sampled_from(CELLS))
def test_counts_are_repeated_records(x: list[str], y: list[str], cell: Any) -> None:
    counts = [{word: side.count(word) for word in WORDS} for side in (x, y)]
    assert d_user(counts[0], counts[1], cell) == d_user(x, counts[1], cell) == d_user(x, y, cell)
    assert d_element([counts[0]], [counts[1]], cell) == d_user(x, y, cell)


def test_counts_must_be_integers() -> None:
    for count in (-1, 0.5, "2"):
        counts: Any = {"a": count}
        with pytest.raises(ParameterError, match="records must be"):
            d_user(counts, {})

"""Norms, weights and tables of units against plain Python."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.statistics import cases
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.statistics.residuals import Residuals
from dpgrain.tables import marginal_sums
from dpgrain.tables.marginal_sums import IntPair, UnitRows, read_unit_rows

SIZES = [3, 2, 4]
WORKLOAD = [(0, 1), (1, 2), (0, 2)]
DOMAIN = {"item": pa.array(cases.ITEMS), "cell": pa.array(cases.CELLS)}


def random_units(seed: int) -> tuple[UnitRows, list[list[tuple[int, ...]]]]:
    rng = np.random.default_rng(seed)
    lengths = rng.choice([1, 1, 2, 3, 40], 30)
    rows = rng.integers(0, SIZES, (lengths.sum(), 3))
    codes = tuple(column.astype(np.uint8) for column in rows.T)
    units = np.split(rows, np.cumsum(lengths)[:-1])
    return UnitRows(codes, lengths, 2), [list(map(tuple, one.tolist())) for one in units]


def numbers(pair: IntPair) -> list[int]:
    return [
        high * 2**26 + low for high, low in zip(pair.high.tolist(), pair.low.tolist(), strict=True)
    ]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 18])
def test_squared_norms_are_sums_of_squared_counts(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marginal_sums, "_CHUNK_ROWS", chunk)
    rows, units = random_units(1)
    coefficients = Residuals.create(SIZES, WORKLOAD).coefficients
    found = numbers(rows.squared_norms(coefficients, SIZES))
    for unit, square in zip(units, found, strict=True):
        right = 0
        for part, coefficient in coefficients.items():
            counts = Counter(tuple(row[i] for i in part) for row in unit)
            right += coefficient * sum(n * n for n in counts.values())
        assert square == right


def test_weights_are_the_largest_within_the_bound() -> None:
    rows, _ = random_units(2)
    residuals = Residuals.create(SIZES, WORKLOAD)
    squares = rows.squared_norms(residuals.coefficients, SIZES)
    for bound, bits in itertools.product((1.0, 2.3, 17.0), (4, 20)):
        weights = rows.weights(squares, bound, bits, residuals.norm_bits)
        most = Fraction(bound) ** 2 * 4**bits * 2**residuals.norm_bits
        for weight, square in zip(weights.tolist(), numbers(squares), strict=True):
            assert weight**2 * square <= most
            whole = weight == 1 << bits
            assert whole or (weight + 1) ** 2 * square > most - 2**residuals.norm_bits
        assert (weights[rows.lengths == 1] == 1 << bits).all()


def test_tables_are_sums_of_weighted_rows() -> None:
    rows, units = random_units(3)
    weights = np.arange(len(units), dtype=np.int64) << 15
    found = rows.tables(weights, WORKLOAD, SIZES)
    for marginal in WORKLOAD:
        right = np.zeros([SIZES[i] for i in marginal], dtype=np.int64)
        for weight, unit in zip(weights.tolist(), units, strict=True):
            for row in unit:
                right[tuple(row[i] for i in marginal)] += weight
        assert np.array_equal(found[marginal], right)


def test_unit_of_too_many_rows_has_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marginal_sums, "MOST_ROWS", 39)
    rows, _ = random_units(4)
    residuals = Residuals.create(SIZES, WORKLOAD)
    squares = rows.squared_norms(residuals.coefficients, SIZES)
    weights = rows.weights(squares, 5.0, 20, residuals.norm_bits)
    assert ((weights == 0) == (rows.lengths == 40)).all()


def test_largest_unit_has_an_exact_norm() -> None:
    # Squares of 2^52, of equal rows.
    coefficients = Residuals.create([2, 2], [(0, 1)]).coefficients
    high = low = np.zeros(1, dtype=np.int64)
    for coefficient in coefficients.values():
        high = high + coefficient * (2**52 >> 26)
        low = low + coefficient * (2**52 & (2**26 - 1))
    assert numbers(IntPair.create(low, high)) == [sum(coefficients.values()) * 2**52]


def test_pairs_of_integers_have_distinct_values_and_roots() -> None:
    pair = IntPair.create(np.array([5, -(1 << 26), 5, (1 << 26) + 1]), np.array([0, 1 << 40, 0, 0]))
    assert numbers(pair) == [5, ((1 << 40) - 1) << 26, 5, (1 << 26) + 1]
    distinct, places = pair.distinct()
    assert [distinct[at] for at in places] == numbers(pair)
    assert len(distinct) == 3
    assert pair.roots(2).tolist() == pytest.approx([math.sqrt(one / 4) for one in numbers(pair)])


def arranged(
    rows: list[cases.Row], unit: Any, element: str | None, engine: Any
) -> list[list[tuple[str, str]]]:
    with cases.table_of(rows, threads=1, engine=engine).open_engine() as opened:
        found = read_unit_rows(opened, unit, element, DOMAIN)
    items, cells = (column.tolist() for column in found.codes)
    pairs = [(cases.ITEMS[i], cases.CELLS[j]) for i, j in zip(items, cells, strict=True)]
    ends = np.cumsum(found.lengths)
    return sorted(sorted(pairs[end - n : end]) for end, n in zip(ends, found.lengths, strict=True))


@pytest.mark.parametrize("engine", ["duckdb", InMemory], ids=str)
def test_rows_are_arranged_by_unit(engine: Any) -> None:
    rows: list[cases.Row] = [
        (1, "a", "p", 1.0), (2, "a", "q", 1.0), (1, "b", "p", 1.0), (1, "b", None, 1.0),
        (None, "a", "p", 1.0), (2, "z", "p", 1.0), (1, "a", "q", 1.0), (3, None, "p", 1.0),
    ]  # fmt: skip
    one, two, three, four = ("a", "p"), ("b", "p"), ("a", "q"), ("a", "q")
    assert arranged(rows, dg.User(), None, engine) == [[one, three, two], [four]]
    assert arranged(rows, dg.Record(), None, engine) == [[one], [three], [four], [two]]
    assert arranged(rows, dg.Element("item"), "item", engine) == [[one, three], [four], [two]]
    assert arranged(rows, dg.Element("cell"), "cell", engine) == [[one, two], [three], [four]]
    assert arranged([], dg.User(), None, engine) == []


@pytest.mark.parametrize("engine", ["duckdb", InMemory], ids=str)
def test_cells_of_columns_are_elements(engine: Any) -> None:
    rows = cases.heavy(1, [("a", "p"), ("b", "p"), ("c", "q"), ("d", "q")], 1.0, 1)
    found = arranged(rows, dg.Element("topic"), "topic", engine)
    assert found == [[("a", "p"), ("b", "p")], [("c", "q")], [("d", "q")]]
    # Items b and d have no cell.
    assert arranged(rows, dg.Element("few"), "few", engine) == [[("a", "p"), ("c", "q")]]


def test_first_elements_do_not_depend_on_other_rows() -> None:
    rows = cases.heavy(1, [("a", "p"), ("b", "p"), ("c", "q"), ("d", "q")], 1.0, 2)
    used = arranged(rows, dg.User(2, by="item"), "item", "duckdb")
    assert len(used) == 2
    others = cases.heavy(2, [("d", "r"), ("c", "r"), ("b", "r")], 1.0, 1)
    both = arranged(others + rows, dg.User(2, by="item"), "item", "duckdb")
    assert [one for one in both if one in used] == used
    left = [row for row in rows if row[1] != used[0][0][0]]
    assert used[1] in arranged(left, dg.User(2, by="item"), "item", "duckdb")

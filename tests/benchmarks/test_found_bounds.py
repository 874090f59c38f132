"""Privately chosen ranges and bounds are near the best, and results are not silently wrong."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
import pytest
from tests.real_data import needs

found_bounds: Any = importlib.import_module("benchmarks.found_bounds")

# Shapes with an obvious range, or a difficulty for a bound.
EASY = ("0/1", "small integers", "one record each", "tiny groups")


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("unit", found_bounds.UNITS)
@pytest.mark.parametrize("shape", EASY)
def test_means_of_easy_columns_are_near_the_best(shape: str, unit: str) -> None:
    lines = list(found_bounds.lines(9, [shape], ["mean by"], [unit]))
    assert np.median([line.median for line in lines]) < 2.1
    assert np.mean([line.silent for line in lines]) <= 0.15


# A cell with 10% of silently wrong numbers passes with a probability of 99.9%.
SEEDS, MOST = 8, 4


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("statistic", found_bounds.STATISTICS)
@pytest.mark.parametrize("shape", found_bounds.SHAPES)
def test_no_cell_is_often_silently_wrong(shape: str, statistic: str) -> None:
    """Twelve shapes, three units and three ε with default options."""
    rows, silent = found_bounds.rows_of(shape), {}
    for unit, epsilon in itertools.product(found_bounds.UNITS, found_bounds.EPSILONS):
        drawn = found_bounds.Draws.of(rows, shape, statistic, unit, epsilon, SEEDS)
        silent[unit, epsilon] = drawn.silent * SEEDS
    assert {cell: number for cell, number in silent.items() if number > MOST} == {}
    assert sum(silent.values()) <= 0.15 * SEEDS * len(silent)


FILES = sorted({f"{file}.parquet" for file, *_ in found_bounds.REAL.values()})


@needs(*FILES)
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("table", found_bounds.REAL)
def test_public_tables_are_not_silently_wrong(table: str) -> None:
    rows, silent = found_bounds.rows_of(table), []
    for statistic, unit in itertools.product(("mean", "sum", "std"), found_bounds.UNITS):
        silent.append(found_bounds.Draws.of(rows, table, statistic, unit, 1.0, 3).silent)
    assert np.mean(silent) <= 0.15


def test_hindsight_is_no_worse_than_the_obvious_range() -> None:
    """One record each, and answers of 0 and 1: the error of the count of ones."""
    rows = found_bounds.SHAPES["0/1"](0)
    best = found_bounds.best_error(rows, "sum", "record", 1.0)
    query = found_bounds.dg.sum.query(
        rows.table, "x", bounds=(0, 1), unit=found_bounds.dg.Record(), epsilon=1.0, delta=1e-6
    )
    assert best == pytest.approx(query.plan.expected.std_error, rel=0.01)

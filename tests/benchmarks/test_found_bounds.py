"""Privately chosen ranges and bounds are near the best, and results are not silently wrong."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

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


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("statistic", ["mean", "sum", "std"])
@pytest.mark.parametrize("unit", found_bounds.UNITS)
def test_heavy_tails_are_not_silently_wrong(statistic: str, unit: str) -> None:
    lines = list(found_bounds.lines(5, ["heavy tail"], [statistic], [unit]))
    assert np.mean([line.silent for line in lines]) <= 0.15


def test_hindsight_is_no_worse_than_the_obvious_range() -> None:
    """One record each, and answers of 0 and 1: the error of the count of ones."""
    rows = found_bounds.SHAPES["0/1"](0)
    best = found_bounds.best_error(rows, "sum", "record", 1.0)
    query = found_bounds.dg.sum.query(
        rows.table, "x", bounds=(0, 1), unit=found_bounds.dg.Record(), epsilon=1.0, delta=1e-6
    )
    assert best == pytest.approx(query.plan.expected.std_error, rel=0.01)

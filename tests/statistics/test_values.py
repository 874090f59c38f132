"""What a record adds to each sum is billed; a search finds parts that add up to more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.statistics import cases

import dpgrain as dg
from dpgrain._types import FloatArray, IntArray, Law
from dpgrain.statistics.values import AutoRange, Parts, Powers, Tree
from dpgrain.tables.engines.feed import Chunk

Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x
Pair: TypeAlias = tuple[list[Row], list[Row]]


Ask: TypeAlias = Callable[[dg.UserTable], Any]


@pytest.mark.search
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize(
    "statistic", ["mean", "variance", "quantiles", "deep quantiles", "sum above 0"]
)
def test_the_search_finds_a_split_that_adds_up_to_more_than_1(
    statistic: str, laplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = (statistic, "user", (), "public", 400.0)
    asked = cases.Asked("record", "zero_out", 3)
    assert 0.45 < cases.seen(case, asked, laplace=laplace) <= 1 + 1e-9
    real = {split: split.__call__ for split in (Powers, Tree, Parts)}

    def twice(split: Any) -> Callable[..., Chunk]:
        def made(self: Any, keys: IntArray, numbers: FloatArray) -> Chunk:
            codes, totals = real[split](self, keys, np.clip(numbers, self.low, self.high))
            return codes, 2 * (np.ones(codes.size) if totals is None else totals)

        return made

    for split in real:
        monkeypatch.setattr(split, "__call__", twice(split))
    # Two are what one was; under l1 half of what is billed is for blocks at their bound.
    assert cases.seen(case, asked, laplace=laplace) > (
        0.9 if laplace and "sum" not in statistic else 1.3
    )


@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("statistic", ["mean", "variance"])
def test_the_search_finds_a_first_corner_that_is_not_the_rest(
    statistic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = (statistic, "record", ("item",), "public", "auto")
    asked = cases.Asked("record", "zero_out", 1)
    assert 0.99 < cases.seen(case, asked) <= 1 + 1e-9
    real = Powers.__call__

    def careless(self: Powers, keys: IntArray, numbers: FloatArray | None) -> Chunk:
        codes, totals = real(self, keys, numbers)
        assert totals is not None
        corners = totals.reshape(-1, self.corners)
        # The power without its complement.
        corners[:, 0] = 1 / self.unit
        return codes, corners.ravel()

    monkeypatch.setattr(Powers, "__call__", careless)
    assert cases.seen(case, asked) > 1.1


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_false_bins_hardly_widen_the_range(law: Law) -> None:
    """Numbers from 1 to 8, and noise in 120 bins: now and then a range is wide, and hardly ever far."""
    rule, rng = AutoRange(), np.random.default_rng(4)
    counts = np.zeros(rule.edges.size - 1)
    one = int(np.flatnonzero(rule.edges == 1)[0])
    counts[one : one + 3] = 600.0
    wide = []
    for _ in range(3000):
        noise = rng.normal(size=counts.size)
        if law == "laplace":
            noise = rng.laplace(scale=math.sqrt(0.5), size=counts.size)
        low, high = rule.choose(counts + 20 * noise, 20.0, law)
        wide.append(max(-low, high) / 8)
    assert min(wide) == 1
    assert np.mean(np.array(wide) > 1) < 0.01
    assert np.mean(wide) < 2


def test_far_numbers_are_weighed_against_the_noise() -> None:
    """Less noise, or a farther tail, and the range reaches farther; either sign by itself."""
    rule = AutoRange()
    counts = np.zeros(rule.edges.size - 1)
    one = int(np.flatnonzero(rule.edges == 1)[0])
    counts[one : one + 4] = [4000.0, 2000.0, 1000.0, 500.0]
    found = [rule.weighed(counts, 9.0, noise) for noise in (1e-3, 4.0, 400.0, 1e5)]
    assert found == [(1.0, 8192.0), (1.0, 128.0), (1.0, 8.0), (1.0, 2.0)]
    mirrored = [rule.weighed(counts[::-1], 9.0, noise) for noise in (1e-3, 4.0, 400.0, 1e5)]
    assert mirrored == [(-high, -low) for low, high in found]
    both = rule.weighed(counts + counts[::-1], 9.0, 4.0)
    assert both == (-128.0, 128.0)
    nothing = rule.weighed(np.zeros(counts.size), 9.0, 4.0)
    assert nothing == (float(rule.edges[0]), float(rule.edges[-1]))


def test_a_range_that_costs_nothing_is_wider() -> None:
    rule = AutoRange()
    assert rule.widened((0.0, 8.0)) == (0.0, 16.0)
    assert rule.widened((2.0, 8.0)) == (1.0, 16.0)
    assert rule.widened((-8.0, -2.0)) == (-16.0, -1.0)
    assert rule.widened((-1.0, 2.0)) == (-2.0, 4.0)

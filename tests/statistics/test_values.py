"""What a record adds to each sum is billed; a search finds parts that add up to more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.statistics import cases

import dpgrain as dg
from dpgrain._types import FloatArray, IntArray
from dpgrain.statistics.values import Powers, SignParts, Tree
from dpgrain.tables.engines.feed import Chunk

Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x
Pair: TypeAlias = tuple[list[Row], list[Row]]


Ask: TypeAlias = Callable[[dg.UserTable], Any]


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
    real = {split: split.__call__ for split in (Powers, Tree, SignParts)}

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

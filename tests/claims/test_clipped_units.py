"""The search for neighbours that change the numbers of clipped units by more than is charged."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.statistics import cases

from dpgrain.publishing import Promise
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.plan import SumsDesign, calibrate_sums
from dpgrain.tables.engines import kernel
from dpgrain.units import RELATIONS, Relation

UNITS = ["own", "function", "column", "made", "user", "capped", "capped column"]
STATISTICS = ["count", "sum", "sum above 0"]


def clipped_units_only(case: Any, asked: cases.Asked, laplace: bool = False) -> float:
    """The largest share of the charge of the counts that some pair shows."""
    statistic, name, keys, domain, clip = case
    shape = cases.Shape(keys, domain, clip)
    ask = cases.question(statistic, name, shape, asked.relation, laplace=laplace)
    worst = 0.0
    for left, right in cases.crafted_pairs(name, asked):
        # The numbers of units are drawn just before the sums.
        one, two = (cases.noised(ask, rows, cases.Outcome())[0][-2] for rows in (left, right))
        assert one.event == two.event
        assert one.event is not None
        worst = max(worst, cases.ratio(one, two, asked, one.event))
    return worst


@pytest.mark.slow(cases=8)
@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("keys", [(), ("item",), ("item", "cell")])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_no_unit_changes_unit_counts_beyond_the_charge(
    statistic: str, name: str, relation: Relation, keys: tuple[str, ...], laplace: bool
) -> None:
    asked = cases.Asked(cases.own_level(name), relation, 2 if "own" in name else 1)
    case = (statistic, name, keys, "public", "auto")
    assert clipped_units_only(case, asked, laplace) <= 1 + 1e-9


def unscaled(self: Any, sums: Any, grid: Any, unit: float) -> Any:
    return np.full(sums.size, int(grid.radius[0]))


def test_the_search_finds_units_counted_fully_in_each_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = cases.Asked("user", "zero_out", 1)
    case = ("count", "user", ("item",), "public", "auto")
    assert 0.98 < clipped_units_only(case, asked) <= 1 + 1e-9
    real = kernel.clipped_units

    def careless(*arguments: Any, **options: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel._Blocks, "clip", unscaled)
            real(*arguments, **options)

    monkeypatch.setattr(kernel, "clipped_units", careless)
    assert clipped_units_only(case, asked) > 1.4


def test_search_finds_units_charged_like_scalar_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replaced user may leave the complete units for the clipped ones: √2, not 1."""
    asked = cases.Asked("user", "replace", 1)
    case = ("sum above 0", "user", (), "public", AutoClip(low=2.0**-10, high=8.0))
    assert 0.98 < clipped_units_only(case, asked) <= 1 + 1e-9

    def wrong(design: SumsDesign, promise: Promise) -> Any:
        noise = calibrate_sums(design, promise)
        assert noise.clipped is not None
        event = dataclasses.replace(noise.clipped, contribution=design.contribution)
        return dataclasses.replace(noise, clipped=event)

    monkeypatch.setattr("dpgrain.statistics.sums_query.calibrate_sums", wrong)
    assert clipped_units_only(case, asked) > 1.4

"""A plan matches its release: its charges, and its errors before any row is read."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from tests.refusals import refuses
from tests.statistics import histograms

import dpgrain as dg
from dpgrain.accounting import Contribution, Selection
from dpgrain.publishing.promise import Promise
from dpgrain.statistics.plan import (
    SumsDesign,
    calibrate_sums,
    grid_bits,
    plan_histogram,
    select_by_threshold,
    select_in_rounds,
)
from dpgrain.units import RELATIONS, Relation, Unit, User

Row: TypeAlias = tuple[int, str, str | None, float]  # user, item, cell, weight


def test_a_replaced_record_changes_two_indicators() -> None:
    plan = plan_histogram(unit=dg.Record(), epsilon=1, delta=1e-6, clip=1.0, relation="replace")
    assert isinstance(plan.select, Selection)
    assert plan.select.contribution.sensitivity(1, "replace") == math.sqrt(2)
    rows = histograms.table_of([(1, "a", "p", 1.0)])
    release = dg.histogram(
        rows, "item", unit=dg.Record(), epsilon=1, delta=1e-6, clip=1.0, relation="replace"
    )
    select = release.guarantee.event.events[0]  # type: ignore[attr-defined]
    assert isinstance(select, Selection)
    assert select.contribution.sensitivity(1, "replace") == math.sqrt(2)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_an_exchanged_block_of_one_number_changes_two_bins(noise: Any) -> None:
    for unit, items, cells in ((dg.User(), 1, None), (dg.Element("item"), 3, 3)):
        plan = plan_histogram(
            unit=unit, epsilon=1.0, delta=0.0 if noise == "laplace" else 1e-6, relation="replace",
            noise=noise, items=items, cells=cells,
        )  # fmt: skip
        assert plan.bounds is not None
        moved = plan.bounds.contribution.sensitivity(1, "replace")
        assert moved == pytest.approx(2.0 if noise == "laplace" else math.sqrt(2.0))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_record_sensitivity_includes_two_grid_steps_per_item(noise: Any) -> None:
    items, value, clip = 16, 1.0, 4.0
    promise = Promise.of(dg.User(), 1.0, 0.0 if noise == "laplace" else 1e-6, "zero_out", None)
    contribution = Contribution("user", norm="l1" if noise == "laplace" else "l2")
    plan = calibrate_sums(
        SumsDesign(contribution, noise, clip, items=items, record_value=value), promise
    )
    # A block is at most 2^bits steps long, and half as many at least.
    step = 2.0 ** (1 - grid_bits(plan.sums.noise_multiplier))
    rounded = items if noise == "laplace" else math.sqrt(items)
    size = plan.sums.contribution.record_size
    assert size is not None
    assert size - value / clip == pytest.approx(2 * step * rounded, rel=1e-6)


def test_noise_is_within_the_printed_95_percent() -> None:
    asked: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "items": 1, "clip": 2.0}
    laplace = plan_histogram(**asked, noise="laplace")
    gaussian = plan_histogram(**asked, delta=1e-6)
    for plan in (laplace, gaussian):
        printed = re.search(r"95% of estimates within: ±([0-9.]+)", str(plan))
        assert printed is not None
        assert float(printed[1]) == pytest.approx(plan.radius, rel=1e-4)
    scale = 2.0 * laplace.sums.noise_multiplier
    assert math.exp(-laplace.radius / scale) == pytest.approx(0.05)
    assert math.erfc(gaussian.radius / gaussian.std_error / math.sqrt(2)) == pytest.approx(0.05)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("clip", [2.0, "auto"])
@pytest.mark.parametrize("name", ["mapping", "column", "user", "capped mapping", "capped column"])
def test_plan_agrees_with_the_release(name: str, clip: Any, noise: Any, relation: Relation) -> None:
    options: dict[str, Any] = {
        "unit": histograms.UNITS[name], "epsilon": 1.0, "delta": 0.0 if noise == "laplace" else 1e-6,
        "relation": relation, "clip": clip, "noise": noise,
    }  # fmt: skip
    by_column = name.endswith("column")
    cells = None if by_column or name == "user" else 3
    plan = plan_histogram(**options, items=4, cells=cells, cell_of_item=not by_column)
    table = histograms.table_of([(1, "a", "p", 1.0)])
    release = dg.histogram(table, "item", domain=histograms.ITEMS, weight="w", **options)
    assert release.guarantee.event == plan.event
    np.testing.assert_allclose(release.std_error / release.clip * (plan.clip or 1), plan.std_error)
    if noise == "gaussian":
        unknown = plan_histogram(**options, cell_of_item=not by_column)
        if "mapping" not in name:
            done = dg.histogram(table, "item", weight="w", **options)
            assert done.guarantee.event == unknown.event
        assert "items are selected from" in str(unknown)
    assert f"({relation})" in str(plan)


UNITS: tuple[Unit, ...] = (dg.Record(), dg.Element(), dg.User(), dg.User(3))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("noise", "items"),
    # Items are selected with only Gaussian noise.
    [("gaussian", None), *itertools.product(("gaussian", "laplace"), (1, 50))],
)
@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_parts_together_spend_exactly_the_budget(
    unit: Unit, items: int | None, noise: Any, relation: Relation
) -> None:
    delta = 0.0 if noise == "laplace" else 1e-6
    clips: tuple[Any, ...] = (2.0, "auto")
    for epsilon, clip, by_item in itertools.product((0.1, 3.0), clips, (True, False)):
        asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "relation": relation}
        plan = plan_histogram(
            unit=unit, clip=clip, noise=noise, items=items, cell_of_item=by_item, **asked
        )
        told = plan.event.epsilon(delta or None, relation=relation, unit=unit)
        assert 0.9 * epsilon < told <= epsilon


@pytest.mark.parametrize("unit", UNITS[:3], ids=repr)
def test_threshold_leaks_no_more_than_charged(unit: Unit) -> None:
    contribution = Contribution(block=unit.level)
    for noise, leak, items in itertools.product((0.3, 7.0, 912.5), (1e-3, 1e-7, 3e-13), (1, 40)):
        event = select_by_threshold(noise, leak, items, contribution, "zero_out", unit)
        assert 0.999 * leak < event.loss(1, "zero_out", unit).leak <= leak


@pytest.mark.usefixtures("_no_rows_are_read")
def test_other_parameter_errors() -> None:
    with refuses("table", "come"):
        dg.histogram({}, "item", **histograms.GOOD)  # type: ignore[arg-type]
    users = dg.read(pa.table({"item": [1, 2]}))
    with refuses("unit", "Record"):
        dg.histogram(users, "item", **histograms.GOOD)
    with refuses("domain", "64"):
        dg.histogram(users, "item", **{**histograms.GOOD, "unit": dg.Record(), "domain": [2**63]})
    with refuses("domain", "'a'"):
        dg.histogram(users, "item", **{**histograms.GOOD, "unit": dg.Record(), "domain": ["a"]})
    with refuses("items", "Laplace"):
        plan_histogram(unit=dg.User(), epsilon=1, noise="laplace")
    with refuses("unit", "Record"):
        plan_histogram(unit="user", epsilon=1, delta=1e-6)  # type: ignore[arg-type]
    for max_elements in (0, -1, 2.5, "3", True):
        with refuses("max_elements", "integer"):
            dg.User(max_elements)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.01, 5.0, 1e4, 5e6])
@pytest.mark.parametrize("items", [None, 7, 10**7, 10**12])
def test_item_user_gives_it_a_step_in_two_rounds(noise: float, items: int | None) -> None:
    part = Contribution(block="user")
    first, again = select_in_rounds(noise, 1e-7, items, part, "zero_out", User())
    assert again.first == first
    assert first.loss().leak + again.loss().leak <= 1e-7
    assert 1 / first.noise_multiplier**2 + 1 / again.noise_multiplier**2 <= 1 / noise**2
    steps = 2.0 ** grid_bits(first.noise_multiplier)
    assert steps / math.sqrt(first.max_items) >= 2.0
    assert first.max_items <= (1 << 25 if items is None else items)

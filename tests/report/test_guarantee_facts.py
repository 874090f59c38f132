"""Odds and granularities of a guarantee, as reports show them."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.report import cases

import dpgrain as dg
from dpgrain.accounting import (
    RDP,
    Contribution,
    Event,
    Gaussian,
    Laplace,
    Parallel,
    PureDP,
    SampledGaussian,
    Selection,
)
from dpgrain.report.guarantee_facts import curve_table, granularity_rows
from dpgrain.units import Relation


@pytest.mark.slow
def test_the_sentence_of_the_guarantee_is_in_it(tmp_path: Path) -> None:
    release = cases.histogram(["yo", "bro"])
    assert str(release.guarantee).replace("'", "&#39;") in cases.page(release, tmp_path)


@pytest.mark.slow
def test_delta_is_shown_as_one_in_n(tmp_path: Path) -> None:
    release = cases.histogram(["yo"])
    release = replace(release, guarantee=replace(release.guarantee, delta=1e-9))
    assert "which is 1 in 1,000,000,000" in cases.page(release, tmp_path)


@pytest.mark.slow
def test_empty_guarantee_is_reported(tmp_path: Path) -> None:
    page = cases.page(cases.histogram(["yo"]), tmp_path)
    assert "∞ (no guarantee)" in page
    lost = cases.histogram(["yo"], Gaussian(1.0, Contribution(block="record")))
    assert "At this δ nothing is guaranteed." in cases.page(lost, tmp_path)


class TestGrains:
    @pytest.mark.slow
    def test_record_costing_more_than_its_element_is_explained(self, tmp_path: Path) -> None:
        event = Gaussian(4.0, Contribution(coordinates="nonnegative"))
        promise = dg.Guarantee("element", "'word'", "zero_out", 1e-6, event)
        element, record, *others = granularity_rows(promise, {})
        assert [row.is_guaranteed for row in (element, record)] == [True, False]
        assert record.odds[0].epsilon > element.odds[0].epsilon
        assert record.why.startswith("more than a whole element: if only a part of a whole element")
        assert not element.why
        assert not any(row.why for row in others)
        page = cases.page(replace(cases.histogram(["yo"]), guarantee=promise), tmp_path)
        assert re.search(r'<th scope="row">one record<small>more than a whole element', page)

    def test_record_costing_no_more_is_not_explained(self) -> None:
        promise = cases.histogram(["yo"]).guarantee
        element, record, *_ = granularity_rows(promise, {})
        assert record.odds[0].epsilon <= element.odds[0].epsilon
        assert not record.why


EVENTS: dict[str, Event] = {
    "gaussian": Gaussian(4.0),
    "few cells": Gaussian(4.0, Contribution(cells=12)),
    "selected": Selection(8.0, 45.0, 1) + Gaussian(4.0),
    "shared": Gaussian(9.0, Contribution(layout="shared", max_elements=8)),
    "pure": Laplace(4.0, Contribution(norm="l1")),
    "sampled": SampledGaussian(1.5, 0.02, 60),
}


def _promise(name: str, relation: Relation = "zero_out") -> dg.Guarantee:
    delta = 0.0 if name == "pure" else 2e-6
    return dg.Guarantee("element", "'word'", relation, delta, EVENTS[name])


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_no_number_of_units_shows_too_small_epsilon(name: str, relation: Relation) -> None:
    promise = _promise(name, relation)
    table = curve_table(promise)
    # Numerical composition is slow.
    slow = name == "sampled"
    columns = [table.own] if slow else range(len(table.deltas))
    for units in [1, 3, 40] if slow else range(1, table.max_units + 1):
        for column in columns:
            told = table.at(units, column)
            assert told is not None
            assert told.epsilon >= promise.epsilon(table.deltas[column], units=units)
    assert table.at(table.max_units + 1, 0) is None


@pytest.mark.parametrize(
    "event",
    [
        RDP((2.0, 8.0), (0.05, 0.3), level="user"),
        Parallel((Gaussian(4.0, Contribution("user")), PureDP(0.8))),
    ],
    ids=["Rényi", "parallel"],
)
def test_no_risk_is_below_the_guarantees(event: Event) -> None:
    promise = dg.Guarantee("user", "", "zero_out", 1e-6, event)
    for row in curve_table(promise).rows:
        own, told = promise.risk(units=row.units), row.odds[0].risk
        assert told is not None
        for name in ("guess", "detection", "posterior", "mu"):
            assert getattr(told, name) >= getattr(own, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVENTS)
def test_its_lines_are_the_guarantee_s_own(name: str) -> None:
    promise = _promise(name)
    table = curve_table(promise)
    assert table.deltas[table.own] == promise.delta
    assert list(table.deltas) == sorted(table.deltas, reverse=True)
    for row in table.rows:
        own = promise.epsilon(units=row.units)
        assert row.odds[table.own].epsilon == pytest.approx(own, rel=1e-9)
    grid = np.array([[odds.epsilon for odds in row.odds] for row in table.rows])
    # More units cost no less, and neither does a smaller δ.
    finite = np.where(np.isinf(grid), 1e300, grid)
    assert (np.diff(finite, axis=0) >= 0).all()
    assert (np.diff(finite, axis=1) >= 0).all()


def test_it_ends_at_the_cells() -> None:
    assert [row.units for row in curve_table(_promise("few cells")).rows][-2:] == [10, 12]
    assert curve_table(_promise("gaussian")).max_units == 100


def test_missing_guarantee_is_reported() -> None:
    table = curve_table(_promise("selected"))
    last = table.rows[-1].odds[-1]
    assert last.is_infinite
    assert last.text == "∞"
    assert math.isinf(_promise("selected").epsilon(1e-9, units=100))


def test_a_release_of_several_levels_has_one() -> None:
    event = Gaussian(4.0, Contribution(block="user")) + Gaussian(4.0, Contribution(block="record"))
    promise = dg.Guarantee("record", "", "zero_out", 1e-6, event)
    assert curve_table(promise).what == "records of one person"
    assert curve_table(promise).rows[0].odds[3].epsilon == promise.epsilon(1e-6)

"""Odds and granularities of a guarantee, as reports show them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report import cases

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.report.guarantee_facts import granularity_rows


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

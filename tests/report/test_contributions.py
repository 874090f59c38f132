"""A report shows the contributions per protected unit."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.report import cases

import dpgrain as dg
from dpgrain._formatting import powers, rounded_up
from dpgrain.report import report as write_report


class TestHoldings:
    def _holdings(
        self, table: dg.UserTable, unit: dg.Element | dg.User, **more: Any
    ) -> dg.Holdings:
        budget: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-7, **more}
        return dg.elements_per_user(table, "year", unit=unit, **budget)

    def _release(self, table: dg.UserTable, **more: Any) -> dg.Histogram:
        unit = more.pop("unit", dg.Element("year"))
        return dg.count(table, by="year", unit=unit, epsilon=1, delta=1e-6, clip=9.0, **more)

    @pytest.mark.slow
    def test_they_are_next_to_the_curve(self, scores: dg.UserTable, tmp_path: Path) -> None:
        release = self._release(scores, domain=list(range(2000, 2030)))
        holdings = self._holdings(scores, dg.Element("year"))
        path = release.report(tmp_path / "r.html", holdings)
        page = path.read_text(encoding="utf-8")
        line = r"at most (\d+) elements<small>([\d.]+)% of users \(noisy\)</small></th>"
        shares = dict(re.findall(line, page))
        assert list(shares) == ["5", "20"]
        share = shares["5"]
        assert float(share) == pytest.approx(100 * holdings.share_at_most(5), abs=0.5)
        assert f"about {share}% have at most 5 elements" in page
        assert "noisy share of users with at most this number" in page
        assert "from a second release (below)" in page
        both = release.guarantee + holdings.guarantee
        for promise in (release.guarantee, holdings.guarantee, both):
            assert html.escape(str(promise)).replace("&#x27;", "&#39;") in page
        assert f"ε = {rounded_up(both.epsilon())} at δ = {powers(both.delta)}" in page

    def test_they_must_be_of_the_same_partition(self, scores: dg.UserTable, tmp_path: Path) -> None:
        release = self._release(scores, domain=[2023, 2024])
        with refuses("holdings", "partition"):
            release.report(tmp_path / "r.html", self._holdings(scores, dg.User()))
        with refuses("holdings", "elements_per_user"):
            write_report(release, tmp_path / "r.html", holdings=release)
        assert not list(tmp_path.iterdir())

    @pytest.mark.slow
    def test_promises_of_other_relations_are_not_added(
        self, scores: dg.UserTable, tmp_path: Path
    ) -> None:
        release = self._release(scores, domain=[2023, 2024])
        holdings = self._holdings(scores, dg.Element("year"), relation="replace")
        page = release.report(tmp_path / "r.html", holdings).read_text(encoding="utf-8")
        assert "are not added up here" in page
        assert html.escape(str(holdings.guarantee)).replace("&#x27;", "&#39;") in page

    @pytest.mark.slow
    def test_seeded_holdings_sound_the_alarm(self, scores: dg.UserTable, tmp_path: Path) -> None:
        release = self._release(scores, domain=[2023, 2024])
        holdings = self._holdings(scores, dg.Element("year"), random_state=1)
        page = release.report(tmp_path / "r.html", holdings).read_text(encoding="utf-8")
        assert "<title>NOT PRIVATE" in page
        assert "NOT PRIVATE. Do not publish." in page
        assert "A private count" in page

    @pytest.mark.slow
    def test_records_are_reported_without_elements(
        self, scores: dg.UserTable, tmp_path: Path
    ) -> None:
        release = self._release(scores, domain=[2023, 2024], unit=dg.User())
        holdings = self._holdings(scores, dg.User())
        page = release.report(tmp_path / "r.html", holdings).read_text(encoding="utf-8")
        assert "have at most 5 records" in page

    @pytest.mark.slow
    @pytest.mark.parametrize("unit", [dg.Record(), dg.Element("year")])
    def test_flat_curve_is_reported_as_flat(
        self, unit: dg.Record | dg.Element, scores: dg.UserTable, tmp_path: Path
    ) -> None:
        holdings = dg.elements_per_user(scores, "year", unit=unit, epsilon=1, delta=1e-6)
        page = cases.page(holdings, tmp_path)
        assert "together are protected equally" in page
        assert "the guarantee for all of them together" not in page
        page = cases.page(self._release(scores, unit=unit, domain=[2023, 2024]), tmp_path)
        assert "together are protected equally" not in page
        assert "the guarantee for all of them together" in page

    def test_too_few_users_have_no_shares(self, words: dg.UserTable, tmp_path: Path) -> None:
        release = dg.count(words, by="word", unit=dg.Element("word"), epsilon=1, delta=1e-6)
        holdings = dg.elements_per_user(words, unit=dg.Element("word"), epsilon=0.01, delta=1e-6)
        estimate = np.zeros(len(holdings))
        holdings = replace(holdings, estimate=estimate)
        page = release.report(tmp_path / "r.html", holdings).read_text(encoding="utf-8")
        assert "no shares are visible above the noise" in page
        assert "of users (noisy)" not in page
        assert "users with at most this number" not in page

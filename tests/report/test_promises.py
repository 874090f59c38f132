"""Odds and granularities of a promise, as a page tells them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tests.report import cases

from dpgrain.accounting import Contribution, Gaussian
from dpgrain.report.promises import Odds


def test_the_sentence_of_the_guarantee_is_in_it(tmp_path: Path) -> None:
    release = cases.histogram(["yo", "bro"])
    assert str(release.guarantee).replace("'", "&#39;") in cases.page(release, tmp_path)


def test_a_delta_is_told_as_one_in_so_many(tmp_path: Path) -> None:
    release = cases.histogram(["yo"])
    release = replace(release, guarantee=replace(release.guarantee, delta=1e-9))
    assert "that is 1 in 1,000,000,000, for" in cases.page(release, tmp_path)


def test_a_promise_that_is_none_says_so(tmp_path: Path) -> None:
    page = cases.page(cases.histogram(["yo"]), tmp_path)
    assert "∞ (no promise)" in page
    lost = cases.histogram(["yo"], Gaussian(1.0, Contribution(block="record")))
    assert "At this δ nothing is promised." in cases.page(lost, tmp_path)


class TestOdds:
    def test_the_odds_of_one(self) -> None:
        odds = Odds(1.0, 1e-6)
        assert odds.factor == "2.72"
        assert (odds.after(0.5), odds.after(0.01)) == ("73.2%", "2.7%")
        # e·0.05 + 10⁻⁶ = 0.135915…
        assert odds.caught(0.05) == "13.6%"

    def test_the_other_line_binds_at_large_epsilon(self) -> None:
        # e³·0.05 > 1, but 1 − e^{−3}·0.95 = 0.952702…
        assert Odds(3.0, 0.0).caught(0.05) == "95.3%"

    def test_the_best_test_of_a_gaussian_stays_below(self) -> None:
        from scipy.stats import norm

        mu, delta = 0.7, 1e-5
        epsilon = Gaussian(1 / mu).epsilon(delta)
        power = norm.sf(norm.isf(0.05) - mu)
        assert power * 100 < float(Odds(epsilon, delta).caught(0.05).rstrip("%"))

    def test_no_bound(self) -> None:
        assert Odds(math.inf, 0.0).factor == "no limit"
        assert Odds(800.0, 0.0).after(0.01) == "100%"
        assert Odds(800.0, 0.0).caught(0.05) == "100%"

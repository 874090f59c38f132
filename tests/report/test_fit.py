"""The report of a fit shows the smallest possible error."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report import sums

import dpgrain as dg
from dpgrain import learn
from dpgrain.papers.floors import min_error_of_records, min_error_of_worlds
from dpgrain.planning.shuffle_plans import (
    honest_shares,
)
from dpgrain.report import report as write_report
from dpgrain.units import Trust

LIMITED: dict[str, dict[str, object]] = {
    "whole users": {},
    "drawn": {"sampling_rate": 0.3},
    "a stated roster": {"n_users": 40, "elements_per_user": 0.8},
    "with intervals": {"intervals": 0.2, "elements_per_user": "auto"},
}


class TestLimitsOfAFit:
    @staticmethod
    def fitted(**options: object) -> learn.LinearRegression:
        rows = np.random.default_rng(7).normal(size=(120, 3))
        users = np.repeat(np.arange(40), 3)
        asked: dict[str, Any] = {"rounds": 4, "epsilon": 0.2, "relation": "replace", **options}
        return learn.LinearRegression(**asked).fit(rows, rows[:, 0], users=users)

    @pytest.mark.slow
    @pytest.mark.parametrize("options", LIMITED.values(), ids=LIMITED)
    def test_report_shows_the_floors(self, options: dict[str, object], tmp_path: Path) -> None:
        model = self.fitted(**options)
        page = write_report(model, tmp_path / "fit.html").read_text(encoding="utf-8")
        part = page[
            page.index("<summary>Limits</summary>") : page.index("<summary>Public facts</summary>")
        ]
        # The divisor of sums: as stated, or as released.
        n = model.n_users_
        assert f"for {n:,} users" in part
        cells = [re.findall(r'<td class="number">([^<]*)', row) for row in part.split("<tr>")[2:]]
        assert [row[0] for row in cells] == ["1", "10", "100", "any number"]
        epsilon, history = model.guarantee_.epsilon(), model.history_
        # Four coordinates, with the intercept, and the rounds with this clipping bound.
        noise = history.noise_sd * 2 / history.clip / math.sqrt(model.n_iter_)
        for records, row in zip((1, 10, 100), cells, strict=False):
            floor = min_error_of_records(
                epsilon, 1e-6, n, records=records, dimension=4, relation="replace"
            )
            assert float(row[2]) == pytest.approx(floor, rel=1e-3)
            assert float(row[3]) == pytest.approx(noise / floor, rel=1e-2)
            order = 2 / (n * epsilon * math.sqrt(records))
            assert float(row[1].removeprefix("order of ")) == pytest.approx(order, rel=0.34)
        always = 2 * math.sqrt(min_error_of_worlds(epsilon, 1e-6, n, relation="replace"))
        if always:
            assert float(cells[3][2]) == pytest.approx(always, rel=1e-3)
        else:
            assert cells[3][2] == "no floor above 1e-300"
        assert cells[3][1] == "–"

    @pytest.mark.slow
    def test_other_fits_have_none(self, tmp_path: Path) -> None:
        page = write_report(self.fitted(unit=dg.Record()), tmp_path / "fit.html")
        assert "<summary>Limits</summary>" not in page.read_text(encoding="utf-8")


class TestFits:
    @staticmethod
    def page(trust: Trust, folder: Path) -> tuple[dg.Guarantee, sums.Written]:
        rows = np.random.default_rng(7).normal(size=(400, 2))
        model = learn.LinearRegression(
            trust=trust, clip=1.0, epsilon=2.0, n_users=400, random_state=1
        )
        model.fit(rows, rows[:, 0], users=np.arange(400))
        path = model.report(folder / "fit.html")
        return model.guarantee_, sums.Written(
            sums.PROTOCOLS["vectors"], path.read_text(encoding="utf-8")
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("clip", [None, 1.0])
    def test_report_and_guarantee_show_equal_rounds(
        self, clip: float | None, tmp_path: Path
    ) -> None:
        rows = np.random.default_rng(7).normal(size=(400, 2))
        model = learn.LinearRegression(clip=clip, rounds=15).fit(rows, rows[:, 0])
        fit = sums.Written(
            sums.PROTOCOLS["vectors"], model.report(tmp_path / "fit.html").read_text("utf-8")
        )
        told = dict(row for row in fit.rows("asked") if len(row) == 2)["Rounds"]
        assert "15 rounds with all blocks" in str(model.guarantee_)
        if clip is None:
            assert told == "15: 3 that search for the solution, and 12 after them"
            assert "The first 3 of 15 rounds searched for the solution" in fit.text
        else:
            assert told == "15"
            assert "The model was computed in 15 rounds. In each" in fit.text

    @pytest.mark.slow
    def test_shuffled_fit_reports_the_effect_of_dishonest_devices(self, tmp_path: Path) -> None:
        promise, fit = self.page("shuffle", tmp_path)
        rows = fit.rows("honest")
        assert [row[0] for row in rows] == ["100%", "90%", "75%", "50%", "20%", "10%"]
        assert [row[1] for row in rows] == [sums.shown(e) for _, e in honest_shares(promise)]
        assert rows[0][1] == sums.shown(promise.epsilon())
        epsilons = [epsilon for _, epsilon in honest_shares(promise)]
        assert epsilons == sorted(epsilons)
        assert epsilons[0] < epsilons[1]

    @pytest.mark.slow
    def test_pan_private_fit_reports_one_state(self, tmp_path: Path) -> None:
        _, fit = self.page("pan", tmp_path)
        assert "sees the state of the fit once, at any time between two users" in fit.text
        assert '<table class="honest">' not in fit.page

    @pytest.mark.slow
    def test_central_fit_reports_neither(self, tmp_path: Path) -> None:
        promise, fit = self.page("central", tmp_path)
        assert honest_shares(promise) == ()
        assert "Who sees data</h2>" not in fit.page

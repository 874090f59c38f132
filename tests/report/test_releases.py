"""The report of a release file: each release once, nothing loaded, and safe for any names."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses
from tests.releases import cases as files
from tests.report import cases, sums
from tests.report.test_hashes import checks, computed

import dpgrain as dg
from dpgrain import learn
from dpgrain.papers.floors import min_error_of_records, min_error_of_worlds
from dpgrain.planning.shuffle_plans import (
    honest_shares,
)
from dpgrain.report import report as write_report
from dpgrain.units import Trust


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dg.Releases:
    text = files.BUDGET + files.releases("share = 0.05")
    return dg.releases(files.written(tmp_path_factory.mktemp("page"), text), files.table())


@pytest.fixture(scope="module")
def page(made: dg.Releases, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "all.html"
    assert made.report(path) == path
    return path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_release_has_its_promise_and_its_numbers(made: dg.Releases, page: str) -> None:
    assert len(re.findall(r'<section class="release" id="release-\d+">', page)) == len(made)
    for place, name in enumerate(made, 1):
        assert f'<a href="#release-{place}">{name}</a>' in page
        assert f'<h2><span class="name">{name}</span>: ' in page
    headings = re.findall(r"<h3>(.*?)</h3>", page)
    assert headings.count("Estimates") + headings.count("Estimate") == len(made) - 2
    assert "Coefficients" in headings
    assert "Per-user mean" in headings
    assert page.count("<code>dpgrain.Guarantee.from_json(…)") == 1
    assert made.plan.spending in page
    assert made.plan.file.mark in page


@pytest.mark.slow
def test_each_release_is_known_again_by_its_hash(
    made: dg.Releases, page: str, tmp_path: Path
) -> None:
    found = checks(page)
    assert list(found) == [*made, "Guarantee"]
    for name, (hash_, how) in found.items():
        if "load(path)" in how:
            saved = made[name].save(tmp_path / "saved.parquet")
            assert computed(how, path=saved) == hash_
        elif name != "Guarantee":
            assert computed(how, model=made[name], mean=made[name]) == hash_


@pytest.mark.slow
def test_ids_belong_to_one_figure_each(tmp_path: Path) -> None:
    # Both have the same plot, but for the numbers.
    text = files.BUDGET + "".join(
        files.releases("share = 0.5", ["count"]).replace("count]", f"count{place}]")
        for place in range(2)
    )
    path = files.written(tmp_path, text)
    dg.releases(path, files.table()).report(tmp_path / "all.html")
    page = (tmp_path / "all.html").read_text(encoding="utf-8")
    clips = re.findall(r'<clipPath id="([^"]+)"', page)
    assert len(set(clips)) == len(clips) >= 6


def test_nothing_is_loaded_and_the_page_is_small(page: str) -> None:
    cases.check_safe(page)
    assert len(page.encode()) < 1_000_000


@pytest.mark.slow
def test_names_are_text(tmp_path: Path) -> None:
    nasty = "<script>alert(1)</script>"
    rows = pa.table({"who": list(range(400)), "page": [nasty] * 400, nasty: [1.0] * 400})
    text = files.BUDGET + "".join(
        f"[release.'{nasty} {place}']\n{lines}\nshare = 0.3\n"
        for place, lines in enumerate(
            (
                'statistic = "histogram"\nitem = "page"',
                f'statistic = "mean_of_users"\ncolumns = ["{nasty}"]\nbound = 3',
            )
        )
    )
    path = files.written(tmp_path, text)
    dg.releases(path, dg.read(rows, user="who")).report(tmp_path / "all.html")
    page = (tmp_path / "all.html").read_text(encoding="utf-8")
    cases.check_safe(page)
    assert "&lt;script&gt;" in page


@pytest.mark.slow
def test_seeded_run_is_reported(tmp_path: Path) -> None:
    path = files.written(tmp_path, files.BUDGET + files.releases("share = 0.5", ["count"]))
    dg.releases(path, files.table(), random_state=1).report(tmp_path / "all.html")
    assert "NOT PRIVATE. Do not publish." in (tmp_path / "all.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_disagreeing_users_are_reported(tmp_path: Path) -> None:
    size = 2000
    far = pa.table({"who": list(range(size)), "x": [99.0 * i / size for i in range(size)]})
    lines = 'statistic = "mean_of_users"\ncolumns = ["x"]\nbound = 100\nradius = 0.01\n'
    text = files.BUDGET + f'[release.centre]\n{lines}method = "softcore"\nshare = 1.0\n'
    table = dg.read(far, user="who", n_users=size)
    made = dg.releases(files.written(tmp_path, text), table, random_state=1)
    made.report(tmp_path / "all.html")
    assert "There is no mean." in (tmp_path / "all.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def whole() -> tuple[dg.Budget, dict[str, Any]]:
    table = files.table()
    with dg.budget(1.0, 1e-6) as whole:
        visits = dg.count(table, by="topic", domain=["t0", "t1"], unit=dg.User(), share=0.3)
        spent = dg.mean(table, "seconds", unit=dg.User(), bounds=(0, 200), share=0.3)
    return whole, {"visits": visits, "<i>spent": spent}


def test_releases_of_a_budget_are_on_one_page(
    whole: tuple[dg.Budget, dict[str, Any]], tmp_path: Path
) -> None:
    budget, releases = whole
    page = budget.report(tmp_path / "all.html", releases).read_text(encoding="utf-8")
    assert "2 releases of" in page
    assert "ε = 1, δ = 10⁻⁶ per user" in page
    assert "60% spent, 40% left" in page
    assert "fixed and charged as one" not in page
    assert "<i>spent" not in page
    assert len(re.findall(r'<section class="release" id="release-\d+">', page)) == 2
    found = checks(page)
    assert list(found) == ["visits", "&lt;i&gt;spent", "Guarantee"]
    saved = releases["visits"].save(tmp_path / "saved.parquet")
    hash_, how = found["visits"]
    assert computed(how, path=saved) == hash_


def test_budget_guarantee_covers_all_its_releases(
    whole: tuple[dg.Budget, dict[str, Any]],
) -> None:
    budget, releases = whole
    assert dg.budget(1.0, 1e-6).promise is None
    promise = budget.promise
    assert promise is not None
    assert (promise.epsilon(), promise.delta, promise.level) == (1.0, 1e-6, "user")
    assert promise.user == "who"
    assert budget.guarantee is not None
    assert budget.guarantee.epsilon() < promise.epsilon()
    assert promise.provenance == releases["visits"].guarantee.provenance


def test_other_releases_are_not_in_a_budget_report(
    whole: tuple[dg.Budget, dict[str, Any]], tmp_path: Path
) -> None:
    budget, releases = whole
    visits = releases["visits"]
    with dg.budget(1.0, 1e-6):
        other = dg.count(files.table(), by="topic", domain=["t0", "t1"], unit=dg.User(), share=0.3)
    assert other.guarantee == visits.guarantee
    loaded = dg.Estimates.load(visits.save(tmp_path / "saved.parquet"))
    for given in ({}, 3, [visits], {1: visits}, {"x": 3}, {"o": other}, {"l": loaded}):
        with refuses("releases"):
            budget.report(tmp_path / "none.html", given)  # type: ignore[arg-type]
    budget.report(tmp_path / "some.html", {"all": visits, "largest": visits.largest(1)})
    assert not (tmp_path / "none.html").exists()


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

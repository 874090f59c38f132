"""Estimates are drawn at their places."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.markers import CARETDOWNBASE, CARETLEFTBASE, CARETRIGHTBASE, CARETUPBASE
from tests.refusals import refuses
from tests.report import cases

import dpgrain as dg
from dpgrain.report.axes import COLOURS
from dpgrain.report.plots import plot_curve, plot_estimates
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.statistic import QUANTILES
from dpgrain.tables.groups import Groups


def test_estimates_are_at_their_places() -> None:
    release = cases.histogram(["a $x$", "b", "c"])
    ax = plot_estimates(release, Figure().subplots(), top=2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a $x$", "b"]
    assert cases.x(ax.lines[0]) == [300.0, 140.0]
    assert "estimate (records, clipped)" in ax.get_xlabel()
    assert ax.get_xlabel().endswith("\nlargest by clipped total: 2 of 3")
    assert "of 3" not in plot_estimates(release, Figure().subplots()).get_xlabel()


def test_two_keys_share_a_label() -> None:
    release = cases.histogram(["a", "b"])
    keys = [release.items, pa.array([2023, 2024])]
    release = replace(release, groups=Groups.of(["word", "year"], keys))
    ax = plot_estimates(release, Figure().subplots())
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a · 2023", "b · 2024"]


def test_quantiles_stay_in_the_given_order(scores: dg.UserTable) -> None:
    ranks = [0.9, 0.5]
    release = dg.quantiles(
        scores, "score", ranks, by="shop", domain=cases.SHOPS, bounds=(0, 100), **cases.BUDGET
    )
    ax = plot_estimates(release, Figure().subplots(), top=2)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == cases.SHOPS[:2]
    assert [cases.x(line) for line in ax.lines] == [
        [float(release.estimate[row + rank]) for row in (0, 2)] for rank in (0, 1)
    ]
    over = dg.quantiles(scores, "score", ranks, bounds=(0, 100), **cases.BUDGET)
    ax = plot_estimates(over, Figure().subplots())
    assert cases.x(ax.lines[0]) == [0.5, 0.9]
    assert cases.y(ax.lines[0]) == [float(over.estimate[1]), float(over.estimate[0])]


def test_means_are_not_drawn_from_zero(scores: dg.UserTable) -> None:
    release = dg.mean(
        scores, "score", by="year", domain=[2023, 2024], bounds=(0, 100), **cases.BUDGET
    )
    ax = release.plot(Figure().subplots())
    assert ax.get_ylim()[0] > 0
    assert "mean of score" in ax.get_ylabel()


@pytest.mark.parametrize("units", [0, 1.5])
def test_invalid_numbers_are_rejected(units: int) -> None:
    release = cases.histogram(["a"])
    with refuses("top"):
        plot_estimates(release, Figure().subplots(), top=units)
    with refuses("max_units"):
        plot_curve(release.guarantee, Figure().subplots(), max_units=units)


class TestWhereTheAxisBegins:
    @staticmethod
    def drawn(estimate: list[float], **changed: Any) -> Axes:
        release = replace(cases.histogram(["a", "b", "c"]), estimate=np.array(estimate), **changed)
        return plot_estimates(release, Figure(figsize=(7, 4)).subplots())

    def test_axis_starts_at_0_when_differences_stay_visible(self) -> None:
        for estimate in ([900.0, 400.0, 100.0], [10.0, 5.0, 2.0], [-900.0, -905.0, -910.0]):
            ax = self.drawn(estimate)
            assert ax.get_xlim()[0] <= 0 <= ax.get_xlim()[1]
            assert "starts" not in ax.get_xlabel()

    def test_other_axes_show_their_start(self) -> None:
        ax = self.drawn([90_400.0, 90_200.0, 90_000.0])
        said = re.search(r"the axis starts at ([\d,]+), not at 0$", ax.get_xlabel())
        assert said is not None
        begin = float(said[1].replace(",", ""))
        assert ax.get_xlim()[0] == begin
        # Every interval is whole on the axis, and takes a good part of it.
        assert 89_000 < begin <= 90_000.0 - 1.96 * 7.25
        assert ax.get_xlim()[1] >= 90_400.0 + 1.96 * 7.25
        # No line appears instead of a 0.
        assert [0.0, 0.0] not in [cases.x(line) for line in ax.lines]


def sums(**options: Any) -> dg.Histogram:
    rng = np.random.default_rng(1)
    rows = {"who": np.minimum(rng.zipf(1.6, 9000), 400), "shop": rng.choice(list("abc"), 9000)}
    asked = {"domain": list("abc"), "unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
    return dg.count(
        dg.read(pa.table(rows), user="who"), by="shop", random_state=1, **{**asked, **options}
    )


def test_lower_bounds_of_totals_are_drawn_with_clipped_sums() -> None:
    for options, name in (
        ({}, "total at least (95%)"),
        ({"clip": 20.0}, "total at least (95%)"),
        ({"unit": dg.Record()}, None),
    ):
        release = sums(**options)
        ax = plot_estimates(release, Figure().subplots())
        legend = ax.get_legend()
        texts = [] if legend is None else [text.get_text() for text in legend.get_texts()]
        assert set(texts) == ({name, "clipped sum"} if name else set())
        for limit in release.more.values():
            assert not ax.get_xlim()[1] < np.nanmax(limit, initial=-np.inf)


ARROWS = (CARETDOWNBASE, CARETLEFTBASE, CARETRIGHTBASE, CARETUPBASE)


class TestEndsOfIntervals:
    """Every interval is drawn to its end, or ends at the axis with an arrow."""

    @staticmethod
    def quantiles(low: list[float], high: list[float], **keys: list[Any]) -> dg.Estimates:
        value, size = np.linspace(10.0, 14.0, len(low)), len(low)
        groups = Groups.of(list(keys), [pa.array(column) for column in keys.values()])
        parts = (np.ones(size), np.array(low), np.array(high), np.full(size, 900.0))
        facts = ReleaseMetadata(QUANTILES, value="age", by=("shop",))
        return dg.Estimates(groups, value, *parts, cases.histogram(["a"]).guarantee, facts)

    @staticmethod
    def ends(ax: Axes, along: int) -> set[float]:
        """The ends of all drawn intervals."""
        lines = [one for one in ax.collections if isinstance(one, LineCollection)]
        segments = [np.asarray(part) for line in lines for part in line.get_segments()]
        return {float(value) for part in segments for value in part[:, along]}

    @staticmethod
    def arrows(ax: Axes) -> list[Any]:
        lines = [line for line in ax.lines if line.get_marker() in ARROWS]
        return [(line.get_marker(), len(cases.x(line))) for line in lines]

    KEYS: ClassVar[dict[str, tuple[dict[str, list[Any]], int]]] = {
        "rows": ({"shop": ["a", "b", "c"], "quantile": [0.5] * 3}, 0),
        "years": ({"year": [2022, 2023, 2024]}, 1),
        "ranks": ({"shop": ["a"] * 3, "quantile": [0.2, 0.5, 0.9]}, 0),
        "curve": ({"quantile": [0.2, 0.5, 0.9]}, 1),
    }

    @pytest.mark.parametrize("name", KEYS)
    def test_long_interval_is_drawn_to_its_end(self, name: str) -> None:
        keys, along = self.KEYS[name]
        release = self.quantiles([2.0, 4.0, 6.0], [18.0, 20.0, 29.0], **keys)
        ax = plot_estimates(release, Figure().subplots())
        assert {*release.low, *release.high} <= self.ends(ax, along)
        assert self.arrows(ax) == []
        assert "arrows" not in ax.get_xlabel()

    @pytest.mark.parametrize("name", KEYS)
    @pytest.mark.parametrize("high", [4e11, np.inf])
    def test_endless_interval_ends_in_an_arrow(self, name: str, high: float) -> None:
        keys, along = self.KEYS[name]
        release = self.quantiles([8.0, 10.0, 12.0], [12.0, 14.0, high], **keys)
        ax = plot_estimates(release, Figure().subplots())
        ends = self.ends(ax, along)
        assert {8.0, 10.0, 12.0, 14.0} <= ends
        assert 14.0 < max(ends) < 100.0
        assert self.arrows(ax) == [(CARETRIGHTBASE if along == 0 else CARETUPBASE, 1)]
        assert "arrows: the interval continues beyond the axis" in ax.get_xlabel()

    def test_ends_of_open_quantiles_are_on_the_axis(self) -> None:
        numbers = np.exp(np.random.default_rng(2).normal(0, 2, 600))
        for by in (None, "shop"):
            release = dg.quantiles(
                dg.read(pa.table({"x": numbers, "shop": ["a", "b"] * 300})), "x", [0.5, 0.99],
                by=by, domain=None if by is None else ["a", "b"], unit=dg.Record(), epsilon=1.0,
                delta=1e-6, random_state=1,
            )  # fmt: skip
            assert np.isinf(release.high).any()
            ax = plot_estimates(release, Figure().subplots())
            most = ax.get_ylim()[1] if by is None else ax.get_xlim()[1]
            assert release.estimate.max() < most < 50 * np.abs(release.estimate).max()


@pytest.mark.parametrize("ask", [dg.mean, dg.sum, dg.quantiles, dg.distribution])
def test_unpublished_values_are_marked(ask: Any) -> None:
    release = ask(
        dg.read(pa.table({"x": [1e6] * 9})), "x", unit=dg.Record(), epsilon=0.01, delta=1e-6,
        random_state=1,
    )  # fmt: skip
    ax = plot_estimates(release, Figure().subplots())
    assert "not published" in ax.texts[0].get_text()


PROMISE: dict[str, Any] = {"unit": dg.User(), "epsilon": 5, "delta": 1e-6, "random_state": 1}


def people(countries: int = 2) -> dg.UserTable:
    who = np.repeat(np.arange(300), 1 + np.arange(300) % 40)
    country = [f"c{user % countries}" for user in who]
    return dg.read(pa.table({"who": who, "country": country}), user="who")


def test_shares_are_steps_within_their_band() -> None:
    table = people().per_user(visits="count")
    release = dg.distribution(table, "visits", [1, 5, 10, 40], **PROMISE)
    ax = plot_estimates(release, Figure().subplots())
    line = ax.lines[0]
    assert cases.x(line) == [1.0, 5.0, 10.0, 40.0]
    assert cases.y(line) == release.estimate.tolist()
    assert line.get_drawstyle() == "steps-pre"
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "visits, at least"
    assert ax.get_ylabel() == "share of people"
    # Between 1 and 5 the share is at most that at 1, and at least that at 5.
    (band,) = [path for drawn in ax.collections[:1] for path in drawn.get_paths()]
    corners = np.asarray(band.vertices, dtype=np.float64)
    assert corners[corners[:, 0] <= 5.0, 1].max() == release.high[0]
    assert corners[corners[:, 0] < 5.0, 1].min() == release.low[1]


def test_each_group_has_a_line_and_few_are_drawn() -> None:
    table = people(9).per_user(by="country", visits="count")
    domain = [f"c{place}" for place in range(9)]
    release = dg.distribution(table, "visits", [0, 5], by="country", domain=domain, **PROMISE)
    ax = plot_estimates(release, Figure().subplots())
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == domain[: len(COLOURS)]
    assert ax.get_xscale() == "linear"


def test_bins_are_named_by_their_ends() -> None:
    table = people().per_user(visits="count")
    release = dg.histogram(table, "visits", edges=[2, 9], **PROMISE)
    ax = plot_estimates(release, Figure().subplots())
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["below 2", "2 to below 9", "9 or more"]
    assert "people by visits" in ax.get_xlabel()


def test_one_threshold_is_a_row_for_each_group() -> None:
    table = people().per_user(by="country", visits="count")
    options = {"by": "country", "domain": ["c0", "c1"], **PROMISE}
    ax = plot_estimates(dg.distribution(table, "visits", [5], **options), Figure().subplots())
    assert [text.get_text() for text in ax.get_yticklabels()] == ["c0", "c1"]
    assert "share with visits at least 5" in ax.get_xlabel()


def test_group_bars_are_separate() -> None:
    table = people().per_user(by="country", visits="count")
    options = {"by": "country", "domain": ["c0", "c1"], **PROMISE}
    ax = plot_estimates(dg.distribution(table, "visits", [1, 5], **options), Figure().subplots())
    points = [line for line in ax.lines if line.get_marker() == "o"]
    places = {float(line.get_transform().transform((1.0, 0.5))[0]) for line in points}
    assert len(places) == 2

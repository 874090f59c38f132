"""Estimates are drawn at their places."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from tests.report import cases

import dpgrain as dg
from dpgrain.report.plots import plot_curve, plot_estimates
from dpgrain.tables.groups import Groups


def test_estimates_are_at_their_places() -> None:
    release = cases.histogram(["a $x$", "b", "c"])
    ax = plot_estimates(release, Figure().subplots(), top=2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a $x$", "b"]
    assert cases.x(ax.lines[0]) == [300.0, 140.0]
    assert "estimate (records, capped)" in ax.get_xlabel()


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


def test_one_number_is_written(scores: dg.UserTable) -> None:
    release = dg.mean(scores, "score", bounds=(0, 100), **cases.BUDGET)
    ax = release.plot(Figure().subplots())
    assert not ax.lines
    shown = [text.get_text() for text in ax.texts]
    assert float(shown[0]) == pytest.approx(release.value, abs=0.06)
    assert shown[1] == "mean of score (records capped)"
    assert shown[2].startswith("95% interval ")


def test_means_are_not_drawn_from_zero(scores: dg.UserTable) -> None:
    release = dg.mean(
        scores, "score", by="year", domain=[2023, 2024], bounds=(0, 100), **cases.BUDGET
    )
    ax = release.plot(Figure().subplots())
    assert ax.get_xlim()[0] > 0
    assert "mean of score" in ax.get_xlabel()


@pytest.mark.parametrize("units", [0, 1.5])
def test_wrong_numbers_are_refused(units: int) -> None:
    release = cases.histogram(["a"])
    with pytest.raises(dg.ParameterError, match="top"):
        plot_estimates(release, Figure().subplots(), top=units)
    with pytest.raises(dg.ParameterError, match="max_units"):
        plot_curve(release.guarantee, Figure().subplots(), max_units=units)

"""The drawn curve is the guarantee."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from tests.report import cases

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian, Laplace, Selection
from dpgrain.report.plots import plot_curve
from dpgrain.units import Level


def test_the_curve_ends_at_the_cells() -> None:
    event = Gaussian(3.0, Contribution(cells=7))
    promise = dg.Guarantee("element", "'word'", "zero_out", 1e-5, event)
    ax = plot_curve(promise, Figure().subplots())
    assert cases.x(ax.lines[0]) == [1, 2, 5, 7]


def test_curve_stops_without_a_guarantee() -> None:
    event = Selection(4.0, 22.0, 1) + Gaussian(4.0)
    promise = dg.Guarantee("element", "'word'", "zero_out", 1e-6, event)
    last = [k for k in (1, 2, 5, 10, 20, 50) if math.isfinite(promise.epsilon(units=k))][-1]
    ax = plot_curve(promise, Figure().subplots())
    drawn = np.array(cases.x(ax.lines[0]))[np.isfinite(cases.y(ax.lines[0]))]
    assert drawn[-1] == last < 50
    assert "no guarantee from" in str(ax.lines[0].get_label())


def test_user_shares_are_on_a_separate_axis(scores: dg.UserTable) -> None:
    unit = dg.Element("year")
    holdings = dg.elements_per_user(
        scores, "year", unit=unit, edges=[1, 2, 7, 300], epsilon=9, delta=1e-6
    )
    event = Gaussian(3.7306, Contribution(coordinates="nonnegative"))
    promise = dg.Guarantee("element", "'year'", "zero_out", 1e-5, event)
    figure = Figure()
    ax = plot_curve(promise, figure.subplots(), max_units=20, holdings=holdings)
    assert len(ax.lines) == 2
    (shares,) = figure.axes[1].lines
    assert cases.x(shares) == [1, 2, 7]
    assert cases.y(shares) == [holdings.share_at_most(edge) for edge in (1, 2, 7)]
    legend = ax.get_legend()
    assert legend is not None
    assert shares.get_label() in [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(("level", "shares"), [("record", 1), ("user", 0)])
def test_shares_refer_to_the_counted_units(level: Level, shares: int, scores: dg.UserTable) -> None:
    holdings = dg.elements_per_user(scores, "year", unit=dg.User(), epsilon=9, delta=1e-6)
    event = Gaussian(3.0, Contribution(block=level))
    figure = Figure()
    promise = dg.Guarantee(level, "", "zero_out", 1e-5, event)
    plot_curve(promise, figure.subplots(), max_units=10, holdings=holdings)
    drawn = [cases.y(line) for ax in figure.axes[1:] for line in ax.lines]
    of_records = [holdings.share_at_most(edge, "records") for edge in (1, 2, 5, 10)]
    assert drawn == [of_records] * shares


def test_equal_curves_are_drawn_once() -> None:
    ax = plot_curve(cases.histogram(["a"]).guarantee, Figure().subplots())
    assert [line.get_label() for line in ax.lines] == ["removed or replaced"]


def test_a_curve_without_noise_or_without_promise() -> None:
    for event in (Gaussian(1e9), Laplace(1e9), Gaussian(1.0, Contribution(block="record"))):
        promise = dg.Guarantee("element", "'word'", "zero_out", 1e-5, event)
        figure = Figure()
        plot_curve(promise, figure.subplots())
        figure.canvas.draw_idle()

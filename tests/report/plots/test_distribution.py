"""A distribution is drawn as steps, with a band that is also valid between thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from tests.report import cases

import dpgrain as dg
from dpgrain.report.axes import COLOURS
from dpgrain.report.plots import plot_estimates

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

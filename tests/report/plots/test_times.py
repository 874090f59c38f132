"""Dates, months and timestamps are drawn as lines over time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETUPBASE
from tests.report import cases

import dpgrain as dg
from dpgrain.report.plots import plot_estimates
from dpgrain.report.plots.times import lines_over_time, parse_time
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.statistic import COUNT, MEAN, QUANTILES
from dpgrain.tables.groups import Groups


def _counts(keys: dict[str, list[Any]], estimate: list[float]) -> dg.Histogram:
    size = len(estimate)
    return replace(
        cases.histogram([str(row) for row in range(size)]),
        groups=Groups.of(list(keys), [pa.array(column) for column in keys.values()]),
        estimate=np.array(estimate),
    )


def _means(
    keys: dict[str, list[Any]], estimate: list[float], asked: ReleaseMetadata
) -> dg.Estimates:
    value, size = np.array(estimate), len(estimate)
    groups = Groups.of(list(keys), [pa.array(column) for column in keys.values()])
    guarantee = cases.histogram(["a"]).guarantee
    parts = (np.full(size, 0.5), value - 1, value + 1, np.full(size, 900.0))
    return dg.Estimates(groups, value, *parts, guarantee, asked)


def _drawn(release: dg.Release, **options: Any) -> Axes:
    return plot_estimates(release, Figure(figsize=(7, 4)).subplots(), **options)


def _lines(ax: Axes) -> list[Line2D]:
    return [line for line in ax.lines if not str(line.get_label()).startswith("_")]


def _days(line: Line2D) -> list[str]:
    days = np.datetime64("1970-01-01") + np.array(cases.x(line)).astype("timedelta64[D]")
    return [str(day) for day in days]


def test_dates_are_a_time_ordered_line_with_intervals() -> None:
    days = ["2025-03-03", "2025-03-01", "2025-03-02"]
    release = _counts({"day": days}, [30.0, 10.0, 20.0])
    ax = _drawn(release)
    line = _lines(ax)[-1]
    assert _days(line) == sorted(days)
    assert cases.y(line) == [10.0, 20.0, 30.0]
    (drawn,) = ax.collections
    assert isinstance(drawn, LineCollection)
    ends = [np.asarray(segment)[:, 1].tolist() for segment in drawn.get_segments()]
    np.testing.assert_allclose(ends, np.stack([release.low, release.high], axis=1)[[1, 2, 0]])
    assert ax.get_xlabel() == "day"


@pytest.mark.parametrize(
    ("keys", "gaps"),
    [
        (["2025-01", "2025-02", "2025-03", "2025-04"], 0),
        (["2025-01", "2025-02", "2025-04", "2025-05"], 1),
        (["2025-01-01", "2025-02-01", "2025-03-01", "2025-04-01"], 0),
        (["2025-01-06", "2025-01-13", "2025-01-20", "2025-02-03"], 1),
        (["2025-01-01", "2025-01-02", "2025-01-05", "2025-01-09"], 2),
        (["2025-01-01T10:00", "2025-01-01T11:00", "2025-01-01T13:00", "2025-01-01T14:00"], 1),
    ],
    ids=["months", "a missing month", "first days", "a missing week", "days", "hours"],
)
def test_line_has_a_gap_at_missing_times(keys: list[str], gaps: int) -> None:
    release = _counts({"time": keys}, [1.0, 2.0, 3.0, 4.0])
    (line,) = _lines(_drawn(release))[-1:]
    values = np.array(cases.y(line))
    assert np.isnan(values).sum() == gaps
    assert values[~np.isnan(values)].tolist() == [1.0, 2.0, 3.0, 4.0]
    lines = lines_over_time(release)
    assert lines is not None
    assert lines.gaps == (gaps > 0)


def test_second_key_gives_a_line_per_largest_value() -> None:
    shops = [f"shop {place} $x$" for place in range(7)]
    days = ["2025-03-01", "2025-03-02", "2025-03-03"]
    keys = {"day": days * 7, "shop": np.repeat(shops, 3).tolist()}
    release = _counts(keys, np.arange(21.0).tolist())
    for order in (["day", "shop"], ["shop", "day"]):
        groups = Groups.of(order, [pa.array(keys[name]) for name in order])
        ax = _drawn(replace(release, groups=groups))
        legend = ax.get_legend()
        assert legend is not None
        assert [text.get_text() for text in legend.get_texts()] == shops[:1:-1]
        assert [cases.y(line) for line in _lines(ax)] == [
            [3.0 * place, 3.0 * place + 1, 3.0 * place + 2] for place in range(6, 1, -1)
        ]
    assert len(_lines(_drawn(release, top=2))) == 2


def test_quantiles_of_dates_are_one_line_per_rank() -> None:
    keys: dict[str, list[Any]] = {
        "day": ["2025-03-01"] * 2 + ["2025-03-02"] * 2,
        "quantile": [0.5, 0.9] * 2,
    }
    asked = ReleaseMetadata(QUANTILES, value="score", bounds=(0.0, 100.0))
    ax = _drawn(_means(keys, [1.0, 5.0, 2.0, 7.0], asked))
    assert [cases.y(line) for line in _lines(ax)] == [[5.0, 7.0], [1.0, 2.0]]
    legend = ax.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["quantile 0.9", "quantile 0.5"]


def test_an_infinite_interval_and_a_missing_estimate_are_drawn() -> None:
    release = _means(
        {"day": ["2025-03-01", "2025-03-02", "2025-03-03"]},
        [5.0, float("nan"), 6.0],
        ReleaseMetadata(MEAN, value="score", bounds=(0.0, 100.0)),
    )
    release = replace(release, upper=np.array([np.inf, np.nan, 7.0]))
    ax = _drawn(release)
    assert ax.get_ylim()[1] < 20
    # The arrow of the infinite end only.
    assert [cases.y(line) for line in ax.lines if line.get_marker() == CARETUPBASE] == [[12.0]]


@pytest.mark.parametrize(
    "keys", [["2025", "2026"], ["2025-01-01", "other"], ["2025-13", "2025-14"], ["2025-01-01"] * 2]
)
def test_other_keys_are_drawn_as_rows(keys: list[str]) -> None:
    release = _counts({"key": keys}, [1.0, 2.0])
    assert lines_over_time(release) is None
    assert len(_drawn(release).get_yticklabels()) == 2


def test_times_with_a_zone_are_in_utc() -> None:
    assert str(parse_time("2025-03-01T00:30+01:00")) == "2025-02-28 23:30:00"


def test_the_page_draws_lines_and_names_them(tmp_path: Any) -> None:
    days = ["2025-03-01", "2025-03-02", "2025-03-09"]
    page = cases.page(_counts({"day": days}, [3.0, 2.0, 1.0]), tmp_path)
    assert "Estimates by day with 95% intervals" in page
    assert "Lines are interrupted where nothing was published." in page
    hostile = {"day": days * 2, "<b>": ["<script>"] * 3 + ["b"] * 3}
    page = cases.page(_counts(hostile, np.arange(6.0).tolist()), tmp_path)
    cases.check_safe(page)
    assert "<script>" not in page.replace('<script>"use strict"', "").replace("<script>", "", 1)


def test_integers_without_gaps_are_a_line() -> None:
    ages = list(range(18, 70))
    release = _counts({"age": ages[::-1]}, [float(age) for age in ages[::-1]])
    assert lines_over_time(release) is None, "items are in the order of their numbers"
    release = replace(release, metadata=replace(release.metadata, statistic=COUNT))
    lines = lines_over_time(release)
    assert lines is not None
    assert not lines.dates
    ax = _drawn(release)
    (line,) = _lines(ax)[:1]
    x, y = line.get_data()
    assert np.asarray(x).tolist() == np.asarray(y).tolist() == ages
    assert ax.get_xlabel().startswith("age")
    assert all(float(tick).is_integer() for tick in ax.get_xticks())
    several = _counts({"age": [1, 2, 3, 1, 2], "sex": ["f", "f", "f", "m", "m"]}, [5.0, 6, 7, 1, 2])
    several = replace(several, metadata=replace(several.metadata, statistic=COUNT))
    assert [len(line) for line in lines_over_time(several).lines] == [3, 2]  # type: ignore[union-attr]
    single = _counts({"age": [1, 2], "sex": ["f", "m"]}, [5.0, 6.0])
    assert lines_over_time(replace(single, metadata=several.metadata)) is None
    sparse = _counts({"shop": [1, 70, 4000]}, [1.0, 2.0, 3.0])
    assert lines_over_time(replace(sparse, metadata=release.metadata)) is None

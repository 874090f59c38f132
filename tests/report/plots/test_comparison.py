"""Two releases on one picture: each group's two estimates on its row, and nothing that misleads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from tests.refusals import refuses
from tests.report import cases

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.statistic import MEAN, QUANTILES
from dpgrain.tables.groups import Groups


def _axes() -> Axes:
    return Figure(figsize=(7, 4)).subplots()


def _points(ax: Axes) -> list[list[tuple[float, float]]]:
    drawn = [held for held in ax.containers if isinstance(held, ErrorbarContainer)]
    lines = [held.lines[0] for held in drawn]
    return [list(zip(cases.x(line), cases.y(line), strict=True)) for line in lines if line]


def _of_users(items: list[str], estimate: list[float]) -> dg.Histogram:
    made = cases.histogram(items)
    event = Gaussian(3.7306, Contribution(block="user", coordinates="one"))
    guarantee = replace(made.guarantee, level="user", elements="", event=event)
    return replace(made, estimate=np.array(estimate), guarantee=guarantee)


def test_groups_share_a_row_by_their_keys() -> None:
    mine = cases.histogram(["a", "b", "c"])
    other = _of_users(["c", "x", "a"], [1.0, 2.0, 3.0])
    ax = mine.plot(_axes(), beside=other)
    first, second = _points(ax)
    assert [x for x, _ in first] == [300.0, 140.0, -20.0]
    # Row 0 is a, row 2 is c; b is not in the other release, and x is not in this one.
    assert [(x, round(y)) for x, y in second] == [(3.0, 0), (1.0, 2)]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b", "c"]
    legend = ax.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["element, ε = 1.01", "user, ε = 1.01"]


def test_similar_guarantees_are_distinguished() -> None:
    release = cases.histogram(["a", "b"])
    legend = release.plot(_axes(), beside=release).get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["element, ε = 1.01 (this)", "element, ε = 1.01 (beside)"]


def test_only_the_largest_are_drawn() -> None:
    release = cases.histogram([f"w{place}" for place in range(9)])
    assert [len(points) for points in _points(release.plot(_axes(), top=4, beside=release))] == [
        4
    ] * 2


def test_incomparable_releases_are_rejected() -> None:
    release = cases.histogram(["a", "b"])
    by_other = replace(release, groups=Groups.of(["page"], [pa.array(["a", "b"])]))
    with refuses("beside", "'word'"):
        release.plot(_axes(), beside=by_other)
    means = replace(release, metadata=replace(release.metadata, statistic=MEAN, value="score"))
    with refuses("beside", "'score'"):
        release.plot(_axes(), beside=means)
    with refuses("beside", "release"):
        release.plot(_axes(), beside=5)  # type: ignore[arg-type]
    value = np.array([1.0, 2.0])
    ranks = dg.Estimates(
        Groups.of(["shop", "quantile"], [pa.array(["x", "x"]), pa.array([0.1, 0.9])]),
        value, value, value - 1, value + 1, value, release.guarantee,
        ReleaseMetadata(QUANTILES, value="score"),
    )  # fmt: skip
    with refuses("beside", "several"):
        ranks.plot(_axes(), beside=ranks)


def test_single_numbers_are_drawn_next_to_each_other() -> None:
    release = replace(
        cases.histogram(["a"]),
        groups=Groups.of([], []),
        metadata=ReleaseMetadata(title="words.parquet"),
    )
    ax = release.plot(_axes(), beside=release)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["all"]
    assert [len(points) for points in _points(ax)] == [1, 1]

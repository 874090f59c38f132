"""A picture in a page: both sizes, rows that can be pointed at, and names that are text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markupsafe import escape
from matplotlib.axes import Axes
from tests.report import cases

from dpgrain.report.figures import figures, svg


def _draw(ax: Axes) -> Axes:
    ax.plot([0.0, 1.0], [0.0, 1.0])
    return ax


def test_pointed_row_is_shown() -> None:
    nasty = '"><script>alert(1)</script> & more'
    pictures = figures("x", _draw, 200, ["first: 1", nasty])
    told = re.findall(r'<g class="told"><title>(.*?)</title>', pictures)
    # Once for each width.
    assert told == ["first: 1", str(escape(nasty))] * 2
    assert "<script" not in pictures
    assert 'id="told' not in pictures


@pytest.mark.slow
def test_rows_of_a_report_show_their_intervals(tmp_path: Path) -> None:
    release = cases.histogram(["yo", "<b>bro</b>"])
    page = cases.page(release, tmp_path)
    told = re.findall(r'<g class="told"><title>(.*?)</title>', page)
    wanted = [
        f"{escape(name)}: {value:,.1f}".replace("-", "−")
        for name, value in zip(["yo", "<b>bro</b>"], [300.0, -20.0], strict=True)
    ]
    assert len(told) == 4
    for sentence, start, row in zip(told, wanted * 2, [0, 1, 0, 1], strict=True):
        assert sentence.startswith(start[:-2])
        low, high = float(release.low[row]), float(release.high[row])
        ends = re.search(r"95% from ([−\d.]+) to ([−\d.]+)$", sentence)
        assert ends is not None
        found = [float(end.replace("−", "-")) for end in ends.groups()]
        assert abs(found[0] - low) < 0.1
        assert abs(found[1] - high) < 0.1


def test_paper_is_drawn_behind_a_picture_when_requested() -> None:
    assert "fill: #ffffff" in svg(_draw, 200, 100, "x", paper="white")
    assert "fill: #ffffff" not in svg(_draw, 200, 100, "x")

"""Windows of a ledger are drawn at their positions and fill levels."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tests.ledger import cases

from dpgrain.report.plots.windows import Timeline, WindowSpan, plot_timeline, plot_used

_DAY = 24 * 60 * 60 * 10**6
# Number of days between 1970 and the first of January 2026.
_FIRST = 20454


def ends_of(ax: Axes) -> list[list[float]]:
    return [np.asarray(line.get_xdata(), dtype=float).tolist() for line in ax.lines]


def test_ledger_draws_releases_above_their_windows(tmp_path: Path) -> None:
    made = cases.made(tmp_path / "visits.ledger", cases.OF_DAYS)
    for day in ("2026-01-01", "2026-01-02"):
        made.charge(cases.of_days(100.0, cases.on(day)))
    ax = made.plot()
    assert ends_of(ax) == [[_FIRST, _FIRST + 1], [_FIRST + 1, _FIRST + 2]]
    assert ax.get_xlabel() == "day"


def test_a_window_without_an_end_goes_to_the_edge() -> None:
    at = datetime(2026, 1, 1)
    windows = (WindowSpan(3, 5), WindowSpan(4, None), WindowSpan())
    timeline = Timeline("week", "whole", tuple((at, window) for window in windows))
    ax = plot_timeline(timeline, Figure().subplots())
    assert ends_of(ax) == [[3, 5], [4, 5], [3, 5]]
    assert ax.lines[1].get_color() == ax.lines[2].get_color() != ax.lines[0].get_color()


def test_single_release_is_in_the_middle_of_its_day() -> None:
    timeline = Timeline("", "whole", ((datetime(2026, 1, 1), WindowSpan()),))
    ax = plot_timeline(timeline, Figure().subplots())
    assert ax.get_ylim() == (_FIRST - 0.5, _FIRST + 0.5)


def test_used_budget_has_the_height_of_its_share() -> None:
    used = ((WindowSpan(0, _DAY), 0.5), (WindowSpan(_DAY, 3 * _DAY), 1.0))
    ax = plot_used(Timeline("day", "time", (), used), Figure().subplots())
    bars = [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in ax.patches]  # type: ignore[attr-defined]
    assert bars == [(0, 1, 0.5), (1, 2, 1.0)]


def test_drawing_contains_no_text() -> None:
    for draw in (plot_used, plot_timeline):
        ax = draw(Timeline("", "whole", ()), Figure().subplots())
        assert "nothing was" in ax.texts[0].get_text()

"""A ledger over time: the releases about each window, and how full each window is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import matplotlib.dates

from dpgrain.regions import Axis
from dpgrain.report.axes import (
    BLUE,
    GREY,
    INK,
    NARROW,
    axes_for,
    few_digits,
    fitting,
    grid,
    in_percent,
    plain,
    say,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as Drawn

_EPOCH, _DAY = datetime(1970, 1, 1), timedelta(days=1)
# Its functions have no types.
_dates: Any = matplotlib.dates
# Share of the axes below which the width of a window could not be seen.
_NARROWEST_SHARE = 0.004


@dataclass(frozen=True)
class Window:
    """A stretch of the axis of windows.

    Args:
        low: the first value; None if it has no beginning.
        high: the value after the last; None if it has no end.
    """

    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Timeline:
    """The releases of a ledger by the windows that they read, and the used part of a promise there.

    Args:
        column: the column on which windows lie; empty where no release was asked of a window.
        axis: how the column counts: whole numbers, or microseconds since 1970.
        read: the moment of each release, and the window that it read.
        used: windows one after the other, each with the share of a promise that is used there.
    """

    column: str
    axis: Axis
    read: tuple[tuple[datetime, Window], ...]
    used: tuple[tuple[Window, float], ...] = ()

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last value at which a window begins or ends; (0, 1) without any."""
        windows = [window for _, window in self.read] + [window for window, _ in self.used]
        known = {end for each in windows for end in (each.low, each.high) if end is not None}
        if not known:
            return (0, 1)
        return (min(known), max(known)) if len(known) > 1 else (min(known), min(known) + 1)


def plot_used(timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Draw the used share of a promise in each window.

    Args:
        timeline: the windows.
        ax: axes to draw on; new ones by default.
    """
    ax = axes_for(ax, 7.0, 3.2)
    plain(ax)
    if not timeline.used:
        return say(ax, "nothing was charged yet")
    for window, share in timeline.used:
        low, high = _drawn(timeline, window)
        ax.bar([low], [share], width=[high - low], align="edge", color=BLUE, linewidth=0)
    ax.axhline(1.0, color=INK, linewidth=1.1, linestyle=":")
    ax.set_ylim(0, 1.06)
    ax.set_ylabel("used of the promise")
    ax.yaxis.set_major_formatter(in_percent())
    _along(ax, timeline)
    grid(ax, "y")
    return ax


def plot_timeline(timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Draw the time of each release, above the window that it read.

    Args:
        timeline: the releases.
        ax: axes to draw on; new ones by default.
    """
    ax = axes_for(ax, 7.0, 4.2)
    plain(ax)
    if not timeline.read:
        return say(ax, "nothing was released yet")
    low, high = (_place(timeline.axis, end) for end in timeline.ends)
    narrowest = (high - low) * _NARROWEST_SHARE
    for at, window in timeline.read:
        first, last = _drawn(timeline, window)
        last = max(last, first + narrowest)
        whole = window.low is None or window.high is None
        ax.plot(
            [first, last], [(at - _EPOCH) / _DAY] * 2, color=GREY if whole else BLUE, linewidth=3.0,
            solid_capstyle="butt",
        )  # fmt: skip
    ax.set_ylabel("released at (UTC)")
    _tick_dates(ax.yaxis, 6)
    moments = [(at - _EPOCH) / _DAY for at, _ in timeline.read]
    # Releases of one moment stand in the middle of its day, not of some years.
    margin = 0.06 * (max(moments) - min(moments)) or 0.5
    ax.set_ylim(min(moments) - margin, max(moments) + margin)
    _along(ax, timeline)
    grid(ax)
    return ax


def _along(ax: Axes, timeline: Timeline) -> None:
    """Label the axis of windows."""
    low, high = (_place(timeline.axis, end) for end in timeline.ends)
    ax.set_xlim(low, high)
    if timeline.axis == "whole":
        ax.xaxis.set_major_formatter(few_digits())
        ax.locator_params(axis="x", nbins=4 if width_of(ax) < NARROW else 8, integer=True)
    else:
        _tick_dates(ax.xaxis, 4 if width_of(ax) < NARROW else 8)
    ax.set_xlabel(fitting(timeline.column, ax) if timeline.column else "all records")
    if not timeline.column:
        ax.set_xticks([])


def _tick_dates(axis: Drawn, most: int) -> None:
    locator = _dates.AutoDateLocator(minticks=2, maxticks=most)
    axis.set_major_locator(locator)
    axis.set_major_formatter(_dates.ConciseDateFormatter(locator))


def _drawn(timeline: Timeline, window: Window) -> tuple[float, float]:
    """Return the two ends of a window on the axes; one that has no end goes to the edge."""
    low, high = timeline.ends
    return (
        _place(timeline.axis, low if window.low is None else window.low),
        _place(timeline.axis, high if window.high is None else window.high),
    )


def _place(axis: Axis, value: int) -> float:
    if axis == "whole":
        return float(value)
    return timedelta(microseconds=value) / _DAY

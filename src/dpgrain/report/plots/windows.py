"""A ledger over time: the releases of each window, and the used share of a promise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dpgrain.report.axes import (
    BLUE,
    GREY,
    INK,
    NARROW,
    axes_for,
    axes_width,
    date_ticks,
    few_digits,
    fitting,
    grid,
    in_percent,
    write_message,
)
from dpgrain.scope.regions import Axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EPOCH, _DAY = datetime(1970, 1, 1), timedelta(days=1)
# Minimum width of a window, as a share of the axes.
_NARROWEST_SHARE = 0.004


@dataclass(frozen=True)
class WindowSpan:
    """A window from ``low`` to just before ``high``; None where it has no end."""

    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Timeline:
    """The releases of a ledger by window, and the used share of a promise in each."""

    column: str  # of the windows; empty if no release has one
    axis: Axis  # unit: integers, or microseconds since 1970
    read: tuple[tuple[datetime, WindowSpan], ...]  # timestamp and window of each release
    # Adjacent windows, each with the used share of a promise.
    used: tuple[tuple[WindowSpan, float], ...] = ()

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest end of a window; (0, 1) without any."""
        windows = [window for _, window in self.read] + [window for window, _ in self.used]
        known = {end for each in windows for end in (each.low, each.high) if end is not None}
        if not known:
            return (0, 1)
        return (min(known), max(known)) if len(known) > 1 else (min(known), min(known) + 1)


def plot_used(timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Draw the used share of a promise in each window."""
    ax = axes_for(ax, 7.0, 3.2)
    if not timeline.used:
        return write_message(ax, "nothing was charged yet")
    for window, share in timeline.used:
        low, high = _drawn(timeline, window)
        ax.bar([low], [share], width=[high - low], align="edge", color=BLUE, linewidth=0)
    ax.axhline(1.0, color=INK, linewidth=1.1, linestyle=":")
    ax.set_ylim(0, 1.06)
    ax.set_ylabel("used share of the promise")
    ax.yaxis.set_major_formatter(in_percent())
    _along(ax, timeline)
    grid(ax, "y")
    return ax


def plot_timeline(timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Draw the time of each release above its window."""
    ax = axes_for(ax, 7.0, 4.2)
    if not timeline.read:
        return write_message(ax, "nothing was released yet")
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
    date_ticks(ax.yaxis, 6)
    times = [(at - _EPOCH) / _DAY for at, _ in timeline.read]
    # Simultaneous releases are drawn in the middle of their day.
    margin = 0.06 * (max(times) - min(times)) or 0.5
    ax.set_ylim(min(times) - margin, max(times) + margin)
    _along(ax, timeline)
    grid(ax)
    return ax


def _along(ax: Axes, timeline: Timeline) -> None:
    """Label the axis of windows."""
    low, high = (_place(timeline.axis, end) for end in timeline.ends)
    ax.set_xlim(low, high)
    if timeline.axis == "whole":
        ax.xaxis.set_major_formatter(few_digits())
        ax.locator_params(axis="x", nbins=4 if axes_width(ax) < NARROW else 8, integer=True)
    else:
        date_ticks(ax.xaxis, 4 if axes_width(ax) < NARROW else 8)
    ax.set_xlabel(fitting(timeline.column, ax) if timeline.column else "all records")
    if not timeline.column:
        ax.set_xticks([])


def _drawn(timeline: Timeline, window: WindowSpan) -> tuple[float, float]:
    """Return both ends of a window; an open end is at the edge of the axes."""
    low, high = timeline.ends
    return (
        _place(timeline.axis, low if window.low is None else window.low),
        _place(timeline.axis, high if window.high is None else window.high),
    )


def _place(axis: Axis, value: int) -> float:
    if axis == "whole":
        return float(value)
    return timedelta(microseconds=value) / _DAY

"""ε as a function of the share of honest devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import NullLocator

from dpgrain._formatting import powers, rounded_up
from dpgrain.report.axes import (
    BLUE,
    GREY,
    INK,
    NARROW,
    ORANGE,
    axes_for,
    axes_width,
    grid,
    legend_above,
    log_ticks,
    write_message,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain.planning.shuffle_plans import Honest

_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def plot_honest(curve: Sequence[Honest], delta: float, ax: Axes | None = None) -> Axes:
    """Draw ε by the share of honest devices; shares without a guarantee are shaded.

    Args:
        curve: the ε of each share, the largest share first.
        delta: the δ of all ε.
        ax: axes to draw on; new ones by default.
    """
    ax = axes_for(ax, 7.0, 4.2)
    ax.set_xlabel("share of honest devices")
    ax.set_ylabel(f"ε at δ = {powers(delta)}")
    finite = [line for line in curve if math.isfinite(line.epsilon)]
    if not finite:
        return write_message(ax, "no guarantee at this δ")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.plot(
        [line.fraction for line in finite],
        [line.epsilon for line in finite],
        "-o",
        color=BLUE,
        linewidth=1.8,
        markersize=5.5,
        label="ε if only this share is honest",
    )
    endless = [line.fraction for line in curve if math.isinf(line.epsilon)]
    low, high = max(endless, default=curve[-1].fraction) / 1.25, 1.25
    if endless:
        ax.axvspan(low, max(endless), color=GREY, alpha=0.25, linewidth=0, label="no guarantee")
    for line in finite:
        if line.promised:
            _mark(ax, line)
    _values(ax, finite)
    ax.set_xlim(low, high)
    _axis_ticks(ax, low, finite)
    grid(ax)
    legend_above(ax)
    return ax


def _mark(ax: Axes, line: Honest) -> None:
    """Mark the guarantee by a point and lines to both axes."""
    style: dict[str, Any] = {"color": ORANGE, "linewidth": 1.1, "linestyle": ":"}
    ax.axvline(line.fraction, **style)
    ax.axhline(line.epsilon, **style)
    ax.plot(
        [line.fraction],
        [line.epsilon],
        "D",
        color=ORANGE,
        markersize=8,
        label=f"guaranteed: ε = {rounded_up(line.epsilon, 3)} with {line.share}",
    )


def _values(ax: Axes, lines: Sequence[Honest]) -> None:
    """Write ε at the points with enough distance, the guaranteed one first."""
    apart = math.log(1.7 if axes_width(ax) < NARROW else 1.3)
    written: list[float] = []
    for line in sorted(lines, key=lambda line: not line.promised):
        place = math.log(line.fraction)
        if all(abs(place - other) >= apart for other in written):
            written.append(place)
            ax.annotate(
                rounded_up(line.epsilon, 3),
                (line.fraction, line.epsilon),
                (6, 7),
                textcoords="offset points",
                color=INK,
                fontsize="small",
            )


def _axis_ticks(ax: Axes, low: float, finite: Sequence[Honest]) -> None:
    shares = [share for share in _SHARES if share >= low]
    ax.set_xticks(shares, [f"{share:.0%}" for share in shares])
    ax.xaxis.set_minor_locator(NullLocator())
    epsilons = [line.epsilon for line in finite]
    least, most = min(epsilons), max(epsilons)
    if most / least < 4:
        ax.set_ylim(least / 2, most * 2)
    else:
        ax.margins(y=0.14)
    log_ticks(ax.yaxis, most / least)

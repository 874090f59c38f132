"""The coefficients of a model, one per row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpgrain.report.axes import (
    BLUE,
    ORANGE,
    axes_for,
    interval_bars,
    label_letters,
    label_rows,
    legend_above,
    write_message,
)
from dpgrain.words.headings import label, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain.words.fit_text import Coefficient, Coefficients

_PLOTTED_ROWS = 30


def plot_coefficients(
    rows: Sequence[Coefficient], ax: Axes | None = None, *, intervals: bool
) -> Axes:
    """Draw one row per coefficient, the first on top, with 95% intervals if they have them."""
    ax = axes_for(ax, 7.0, 1.2 + 0.28 * max(len(rows), 2))
    if not rows:
        return write_message(ax, "there are no features")
    value = np.array([row.value for row in rows])
    places = np.arange(len(rows))
    low = high = value
    if intervals:
        centre, low, high = (
            np.array([getattr(row, end) for row in rows]) for end in ("corrected", "low", "high")
        )
        interval_bars(ax, places, centre, low, high, label="95% interval")
        ax.plot(value, places, "D", color=ORANGE, markersize=4.5, label="used for predictions")
        legend_above(ax)
    else:
        ax.plot(value, places, "o", color=BLUE, markersize=6)
    names = [label((text(row.name, 120),), label_letters(ax)) for row in rows]
    label_rows(ax, names, "", np.append(low, 0.0), np.append(high, 0.0), zero=True)
    ax.set_xlabel("coefficient")
    return ax


def largest(summary: Coefficients) -> list[Coefficient]:
    """Return the largest coefficients, at most 30, without intercepts."""
    rows = [row for row in summary.rows if not row.intercept and math.isfinite(row.value)]
    if len(rows) > _PLOTTED_ROWS:
        rows = sorted(rows, key=lambda row: -abs(row.value))[:_PLOTTED_ROWS]
    return rows

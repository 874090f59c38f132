"""The clipping bounds of a histogram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from dpgrain.report.axes import (
    BLUE,
    STEPS,
    at_steps,
    axes_for,
    few_digits,
    fitting,
    grid,
    write_message,
)
from dpgrain.words.quantities import quantity_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain.statistics.group_estimates import Histogram

_MANY_BOUNDS = 24


def plot_bounds(release: Histogram, ax: Axes | None = None) -> Axes:
    """Draw the number of items for each clipping bound, in bins of equal ratio."""
    ax = axes_for(ax, 7.0, 2.8)
    ax.set_xlabel(f"clipping bound ({fitting(quantity_name(release.metadata), ax)})")
    ax.set_ylabel("items" if release.statistic.has_items else "groups")
    bounds = np.asarray(release.clip, dtype=np.float64)
    if bounds.size == 0:
        return write_message(
            ax, f"no {'items' if release.statistic.has_items else 'groups'} were published"
        )
    low, high = float(bounds.min()), float(bounds.max())
    ax.set_xscale("log")
    # If all bounds are equal, this draws one bar.
    edges = np.geomspace(low / 1.05, high * 1.05, _MANY_BOUNDS + 1)
    counts, _ = np.histogram(bounds, edges)
    ax.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=BLUE, edgecolor="none")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(few_digits())
    if high / low < 100:
        steps = STEPS if high / low > 4 else (1, 1.5, 2, 3, 5, 7)
        ax.xaxis.set_major_locator(at_steps(steps))
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    grid(ax, "y")
    ax.set_axisbelow(True)
    return ax

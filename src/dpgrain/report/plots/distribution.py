"""A distribution: the share at or above each number, step by step, with its band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from dpgrain.report.axes import (
    BLUE,
    GREY,
    ORANGE,
    fitting,
    grid,
    in_full,
    in_percent,
    label_letters,
    legend_above,
    log_ticks,
)
from dpgrain.report.words import label
from dpgrain.statistics.printed import key_texts
from dpgrain.statistics.release import Release

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from dpgrain._types import FloatArray

# Colours of groups, one each; more would not be distinguished.
_COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", GREY)
MOST_GROUPS = len(_COLOURS)
# Opacity of bands; those of several groups have a third of it, so that lines are seen through them.
_SHADE = 0.18
# Points between bars of groups at one threshold.
_ASIDE_POINTS = 4.0
# A wider range of thresholds above 0 has a logarithmic axis.
_WIDE = 20.0


def in_steps(release: Release) -> bool:
    """Return whether there are steps to draw: a share of one threshold is a number like any other."""
    return release.statistic.stepped and len(release.groups.columns[-1].unique()) != 1


def draw_distribution(release: Release, ax: Axes, what: str) -> Axes:
    """Draw the shares of a distribution over their thresholds, of the first groups.

    Args:
        release: a distribution.
        ax: axes to draw on.
        what: the name of the numbers.

    Between two thresholds the share is no larger than at the first and no smaller than at the second,
    so that the band holds everywhere.
    """
    least = np.array(release.groups.columns[-1].unique().to_pylist(), dtype=np.float64)
    groups = min(len(release) // least.size, MOST_GROUPS)
    lines = []
    for place in range(groups):
        part = slice(place * least.size, (place + 1) * least.size)
        name = _name(release, place * least.size, ax)
        ends = release.low[part], release.high[part]
        lines.append(
            _draw_group(
                ax,
                least,
                release.estimate[part],
                ends,
                aside=_ASIDE_POINTS * (place - (groups - 1) / 2),
                shade=_SHADE if groups == 1 else _SHADE / 3,
                color=_COLOURS[place],
                label=name,
            )
        )
    ax.set_xlabel(f"{fitting(what, ax)}, at least")
    ax.set_ylabel(f"share of {release.asked.rows}")
    ax.set_ylim(-0.02, 1.02)
    ax.yaxis.set_major_formatter(in_percent())
    if least[0] > 0 and least[-1] >= _WIDE * least[0]:
        ax.set_xscale("log")
        log_ticks(ax.xaxis, least[-1] / least[0])
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.xaxis.set_major_formatter(in_full(least, least))
    grid(ax)
    if release.statistic.keys(release.groups.names):
        legend_above(ax, lines, columns=min(groups, 3))
    return ax


def _draw_group(
    ax: Axes,
    least: FloatArray,
    share: FloatArray,
    ends: tuple[FloatArray, FloatArray],
    *,
    aside: float,
    shade: float,
    **line: Any,
) -> Line2D:
    """Draw one group, and return its line.

    Args:
        ax: axes to draw on.
        least: the thresholds.
        share: the shares.
        ends: the ends of the band.
        aside: how many points its bars stand aside, so that those of several groups are distinguished.
        shade: how opaque the band is.
        **line: the colour and the name of the line.
    """
    low, high = ends
    # Over the step from one threshold to the next the band reaches from the lower end there to the
    # upper end here.
    edges = np.repeat(least, 2)[1:-1]
    below, above = np.repeat(low[1:], 2), np.repeat(high[:-1], 2)
    ax.fill_between(edges, below, above, color=line["color"], alpha=shade, linewidth=0)
    (drawn,) = ax.step(least, share, where="pre", linewidth=1.6, **line)
    figure = ax.get_figure(root=True)
    assert figure is not None  # noqa: S101 - axes that are drawn on have a figure
    moved = ScaledTranslation(aside / 72, 0, figure.dpi_scale_trans)
    ax.errorbar(
        least,
        share,
        transform=ax.transData + moved,
        yerr=np.maximum([share - low, high - share], 0.0),
        fmt="o",
        color=line["color"],
        markersize=4,
        elinewidth=1.2,
        capsize=2,
    )
    return drawn


def _name(release: Release, row: int, ax: Axes) -> str:
    """Return the name of the group of a row."""
    (keys,) = key_texts(release, np.array([row]), letters=200)
    return label(release.statistic.keys(keys), label_letters(ax))

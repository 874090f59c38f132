"""A distribution: the share at or above each threshold, as steps with a band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from dpgrain.report.axes import (
    COLOURS,
    errors,
    fitting,
    grid,
    in_full,
    in_percent,
    label_letters,
    legend_above,
    log_ticks,
)
from dpgrain.statistics.release import Release
from dpgrain.words.headings import label
from dpgrain.words.release_text import format_keys

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from dpgrain._types import FloatArray

# Opacity of a band; with several groups a third of it keeps all lines visible.
_SHADE = 0.18
# Points between the error bars of groups at the same threshold.
_ASIDE_POINTS = 4.0
# From this ratio of positive thresholds on, the axis is logarithmic.
_WIDE = 20.0


def in_steps(release: Release) -> bool:
    """Return whether a release is a distribution with more than one threshold."""
    return release.statistic.stepped and len(release.groups.columns[-1].unique()) != 1


def draw_distribution(release: Release, ax: Axes, what: str) -> Axes:
    """Draw the shares of the first five groups over the thresholds of a column.

    Shares fall with the threshold, so the band also holds between two thresholds.
    """
    least = np.array(release.groups.columns[-1].unique().to_pylist(), dtype=np.float64)
    groups = min(len(release) // least.size, len(COLOURS))
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
                color=COLOURS[place],
                label=name,
            )
        )
    ax.set_xlabel(f"{fitting(what, ax)}, at least")
    ax.set_ylabel(f"share of {release.metadata.rows}")
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
    """Draw one group with its bars shifted by some points, and return its line."""
    low, high = ends
    # Between two thresholds the band extends from the next lower end to the previous upper end.
    edges = np.repeat(least, 2)[1:-1]
    below, above = np.repeat(low[1:], 2), np.repeat(high[:-1], 2)
    ax.fill_between(edges, below, above, color=line["color"], alpha=shade, linewidth=0)
    (drawn,) = ax.step(least, share, where="pre", linewidth=1.6, **line)
    figure = ax.get_figure(root=True)
    assert figure is not None  # noqa: S101 - axes have a figure
    moved = ScaledTranslation(aside / 72, 0, figure.dpi_scale_trans)
    ax.errorbar(
        least,
        share,
        transform=ax.transData + moved,
        yerr=errors(share, low, high),
        fmt="o",
        color=line["color"],
        markersize=4,
        elinewidth=1.2,
        capsize=2,
    )
    return drawn


def _name(release: Release, row: int, ax: Axes) -> str:
    """Return the label of the group of a row."""
    (keys,) = format_keys(release, np.array([row]), letters=200)
    return label(release.statistic.keys(keys), label_letters(ax))

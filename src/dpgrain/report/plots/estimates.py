"""Estimates with their intervals: one per row, lines over time, a number, or a curve of quantiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from dpgrain import _validate
from dpgrain._types import IntArray
from dpgrain.report.axes import (
    BLUE,
    COLOURS,
    FAINT,
    INK,
    NARROW,
    ORANGE,
    axes_for,
    axes_width,
    errors,
    fitting,
    grid,
    in_full,
    in_percent,
    interval_bars,
    label_letters,
    label_rows,
    legend_above,
    log_ticks,
    open_ends,
    within_sight,
    write_message,
)
from dpgrain.report.plots.times import draw_over_time, lines_over_time
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.statistics.release import Release
from dpgrain.words import quantities
from dpgrain.words.headings import is_one, label, ranks, value_of
from dpgrain.words.release_text import (
    format_bins,
    format_key,
    format_keys,
    format_rows,
    ranking_name,
    shown,
)

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
    """Draw the shares of the first five groups over the thresholds of a column."""
    # Shares fall with the threshold, so the band also holds between two thresholds.
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


def plot_estimates(release: Release, ax: Axes | None = None, *, top: int = 30) -> Axes:
    """Draw the estimates of a release with their 95% intervals.

    Args:
        release: any release.
        ax: axes to draw on; new ones by default.
        top: the number of groups: the largest estimates, or the first groups of quantiles.

    Raises:
        ParameterError: if ``top`` is not a positive integer.

    Dates, months and timestamps are drawn as lines over time, one per value of the other keys (at most
    five). A single number is written, not drawn. The intervals do not cover the effect of clipping.
    """
    top = _validate.integer(minimum=1, top=top)
    rows = drawn(release, top)
    height = 4.2 if not rows and len(release) > 1 else 1.2 + 0.28 * max(rows, 2)
    ax = axes_for(ax, 7.0, height)
    if len(release) and np.isnan(release.estimate).all():
        ax.set_axis_off()
        what = fitting(quantities.quantity_name(release.metadata), ax)
        return write_message(ax, f"{what}: not published,\nno value stood out from the noise")
    if is_one(release):
        return _write_number(release, ax)
    if not len(release):
        ax.set_xlabel(quantity(release, ax))
        return write_message(
            ax, f"no {'items' if release.statistic.has_items else 'groups'} were published"
        )
    if release.statistic.has_bins:
        return _draw_holdings(release, ax)
    if in_steps(release):
        return draw_distribution(release, ax, value_of(release))
    sums = isinstance(release, Histogram)
    what = f"estimate ({quantity(release, ax)})" if sums else quantity(release, ax)
    if (lines := lines_over_time(release)) is not None:
        lines = replace(lines, lines=lines.lines[:top])
        names = _labels(release, np.array([line[0] for line in lines.lines]), ax, but=lines.key)
        return draw_over_time(release, lines, names, what, ax)
    if release.statistic.ranked:
        if release.groups.names == ("quantile",):
            return _draw_quantile_curve(release, ax)
        return _draw_quantiles(release, ax, top)
    places = shown(release, top)
    estimate, low, high = (v[places] for v in (release.estimate, release.low, release.high))
    bars = {"label": "clipped sum"} if release.more.get("at_least") is not None else {}
    interval_bars(ax, np.arange(rows), estimate, low, high, **(bars if sums else {}))
    if sums and bars:
        _draw_totals(release, ax, places)
    label_rows(ax, _labels(release, places, ax), what, low, high, zero=sums)
    if rows < len(release):
        which = ranking_name(release)
        ax.set_xlabel(f"{ax.get_xlabel()}\n{which}: {rows:,} of {len(release):,}")
    return ax


def _draw_totals(release: Release, ax: Axes, places: IntArray) -> None:
    """Draw the lower bound of each unclipped total as an arrow below its estimate."""
    least = release.more["at_least"][places]
    rows, known = np.arange(len(places)) + 0.25, np.isfinite(least)
    if not known.any():
        return
    name = "total at least (95%)"
    ax.plot(least[known], rows[known], ">", color=ORANGE, markersize=5, label=name)
    legend_above(ax, columns=1)


def drawn(release: Release, top: int) -> int:
    """Count the rows of the drawing; 0 for lines, a curve or one number."""
    if is_one(release) or release.groups.names == ("quantile",) or in_steps(release):
        return 0
    if release.statistic.has_bins:
        return len(_bins(release))
    if lines_over_time(release) is not None:
        return 0
    if release.statistic.ranked:
        return min(top, len(release) // max(len(ranks(release)), 1))
    return min(top, len(release))


def quantity(release: Release, ax: Axes) -> str:
    """Return the name of an estimate, with a mark if it may be clipped."""
    records = release.statistic.ratio and release.metadata.is_clipped
    clipped = " (records clipped)" if records else ", clipped"
    what = fitting(quantities.quantity_name(release.metadata), ax)
    if release.statistic.stepped and len(release):
        least = format_key(release.groups.columns[-1][0].as_py())
        what = f"share with {fitting(value_of(release), ax)} at least {least}"
    return f"{what}{clipped if release.metadata.is_limited else ''}"


def _labels(release: Release, places: Any, ax: Axes, *, but: str = "") -> list[str]:
    """Return the labels of groups: their joined keys, but not this time key, or else the rank."""
    letters, names = label_letters(ax), release.groups.names
    keys = format_keys(release, places, letters=200)
    if but and release.statistic.ranked:
        return [f"{names[-1]} {key[-1]}" for key in keys]
    if release.statistic.binned:
        keys = [(*key[:-2], _bin(*key[-2:])) for key in keys]
    place = names.index(but) if but else len(names)
    parts = (release.statistic.keys(key[:place] + key[place + 1 :]) for key in keys)
    return [label(part, letters) for part in parts]


def _bin(least: str, below: str) -> str:
    """Return the label of a bin; one of its ends may be missing."""
    if least == "−∞":
        return f"below {below}"
    if below == "∞":
        return f"{least} or more"
    return f"{least} to below {below}"


def _write_number(release: Release, ax: Axes) -> Axes:
    """Write one number in large type, with its interval."""
    line = format_rows(release, np.arange(1), letters=0)[0]
    ax.set_axis_off()
    middle: dict[str, Any] = {
        "transform": ax.transAxes,
        "ha": "center",
        "color": INK,
        "parse_math": False,
    }
    ax.text(0.5, 0.62, line.estimate, va="center", fontsize=30, fontweight="bold", **middle)
    ax.text(0.5, 0.3, quantity(release, ax), va="center", **middle)
    ax.text(0.5, 0.1, f"95% interval {line.low} to {line.high}", va="center", **middle)
    return ax


def _rank_labels(known: list[float]) -> str:
    if len(known) > 5:
        return f"{len(known)} quantiles, {min(known):g} to {max(known):g}"
    return f"quantile{'s' if len(known) > 1 else ''} {', '.join(f'{rank:g}' for rank in sorted(known))}"


def _draw_quantiles(release: Release, ax: Axes, top: int) -> Axes:
    """Draw one line per group, from its lowest to its highest quantile."""
    known = ranks(release)
    size = drawn(release, top)
    # All ranks of a group are adjacent rows of a release.
    parts = (release.estimate, release.low, release.high)
    estimate, low, high = (v[: size * len(known)].reshape(size, -1) for v in parts)
    rows, ends = np.arange(size), (low, high)
    low, high = within_sight(estimate, low, high)
    if len(known) == 1:
        interval_bars(ax, rows, estimate[:, 0], low[:, 0], high[:, 0])
    else:
        for rank in range(len(known)):
            ax.hlines(rows, low[:, rank], high[:, rank], color=FAINT, linewidth=7)
        ax.hlines(rows, estimate.min(axis=1), estimate.max(axis=1), color=BLUE, linewidth=1.4)
        middle = int(np.argmin(np.abs(np.array(known) - 0.5)))
        for rank in range(len(known)):
            marker, size_of = ("o", 6.0) if rank == middle else ("|", 10.0)
            ax.plot(
                estimate[:, rank],
                rows,
                marker,
                color=BLUE,
                markersize=size_of,
                markeredgewidth=1.8,
            )
    labels = _labels(release, rows * len(known), ax)
    gap = "\n" if axes_width(ax) < NARROW or release.metadata.is_limited else ", "
    what = f"{quantity(release, ax)}: {_rank_labels(known)}"
    what += f"{gap}from left to right," if len(known) > 1 else ""
    label_rows(ax, labels, what, low, high, zero=False)
    at = np.broadcast_to(rows[:, None], low.shape)
    note = open_ends(ax, "x", at, (low, high), ends)
    ax.set_xlabel(f"{ax.get_xlabel()}{note}")
    return ax


def _draw_quantile_curve(release: Release, ax: Axes) -> Axes:
    """Draw the quantiles over their ranks."""
    rank = np.array(release.groups.columns[-1].to_pylist(), dtype=np.float64)
    order = np.argsort(rank)
    x, y, low, high = (v[order] for v in (rank, release.estimate, release.low, release.high))
    ends = low, high
    low, high = within_sight(y, *ends)
    ax.fill_between(x, low, high, color=BLUE, alpha=0.18, linewidth=0)
    ax.errorbar(
        x,
        y,
        yerr=errors(y, low, high),
        fmt="-o",
        color=BLUE,
        linewidth=1.8,
        markersize=5,
        elinewidth=1.4,
        capsize=2.5,
    )
    note = open_ends(ax, "y", x, (low, high), ends)
    ax.set_xlabel(f"share of {release.metadata.rows} below{note}")
    ax.set_ylabel(quantity(release, ax))
    ax.set_xlim(-0.03, 1.03)
    ax.xaxis.set_major_formatter(in_percent())
    ax.yaxis.set_major_formatter(in_full(low, high))
    grid(ax)
    return ax


def _bins(release: Release) -> list[int | None]:
    """Return the distinct upper ends of the bins, the open bin last."""
    edges = set(release.groups.columns[1].to_pylist())
    return [*sorted(edge for edge in edges if edge is not None), *([None] if None in edges else [])]


def _draw_holdings(release: Release, ax: Axes) -> Axes:
    """Draw the number of users per bin of elements and of records."""
    bins = _bins(release)
    kinds, edges = (column.to_pylist() for column in release.groups.columns)
    place = {edge: row for row, edge in enumerate(bins)}
    styles: tuple[tuple[str, float, dict[str, Any]], ...] = (
        ("elements", -0.15, {}),
        ("records", 0.15, {"color": ORANGE, "fmt": "s", "markersize": 4.5}),
    )
    for kind, shift, style in styles:
        mine = np.array([one == kind for one in kinds])
        rows = np.array([place[edge] for edge in edges])[mine] + shift
        parts = (release.estimate[mine], release.low[mine], release.high[mine])
        if mine.any():
            interval_bars(ax, rows, *parts, label=kind, **style)
    labels = format_bins(release, bins)
    label_rows(ax, labels, "estimate (users)", release.low, release.high, zero=True)
    ax.set_ylabel("number per user")
    legend_above(ax, columns=2)
    return ax

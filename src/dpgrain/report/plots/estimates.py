"""Estimates with their intervals: one on each row, a number, or a curve of quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.report.axes import (
    BLUE,
    FAINT,
    INK,
    NARROW,
    ORANGE,
    axes_for,
    fitting,
    grid,
    in_full,
    in_percent,
    interval_bars,
    label_letters,
    label_rows,
    legend_above,
    plain,
    say,
    width_of,
)
from dpgrain.report.plots.distribution import draw_distribution, in_steps
from dpgrain.report.words import (
    is_one,
    label,
    measured,
    ranks,
    value_of,
)
from dpgrain.statistics.printed import bins_in_words, in_order, key_text, key_texts, lines_of, shown
from dpgrain.statistics.release import Histogram, Release

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_estimates(release: Release, ax: Axes | None = None, *, top: int = 30) -> Axes:
    """Draw the estimates of a release with their 95% intervals.

    Args:
        release: any release; one without groups gives axes that say so.
        ax: axes to draw on; new ones by default.
        top: how many groups: those with the largest estimates, largest first; of quantiles the first.

    Raises:
        ParameterError: if ``top`` is not a whole number of at least 1.

    One number over all records is written, not drawn. Quantiles are one line for each group, or a curve
    over the ranks where there are no groups; a distribution has a line of steps for each of the first
    groups; what users hold is drawn bin by bin. Intervals are of what
    is named: where clipping may take something that is "capped", and what it takes is not in them.
    """
    top = _validate.integer(minimum=1, top=top)
    rows = drawn(release, top)
    height = 4.2 if not rows and len(release) > 1 else 1.2 + 0.28 * max(rows, 2)
    ax = axes_for(ax, 7.0, height)
    plain(ax)
    if len(release) and np.isnan(release.estimate).all():
        ax.set_axis_off()
        what = fitting(measured(release), ax)
        return say(ax, f"{what}: not published,\nas no number stood out from the noise")
    if is_one(release):
        return _write_number(release, ax)
    if not len(release):
        ax.set_xlabel(quantity(release, ax))
        return say(ax, f"no {'items' if release.statistic.of_items else 'groups'} were published")
    if release.statistic.of_bins:
        return _draw_holdings(release, ax)
    if in_steps(release):
        return draw_distribution(release, ax, value_of(release))
    if release.statistic.ranked:
        if release.groups.names == ("quantile",):
            return _draw_quantile_curve(release, ax)
        return _draw_quantiles(release, ax, top)
    places = shown(release, top)
    estimate, low, high = (v[places] for v in (release.estimate, release.low, release.high))
    sums = isinstance(release, Histogram)
    bars = {"label": "capped"} if release.more.get("at_least") is not None else {}
    interval_bars(ax, np.arange(rows), estimate, low, high, **(bars if sums else {}))
    if sums and bars:
        _draw_totals(release, ax, places)
    what = quantity(release, ax)
    what = f"estimate ({what})" if sums else what
    label_rows(ax, _labels(release, places, ax), what, low, high, zero=sums)
    if rows < len(release):
        which = "first" if in_order(release) else "largest"
        ax.set_xlabel(f"{ax.get_xlabel()}\n{which} {rows:,} of {len(release):,}")
    return ax


def _draw_totals(release: Release, ax: Axes, places: IntArray) -> None:
    """Draw from where on totals before capping lie, below each estimate, as an arrow without an end."""
    least = release.more["at_least"][places]
    rows, known = np.arange(len(places)) + 0.25, np.isfinite(least)
    if not known.any():
        return
    narrow = width_of(ax) < NARROW
    name = "before capping" if narrow else "total before capping: at least (95%)"
    ax.plot(least[known], rows[known], ">", color=ORANGE, markersize=5, label=name)
    legend_above(ax, ax.get_legend_handles_labels()[0], columns=1)


def drawn(release: Release, top: int) -> int:
    """Count the rows that :func:`plot_estimates` draws; 0 for a curve or one number."""
    if is_one(release) or release.groups.names == ("quantile",) or in_steps(release):
        return 0
    if release.statistic.of_bins:
        return len(_bins(release))
    if release.statistic.ranked:
        return min(top, len(release) // max(len(ranks(release)), 1))
    return min(top, len(release))


def quantity(release: Release, ax: Axes) -> str:
    """Return the name of an estimate, marked as capped where something may be cut off."""
    records = release.statistic.ratio and release.asked.capped
    capped = " (records capped)" if records else ", capped"
    what = fitting(measured(release), ax)
    if release.statistic.stepped and len(release):
        least = key_text(release.groups.columns[-1][0].as_py())
        what = f"share with {fitting(value_of(release), ax)} at least {least}"
    return f"{what}{capped if release.asked.cut else ''}"


def _labels(release: Release, places: Any, ax: Axes) -> list[str]:
    """Return the groups in words, their keys joined; of quantiles without the rank."""
    keys = key_texts(release, places, letters=200)
    if release.statistic.binned:
        keys = [(*key[:-2], _bin(*key[-2:])) for key in keys]
    return [label(release.statistic.keys(key), label_letters(ax)) for key in keys]


def _bin(least: str, below: str) -> str:
    """Return a bin of numbers in words, each end of which may be none."""
    if "none" in (least, below):
        return f"below {below}" if least == "none" else f"{least} or more"
    return f"{least} to below {below}"


def _write_number(release: Release, ax: Axes) -> Axes:
    """Write one number, large, with its interval, as there is nothing to compare it with."""
    line = lines_of(release, np.arange(1), letters=0)[0]
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


def _ranks_in_words(known: list[float]) -> str:
    if len(known) > 5:
        return f"{len(known)} quantiles, {min(known):g} to {max(known):g}"
    return f"quantile{'s' if len(known) > 1 else ''} {', '.join(f'{rank:g}' for rank in sorted(known))}"


def _draw_quantiles(release: Release, ax: Axes, top: int) -> Axes:
    """Draw one line for each group, from its lowest quantile to its highest."""
    known = ranks(release)
    size = drawn(release, top)
    # Releases list all ranks of a group together, so rows are cut into groups.
    parts = (release.estimate, release.low, release.high)
    estimate, low, high = (v[: size * len(known)].reshape(size, -1) for v in parts)
    rows, (low, high) = np.arange(size), _within_sight(estimate, low, high)
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
    gap = "\n" if width_of(ax) < NARROW or release.asked.cut else ", "
    what = f"{quantity(release, ax)}: {_ranks_in_words(known)}"
    what += f"{gap}from left to right," if len(known) > 1 else ""
    label_rows(ax, labels, what, low, high, zero=False)
    return ax


def _draw_quantile_curve(release: Release, ax: Axes) -> Axes:
    """Draw the quantiles over their ranks."""
    rank = np.array(release.groups.columns[-1].to_pylist(), dtype=np.float64)
    order = np.argsort(rank)
    x, y, low, high = (v[order] for v in (rank, release.estimate, release.low, release.high))
    low, high = _within_sight(y, low, high)
    ax.fill_between(x, low, high, color=BLUE, alpha=0.18, linewidth=0)
    ax.errorbar(
        x,
        y,
        yerr=np.maximum([y - low, high - y], 0.0),
        fmt="-o",
        color=BLUE,
        linewidth=1.8,
        markersize=5,
        elinewidth=1.4,
        capsize=2.5,
    )
    ax.set_xlabel(f"share of {release.asked.rows} below")
    ax.set_ylabel(quantity(release, ax))
    ax.set_xlim(-0.03, 1.03)
    ax.xaxis.set_major_formatter(in_percent())
    ax.yaxis.set_major_formatter(in_full(low, high))
    if (low.min(), high.max()) != (release.low.min(), release.high.max()):
        # What goes on beyond the drawing ends at its edge.
        ax.set_ylim(low.min(), high.max())
    grid(ax)
    return ax


def _within_sight(
    estimate: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return intervals that end a little beyond all estimates, where they go on far beyond.

    An interval may have no end, where the tail of the numbers is not seen.
    """
    least, most = float(np.nanmin(estimate)), float(np.nanmax(estimate))
    room = (most - least) or max(abs(most), 1.0)
    return np.maximum(low, least - room), np.minimum(high, most + room)


def _bins(release: Release) -> list[int | None]:
    """Return the largest numbers of the bins, each once, the open bin last."""
    edges = set(release.groups.columns[1].to_pylist())
    return [*sorted(edge for edge in edges if edge is not None), *([None] if None in edges else [])]


def _draw_holdings(release: Release, ax: Axes) -> Axes:
    """Draw the numbers of users by how many elements, and records, they hold, bin by bin."""
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
    labels = bins_in_words(release, bins)
    label_rows(ax, labels, "estimate (users)", release.low, release.high, zero=True)
    ax.set_ylabel("held by one user")
    legend_above(ax, ax.get_legend_handles_labels()[0], columns=2)
    return ax

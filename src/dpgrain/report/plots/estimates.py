"""The plots of a release: estimates with their intervals, the granularity curve, clipping bounds.

Each draws on the axes it is given. Only where none are given is pyplot used, so that a notebook shows
the figure; the report itself never touches it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpgrain import _validate
from dpgrain.accounting import Compose, Contribution, Event
from dpgrain.data.kernel import FloatArray
from dpgrain.guarantee import Guarantee
from dpgrain.report.words import (
    bins_in_words,
    is_one,
    key_texts,
    label,
    measured,
    printed,
    ranks,
    shorten,
    shown,
)
from dpgrain.units import RELATIONS, Level, Relation
from dpgrain.wording import powers, rounded_up

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from dpgrain.statistics.holdings import Holdings
    from dpgrain.statistics.release import Histogram, Release

# Two of the colour-blind-safe palette of Okabe and Ito; apart in lightness as well.
BLUE, ORANGE = "#0072b2", "#d55e00"
# Text and lines: recoloured by the report's style sheet on a dark page.
INK, FAINT = "#1f2429", "#c9ced4"
# A line beside others; seen well enough on paper and on a dark page.
GREY = "#828c96"

_STEPS = (1, 2, 5)
# Letters of a label for each inch of a figure's width: labels take about a third of it.
_LETTERS_PER_INCH = 4.0
_MOST_LETTERS = 36
_NARROW = 5.5
_MANY_BOUNDS = 24


def plot_estimates(release: Release, ax: Axes | None = None, *, top: int = 30) -> Axes:
    """Draw the estimates of a release with their 95% intervals.

    Args:
        release: any release; one without groups gives axes that say so.
        ax: axes to draw on; new ones by default.
        top: how many groups: those with the largest estimates, largest first; of quantiles the first.

    Raises:
        ParameterError: if ``top`` is not a whole number of at least 1.

    One number over all records is written, not drawn. Quantiles are one line for each group, or a curve
    over the ranks where there are no groups; what users hold is drawn bin by bin. The intervals are for
    the noise: the bias of clipping and of bounds is not in them.
    """
    top = _validate.integer(minimum=1, top=top)
    rows = drawn(release, top)
    if ax is None:
        ax = _axes(7.0, 4.2 if not rows and len(release) > 1 else 1.2 + 0.28 * max(rows, 2))
    _plain(ax)
    if is_one(release):
        return _write_number(release, ax)
    if not len(release):
        ax.set_xlabel(_counted(release, ax))
        return _say(ax, f"no {'items' if _of_items(release) else 'groups'} were published")
    if release.statistic == "elements per user":
        return _draw_holdings(release, ax)
    if release.statistic == "quantiles":
        if release.groups.names == ("quantile",):
            return _draw_quantile_curve(release, ax)
        return _draw_quantiles(release, ax, top)
    places = shown(release, top)
    estimate, low, high = (v[places] for v in (release.estimate, release.low, release.high))
    _interval_bars(ax, np.arange(rows), estimate, low, high)
    sums = release.statistic in ("histogram", "count", "sum", "top")
    what = f"estimate ({_counted(release, ax)})" if sums else _counted(release, ax)
    _label_rows(ax, _labels(release, places, ax), what, low, high, zero=sums)
    return ax


def drawn(release: Release, top: int) -> int:
    """How many rows :func:`plot_estimates` draws below one another; 0 for a curve or one number."""
    if is_one(release) or release.groups.names == ("quantile",):
        return 0
    if release.statistic == "elements per user":
        return len(_bins(release))
    if release.statistic == "quantiles":
        return min(top, len(release) // max(len(ranks(release)), 1))
    return min(top, len(release))


def plot_curve(
    guarantee: Guarantee,
    ax: Axes | None = None,
    *,
    max_units: int = 100,
    holdings: Holdings | None = None,
) -> Axes:
    """Draw the granularity curve: ε for 1, 2, 5, … units of one person, under both relations.

    Args:
        guarantee: the promise of a release.
        ax: axes to draw on; new ones by default.
        max_units: the last number of units; fewer where no person can hold so many.
        holdings: how much users hold; drawn beside the curve, on an axis of its own to the right.

    Raises:
        ParameterError: if ``max_units`` is not a whole number of at least 1.

    For ``User`` the units are whole users. A number of units for which nothing is promised is left
    out, and the legend says from where.
    """
    last = _validate.integer(minimum=1, max_units=max_units)
    units = _unit_counts(guarantee, last)
    curves = {
        relation: [guarantee.epsilon(units=k, relation=relation) for k in units]
        for relation in RELATIONS
    }
    ax = plot_epsilons(units, curves, guarantee.level, guarantee.delta, ax, own=guarantee.relation)
    lines = list(ax.lines)
    if lines and holdings is not None and guarantee.level != "user":
        lines += _draw_shares(ax, holdings, guarantee.level, _last_drawn(units, curves))
        _write_legend(ax, lines)
    return ax


def plot_epsilons(
    units: Sequence[int],
    epsilons: Mapping[Relation, Sequence[float]],
    level: Level,
    delta: float,
    ax: Axes | None = None,
    *,
    own: Relation = "zero_out",
    user: tuple[int, Mapping[Relation, float]] | None = None,
) -> Axes:
    """Draw known ε for 1, 2, 5, … units of one person, under both relations.

    Args:
        units: the numbers of units, increasing.
        epsilons: relation → the ε of each of them.
        level: the unit.
        delta: the δ at which they hold.
        ax: axes to draw on; new ones by default.
        own: the relation whose values are written beside its points.
        user: the most elements of a user, and relation → the ε of a whole one; drawn as a level.
    """
    ax = _axes(7.0, 4.2) if ax is None else ax
    units = list(units)
    curves = {relation: np.array(epsilons[relation], dtype=np.float64) for relation in RELATIONS}
    # The first number of units that has no promise is shown, not the ones after it.
    endless = np.isinf(np.minimum(curves["zero_out"], curves["replace"]))
    units = units[: int(endless.argmax()) + 1] if endless.any() else units
    curves = {relation: curve[: len(units)] for relation, curve in curves.items()}
    _plain(ax)
    what = {"record": "records of one person", "element": "elements of one person", "user": "users"}
    ax.set_xlabel(f"number of {what[level]}")
    ax.set_ylabel(f"ε at δ = {powers(delta)}")
    finite = np.concatenate(list(curves.values()))
    finite = finite[np.isfinite(finite)]
    if finite.size == 0:
        return _say(ax, "no promise at this δ")
    ax.set_xscale("log")
    if finite.min() > 0:
        ax.set_yscale("log")
    same = bool(np.array_equal(curves["zero_out"], curves["replace"]))
    for relation in RELATIONS[:1] if same else RELATIONS:
        _draw_curve(ax, units, curves[relation], relation, same=same)
    _write_values(ax, units, curves[own], above=same or own == "replace")
    if user is not None:
        finite = np.append(finite, _draw_user(ax, *user))
    if finite.min() > 0 and finite.max() / finite.min() < 4:
        ax.set_ylim(finite.min() / 2, finite.max() * 2)
    _ticks(ax, units, finite)
    ax.grid(color=FAINT, linewidth=0.6)
    _write_legend(ax, list(ax.lines))
    return ax


def save_epsilons(
    path: Path,
    units: Sequence[int],
    epsilons: Mapping[Relation, Sequence[float]],
    level: Level,
    delta: float,
    *,
    user: tuple[int, Mapping[Relation, float]] | None = None,
) -> None:
    """Draw known ε into a file; arguments as for :func:`plot_epsilons`."""
    # A figure of its own: pyplot is for notebooks, and may want a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    plot_epsilons(units, epsilons, level, delta, figure.subplots(), user=user)
    figure.savefig(path, dpi=160, facecolor="white")


def plot_bounds(release: Histogram, ax: Axes | None = None) -> Axes:
    """Draw how many items have which clipping bound.

    Args:
        release: a published histogram.
        ax: axes to draw on; new ones by default.

    Many different bounds are counted in bins of equal ratio.
    """
    ax = _axes(7.0, 2.8) if ax is None else ax
    _plain(ax)
    ax.set_xlabel(f"clipping bound ({_counted(release, ax)})")
    ax.set_ylabel("items" if _of_items(release) else "groups")
    bounds = np.asarray(release.clip, dtype=np.float64)
    if bounds.size == 0:
        return _say(ax, f"no {'items' if _of_items(release) else 'groups'} were published")
    low, high = float(bounds.min()), float(bounds.max())
    ax.set_xscale("log")
    # Bounds need not differ: one bar then, a step wide.
    edges = np.geomspace(low / 1.05, high * 1.05, _MANY_BOUNDS + 1)
    counts, _ = np.histogram(bounds, edges)
    ax.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=BLUE, edgecolor="none")
    ax.xaxis.set_minor_formatter(lambda *_: "")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if high / low < 100:
        steps = _STEPS if high / low > 4 else (1, 1.5, 2, 3, 5, 7)
        ax.xaxis.set_major_locator(_log_locator(steps))
    ax.yaxis.set_major_locator(_whole_locator())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def contributions(event: Event) -> Iterator[Contribution]:
    """How units entered each of the sums of an event."""
    for part in event.events if isinstance(event, Compose) else (event,):
        contribution = getattr(part, "contribution", None)
        if isinstance(contribution, Contribution):
            yield contribution


def _axes(width: float, height: float) -> Axes:
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def _width(ax: Axes) -> float:
    figure = ax.get_figure(root=True)
    return 7.0 if figure is None else float(figure.get_figwidth())


def _letters(ax: Axes) -> int:
    """How many letters a label may have on these axes."""
    return max(14, int(_LETTERS_PER_INCH * _width(ax)))


def _of_items(release: Release) -> bool:
    return release.statistic in ("histogram", "top")


def _counted(release: Release, ax: Axes) -> str:
    """What an estimate counts, in a word or two."""
    return shorten(printed(measured(release)), _letters(ax))


def _labels(release: Release, places: Any, ax: Axes) -> list[str]:
    """The groups in words, their keys joined; of quantiles without the rank."""
    letters = min(max(10, int(_LETTERS_PER_INCH * _width(ax))), _MOST_LETTERS)
    keys = key_texts(release, places, letters=200)
    if release.statistic == "quantiles":
        keys = [key[:-1] for key in keys]
    return [label(key, letters) for key in keys]


def _interval_bars(
    ax: Axes, rows: Any, estimate: FloatArray, low: FloatArray, high: FloatArray, **style: Any
) -> None:
    """Points with their intervals, one on each row."""
    drawing = {"fmt": "o", "color": BLUE, "markersize": 5, "elinewidth": 1.6, "capsize": 2.5}
    # An interval cut at 0 still holds its estimate; rounding must not make a length negative.
    ax.errorbar(
        estimate,
        rows,
        xerr=np.maximum([estimate - low, high - estimate], 0.0),
        **{**drawing, **style},
    )


def _label_rows(
    ax: Axes, labels: Sequence[str], what: str, low: FloatArray, high: FloatArray, *, zero: bool
) -> None:
    """The axes of a plot with one group on each row, the first above."""
    # A narrow figure has room for half a line.
    gap = "\n" if _width(ax) < _NARROW else " "
    ax.set_xlabel(f"{what}{gap}with 95% interval")
    if zero:
        ax.axvline(0.0, color=INK, linewidth=0.8)
    # Names are text, not formulas: a $ in them is a dollar.
    ax.set_yticks(range(len(labels)), labels, parse_math=False)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    ax.locator_params(axis="x", nbins=max(3, min(8, int(_width(ax)))))
    ax.xaxis.set_major_formatter(_numbers(low, high))


def _numbers(low: FloatArray, high: FloatArray) -> Any:
    """How numbers on an axis are written."""
    millions = float(np.abs([low, high]).max()) >= 2e6
    scale, name = (1e6, "M") if millions else (1.0, "")
    return lambda value, _: f"{value / scale:,.10g}{name if value else ''}".replace("-", "−")


def _write_number(release: Release, ax: Axes) -> Axes:
    """One number, large, with its interval; there is nothing to compare it with."""
    number, low, high = number_in_words(release)
    ax.set_axis_off()
    middle: dict[str, Any] = {
        "transform": ax.transAxes,
        "ha": "center",
        "color": INK,
        "parse_math": False,
    }
    ax.text(0.5, 0.62, number, va="center", fontsize=30, fontweight="bold", **middle)
    ax.text(0.5, 0.3, _counted(release, ax), va="center", **middle)
    ax.text(0.5, 0.1, f"95% interval {low} to {high}", va="center", **middle)
    return ax


def number_in_words(release: Release) -> tuple[str, str, str]:
    """The one estimate of a release and the ends of its interval, as they are printed."""
    decimals = decimals_of(float(release.std_error[0]))
    estimate, low, high = (
        number(float(values[0]), decimals)
        for values in (release.estimate, release.low, release.high)
    )
    return estimate, low, high


def decimals_of(std_error: float) -> int | None:
    """As many decimals as show two digits of the standard error; None where it is 0."""
    if not std_error > 0:
        return None
    return min(max(1 - math.floor(math.log10(std_error)), 0), 12)


def number(value: float, decimals: int | None) -> str:
    """A number with so many decimals; without a standard error, six digits."""
    if decimals is None:
        return f"{value + 0.0:,.6g}".replace("-", "−")
    # Adding 0 turns −0 into 0.
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−")


def _ranks_in_words(known: list[float]) -> str:
    if len(known) > 5:
        return f"{len(known)} quantiles, {min(known):g} to {max(known):g}"
    return f"quantile{'s' if len(known) > 1 else ''} {', '.join(f'{rank:g}' for rank in sorted(known))}"


def _draw_quantiles(release: Release, ax: Axes, top: int) -> Axes:
    """One line for each group, from its lowest quantile to its highest."""
    known = ranks(release)
    size = drawn(release, top)
    # Row by row and rank by rank: releases list all ranks of a group together.
    parts = (release.estimate, release.low, release.high)
    estimate, low, high = (v[: size * len(known)].reshape(size, -1) for v in parts)
    rows = np.arange(size)
    if len(known) == 1:
        _interval_bars(ax, rows, estimate[:, 0], low[:, 0], high[:, 0])
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
    gap = "\n" if _width(ax) < _NARROW else ", "
    what = f"{_counted(release, ax)}: {_ranks_in_words(known)}"
    what += f"{gap}from left to right," if len(known) > 1 else ""
    _label_rows(ax, labels, what, low, high, zero=False)
    return ax


def _draw_quantile_curve(release: Release, ax: Axes) -> Axes:
    """The quantiles over their ranks."""
    rank = np.array(release.groups.columns[-1].to_pylist(), dtype=np.float64)
    order = np.argsort(rank)
    x, y, low, high = (v[order] for v in (rank, release.estimate, release.low, release.high))
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
    ax.set_xlabel("share of records below")
    ax.set_ylabel(_counted(release, ax))
    ax.set_xlim(-0.03, 1.03)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.yaxis.set_major_formatter(_numbers(low, high))
    ax.grid(color=FAINT, linewidth=0.6)
    return ax


def _bins(release: Release) -> list[int | None]:
    """The largest numbers of the bins, each once, the open bin last."""
    edges = set(release.groups.columns[1].to_pylist())
    return [*sorted(edge for edge in edges if edge is not None), *([None] if None in edges else [])]


def _draw_holdings(release: Release, ax: Axes) -> Axes:
    """How many users hold so many elements, and records, bin by bin."""
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
            _interval_bars(ax, rows, *parts, label=kind, **style)
    labels = bins_in_words(release, bins)
    _label_rows(ax, labels, "estimate (users)", release.low, release.high, zero=True)
    ax.set_ylabel("held by one user")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), labelcolor=INK, ncols=2)
    return ax


def _plain(ax: Axes) -> None:
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(colors=INK, which="both")
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    # The name of a weight is text, not a formula.
    ax.xaxis.label.set_parse_math(False)
    ax.yaxis.label.set_parse_math(False)


def _say(ax: Axes, text: str) -> Axes:
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=INK)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def _unit_counts(guarantee: Guarantee, last: int) -> list[int]:
    """1, 2, 5, 10, … up to the last, or up to what one person can hold."""
    if guarantee.level == "element":
        cells = [c.cells for c in contributions(guarantee.event) if c.cells is not None]
        last = max(1, min([last, *cells]))
    steps = (s * 10**power for power in range(len(str(last))) for s in _STEPS)
    # A step just before the last one would run into it.
    return [*(k for k in steps if k < 0.75 * last), last]


def _draw_curve(
    ax: Axes, units: list[int], curve: np.ndarray[Any, Any], relation: Relation, *, same: bool
) -> None:
    label = "removed" if relation == "zero_out" else "exchanged"
    if same:
        label = "removed or exchanged"
    endless = [k for k, epsilon in zip(units, curve, strict=True) if math.isinf(epsilon)]
    if endless:
        label += f"; no promise from {endless[0]:,} on"
    first = relation == "zero_out"
    ax.plot(
        units,
        np.where(np.isfinite(curve), curve, np.nan),
        marker="o" if first else "s",
        linestyle="-" if first else "--",
        color=BLUE if first else ORANGE,
        linewidth=1.8,
        markersize=5.5,
        label=label,
    )


def _last_drawn(units: Sequence[int], curves: Mapping[Relation, Sequence[float]]) -> int:
    """The last number of units on the axes: the first one without a promise, if there is one."""
    for place, k in enumerate(units):
        if math.isinf(min(curve[place] for curve in curves.values())):
            return k
    return units[-1]


def _draw_user(ax: Axes, most: int, epsilons: Mapping[Relation, float]) -> list[float]:
    """A whole user's ε as a level line for each relation; returns those that are drawn."""
    levels = []
    for relation, color in zip(RELATIONS, (BLUE, ORANGE), strict=True):
        epsilon = float(epsilons[relation])
        if math.isinf(epsilon):
            continue
        changed = "removed" if relation == "zero_out" else "exchanged"
        ax.axhline(
            epsilon,
            color=color,
            linewidth=1.1,
            linestyle=":",
            label=f"a whole user of at most {most:,}, {changed}",
        )
        levels.append(epsilon)
    return levels


def _write_legend(ax: Axes, lines: Sequence[Artist]) -> None:
    """The legend above the axes, where no curve can run into it."""
    ax.legend(
        handles=lines,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        labelcolor=INK,
        ncols=2 if len(lines) > 3 else 1,
    )


def _draw_shares(
    ax: Axes, holdings: Holdings, level: Literal["record", "element"], last: int
) -> list[Line2D]:
    """The shares of users with at most so many units, on an axis to the right; returns the line."""
    held: Literal["elements", "records"] = "elements" if level == "element" else "records"
    kinds, edges = (column.to_pylist() for column in holdings.groups.columns)
    some = [
        edge
        for kind, edge in zip(kinds, edges, strict=True)
        if kind == held and edge is not None and edge <= last
    ]
    if not some:
        return []
    right = ax.twinx()
    _plain(right)
    right.set_ylim(0.0, 1.04)
    right.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    right.tick_params(axis="y", length=0)
    right.set_ylabel("share of users (noisy)")
    # The promise above the shares.
    ax.set_zorder(right.get_zorder() + 1)
    ax.patch.set_visible(False)
    return right.plot(
        some,
        [holdings.share_at_most(edge, held) for edge in some],
        marker="d",
        linestyle=":",
        color=GREY,
        linewidth=1.4,
        markersize=5,
        label="users with at most so many",
    )


def _write_values(ax: Axes, units: list[int], curve: np.ndarray[Any, Any], *, above: bool) -> None:
    """Write the values of the promised relation at their points, on the side with room."""
    for k, epsilon in zip(units, curve, strict=True):
        if math.isfinite(epsilon):
            ax.annotate(
                rounded_up(float(epsilon), 3),
                (k, float(epsilon)),
                (0, 8 if above else -8),
                textcoords="offset points",
                ha="right" if above else "left",
                va="bottom" if above else "top",
                color=INK,
                fontsize="small",
            )
    # Room for the values; on the right also where the last ones are infinite.
    ax.margins(y=0.14)
    ax.set_xlim(units[0] / 1.6, units[-1] * 1.6)


def _ticks(ax: Axes, units: list[int], values: np.ndarray[Any, Any]) -> None:
    ax.set_xticks(units, [f"{k:g}" for k in units])
    ax.xaxis.set_minor_locator(_no_locator())
    if ax.get_yscale() == "log":
        ratio = float(values.max() / values.min())
        ax.yaxis.set_major_locator(_log_locator(_STEPS if ratio < 1000 else (1,)))
        ax.yaxis.set_minor_locator(_no_locator())
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _log_locator(steps: tuple[float, ...]) -> Any:
    from matplotlib.ticker import LogLocator

    return LogLocator(subs=steps)


def _whole_locator() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4, integer=True)


def _no_locator() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()

"""The plots of a release: estimates with their intervals, the granularity curve, clipping bounds.

Each draws on the axes it is given. Only where none are given is pyplot used, so that a notebook shows
the figure; the report itself never touches it.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain import _validate
from dpgrain.accounting import Compose, Contribution, Event
from dpgrain.guarantee import Guarantee
from dpgrain.units import RELATIONS, Relation
from dpgrain.wording import powers, rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpgrain.statistics.release import Histogram

# Two of the colour-blind-safe palette of Okabe and Ito; apart in lightness as well.
BLUE, ORANGE = "#0072b2", "#d55e00"
# Text and lines: recoloured by the report's style sheet on a dark page.
INK, FAINT = "#1f2429", "#c9ced4"

_STEPS = (1, 2, 5)
# Letters of a label for each inch of a figure's width: labels take about a third of it.
_LETTERS_PER_INCH = 4.0
_MOST_LETTERS = 36
_NARROW = 5.5
# Joiners that change how the letters beside them are written; not printable, but harmless.
_JOINERS = "\u200c\u200d"
_MANY_BOUNDS = 24


def plot_estimates(release: Histogram, ax: Axes | None = None, *, top: int = 30) -> Axes:
    """Draw the largest estimates, largest first, with their 95% intervals.

    Args:
        release: a published histogram; one without items gives axes that say so.
        ax: axes to draw on; new ones by default.
        top: how many items.

    Raises:
        ParameterError: if ``top`` is not a whole number of at least 1.

    The intervals are for the sum of clipped contributions: the bias of clipping is not in them.
    """
    shown = release.largest(_validate.integer(minimum=1, top=top))
    size = shown.num_rows
    ax = _axes(7.0, 1.2 + 0.28 * max(size, 2)) if ax is None else ax
    _plain(ax)
    # A narrow figure has room for half a line.
    gap = "\n" if _width(ax) < _NARROW else " "
    ax.set_xlabel(f"estimate ({_counted(release, ax)}){gap}with 95% interval")
    if size == 0:
        return _say(ax, "no items were published")
    estimate, low, high = (shown[name].to_numpy() for name in ("estimate", "low", "high"))
    rows = np.arange(size)
    ax.errorbar(
        estimate,
        rows,
        # An interval cut at 0 still holds its estimate; rounding must not make a length negative.
        xerr=np.maximum([estimate - low, high - estimate], 0.0),
        fmt="o",
        color=BLUE,
        markersize=5,
        elinewidth=1.6,
        capsize=2.5,
    )
    ax.axvline(0.0, color=INK, linewidth=0.8)
    letters = min(max(10, int(_LETTERS_PER_INCH * _width(ax))), _MOST_LETTERS)
    labels = [shorten(printed(item), letters) for item in shown["item"].to_pylist()]
    # Names are text, not formulas: a $ in them is a dollar.
    ax.set_yticks(rows, labels, parse_math=False)
    ax.set_ylim(size - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    ax.locator_params(axis="x", nbins=max(3, min(8, int(_width(ax)))))
    millions = float(np.abs([low, high]).max()) >= 2e6
    scale, name = (1e6, "M") if millions else (1.0, "")
    ax.xaxis.set_major_formatter(
        lambda value, _: f"{value / scale:,.10g}{name if value else ''}".replace("-", "−")
    )
    return ax


def plot_curve(guarantee: Guarantee, ax: Axes | None = None, *, max_units: int = 100) -> Axes:
    """Draw the granularity curve: ε for 1, 2, 5, … units of one person, under both relations.

    Args:
        guarantee: the promise of a release.
        ax: axes to draw on; new ones by default.
        max_units: the last number of units; fewer where no person can hold so many.

    Raises:
        ParameterError: if ``max_units`` is not a whole number of at least 1.

    For ``User`` the units are whole users. A number of units for which nothing is promised is left
    out, and the legend says from where.
    """
    last = _validate.integer(minimum=1, max_units=max_units)
    ax = _axes(7.0, 4.2) if ax is None else ax
    units = _unit_counts(guarantee, last)
    curves = {
        relation: np.array([guarantee.epsilon(units=k, relation=relation) for k in units])
        for relation in RELATIONS
    }
    # The first number of units that has no promise is shown, not the ones after it.
    endless = np.isinf(np.minimum(curves["zero_out"], curves["replace"]))
    units = units[: int(endless.argmax()) + 1] if endless.any() else units
    curves = {relation: curve[: len(units)] for relation, curve in curves.items()}
    _plain(ax)
    what = {"record": "records of one person", "element": "elements of one person", "user": "users"}
    ax.set_xlabel(f"number of {what[guarantee.level]}")
    ax.set_ylabel(f"ε at δ = {powers(guarantee.delta)}")
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
    own = curves[guarantee.relation]
    higher = not same and guarantee.relation == "replace"
    _write_values(ax, units, own, above=higher or same)
    if finite.min() > 0 and finite.max() / finite.min() < 4:
        ax.set_ylim(finite.min() / 2, finite.max() * 2)
    _ticks(ax, units, finite)
    ax.grid(color=FAINT, linewidth=0.6)
    # Above the axes, where no curve can run into it.
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), labelcolor=INK)
    return ax


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
    ax.set_ylabel("items")
    bounds = np.asarray(release.clip, dtype=np.float64)
    if bounds.size == 0:
        return _say(ax, "no items were published")
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


def printed(item: Any) -> str:
    """An item as one line of text in which nothing is invisible or reorders its surroundings."""
    text = str(item)
    if not text.strip():
        return repr(text)
    return "".join(
        c if c.isprintable() or c in _JOINERS else c.encode("unicode_escape").decode() for c in text
    )


def shorten(text: str, letters: int) -> str:
    """Cut a text to so many letters, of which wide ones count two, with … at the end."""
    used = 0
    for place, letter in enumerate(text):
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > letters:
            return text[: max(place - 1, 0)].rstrip() + "…"
    return text


def _axes(width: float, height: float) -> Axes:
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def _width(ax: Axes) -> float:
    figure = ax.get_figure(root=True)
    return 7.0 if figure is None else float(figure.get_figwidth())


def _counted(release: Histogram, ax: Axes) -> str:
    """What an estimate counts, in a word or two."""
    weight = release.asked.get("weight", "1 for each record")
    if weight == "1 for each record":
        return "records"
    return shorten(f"sum of {printed(weight)}", max(14, int(_LETTERS_PER_INCH * _width(ax))))


def _plain(ax: Axes) -> None:
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(colors=INK, which="both")
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    # The name of a weight is text, not a formula.
    ax.xaxis.label.set_parse_math(False)


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

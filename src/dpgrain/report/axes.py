"""Shared look of all plots: colours, axes, ticks, labels and legends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import matplotlib.dates
import numpy as np
from matplotlib.figure import Figure
from matplotlib.markers import CARETDOWNBASE, CARETLEFTBASE, CARETRIGHTBASE, CARETUPBASE
from matplotlib.ticker import (
    Formatter,
    FuncFormatter,
    LogLocator,
    NullLocator,
    StrMethodFormatter,
)

from dpgrain import _validate
from dpgrain._files import atomic_write
from dpgrain._formatting import one_line, shorten
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from dpgrain._types import FloatArray

# Colours of the colour-blind-safe palette of Okabe and Ito; they differ in lightness as well.
BLUE, ORANGE = "#0072b2", "#d55e00"
# Colours of text and lines; the report's style sheet replaces them on a dark page.
INK, FAINT = "#1f2429", "#c9ced4"
# Colour of a secondary line, visible on paper and on a dark page.
GREY = "#828c96"
#: Colours of several groups; more than five are hard to distinguish.
COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", GREY)

# Multiples of each power of ten with a tick.
STEPS = (1, 2, 5)
# Narrower figures, in inches, get short axis labels.
NARROW = 5.5
# Characters of a row label per inch of figure width (about a third of it), and their maximum.
_LETTERS_PER_INCH = 4.0
_MOST_LETTERS = 36
# An axis starts at 0 if the values then cover at least this share of it.
_SEEN_SHARE = 0.5
# Intervals end on the axis up to this number of usual lengths beyond the estimates.
_SEEN_LENGTHS = 3.0
# Triangles at the lower and the upper end of an interval, by axis; their base covers a cap.
_ARROWS: dict[str, tuple[Any, Any]] = {
    "x": (CARETLEFTBASE, CARETRIGHTBASE),
    "y": (CARETDOWNBASE, CARETUPBASE),
}
# matplotlib.dates has no types.
_dates: Any = matplotlib.dates


def axes_for(ax: Any, width: float, height: float) -> Axes:
    """Return the axes of a caller, or new ones of this size in inches, without a frame."""
    if ax is None:
        # Only here: pages never import pyplot, which may need a display.
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    if not hasattr(ax, "spines"):
        raise ParameterError(
            f"ax must be axes of matplotlib, not {_validate.describe(ax)}.", name="ax"
        )
    axes: Axes = ax
    plain(axes)
    return axes


def save(
    path: Path, draw: Callable[..., object], width: float, height: float, panels: int = 1
) -> None:
    """Draw on new axes side by side and write them to a file, without pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained")
    draw(*figure.subplots(1, panels, squeeze=False)[0])
    with atomic_write(path) as part:
        figure.savefig(part, dpi=160, facecolor="white")


def axes_width(ax: Axes) -> float:
    """Return the width of the figure, in inches."""
    figure = ax.get_figure(root=True)
    return 7.0 if figure is None else float(figure.get_figwidth())


def fitting(text: str, ax: Axes) -> str:
    """Shorten a text to the length of an axis."""
    return shorten(one_line(text), max(14, int(_LETTERS_PER_INCH * axes_width(ax))))


def label_letters(ax: Axes) -> int:
    """Return the maximum length of a row label on these axes."""
    return min(max(10, int(_LETTERS_PER_INCH * axes_width(ax))), _MOST_LETTERS)


def plain(ax: Axes) -> None:
    """Remove the frame except for the lower line, and set the colour of texts."""
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(colors=INK, which="both")
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_color(INK)
        # A column name is text, not a formula.
        axis.label.set_parse_math(False)


def write_message(ax: Axes, text: str) -> Axes:
    """Write a message instead of a drawing."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=INK)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def grid(ax: Axes, axis: Any = "both") -> None:
    """Draw faint lines at the ticks."""
    ax.grid(axis=axis, color=FAINT, linewidth=0.6)


def legend_above(
    ax: Axes, lines: Sequence[Artist] | None = None, columns: int | None = None
) -> None:
    """Write the legend of these or all labelled artists above the axes."""
    lines = ax.get_legend_handles_labels()[0] if lines is None else lines
    legend = ax.legend(
        handles=lines,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        labelcolor=INK,
        ncols=columns or (2 if len(lines) > 3 else 1),
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def few_digits(digits: int = 6) -> Formatter:
    """Write numbers on an axis with at most this number of digits: 0.5, 20, 1e+06."""
    return StrMethodFormatter(f"{{x:.{digits}g}}")


def in_percent() -> Formatter:
    """Write shares on an axis as percentages without decimals."""
    return StrMethodFormatter("{x:.0%}")


def in_full(low: FloatArray, high: FloatArray) -> Formatter:
    """Write numbers between these ends in full, or in millions from 2,000,000 on."""
    millions = float(np.abs([low, high]).max()) >= 2e6
    scale, name = (1e6, "M") if millions else (1.0, "")
    return FuncFormatter(
        lambda value, _: f"{value / scale:,.10g}{name if value else ''}".replace("-", "−")
    )


def at_steps(steps: Sequence[float] = STEPS) -> LogLocator:
    """Place ticks of a logarithmic axis at these multiples of each power of ten."""
    return LogLocator(subs=tuple(steps))


def log_ticks(axis: Axis, ratio: float) -> None:
    """Place readable ticks on a logarithmic axis whose ends have this ratio."""
    axis.set_major_locator(at_steps(STEPS if ratio < 1000 else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(few_digits())


def date_ticks(axis: Axis, most: int) -> None:
    """Place at most this number of ticks on an axis of days since 1970, and write their dates."""
    locator = _dates.AutoDateLocator(minticks=2, maxticks=most)
    axis.set_major_locator(locator)
    axis.set_major_formatter(_dates.ConciseDateFormatter(locator))


def errors(estimate: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return (2, n) distances from estimates to the ends of their intervals."""
    # Rounding must not make a distance negative.
    return np.maximum([estimate - low, high - estimate], 0.0)


def interval_bars(
    ax: Axes, rows: Any, estimate: FloatArray, low: FloatArray, high: FloatArray, **style: Any
) -> None:
    """Draw points with their intervals, one per row."""
    drawing = {"fmt": "o", "color": BLUE, "markersize": 5, "elinewidth": 1.6, "capsize": 2.5}
    ax.errorbar(estimate, rows, xerr=errors(estimate, low, high), **{**drawing, **style})


def label_rows(
    ax: Axes, labels: Sequence[str], what: str, low: FloatArray, high: FloatArray, *, zero: bool
) -> None:
    """Label a plot with one group per row, the first on top, and its axis of values."""
    # Names are text, not formulas: a $ in them is a dollar sign.
    ax.set_yticks(range(len(labels)), labels, parse_math=False)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    grid(ax, "x")
    ax.locator_params(axis="x", nbins=max(3, min(8, int(axes_width(ax)))))
    gap = "\n" if axes_width(ax) < NARROW else " "
    start = value_axis(ax, "x", low, high, zero=zero)
    ax.set_xlabel(f"{what}{gap}with 95% interval{start}")


def value_axis(ax: Axes, axis: Any, low: FloatArray, high: FloatArray, *, zero: bool) -> str:
    """Format an axis of values, and return a note if it does not start at 0."""
    along, numbers = getattr(ax, f"{axis}axis"), in_full(low, high)
    along.set_major_formatter(numbers)
    if zero and seen_from_zero(low, high):
        (ax.axvline if axis == "x" else ax.axhline)(0.0, color=INK, linewidth=0.8)
        return ""
    least = float(np.nanmin(low)) if np.size(low) else 0.0
    start = max((float(tick) for tick in along.get_ticklocs() if tick <= least), default=0.0)
    if least <= 0 or start <= 0:
        return ""
    (ax.set_xlim if axis == "x" else ax.set_ylim)(start)
    return f"\nthe axis starts at {numbers(start)}, not at 0"


def within_sight(
    estimate: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """End intervals at the axis if they are infinite or much longer than most; see ``open_ends``."""
    least, most = float(np.nanmin(estimate)), float(np.nanmax(estimate))
    lengths = high - low
    usual = float(np.median(lengths[np.isfinite(lengths)])) if np.isfinite(lengths).any() else 0.0
    margin = max(most - least, _SEEN_LENGTHS * usual) or max(abs(most), 1.0)
    return np.maximum(low, least - margin), np.minimum(high, most + margin)


def open_ends(
    ax: Axes,
    axis: Literal["x", "y"],
    at: Any,
    drawn: tuple[FloatArray, FloatArray],
    ends: tuple[FloatArray, FloatArray],
    colour: str = BLUE,
) -> str:
    """Draw an arrow at each end of an interval that continues; return a note if there is one."""
    note = ""
    for marker, shown, end in zip(_ARROWS[axis], drawn, ends, strict=True):
        if (beyond := (shown > end) | (shown < end)).any():
            note = "\narrows: the interval continues beyond the axis"
            places = shown[beyond], np.asarray(at)[beyond]
            x, y = places if axis == "x" else places[::-1]
            ax.plot(x, y, linestyle="", marker=marker, color=colour, markersize=6, clip_on=False)
    return note


def seen_from_zero(low: FloatArray, high: FloatArray) -> bool:
    """Return whether values cover a good part of an axis that includes 0."""
    ends = np.append(low, high)
    if not ends.size or ends.min() <= 0:
        return True
    return bool(np.ptp(ends) >= _SEEN_SHARE * ends.max())

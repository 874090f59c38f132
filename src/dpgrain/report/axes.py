"""The look of all plots: colours, axes, ticks, labels and legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import (
    Formatter,
    FuncFormatter,
    LogLocator,
    NullLocator,
    StrMethodFormatter,
)

from dpgrain import _validate
from dpgrain._wording import printed, shorten
from dpgrain.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from dpgrain._types import FloatArray

# Colours of the colour-blind-safe palette of Okabe and Ito, which differ in lightness too.
BLUE, ORANGE = "#0072b2", "#d55e00"
# Colours of text and lines, which the report's style sheet changes on a dark page.
INK, FAINT = "#1f2429", "#c9ced4"
# A line beside others has this colour, which is seen well enough on paper and on a dark page.
GREY = "#828c96"

# Multiples of each power of ten at which ticks stand.
STEPS = (1, 2, 5)
# A narrower figure, in inches, has room for half a line.
NARROW = 5.5
# Letters of a label for each inch of a figure's width, so that it takes about a third of it, and its
# letters, at most.
_LETTERS_PER_INCH = 4.0
_MOST_LETTERS = 36
# Share of the axis: rows are drawn from 0 on where their intervals reach over more of it then.
_SEEN_SHARE = 0.5


def new_axes(width: float, height: float) -> Axes:
    """Make axes on a new figure, whose size is in inches and which a notebook shows."""
    # The import stands only here: the report itself never touches pyplot, which may want a display.
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def axes_for(ax: Any, width: float, height: float) -> Axes:
    """Return the axes that a caller has passed, or new ones for None.

    Raises:
        ParameterError: if something else was passed.
    """
    if ax is None:
        return new_axes(width, height)
    if not hasattr(ax, "spines"):
        raise ParameterError(f"ax must be axes of matplotlib, not {_validate.said(ax)}.", name="ax")
    axes: Axes = ax
    return axes


def width_of(ax: Axes) -> float:
    """Return the width of the figure, in inches."""
    figure = ax.get_figure(root=True)
    return 7.0 if figure is None else float(figure.get_figwidth())


def fitting(text: str, ax: Axes) -> str:
    """Return a text cut to the letters with room for them on an axis."""
    return shorten(printed(text), max(14, int(_LETTERS_PER_INCH * width_of(ax))))


def label_letters(ax: Axes) -> int:
    """Return the largest number of letters of the label of a row on these axes."""
    return min(max(10, int(_LETTERS_PER_INCH * width_of(ax))), _MOST_LETTERS)


def plain(ax: Axes) -> None:
    """Take the frame away, but for the line below, and colour what is written."""
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(colors=INK, which="both")
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    # The name of a weight is text, not a formula.
    ax.xaxis.label.set_parse_math(False)
    ax.yaxis.label.set_parse_math(False)


def say(ax: Axes, text: str) -> Axes:
    """Write a few words in place of a drawing."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=INK)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def grid(ax: Axes, axis: Any = "both") -> None:
    """Draw faint lines at the ticks."""
    ax.grid(axis=axis, color=FAINT, linewidth=0.6)


def legend_above(ax: Axes, lines: Sequence[Artist], columns: int | None = None) -> None:
    """Write the legend above the axes, where no curve can run into it."""
    ax.legend(
        handles=lines,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        labelcolor=INK,
        ncols=columns or (2 if len(lines) > 3 else 1),
    )


def few_digits(digits: int = 6) -> Formatter:
    """Write numbers on an axis as short as a number of digits allows: 0.5, 20, 1e+06."""
    return StrMethodFormatter(f"{{x:.{digits}g}}")


def in_percent() -> Formatter:
    """Write shares on an axis in whole per cent."""
    return StrMethodFormatter("{x:.0%}")


def in_full(low: FloatArray, high: FloatArray) -> Formatter:
    """Write numbers between these ends in full, or in millions where they are long."""
    millions = float(np.abs([low, high]).max()) >= 2e6
    scale, name = (1e6, "M") if millions else (1.0, "")
    return FuncFormatter(
        lambda value, _: f"{value / scale:,.10g}{name if value else ''}".replace("-", "−")
    )


def at_steps(steps: Sequence[float] = STEPS) -> LogLocator:
    """Place ticks of a logarithmic axis at these multiples of each power of ten."""
    return LogLocator(subs=tuple(steps))


def log_ticks(axis: Axis, ratio: float) -> None:
    """Give a logarithmic axis, whose ends have this ratio, about as many ticks as can be read."""
    axis.set_major_locator(at_steps(STEPS if ratio < 1000 else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(few_digits())


def interval_bars(
    ax: Axes, rows: Any, estimate: FloatArray, low: FloatArray, high: FloatArray, **style: Any
) -> None:
    """Draw points with their intervals, one on each row."""
    drawing = {"fmt": "o", "color": BLUE, "markersize": 5, "elinewidth": 1.6, "capsize": 2.5}
    # An interval cut at 0 still holds its estimate; rounding must not make a length negative.
    ax.errorbar(
        estimate,
        rows,
        xerr=np.maximum([estimate - low, high - estimate], 0.0),
        **{**drawing, **style},
    )


def label_rows(
    ax: Axes, labels: Sequence[str], what: str, low: FloatArray, high: FloatArray, *, zero: bool
) -> None:
    """Write the axes of a plot with one group on each row, the first above.

    Args:
        ax: axes with the rows.
        labels: the names of the rows.
        what: the name of what is drawn, to which "with 95% interval" is added.
        low: the lower ends.
        high: the upper ends.
        zero: True marks 0 by a line, if differences are seen from there.
    """
    gap = "\n" if width_of(ax) < NARROW else " "
    from_zero = zero and seen_from_zero(low, high)
    if from_zero:
        ax.axvline(0.0, color=INK, linewidth=0.8)
    # Names are text, not formulas: a $ in them is a dollar.
    ax.set_yticks(range(len(labels)), labels, parse_math=False)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    grid(ax, "x")
    ax.locator_params(axis="x", nbins=max(3, min(8, int(width_of(ax)))))
    numbers = in_full(low, high)
    ax.xaxis.set_major_formatter(numbers)
    begins = "" if from_zero or not len(labels) else _begin(ax, float(low.min()))
    ax.set_xlabel(f"{what}{gap}with 95% interval{begins}")


def seen_from_zero(low: FloatArray, high: FloatArray) -> bool:
    """Return whether differences are seen on an axis with 0: intervals fill a good part of it."""
    ends = np.append(low, high)
    if not ends.size or ends.min() <= 0:
        return True
    return bool(np.ptp(ends) >= _SEEN_SHARE * ends.max())


def _begin(ax: Axes, least: float) -> str:
    """Begin an axis at a tick, and return words about it where this is not 0."""
    begin = max((float(tick) for tick in ax.get_xticks() if tick <= least), default=0.0)
    if least <= 0 or begin <= 0:
        return ""
    ax.set_xlim(left=begin)
    return f"\nthe axis begins at {ax.xaxis.get_major_formatter()(begin)}, not at 0"

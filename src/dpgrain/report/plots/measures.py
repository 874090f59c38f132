"""A measure of a network, evaluation by evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpgrain.report.axes import BLUE, INK, axes_for, few_digits, fitting, grid, plain, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Evaluated(Protocol):
    """Measurements and their times."""

    @property
    def evaluated(self) -> tuple[int, ...]:
        """The number of steps before each evaluation."""

    @property
    def measures(self) -> Mapping[str, tuple[float, ...]]:
        """The values of each measure, by name."""


def plot_measure(history: Evaluated, name: str, ax: Axes | None = None) -> Axes:
    """Draw a measure over the steps, with its last value.

    Args:
        history: what was measured, and when.
        name: the name of the measure.
        ax: axes to draw on; new ones by default.
    """
    ax = axes_for(ax, 7.0, 3.6)
    plain(ax)
    steps = np.array(history.evaluated, dtype=np.float64)
    values = np.array(history.measures[name], dtype=np.float64)
    ax.set_xlabel("step")
    ax.set_ylabel(fitting(name, ax))
    there = np.isfinite(values)
    if not there.any():
        return say(ax, "no value was finite")
    ax.plot(steps[there], values[there], "-o", color=BLUE, linewidth=1.6, markersize=3.5)
    ax.annotate(
        f"{values[there][-1]:.4g}",
        (float(steps[there][-1]), float(values[there][-1])),
        (6, 0),
        textcoords="offset points",
        va="center",
        color=INK,
    )
    # The last value stands to the right of its point.
    ax.margins(x=0.1 if len(values) > 1 else 0.5, y=0.12)
    ax.set_xlim(left=min(0.0, float(steps[0])))
    ax.yaxis.set_major_formatter(few_digits(4))
    grid(ax)
    return ax

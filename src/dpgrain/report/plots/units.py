"""The expected error by ε for each privacy unit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, NullLocator

from dpgrain._formatting import powers, rounded_up
from dpgrain.report.axes import (
    BLUE,
    FAINT,
    GREY,
    ORANGE,
    at_steps,
    axes_for,
    few_digits,
    grid,
    legend_above,
    save,
)
from dpgrain.units import Level

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from dpgrain.planning.count_error import UnitErrors, UnitsPlan

# Ratio of the largest ε to the planned one, and of that to the smallest; number of points.
_REACH, _STEPS = 10.0, 21
_STYLES: dict[Level, tuple[str, str]] = {
    "record": (GREY, "D"),
    "element": (BLUE, "o"),
    "user": (ORANGE, "s"),
}


def plot_units(plan: UnitsPlan, ax: Axes | None = None) -> Axes:
    """Draw the error of a count by ε, one curve per unit; the legend shows the ε of a whole person."""
    ax = axes_for(ax, 7.0, 4.6)
    epsilons = plan.epsilon * np.geomspace(1 / _REACH, _REACH, _STEPS)
    plans = [plan.at(float(epsilon)) for epsilon in epsilons]
    for errors in plan.units:
        color, marker = _STYLES[errors.unit]
        shares = [one[errors.unit].share for one in plans]
        ax.plot(epsilons, shares, color=color, linewidth=1.9, label=_name(errors))
        ax.plot([plan.epsilon], [errors.share], marker, color=color, markersize=7)
    ax.axvline(plan.epsilon, color=FAINT, linewidth=1.2, zorder=0)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel(f"ε per unit, δ = {powers(plan.delta)}")
    ax.set_ylabel("relative rms error of a count")
    ax.xaxis.set_major_locator(at_steps())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(few_digits())
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g}%"))
    grid(ax)
    legend_above(ax, columns=1)
    return ax


def _name(errors: UnitErrors) -> str:
    """Return a unit with the ε of an average person."""
    person = rounded_up(errors.epsilon_of_person, 3)
    return f"{errors.unit} (an average person: ε = {person})"


def save_units(plan: UnitsPlan, path: Path) -> None:
    """Write the plot of a plan to a file."""
    save(path, partial(plot_units, plan), 7.0, 4.6)

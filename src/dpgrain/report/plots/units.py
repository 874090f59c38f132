"""The error to expect over ε under each privacy unit, with what each unit hides of a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, NullLocator

from dpgrain._wording import powers, rounded_up
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
    plain,
)
from dpgrain.units import Level

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from dpgrain.planning.units import UnitErrors, UnitsPlan

# Ratio of the largest ε of the picture to the one that was asked for, as of that to the smallest; and
# the steps between them.
_REACH, _STEPS = 10.0, 21
_LOOKS: dict[Level, tuple[str, str]] = {
    "record": (GREY, "D"),
    "element": (BLUE, "o"),
    "user": (ORANGE, "s"),
}


def plot_units(plan: UnitsPlan, ax: Axes | None = None) -> Axes:
    """Draw the error of a count over ε, one curve for each unit.

    Args:
        plan: the plan of several units.
        ax: axes to draw on; new ones by default.

    The legend says what each unit leaves a whole person at the ε of the plan, which is marked: a small
    error is worth little where nothing of a person is hidden.
    """
    ax = axes_for(ax, 7.0, 4.6)
    plain(ax)
    epsilons = plan.epsilon * np.geomspace(1 / _REACH, _REACH, _STEPS)
    plans = [plan.at(float(epsilon)) for epsilon in epsilons]
    for errors in plan.units:
        color, marker = _LOOKS[errors.unit]
        shares = [one[errors.unit].share for one in plans]
        ax.plot(epsilons, shares, color=color, linewidth=1.9, label=_name(errors))
        ax.plot([plan.epsilon], [errors.share], marker, color=color, markersize=7)
    ax.axvline(plan.epsilon, color=FAINT, linewidth=1.2, zorder=0)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel(f"ε that is promised to one unit, δ = {powers(plan.delta)}")
    ax.set_ylabel("rms error of a count, of its records")
    ax.xaxis.set_major_locator(at_steps())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(few_digits())
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g}%"))
    grid(ax)
    legend_above(ax, ax.get_legend_handles_labels()[0], columns=1)
    return ax


def _name(errors: UnitErrors) -> str:
    """Return a unit, and what it leaves a whole person."""
    person = rounded_up(errors.epsilon_of_person, 3)
    return f"{errors.unit}: all data of an average person have ε = {person}"


def save_units(plan: UnitsPlan, path: Path) -> None:
    """Draw a plan of several units into a file, without pyplot, which may want a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    plot_units(plan, figure.subplots())
    figure.savefig(path, dpi=160, facecolor="white")

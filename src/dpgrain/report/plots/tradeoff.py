"""The measured trade-off between false alarms and misses, compared with the claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.report.axes import (
    BLUE,
    GREY,
    ORANGE,
    axes_for,
    grid,
    legend_above,
    save,
    write_message,
)

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from dpgrain.auditing.verdict import Audit


def plot_tradeoff(audit: Audit, ax: Axes | None = None, *, units: int | None = None) -> Axes:
    """Draw the misses of an audit's best test by its false alarms, and the claimed lower bound.

    Args:
        audit: the audit.
        ax: axes to draw on; new ones by default.
        units: the number of units; by default the smallest audited number.

    Raises:
        ParameterError: if the audit is of real rows, or not of this number of units.

    A point well below the claimed curve refutes the guarantee. Points have no confidence bounds.
    """
    if audit.curator:
        raise ParameterError(
            "audit must be of synthetic rows, because draws from real rows must not be shown.",
            name="audit",
        )
    drawn = [line for line in audit.lines if line.curve and units in (None, line.units)]
    if units is not None and not drawn:
        raise ParameterError(
            f"units must be a number of units with a free bound, not {_validate.describe(units)}.",
            name="units",
        )
    ax = axes_for(ax, 5.0, 4.6)
    ax.set_xlabel("false alarms")
    ax.set_ylabel("misses")
    if not drawn:
        return write_message(ax, "no draws to show")
    least = min(line.units for line in drawn)
    for line, claimed in zip(audit.lines, audit.claimed, strict=True):
        if line.units != least or not line.curve:
            continue
        color = BLUE if line.relation == "zero_out" else ORANGE
        alarms = np.linspace(0, 1, 400)
        ax.plot(alarms, claimed_power(alarms, claimed), "--", color=color, linewidth=1.4,
                label=f"claim, {line.relation}")  # fmt: skip
        x, y = np.array(line.curve).T
        ax.plot(x, y, color=color, linewidth=1.9, label=f"draws, {line.relation}")
    ax.plot([0, 1], [1, 0], ":", color=GREY, linewidth=1.2, label="no information")
    grid(ax)
    legend_above(ax, list(ax.lines), columns=2)
    return ax


def claimed_power(alarms: FloatArray, claimed: tuple[tuple[float, float], ...]) -> FloatArray:
    """Return the least share of misses that (δ, ε) pairs allow at these false alarms."""
    least = np.zeros_like(alarms)
    for delta, epsilon in claimed:
        if np.isfinite(epsilon):
            one = 1 - delta - np.exp(epsilon) * alarms
            other = np.exp(-epsilon) * (1 - delta - alarms)
            least = np.maximum(least, np.maximum(one, other))
    return least


def save_audits(audits: Mapping[str, Audit], path: Path) -> None:
    """Draw audits side by side, each under its name, and write them to a file."""

    def draw(*panels: Axes) -> None:
        for ax, (name, each) in zip(panels, audits.items(), strict=False):
            plot_tradeoff(each, ax).set_title(name)

    save(path, draw, 5.0 * max(len(audits), 1), 5.0, max(len(audits), 1))

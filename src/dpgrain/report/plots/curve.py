"""The granularity curve: ε for 1, 2, 5, … units of one person."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.ticker import NullLocator

from dpgrain import _validate
from dpgrain._formatting import powers, rounded_up
from dpgrain.report.axes import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    STEPS,
    axes_for,
    grid,
    in_percent,
    legend_above,
    log_ticks,
    plain,
    save,
    write_message,
)
from dpgrain.units import RELATIONS, Level, Relation
from dpgrain.words.guarantee_text import CHANGES, UNITS
from dpgrain.words.odds import covered_units

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.statistics.contribution_counts import Holdings


def plot_curve(
    guarantee: Guarantee,
    ax: Axes | None = None,
    *,
    max_units: int = 100,
    holdings: Holdings | None = None,
) -> Axes:
    """Draw the granularity curve: ε for 1, 2, 5, … units of one person, under both relations.

    Args:
        guarantee: the guarantee of a release.
        ax: axes to draw on; new ones by default.
        max_units: the largest number of units, at most what one person can contribute.
        holdings: a contribution distribution, drawn on a second axis to the right.

    Raises:
        ParameterError: if ``max_units`` is not a positive integer.
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
        legend_above(ax, lines)
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
    """Draw the ε of increasing numbers of units, under both relations.

    Args:
        units: the numbers of units, increasing.
        epsilons: relation → the ε of each number of units.
        level: the unit.
        delta: the δ of all ε.
        ax: axes to draw on; new ones by default.
        own: the relation with values written at its points.
        user: the maximum number of elements of a user, and relation → the ε of a whole user.
    """
    ax = axes_for(ax, 7.0, 4.2)
    units = list(units)
    curves = {relation: np.array(epsilons[relation], dtype=np.float64) for relation in RELATIONS}
    # The curve ends at the first number of units without a guarantee.
    endless = np.isinf(np.minimum(curves["zero_out"], curves["replace"]))
    units = units[: int(endless.argmax()) + 1] if endless.any() else units
    curves = {relation: curve[: len(units)] for relation, curve in curves.items()}
    ax.set_xlabel(f"number of {UNITS[level]}")
    ax.set_ylabel(f"ε at δ = {powers(delta)}")
    finite = np.concatenate(list(curves.values()))
    finite = finite[np.isfinite(finite)]
    if finite.size == 0:
        return write_message(ax, "no guarantee at this δ")
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
    grid(ax)
    legend_above(ax, list(ax.lines))
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
    """Write the plot of :func:`plot_epsilons` to a file."""
    draw = partial(plot_epsilons, units, epsilons, level, delta, user=user)
    save(path, draw, 7.0, 4.4)


def _unit_counts(guarantee: Guarantee, last: int) -> list[int]:
    """Return 1, 2, 5, 10, … up to the last number or the maximum of one person."""
    last = covered_units(guarantee, last)
    steps = (s * 10**power for power in range(len(str(last))) for s in STEPS)
    # A label just before the last one would overlap it.
    return [*(k for k in steps if k < 0.75 * last), last]


def _draw_curve(
    ax: Axes, units: list[int], curve: np.ndarray[Any, Any], relation: Relation, *, same: bool
) -> None:
    label = CHANGES[relation]
    if same:
        label = " or ".join(CHANGES.values())
    endless = [k for k, epsilon in zip(units, curve, strict=True) if math.isinf(epsilon)]
    if endless:
        label += f"; no guarantee from {endless[0]:,}"
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
    """Return the last number of units on the axes."""
    for place, k in enumerate(units):
        if math.isinf(min(curve[place] for curve in curves.values())):
            return k
    return units[-1]


def _draw_user(ax: Axes, most: int, epsilons: Mapping[Relation, float]) -> list[float]:
    """Draw the ε of a whole user as one horizontal line per relation, and return the finite ε."""
    levels = []
    for relation, color in zip(RELATIONS, (BLUE, ORANGE), strict=True):
        epsilon = float(epsilons[relation])
        if math.isinf(epsilon):
            continue
        ax.axhline(
            epsilon,
            color=color,
            linewidth=1.1,
            linestyle=":",
            label=f"a whole user of at most {most:,}, {CHANGES[relation]}",
        )
        levels.append(epsilon)
    return levels


def _draw_shares(
    ax: Axes, holdings: Holdings, level: Literal["record", "element"], last: int
) -> list[Line2D]:
    """Draw the shares of users by number of units on a second axis, and return the line."""
    counted: Literal["elements", "records"] = "elements" if level == "element" else "records"
    kinds, edges = (column.to_pylist() for column in holdings.groups.columns)
    some = [
        edge
        for kind, edge in zip(kinds, edges, strict=True)
        if kind == counted and edge is not None and edge <= last
    ]
    if not some:
        return []
    right = ax.twinx()
    plain(right)
    right.set_ylim(0.0, 1.04)
    right.yaxis.set_major_formatter(in_percent())
    right.tick_params(axis="y", length=0)
    right.set_ylabel("share of users (noisy)")
    # The guarantee is drawn above the shares.
    ax.set_zorder(right.get_zorder() + 1)
    ax.patch.set_visible(False)
    return right.plot(
        some,
        [holdings.share_at_most(edge, counted) for edge in some],
        marker="d",
        linestyle=":",
        color=GREY,
        linewidth=1.4,
        markersize=5,
        label="users with at most this number",
    )


def _write_values(ax: Axes, units: list[int], curve: np.ndarray[Any, Any], *, above: bool) -> None:
    """Write the values of the own relation at their points."""
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
    # Space for the values; the last ones may be infinite.
    ax.margins(y=0.14)
    ax.set_xlim(units[0] / 1.6, units[-1] * 1.6)


def _ticks(ax: Axes, units: list[int], values: np.ndarray[Any, Any]) -> None:
    ax.set_xticks(units, [f"{k:g}" for k in units])
    ax.xaxis.set_minor_locator(NullLocator())
    if ax.get_yscale() == "log":
        log_ticks(ax.yaxis, float(values.max() / values.min()))

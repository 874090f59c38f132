"""The granularity curve: ε for 1, 2, 5, … units of one person."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.ticker import NullLocator

from dpgrain import _validate
from dpgrain._wording import powers, rounded_up
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
    say,
)
from dpgrain.report.promises import most_units
from dpgrain.units import RELATIONS, Level, Relation

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.statistics.holdings import Holdings


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
        max_units: the last number of units; fewer where no person can hold that number.
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
    ax = axes_for(ax, 7.0, 4.2)
    units = list(units)
    curves = {relation: np.array(epsilons[relation], dtype=np.float64) for relation in RELATIONS}
    # The first number of units that has no promise is shown, not the ones after it.
    endless = np.isinf(np.minimum(curves["zero_out"], curves["replace"]))
    units = units[: int(endless.argmax()) + 1] if endless.any() else units
    curves = {relation: curve[: len(units)] for relation, curve in curves.items()}
    plain(ax)
    what = {"record": "records of one person", "element": "elements of one person", "user": "users"}
    ax.set_xlabel(f"number of {what[level]}")
    ax.set_ylabel(f"ε at δ = {powers(delta)}")
    finite = np.concatenate(list(curves.values()))
    finite = finite[np.isfinite(finite)]
    if finite.size == 0:
        return say(ax, "no promise at this δ")
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
    """Draw known ε into a file, from the arguments of :func:`plot_epsilons`."""
    # The figure is made without pyplot, which is for notebooks and may want a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    plot_epsilons(units, epsilons, level, delta, figure.subplots(), user=user)
    figure.savefig(path, dpi=160, facecolor="white")


def _unit_counts(guarantee: Guarantee, last: int) -> list[int]:
    """Return 1, 2, 5, 10, … up to the last, or up to what one person can hold."""
    last = most_units(guarantee, last)
    steps = (s * 10**power for power in range(len(str(last))) for s in STEPS)
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
    """Return the last number of units on the axes: the first one without a promise, if there is one."""
    for place, k in enumerate(units):
        if math.isinf(min(curve[place] for curve in curves.values())):
            return k
    return units[-1]


def _draw_user(ax: Axes, most: int, epsilons: Mapping[Relation, float]) -> list[float]:
    """Draw a whole user's ε as a level line for each relation; return the lines that are drawn."""
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


def _draw_shares(
    ax: Axes, holdings: Holdings, level: Literal["record", "element"], last: int
) -> list[Line2D]:
    """Draw the shares of users by their number of units, on an axis to the right; return the line."""
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
    plain(right)
    right.set_ylim(0.0, 1.04)
    right.yaxis.set_major_formatter(in_percent())
    right.tick_params(axis="y", length=0)
    right.set_ylabel("share of users (noisy)")
    # The promise is drawn above the shares.
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
    # The values need room, on the right also where the last ones are infinite.
    ax.margins(y=0.14)
    ax.set_xlim(units[0] / 1.6, units[-1] * 1.6)


def _ticks(ax: Axes, units: list[int], values: np.ndarray[Any, Any]) -> None:
    ax.set_xticks(units, [f"{k:g}" for k in units])
    ax.xaxis.set_minor_locator(NullLocator())
    if ax.get_yscale() == "log":
        log_ticks(ax.yaxis, float(values.max() / values.min()))

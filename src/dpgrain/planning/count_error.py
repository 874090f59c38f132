"""Expected error of counts and of selected items, also compared between privacy units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._formatting import powers, rounded_up
from dpgrain._report_mixins import PlanReportMixin
from dpgrain._types import FloatArray
from dpgrain.accounting import Selection, calibrate_truncated_geometric
from dpgrain.accounting.events.base import Event
from dpgrain.errors import ParameterError
from dpgrain.numerics.special_functions import ndtr
from dpgrain.papers.floors import min_error, min_users_with_item
from dpgrain.planning.plan_tables import (
    MANY_UNITS,
    ErrorPlan,
    PlanRow,
    PlanTable,
    Section,
    floor_row,
    planned_promise,
    promise_text,
    three_digits,
)
from dpgrain.publishing import Promise
from dpgrain.statistics.intervals import half_width
from dpgrain.statistics.plan import SumsNoise, noise_sd, plan_histogram
from dpgrain.units import PLAIN_UNITS, Level, Relation, User
from dpgrain.words.notes import Note

# Clipping bounds per octave to try, up to this number of standard deviations of the logarithm.
_STEPS_PER_OCTAVE, _FARTHEST_DEVIATIONS = 8, 9.0


@dataclass(frozen=True)
class UnitErrors:
    """The expected error of one cell's count under one privacy unit.

    Args:
        unit: the level of the privacy unit.
        epsilon_of_person: ε for all data of one person with the average number of records and
            elements.
        clip: the clipping bound of one person's records in one cell with the smallest error.
        noise: the standard deviation of the noise of a cell's count.
        lost: the records of a cell lost to clipping.
        total: the records of a cell.
        event: the planned event.

    >>> errors = plan_units(1.0, 1e-6, n_users=10_000, records=90, elements=5, cells=40)["element"]
    >>> round(errors.noise), round(errors.lost), round(errors.error), round(errors.share, 3)
    (1138, 1027, 1532, 0.068)
    """

    unit: Level
    epsilon_of_person: float
    clip: float
    noise: float
    lost: float
    total: float
    event: Event

    @property
    def error(self) -> float:
        """Rms error of a cell's count, from noise and clipping."""
        return math.hypot(self.noise, self.lost)

    @property
    def share(self) -> float:
        """Rms error as a share of the cell's records."""
        return self.error / self.total

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain JSON values."""
        plain = {**asdict(self), "error": self.error, "event": self.event.to_dict()}
        bounded = math.isfinite(self.epsilon_of_person)
        return {**plain, "epsilon_of_person": self.epsilon_of_person if bounded else None}


@dataclass(frozen=True)
class UnitsPlan(PlanTable, PlanReportMixin):
    """The expected errors under several privacy units, side by side.

    Args:
        title: a description of the release, the promise and the data.
        epsilon: the promised ε, separately for each unit.
        delta: the promised δ.
        units: the errors, unit by unit.
        assumptions: the assumptions of the numbers, each a kind and its numbers.
        data: the other arguments of :func:`plan_units`, by name.

    >>> plan = plan_units(1.0, 1e-6, n_users=10_000, records=90, elements=5, cells=40)
    >>> plan.columns
    ('', 'record', 'element', 'user')
    >>> for row in plan.tables()[0][1][:2]:
    ...     print(row)
    ("ε of an average person's data, δ = 10⁻⁶", '328', '2.46', '1')
    ('clipping bound in a cell', '1', '235', '166')
    """

    title: str
    epsilon: float
    delta: float
    units: tuple[UnitErrors, ...]
    assumptions: tuple[Note, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def at(self, epsilon: float) -> UnitsPlan:
        """Return the plan for the same data at another ε, separately for each unit.

        Args:
            epsilon: the promised ε.

        Raises:
            ParameterError: if it is not above 0.

        >>> plan = plan_units(1.0, 1e-6, n_users=10_000, records=90, elements=5, cells=40)
        >>> plan.at(2.0)["element"].error < plan["element"].error
        True
        """
        return plan_units(epsilon, self.delta, **self.data)

    def __getitem__(self, level: Level) -> UnitErrors:
        """Return the errors under one unit.

        Raises:
            ParameterError: if the plan has no such unit.
        """
        for errors in self.units:
            if isinstance(level, str) and errors.unit == level:
                return errors
        named = ", ".join(repr(errors.unit) for errors in self.units)
        raise ParameterError(
            f"unit {_validate.describe(level)} is not in this plan; choose from {named}."
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The units, after the names of the numbers."""
        return ("", *(errors.unit for errors in self.units))

    def tables(self) -> list[Section]:
        """Return the one table: a name, then a number per unit."""
        numbers: tuple[tuple[str, Callable[[UnitErrors], str]], ...] = (
            (
                f"ε of an average person's data, δ = {powers(self.delta)}",
                lambda errors: rounded_up(errors.epsilon_of_person, 3),
            ),
            ("clipping bound in a cell", lambda errors: three_digits(errors.clip)),
            ("noise sd of a count", lambda errors: three_digits(errors.noise)),
            ("lost to clipping", lambda errors: three_digits(errors.lost)),
            ("rms error of a count", lambda errors: three_digits(errors.error)),
            ("the same, of its records", lambda errors: f"{100 * errors.share:.2g}%"),
        )
        return [("", [(name, *map(number, self.units)) for name, number in numbers])]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {
            "plan": self.title,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "units": [errors.to_dict() for errors in self.units],
            "notes": list(self.notes),
        }


def plan_units(
    epsilon: float,
    delta: float,
    *,
    n_users: int,
    records: float,
    elements: float = 1.0,
    cells: int = 1,
    skew: float = 2.5,
    relation: Relation = "zero_out",
) -> UnitsPlan:
    """Return the expected error of counts by cell, under each privacy unit.

    Args:
        epsilon: privacy parameter ε, such as 1; smaller protects more. Each unit has it separately.
        delta: privacy parameter δ, such as 1e-6.
        n_users: public number of users.
        records: mean number of records per user. It is at least ``elements``.
        elements: mean number of cells with records per user.
        cells: public number of cells. Each is an element of every user with records in it.
        skew: mean ÷ median number of records per user. It is at least 1, and 2.1 to 3.1 in logs of
            chats, shops, games and speeches.
        relation: neighbouring data: a unit removed, or replaced by another.

    Raises:
        ParameterError: if a number is out of range, or the averages are inconsistent.

    The number of records per user is assumed lognormal, which its mean and median determine, and
    evenly divided over the user's elements. The clipping bound is the best for such data. A bound
    chosen within the budget has errors some 10 to 30% larger with ten cells or more, or with one
    bound for whole users, and two or three times as large with fewer cells of heavy-tailed
    elements. The guarantee does not depend on this; it is valid for all data.

    Formal guarantee: that of each unit's ``event``, calibrated to (ε, δ).

    >>> plan = plan_units(1.0, 1e-6, n_users=10_000, records=90, elements=5, cells=40)
    >>> [f"{errors.unit}: {errors.share:.4f}" for errors in plan.units]
    ['record: 0.0002', 'element: 0.0681', 'user: 0.1120']
    """
    _ = planned_promise(User(), epsilon, delta, relation)
    n_users = _validate.integer(minimum=1, n_users=n_users)
    cells = _validate.integer(minimum=1, cells=cells)
    if not 1 <= (elements := _validate.positive(elements=elements)) <= cells:
        raise ParameterError(
            f"elements must be between 1 and the number of cells, {cells:,}, not {elements:g}."
        )
    if not elements <= (records := _validate.positive(records=records)) <= 1e9:
        raise ParameterError(
            f"records must be between elements ({elements:g}) and 1e9, not {records:g}."
        )
    if not 1 <= (skew := _validate.positive(skew=skew)) <= 1e6:
        raise ParameterError(f"skew must be between 1 and 1e6, not {skew:g}.")
    data = _AssumedData(n_users * elements / cells, records / elements, elements, skew)
    units = tuple(
        _errors(level, data, epsilon, delta, relation, cells)
        for level in ("record", "element", "user")
    )
    title = (
        f"Counts in {cells:,} {'cell' if cells == 1 else 'cells'} of {n_users:,} users with "
        f"{records:g} records in {elements:g} of them on average, {relation}, ε = {epsilon:g}, "
        f"δ = {powers(delta)}"
    )
    notes = (("skew", skew), ("best-bounds",), ("data-like-these",))
    data_arguments = {
        "n_users": n_users,
        "records": records,
        "elements": elements,
        "cells": cells,
        "skew": skew,
        "relation": relation,
    }
    return UnitsPlan(title, epsilon, delta, units, notes, data_arguments)


@dataclass(frozen=True)
class _AssumedData:
    """Assumed data: blocks of one user in one cell, of lognormal size."""

    holders: float  # per cell
    block: float  # average size of a block
    elements: float  # per user
    skew: float

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of a block's size."""
        return math.sqrt(2 * math.log(self.skew))

    def lost(self, bounds: FloatArray) -> FloatArray:
        """Return (B,) E(x − r)₊ for the size x of a block, times the number of users."""
        if self.spread == 0:
            return self.holders * np.maximum(self.block - bounds, 0.0)
        above = np.log(self.block / bounds) / self.spread + self.spread / 2
        each = self.block * ndtr(above) - bounds * ndtr(above - self.spread)
        return np.asarray(self.holders * np.maximum(each, 0.0))

    def bounds(self) -> FloatArray:
        """Return the (B,) clipping bounds to try; one record is the smallest."""
        farthest = max(self.block, 1.0) * math.exp(_FARTHEST_DEVIATIONS * self.spread)
        steps = math.ceil(_STEPS_PER_OCTAVE * math.log2(2 * farthest))
        return np.asarray(2.0 ** (np.arange(steps + 1) / _STEPS_PER_OCTAVE), dtype=np.float64)


def _errors(
    level: Level, data: _AssumedData, epsilon: float, delta: float, relation: Relation, cells: int
) -> UnitErrors:
    """Return the smallest error under one unit, over all clipping bounds."""
    release = plan_histogram(
        unit=PLAIN_UNITS[level],
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        items=cells,
        cells=cells,
    )
    noise, total = noise_sd(release.sums), data.holders * data.block
    units = {"record": data.block * data.elements, "element": data.elements, "user": 1}[level]
    person = release.event.epsilon(delta, units=math.ceil(units), relation=relation)
    if level == "record":
        return UnitErrors(level, person, 1.0, noise, 0.0, total, release.event)
    # A whole user's bound is for all cells together: a user's elements of size x have norm
    # x·√elements.
    wider = math.sqrt(data.elements) if level == "user" else 1.0
    bounds = data.bounds()
    lost = data.lost(bounds)
    best = int(np.argmin(np.hypot(lost, bounds * wider * noise)))
    bound = float(bounds[best])
    return UnitErrors(
        level, person, bound, bound * wider * noise, float(lost[best]), total, release.event
    )


# 95% quantile of the normal distribution, in standard deviations.
_MOSTLY_DEVIATIONS = 1.6448536269514722


def plan_counts(plan: SumsNoise) -> ErrorPlan:
    """Return the expected error of a planned histogram, with limits of any mechanism.

    Args:
        plan: the noise, from :func:`dpgrain.plan_histogram`.

    Raises:
        ParameterError: if it is not such a plan, or its ε is not between 1e-6 and 1e6.

    Numbers of users are for people with one item each; a person with t items adds 1/√t to each of
    them. The fewest users "by any rule" are for one item, with all of ε and δ.

    >>> from dpgrain import Element, plan_histogram
    >>> plan = plan_counts(plan_histogram(unit=Element(), epsilon=1.0, delta=1e-6, items=9, clip=1))
    >>> round(plan["noise sd of a count"], 3)
    4.225
    """
    sums = _validate.instance(SumsNoise, plan=plan).sums
    unit = User(sums.contribution.max_elements) if plan.level == "user" else PLAIN_UNITS[plan.level]
    promise = planned_promise(unit, plan.epsilon, plan.delta, plan.relation, allow_zero=True)
    noise = noise_sd(sums)
    # One unit changes one coordinate by at least its bound, in any of its blocks.
    floor = min_error(plan.epsilon, plan.delta, MANY_UNITS, relation=plan.relation, signed=False)
    rows = [
        PlanRow("noise sd of a count", noise, "clipping bounds"),
        PlanRow("95% of counts within ±", half_width(sums.law.name) * noise, "clipping bounds"),
        floor_row("least rms error by any mechanism", floor),
        PlanRow("times the least", noise / floor),
    ]
    if isinstance(plan.select, Selection):
        rows += _selection_rows(plan.select, promise)
    title = f"Histogram, {promise_text(promise)}"
    notes = (("unknown-bias",),)
    return ErrorPlan(title, plan.epsilon, plan.delta, plan.event, tuple(rows), notes)


def _selection_rows(select: Selection, promise: Promise) -> list[PlanRow]:
    """Return the numbers of users that lead to the selection of an unknown item."""
    half, mostly = select.threshold, select.threshold + _MOSTLY_DEVIATIONS * select.noise_multiplier
    rows = [
        PlanRow("item is selected half the time from", math.ceil(half), "users with one item"),
        PlanRow("item is selected 95% of the time from", math.ceil(mostly), "users with one item"),
    ]
    if select.max_items > 1:
        root = math.sqrt(select.max_items)
        rows.append(
            PlanRow(
                "the same, half the time",
                math.ceil(half * root),
                f"users with {select.max_items:,} items",
            )
        )
    optimal = calibrate_truncated_geometric(
        promise.epsilon,
        promise.delta,
        contribution=select.contribution,
        relation=promise.relation,
        unit=promise.unit,
    )
    rows.append(
        PlanRow(
            "by truncated noise on one item a block",
            optimal.cutoff + 1,
            "users",
            "Desfontaines et al. 2022",
        )
    )
    least = min_users_with_item(promise.epsilon, promise.delta)
    rows.append(
        PlanRow("by any rule, half the time", least, "users", "Desfontaines et al. 2022", "floor")
    )
    return rows

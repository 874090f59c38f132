"""Expected error of counts, and of the selection of unknown items."""

from __future__ import annotations

import math

from dpgrain import _validate
from dpgrain.accounting.calibration import calibrate_truncated_geometric
from dpgrain.accounting.events.additive import Additive
from dpgrain.accounting.events.base import Event
from dpgrain.accounting.events.partition_selection import Selection
from dpgrain.errors import ParameterError
from dpgrain.papers.floors import (
    min_error,
    min_users_with_item,
)
from dpgrain.planning.error_plan import (
    FLOOR,
    MANY_UNITS,
    ErrorPlan,
    PlanRow,
    checked_promise,
    checked_unit,
    promise_text,
)
from dpgrain.statistics.intervals import half_width
from dpgrain.statistics.plan import noise_sd
from dpgrain.units import PLAIN_UNITS, Relation, Unit

# 95% quantile of the normal distribution, in standard deviations.
_MOSTLY_DEVIATIONS = 1.6448536269514722


def plan_counts(
    sums: Additive,
    select: Selection | None = None,
    *,
    epsilon: float,
    delta: float,
    relation: Relation = "zero_out",
    unit: Unit | None = None,
) -> ErrorPlan:
    """Return the expected error of a histogram with known noise.

    Args:
        sums: the noisy sums; :func:`dpgrain.plan_histogram` calibrates them.
        select: the event that selects unknown items; None for a public list of items.
        epsilon: the promised ε for all parts of the release.
        delta: the promised δ for all parts of the release.
        relation: the neighbouring relation.
        unit: the protected unit; by default the unit of a block.

    Raises:
        ParameterError: if a parameter is out of range.

    Numbers of users are for people with one item each; a person with t items adds 1/√t to each of
    them. The fewest users "by any rule" are for one item, with all of ε and δ.

    >>> from dpgrain.accounting import calibrate_gaussian
    >>> plan = plan_counts(calibrate_gaussian(1.0, 1e-6), epsilon=1.0, delta=1e-6)
    >>> round(plan["noise sd of a count"], 3)
    4.225
    """
    if not isinstance(sums, Additive):
        raise ParameterError(
            f"sums must be a Gaussian or Laplace event, not {_validate.describe(sums)}.",
            name="sums",
        )
    if select is not None:
        _validate.instance(Selection, select=select)
    epsilon, delta = checked_promise(epsilon, delta, relation, allow_zero=sums.law.pure)
    unit = PLAIN_UNITS[sums.level] if unit is None else checked_unit(unit)
    noise = noise_sd(sums)
    within = half_width(sums.law.name) * noise
    # One unit changes one coordinate by at least its bound, in any of its blocks.
    floor = min_error(epsilon, delta, MANY_UNITS, relation=relation, signed=False)
    rows = [
        PlanRow("noise sd of a count", noise, "clipping bounds"),
        PlanRow("95% of counts within ±", within, "clipping bounds"),
        PlanRow("least rms error by any mechanism", floor, "clipping bounds", FLOOR, kind="floor"),
        PlanRow("times the least", noise / floor),
    ]
    event: Event = sums
    if select is not None:
        rows += _selection_rows(select, epsilon, delta, relation, unit)
        event = select + sums
    title = f"Histogram, {promise_text(epsilon, delta, relation, unit)}"
    note = "Clipping adds a bias that depends on the data and is unknown in advance."
    return ErrorPlan(title, epsilon, delta, event, tuple(rows), (note,))


def _selection_rows(
    select: Selection, epsilon: float, delta: float, relation: Relation, unit: Unit
) -> list[PlanRow]:
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
        epsilon, delta, contribution=select.contribution, relation=relation, unit=unit
    )
    rows.append(
        PlanRow(
            "by truncated noise on one item a block",
            optimal.cutoff + 1,
            "users",
            "Desfontaines et al. 2022",
        )
    )
    least = min_users_with_item(epsilon, delta)
    rows.append(
        PlanRow("by any rule, half the time", least, "users", "Desfontaines et al. 2022", "floor")
    )
    return rows

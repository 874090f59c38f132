"""Expected error of counts, and of the selection of unknown items."""

from __future__ import annotations

import math

from dpgrain import _validate
from dpgrain.accounting import Selection, calibrate_truncated_geometric
from dpgrain.papers.floors import min_error, min_users_with_item
from dpgrain.planning.plan_tables import (
    FLOOR,
    MANY_UNITS,
    ErrorPlan,
    PlanRow,
    planned_promise,
    promise_text,
)
from dpgrain.publishing import Promise
from dpgrain.statistics.intervals import half_width
from dpgrain.statistics.plan import SumsNoise, noise_sd
from dpgrain.units import PLAIN_UNITS, User

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
        PlanRow("least rms error by any mechanism", floor, "clipping bounds", FLOOR, kind="floor"),
        PlanRow("times the least", noise / floor),
    ]
    if isinstance(plan.select, Selection):
        rows += _selection_rows(plan.select, promise)
    title = f"Histogram, {promise_text(promise)}"
    note = "Clipping adds a bias that depends on the data and is unknown in advance."
    return ErrorPlan(title, plan.epsilon, plan.delta, plan.event, tuple(rows), (note,))


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

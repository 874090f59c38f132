"""Promises and budgets: every release is charged here before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.publishing.budget import Budget, budget, in_budget
    from dpgrain.publishing.caps import Caps
    from dpgrain.publishing.charge import Charge
    from dpgrain.publishing.prices import Price, price
    from dpgrain.publishing.promise import Promise
    from dpgrain.publishing.publish import annotate_interrupt, before_publishing, publish, publishes
    from dpgrain.publishing.query import Query
    from dpgrain.publishing.release_plan import Plan

__all__ = [
    "Budget",
    "Caps",
    "Charge",
    "Plan",
    "Price",
    "Promise",
    "Query",
    "annotate_interrupt",
    "before_publishing",
    "budget",
    "in_budget",
    "price",
    "publish",
    "publishes",
]

lazy_package(
    __name__,
    {
        "dpgrain.publishing.budget": ("Budget", "budget", "in_budget"),
        "dpgrain.publishing.caps": ("Caps",),
        "dpgrain.publishing.charge": ("Charge",),
        "dpgrain.publishing.release_plan": ("Plan",),
        "dpgrain.publishing.prices": ("Price", "price"),
        "dpgrain.publishing.promise": ("Promise",),
        "dpgrain.publishing.publish": (
            "annotate_interrupt",
            "before_publishing",
            "publish",
            "publishes",
        ),
        "dpgrain.publishing.query": ("Query",),
    },
)

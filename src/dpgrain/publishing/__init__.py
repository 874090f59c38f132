"""Promises and budgets: every release is charged here before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.publishing.budget import Budget, budget, in_budget
    from dpgrain.publishing.caps import Caps
    from dpgrain.publishing.charge import Charge
    from dpgrain.publishing.door import publishes
    from dpgrain.publishing.planned import Planned
    from dpgrain.publishing.prices import Price, price
    from dpgrain.publishing.promise import Promise
    from dpgrain.publishing.publish import before_publishing, publish, told_if_interrupted
    from dpgrain.publishing.query import Query

__all__ = [
    "Budget",
    "Caps",
    "Charge",
    "Planned",
    "Price",
    "Promise",
    "Query",
    "before_publishing",
    "budget",
    "in_budget",
    "price",
    "publish",
    "publishes",
    "told_if_interrupted",
]

lazy_package(
    __name__,
    {
        "dpgrain.publishing.budget": ("Budget", "budget", "in_budget"),
        "dpgrain.publishing.caps": ("Caps",),
        "dpgrain.publishing.charge": ("Charge",),
        "dpgrain.publishing.door": ("publishes",),
        "dpgrain.publishing.planned": ("Planned",),
        "dpgrain.publishing.prices": ("Price", "price"),
        "dpgrain.publishing.promise": ("Promise",),
        "dpgrain.publishing.publish": ("before_publishing", "publish", "told_if_interrupted"),
        "dpgrain.publishing.query": ("Query",),
    },
)

"""Promises and budgets: every release is charged here before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.publishing.budget import Budget, budget, in_budget
    from dpgrain.publishing.caps import Caps
    from dpgrain.publishing.prices import Price, price
    from dpgrain.publishing.promise import Promise
    from dpgrain.publishing.publish import before_publishing, told_if_interrupted
    from dpgrain.publishing.share import of_share, takes_share

__all__ = [
    "Budget",
    "Caps",
    "Price",
    "Promise",
    "before_publishing",
    "budget",
    "in_budget",
    "of_share",
    "price",
    "takes_share",
    "told_if_interrupted",
]

face(
    __name__,
    {
        "dpgrain.publishing.budget": ("Budget", "budget", "in_budget"),
        "dpgrain.publishing.caps": ("Caps",),
        "dpgrain.publishing.prices": ("Price", "price"),
        "dpgrain.publishing.promise": ("Promise",),
        "dpgrain.publishing.publish": ("before_publishing", "told_if_interrupted"),
        "dpgrain.publishing.share": ("of_share", "takes_share"),
    },
)

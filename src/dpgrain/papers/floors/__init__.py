"""Limits of all private mechanisms: numerical floors, and orders of the papers.

Two classical arguments concern the worst data set with a given number of units, and apply to every
(ε, δ)-DP mechanism, for any task. *Two points* compares data sets with distant sums and overlapping
outputs. *Fingerprints* uses that an accurate mean of many coordinates reveals who is in it (after
Bun, Ullman & Vadhan 2014, Dwork et al. 2015).

Other arguments concern users with many independent records of one distribution. *Two worlds*
compares distributions that few users can distinguish; for an unlimited number of records per user,
the floor for the number of users remains. *Many hypotheses* has one world for each hypothesis.
*Clipped sums* concerns Gaussian noise on contributions of bounded norm, with any centre. The lower
bounds of the papers are orders, without constants and logarithms. Proofs: docs/theory, "How little
error there can be".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.papers.floors.orders import choice_order, convex_order, mean_order
    from dpgrain.papers.floors.sum_floors import (
        min_error,
        min_noise_of_clipped_sums,
        min_users_with_item,
    )
    from dpgrain.papers.floors.worlds import (
        PENALTIES,
        Penalty,
        min_error_of_records,
        min_error_of_worlds,
        min_excess_of_choice,
    )

__all__ = [
    "PENALTIES",
    "Penalty",
    "choice_order",
    "convex_order",
    "mean_order",
    "min_error",
    "min_error_of_records",
    "min_error_of_worlds",
    "min_excess_of_choice",
    "min_noise_of_clipped_sums",
    "min_users_with_item",
]

lazy_package(
    __name__,
    {
        "dpgrain.papers.floors.orders": ("choice_order", "convex_order", "mean_order"),
        "dpgrain.papers.floors.sum_floors": (
            "min_error",
            "min_noise_of_clipped_sums",
            "min_users_with_item",
        ),
        "dpgrain.papers.floors.worlds": (
            "PENALTIES",
            "Penalty",
            "min_error_of_records",
            "min_error_of_worlds",
            "min_excess_of_choice",
        ),
    },
)

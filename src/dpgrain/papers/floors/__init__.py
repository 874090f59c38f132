"""Limits of every private mechanism: floors with numbers, and the orders of the papers.

Two classical arguments are about the worst data set of a given number of units, and hold for every
(ε, δ)-DP mechanism, whatever it computes. *Two points* compares data sets whose sums are far apart
and whose outputs share mass. *Fingerprints* uses that a good mean of many coordinates gives away who is
in it (after Bun, Ullman & Vadhan 2014, Dwork et al. 2015).

Other arguments are about users with many independent records of one law. *Two worlds* compares laws
that few users can distinguish; where each user may have any number of records, what is left is the
floor of a fixed number of users. *Many hypotheses* has one world for each hypothesis. *Clipped
sums* is about Gaussian noise on contributions of bounded norm, wherever their centre is. The lower
bounds of the papers are orders, without constants and logarithms. Proofs: docs/theory, "How little
error there can be".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.papers.floors.hypotheses import least_excess_of_choice
    from dpgrain.papers.floors.orders import choice_order, convex_order, mean_order
    from dpgrain.papers.floors.sums import least_error, least_noise_of_clipped_sums
    from dpgrain.papers.floors.two_points import least_holders
    from dpgrain.papers.floors.worlds import (
        PENALTIES,
        Penalty,
        least_error_of_records,
        least_error_of_worlds,
    )

__all__ = [
    "PENALTIES",
    "Penalty",
    "choice_order",
    "convex_order",
    "least_error",
    "least_error_of_records",
    "least_error_of_worlds",
    "least_excess_of_choice",
    "least_holders",
    "least_noise_of_clipped_sums",
    "mean_order",
]

face(
    __name__,
    {
        "dpgrain.papers.floors.hypotheses": ("least_excess_of_choice",),
        "dpgrain.papers.floors.orders": (
            "choice_order",
            "convex_order",
            "mean_order",
        ),
        "dpgrain.papers.floors.sums": (
            "least_error",
            "least_noise_of_clipped_sums",
        ),
        "dpgrain.papers.floors.two_points": ("least_holders",),
        "dpgrain.papers.floors.worlds": (
            "PENALTIES",
            "Penalty",
            "least_error_of_records",
            "least_error_of_worlds",
        ),
    },
)

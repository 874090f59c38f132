"""Sums without a trusted curator: devices randomise, a shuffler mixes, an analyzer adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.shuffle.blind import BlindAnalyzer, BlindRandomizer, BlindShuffler, BlindSum
    from dpgrain.shuffle.device_noise import Arrivals
    from dpgrain.shuffle.parties import (
        Analyzer,
        Bag,
        Dropped,
        Enrolment,
        Estimate,
        Randomizer,
        Shuffler,
    )
    from dpgrain.shuffle.shares import Shares
    from dpgrain.shuffle.sums import PoissonSum, ScalarSum, VectorSum

__all__ = [
    "Analyzer",
    "Arrivals",
    "Bag",
    "BlindAnalyzer",
    "BlindRandomizer",
    "BlindShuffler",
    "BlindSum",
    "Dropped",
    "Enrolment",
    "Estimate",
    "PoissonSum",
    "Randomizer",
    "ScalarSum",
    "Shares",
    "Shuffler",
    "VectorSum",
]

face(
    __name__,
    {
        "dpgrain.shuffle.blind": ("BlindAnalyzer", "BlindRandomizer", "BlindShuffler", "BlindSum"),
        "dpgrain.shuffle.device_noise": ("Arrivals",),
        "dpgrain.shuffle.parties": (
            "Analyzer",
            "Bag",
            "Dropped",
            "Enrolment",
            "Estimate",
            "Randomizer",
            "Shuffler",
        ),
        "dpgrain.shuffle.shares": ("Shares",),
        "dpgrain.shuffle.sums": ("PoissonSum", "ScalarSum", "VectorSum"),
    },
)

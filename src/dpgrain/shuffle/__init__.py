"""Sums without a trusted curator: noisy devices, a shuffler and an analyzer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.shuffle.device_noise import PoissonNoise
    from dpgrain.shuffle.parties import (
        Analyzer,
        Bag,
        Dropped,
        Enrolment,
        Estimate,
        Randomizer,
        Shuffler,
    )
    from dpgrain.shuffle.sums import PoissonSum, ScalarSum, VectorSum

__all__ = [
    "Analyzer",
    "Bag",
    "Dropped",
    "Enrolment",
    "Estimate",
    "PoissonNoise",
    "PoissonSum",
    "Randomizer",
    "ScalarSum",
    "Shuffler",
    "VectorSum",
]

lazy_package(
    __name__,
    {
        "dpgrain.shuffle.device_noise": ("PoissonNoise",),
        "dpgrain.shuffle.parties": (
            "Analyzer",
            "Bag",
            "Dropped",
            "Enrolment",
            "Estimate",
            "Randomizer",
            "Shuffler",
        ),
        "dpgrain.shuffle.sums": ("PoissonSum", "ScalarSum", "VectorSum"),
    },
)

"""Contracts for the tests of implementations from elsewhere, and their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.testing import odd
    from dpgrain.testing.engine import EngineContract
    from dpgrain.testing.mean import MeanContract
    from dpgrain.testing.products import covering
    from dpgrain.testing.statistic import StatisticContract

__all__ = ["EngineContract", "MeanContract", "StatisticContract", "covering", "odd"]

face(
    __name__,
    {
        "dpgrain.testing.engine": ("EngineContract",),
        "dpgrain.testing.mean": ("MeanContract",),
        "dpgrain.testing.products": ("covering",),
        "dpgrain.testing.statistic": ("StatisticContract",),
    },
    modules=("odd",),
)

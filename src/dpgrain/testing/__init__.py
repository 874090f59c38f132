"""Conformance suites that implementations of other packages inherit in their tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.testing.engine import EngineContract
    from dpgrain.testing.mean import MeanContract
    from dpgrain.testing.statistic import StatisticContract

__all__ = ["EngineContract", "MeanContract", "StatisticContract"]

lazy_package(
    __name__,
    {
        "dpgrain.testing.engine": ("EngineContract",),
        "dpgrain.testing.mean": ("MeanContract",),
        "dpgrain.testing.statistic": ("StatisticContract",),
    },
)

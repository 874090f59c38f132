"""Conformance suites that implementations of other packages inherit in their tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.testing.engine_contract import EngineContract
    from dpgrain.testing.mean_contract import MeanContract
    from dpgrain.testing.statistic_contract import StatisticContract

__all__ = ["EngineContract", "MeanContract", "StatisticContract"]

lazy_package(
    __name__,
    {
        "dpgrain.testing.engine_contract": ("EngineContract",),
        "dpgrain.testing.mean_contract": ("MeanContract",),
        "dpgrain.testing.statistic_contract": ("StatisticContract",),
    },
)

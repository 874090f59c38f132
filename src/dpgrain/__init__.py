"""Differential privacy at the granularity you choose, for data in which one person holds many records.

>>> import dpgrain as dg
>>> dg.Element("topic")
Element(by='topic')
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from dpgrain.errors import DataError, DeltaWarning, DpgrainError, ParameterError, SchemaError
from dpgrain.units import Element, Record, User, d_element, d_user

if TYPE_CHECKING:
    from dpgrain import (
        accounting,
        aggregators,
        learn,
        mechanisms,
        noise,
        optimize,
        recipes,
        shuffle,
    )
    from dpgrain.data.elements import Elements
    from dpgrain.data.table import UserTable, read
    from dpgrain.guarantee import Guarantee
    from dpgrain.means import MeanOfUsers, mean_of_users
    from dpgrain.publishing.budget import Budget, budget
    from dpgrain.selection import Choice, ball_cover, best_of, select
    from dpgrain.statistics.bounds import AutoClip
    from dpgrain.statistics.histogram import count, histogram, sum  # noqa: A004
    from dpgrain.statistics.holdings import Holdings, elements_per_user
    from dpgrain.statistics.moments import mean, variance
    from dpgrain.statistics.plan import Plan, plan_histogram
    from dpgrain.statistics.quantiles import quantile, quantiles
    from dpgrain.statistics.release import Estimates, Histogram, Release
    from dpgrain.statistics.top import top
    from dpgrain.statistics.values import AutoRange

try:
    __version__ = version("dpgrain")
except PackageNotFoundError:  # pragma: no cover - run from a source tree that is not installed
    __version__ = "0+unknown"

# What is imported when it is first used, so that `import dpgrain` stays quick.
_LAZY = {
    "AutoClip": "dpgrain.statistics.bounds",
    "AutoRange": "dpgrain.statistics.values",
    "Budget": "dpgrain.publishing.budget",
    "Choice": "dpgrain.selection",
    "Elements": "dpgrain.data.elements",
    "Estimates": "dpgrain.statistics.release",
    "Guarantee": "dpgrain.guarantee",
    "Histogram": "dpgrain.statistics.release",
    "Holdings": "dpgrain.statistics.holdings",
    "MeanOfUsers": "dpgrain.means",
    "Plan": "dpgrain.statistics.plan",
    "Release": "dpgrain.statistics.release",
    "UserTable": "dpgrain.data.table",
    "ball_cover": "dpgrain.selection",
    "best_of": "dpgrain.selection",
    "budget": "dpgrain.publishing.budget",
    "count": "dpgrain.statistics.histogram",
    "elements_per_user": "dpgrain.statistics.holdings",
    "histogram": "dpgrain.statistics.histogram",
    "mean": "dpgrain.statistics.moments",
    "mean_of_users": "dpgrain.means",
    "plan_histogram": "dpgrain.statistics.plan",
    "quantile": "dpgrain.statistics.quantiles",
    "quantiles": "dpgrain.statistics.quantiles",
    "read": "dpgrain.data.table",
    "select": "dpgrain.selection",
    "sum": "dpgrain.statistics.histogram",
    "top": "dpgrain.statistics.top",
    "variance": "dpgrain.statistics.moments",
}
_LAZY_MODULES = (
    "accounting",
    "aggregators",
    "learn",
    "mechanisms",
    "noise",
    "optimize",
    "recipes",
    "shuffle",
)

__all__ = [
    "AutoClip",
    "AutoRange",
    "Budget",
    "Choice",
    "DataError",
    "DeltaWarning",
    "DpgrainError",
    "Element",
    "Elements",
    "Estimates",
    "Guarantee",
    "Histogram",
    "Holdings",
    "MeanOfUsers",
    "ParameterError",
    "Plan",
    "Record",
    "Release",
    "SchemaError",
    "User",
    "UserTable",
    "__version__",
    "accounting",
    "aggregators",
    "ball_cover",
    "best_of",
    "budget",
    "count",
    "d_element",
    "d_user",
    "elements_per_user",
    "histogram",
    "learn",
    "mean",
    "mean_of_users",
    "mechanisms",
    "noise",
    "optimize",
    "plan_histogram",
    "quantile",
    "quantiles",
    "read",
    "recipes",
    "select",
    "shuffle",
    "sum",
    "top",
    "variance",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name in _LAZY_MODULES:
        value = importlib.import_module(f"dpgrain.{name}")
    else:
        raise AttributeError(f"module 'dpgrain' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

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
    from dpgrain import accounting, mechanisms, noise
    from dpgrain.data.elements import Elements
    from dpgrain.data.table import UserTable, read
    from dpgrain.guarantee import Guarantee
    from dpgrain.statistics.bounds import AutoClip
    from dpgrain.statistics.histogram import histogram
    from dpgrain.statistics.plan import HistogramPlan, plan_histogram
    from dpgrain.statistics.release import Histogram

try:
    __version__ = version("dpgrain")
except PackageNotFoundError:  # pragma: no cover - run from a source tree that is not installed
    __version__ = "0+unknown"

# What is imported when it is first used, so that `import dpgrain` stays quick.
_LAZY = {
    "AutoClip": "dpgrain.statistics.bounds",
    "Elements": "dpgrain.data.elements",
    "Guarantee": "dpgrain.guarantee",
    "Histogram": "dpgrain.statistics.release",
    "HistogramPlan": "dpgrain.statistics.plan",
    "UserTable": "dpgrain.data.table",
    "histogram": "dpgrain.statistics.histogram",
    "plan_histogram": "dpgrain.statistics.plan",
    "read": "dpgrain.data.table",
}
_LAZY_MODULES = ("accounting", "mechanisms", "noise")

__all__ = [
    "AutoClip",
    "DataError",
    "DeltaWarning",
    "DpgrainError",
    "Element",
    "Elements",
    "Guarantee",
    "Histogram",
    "HistogramPlan",
    "ParameterError",
    "Record",
    "SchemaError",
    "User",
    "UserTable",
    "__version__",
    "accounting",
    "d_element",
    "d_user",
    "histogram",
    "mechanisms",
    "noise",
    "plan_histogram",
    "read",
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

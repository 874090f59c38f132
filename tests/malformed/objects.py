"""Odd objects of Python, for any cell of a list, an array or a data frame."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain._lazy_import import lazy_import

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazy_import("pandas")


class Hostile:
    """An object with a warning and an error for every request.

    >>> try:
    ...     with warnings.catch_warnings(action="ignore"):
    ...         float(Hostile())
    ... except RuntimeError as error:
    ...     print(error)
    somebody's row
    """

    def _fails(self, *_: Any) -> Any:
        warnings.warn("somebody's row", UserWarning, stacklevel=2)
        raise RuntimeError("somebody's row")

    __float__ = __int__ = __eq__ = __hash__ = __str__ = __repr__ = _fails
    __len__ = __iter__ = __index__ = __bool__ = __complex__ = _fails


class Loud:
    """An invalid number, with a warning.

    >>> with warnings.catch_warnings(action="ignore"):
    ...     float(Loud())
    1.0
    """

    def __float__(self) -> float:
        warnings.warn("somebody's row", UserWarning, stacklevel=2)
        return 1.0

    def __str__(self) -> str:
        warnings.warn("somebody's row", UserWarning, stacklevel=2)
        return "word"


def objects() -> Mapping[str, Any]:
    """Return odd objects by their names.

    >>> objects()["long text"][:3], objects()["bool"]
    ('xxx', True)
    """
    return {
        "None": None,
        "NaN": float("nan"),
        "inf": float("inf"),
        "text": "somebody",
        "long text": "x" * 100_000,
        "surrogate": "\ud800",
        "NUL": "\x00",
        "return": "x\r",
        "complex": 1 + 1j,
        "numpy complex": np.complex128(1 + 1j),
        "list": [1.0],
        "tuple": (1.0, 2.0),
        "dict": {"a": 1},
        "huge": 10**400,
        "digits": 10**5000,
        "above int64": 2**70,
        "Decimal": Decimal("1E+400"),
        "signalling": Decimal("sNaN"),
        "fraction": Fraction(10**400, 3),
        "date": datetime.date(1, 1, 1),
        "time": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "datetime64": np.datetime64("2020-01-01"),
        "timedelta64": np.timedelta64(3, "D"),
        "NaT": pd.NaT,
        "NA": pd.NA,
        "bytes": b"\xff",
        "bool": True,
        "array": np.ones((2, 2)),
        "hostile": Hostile(),
        "loud": Loud(),
    }

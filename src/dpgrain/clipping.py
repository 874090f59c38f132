"""Vectors, row by row, shortened to a bound."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]


def clipped(vectors: FloatArray, clip: float) -> FloatArray:
    """Each row scaled down to norm ``clip`` if it is longer.

    >>> clipped(np.array([[3.0, 4.0], [1e300, 1e300]]), 1.0).round(3).tolist()
    [[0.6, 0.8], [0.707, 0.707]]
    """
    # Divided by the largest entry first, so that squares of large numbers do not overflow.
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    unit = vectors / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        long = largest * norms > clip
    shortened: FloatArray = unit * (clip / np.where(norms > 0, norms, 1.0))
    return np.where(long, shortened, vectors)


def finite(vectors: FloatArray) -> FloatArray:
    """Vectors with 0 for rows that are not finite.

    >>> finite(np.array([[1.0, 2.0], [np.nan, 1.0]])).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """
    there: FloatArray = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
    return there

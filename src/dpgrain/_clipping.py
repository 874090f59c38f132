"""Vectors, row by row, shortened to a bound."""

from __future__ import annotations

import numpy as np

from dpgrain._types import FloatArray

# Entries at a time: what is computed on the way stays in cache.
_ENTRIES = 1 << 16
# Squares of norms up to this share of the bound's are not looked at again.
_SHORT = 1 - 2.0**-16


def clipped(vectors: FloatArray, clip: float) -> FloatArray:
    """Each row scaled down to norm ``clip`` if it is longer; what becomes of it depends on it alone.

    >>> clipped(np.array([[3.0, 4.0], [1e300, 1e300]]), 1.0).round(3).tolist()
    [[0.6, 0.8], [0.707, 0.707]]
    """
    # Rows one after the other: otherwise a norm is added up in an order that depends on other rows.
    found = np.array(vectors, order="C")
    most = max(1, _ENTRIES // max(found.shape[1], 1))
    for first in range(0, len(found), most):
        tile = found[first : first + most]
        with np.errstate(all="ignore"):
            long = ~(np.einsum("ij,ij->i", tile, tile) <= _SHORT * clip * clip)
        if long.all():
            tile[:] = _shortened(tile, clip)
        elif long.any():
            tile[long] = _shortened(tile[long], clip)
    return found


def _shortened(vectors: FloatArray, clip: float) -> FloatArray:
    """The same, whatever entries' squares are."""
    # Divided by the largest entry first, so that squares of large numbers do not overflow.
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    unit = vectors / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        long = largest * norms > clip
    shortened: FloatArray = unit * (clip / np.where(norms > 0, norms, 1.0))
    return np.where(long, shortened, vectors)


def finite(vectors: FloatArray) -> FloatArray:
    """Vectors with 0 for rows that are not finite; the same array if all are.

    >>> finite(np.array([[1.0, 2.0], [np.nan, 1.0]])).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """
    there = np.isfinite(vectors).all(axis=1, keepdims=True)
    return vectors if there.all() else np.where(there, vectors, 0.0)

"""Clipping of vectors: each row is scaled down to a norm bound."""

from __future__ import annotations

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.numerics.row_products import squares

# Entries of a tile of rows, whose intermediate arrays fit into the cache.
_TILE_ENTRIES = 1 << 16
# Rows with at most this share of the squared bound are certainly short, despite rounding.
_CERTAINLY_SHORT_SHARE = 1 - 2.0**-16
# Range of squared norms without overflow or underflow of a relevant entry.
_SAFE_SQUARES = 1e-200, 1e200


def clipped(vectors: FloatArray, clip: float) -> FloatArray:
    """Clip each row to norm ``clip``; each result depends only on its row.

    Args:
        vectors: (rows, dimension) the vectors.
        clip: the maximum l2 norm of a row.

    Raises:
        ParameterError: if vectors are not a numeric array of two axes, or clip is not positive.

    >>> clipped(np.array([[3.0, 4.0], [1e300, 1e300]]), 1.0).round(3).tolist()
    [[0.6, 0.8], [0.707, 0.707]]
    """
    # In another memory layout, the order of a norm's additions would depend on other rows.
    try:
        rows = np.array(vectors, order="C")
    except ValueError:
        rows = np.empty(0)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise ParameterError("vectors must be numbers in rows and columns.", name="vectors")
    clip = _validate.positive(clip=clip)
    most = max(1, _TILE_ENTRIES // max(rows.shape[1], 1))
    for first in range(0, len(rows), most):
        tile = rows[first : first + most]
        with np.errstate(all="ignore"):
            lengths = squares(tile)
            long = ~(lengths <= _CERTAINLY_SHORT_SHARE * clip * clip)
            if not long.any():
                continue
            odd = long & ~((lengths > _SAFE_SQUARES[0]) & (lengths < _SAFE_SQUARES[1]))
            if odd.any():
                tile[odd] = _shortened(tile[odd], clip)
                lengths[odd] = 0.0
            # Short rows are multiplied by 1.
            tile *= (clip / np.maximum(np.sqrt(lengths), clip))[:, None]
    return rows


def _shortened(vectors: FloatArray, clip: float) -> FloatArray:
    """Clip each row to norm ``clip``, even if squares of entries overflow."""
    # Each row is divided by its largest entry first, so that no square overflows.
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    unit = vectors / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        long = largest * norms > clip
    shortened: FloatArray = unit * (clip / np.where(norms > 0, norms, 1.0))
    return np.where(long, shortened, vectors)


def zero_nonfinite_rows(vectors: FloatArray) -> FloatArray:
    """Replace non-finite rows by 0; return the same array if all rows are finite."""
    with np.errstate(all="ignore"):
        if np.isfinite(vectors.sum()):
            # A finite sum has finite terms.
            return vectors
    finite = np.isfinite(vectors).all(axis=1, keepdims=True)
    return vectors if finite.all() else np.where(finite, vectors, 0.0)

"""Norms of blocks' sums, and the factors that clip them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from dpgrain._types import Array, BoolArray, FloatArray
from dpgrain.gradients.tiles import squared_norms
from dpgrain.numerics.row_products import squares

# Largest norm of a record's gradient in clipping bounds, by bytes of its dtype. Rounding, which
# depends on the position of rows, then changes a block by only a small share of the bound.
LONGEST_CLIPS = {4: 1e4, 8: 1e6}
# Largest relative error of the norm of a block's vector, by bytes of the features' dtype.
UNCERTAINTY = {4: 1e-5, 8: 1e-12}
# Units of roundoff by which norms are rounded up.
_ROUNDOFFS = 50


def row_squared_norms(sums: Any) -> Array:
    """Return the squared norm of each row in the rows' dtype, for dense or CSR (n, p)."""
    if sparse.issparse(sums):
        return np.asarray(sums.multiply(sums).sum(axis=1)).ravel()
    return squares(sums)


def zero_rows(sums: Any, rows: BoolArray) -> Any:
    """Set rows of a dense or CSR matrix, (n, p), to 0, even if they contain NaN."""
    if not sparse.issparse(sums):
        return np.where(rows[:, None], 0, sums)
    copy = sums.tocsr().copy()
    copy.data[np.repeat(rows, np.diff(copy.indptr))] = 0
    return copy


def limit_slopes(slopes: Array, X: Any, clip: float) -> Array:
    """Scale down the slopes, (m, C), of records above :data:`LONGEST_CLIPS` bounds."""
    most = LONGEST_CLIPS[slopes.dtype.itemsize] * clip
    steep = np.abs(slopes[:, 0]) if slopes.shape[1] == 1 else np.linalg.norm(slopes, axis=1)
    lengths = steep * np.sqrt(squared_norms(X))
    if lengths.max(initial=0.0) <= most:
        return slopes
    limited: Array = slopes * np.minimum(1.0, most / lengths)[:, None].astype(slopes.dtype)
    return limited


def block_gradient(X: Any, slopes: Array) -> FloatArray:
    """Return the gradient R'X of one block in double precision, (C, p)."""
    gradient: FloatArray = (X.T.astype(np.float64) @ slopes.astype(np.float64)).T
    return gradient


def clipped_vector(vector: FloatArray, clip: float) -> FloatArray:
    """Clip a vector to norm ``clip``; return 0 if it is not finite.

    >>> clipped_vector(np.array([3.0, 4.0]), 1.0).round(3).tolist()
    [0.6, 0.8]
    """
    norm = float(np.linalg.norm(vector))
    if not np.isfinite(norm):
        return np.zeros_like(vector)
    return vector * min(1.0, clip / norm) if norm > 0 else vector


def factors(norms: Array, sizes: Any, clip: float) -> Array:
    """Return the factors min(1, clip·s/norm)/s of blocks' sums, with norms rounded up.

    ``norms``, (n,), are overwritten; a non-finite norm has factor 0.

    >>> factors(np.array([1.0, 8.0]), 2, 1.0).round(3).tolist()
    [0.5, 0.125]
    """
    norms *= norms.dtype.type((1 + _ROUNDOFFS * np.finfo(norms.dtype).eps) / clip)
    wrong = None if np.isfinite(norms.sum()) else ~np.isfinite(norms)
    np.maximum(norms, sizes, out=norms)
    np.reciprocal(norms, out=norms)
    if wrong is not None:
        norms[wrong] = 0
    return norms

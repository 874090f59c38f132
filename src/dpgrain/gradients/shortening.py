"""The lengths of blocks' sums, and the factors that shorten them to a clipping bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from dpgrain._rows import squares
from dpgrain._types import Array, BoolArray, FloatArray
from dpgrain.gradients.tiles import squared_norms

# Clipping bounds, by the bytes of its type, to which a record's gradient is shortened where it is
# longer. Then rounding, which depends on where rows lie, changes a block by a small share of the
# bound only.
LONGEST_CLIPS = {4: 1e4, 8: 1e6}
# Largest relative error of the norm of a block's vector, by the bytes of the type of its features.
UNCERTAINTY = {4: 1e-5, 8: 1e-12}
# Roundoffs of their type by which norms are rounded up.
_ROUNDOFFS = 50


def squared_lengths(sums: Any) -> Array:
    """Return the squared norm of each row in the type of the rows.

    Args:
        sums: (n, p) numbers, dense or CSR.
    """
    if sparse.issparse(sums):
        return np.asarray(sums.multiply(sums).sum(axis=1)).ravel()
    return squares(sums)


def without(sums: Any, rows: BoolArray) -> Any:
    """Return a matrix with these rows set to 0, even if they hold NaN.

    Args:
        sums: (n, p) numbers, dense or CSR.
        rows: (n,) True for a row that becomes 0.
    """
    if not sparse.issparse(sums):
        return np.where(rows[:, None], 0, sums)
    copy = sums.tocsr().copy()
    copy.data[np.repeat(rows, np.diff(copy.indptr))] = 0
    return copy


def within(slopes: Array, X: Any, clip: float) -> Array:
    """Return (m, C) slopes of which those of too long records are smaller.

    Args:
        slopes: (m, C) the slopes of records.
        X: (m, p) their features.
        clip: the clipping bound, of which a record may be :data:`LONGEST_CLIPS` long.
    """
    most = LONGEST_CLIPS[slopes.dtype.itemsize] * clip
    steep = np.abs(slopes[:, 0]) if slopes.shape[1] == 1 else np.linalg.norm(slopes, axis=1)
    lengths = steep * np.sqrt(squared_norms(X))
    if lengths.max(initial=0.0) <= most:
        return slopes
    shortened: Array = slopes * np.minimum(1.0, most / lengths)[:, None].astype(slopes.dtype)
    return shortened


def formed(X: Any, slopes: Array) -> FloatArray:
    """Return (C, p) the gradient R'X of one block in double precision.

    Args:
        X: (s, p) its features.
        slopes: (s, C) its slopes.
    """
    gradient: FloatArray = (X.T.astype(np.float64) @ slopes.astype(np.float64)).T
    return gradient


def shortened(vector: FloatArray, clip: float) -> FloatArray:
    """Scale a vector down to norm ``clip`` if it is longer; return 0 if it is not finite.

    >>> shortened(np.array([3.0, 4.0]), 1.0).round(3).tolist()
    [0.6, 0.8]
    """
    norm = float(np.linalg.norm(vector))
    if not np.isfinite(norm):
        return np.zeros_like(vector)
    return vector * min(1.0, clip / norm) if norm > 0 else vector


def factors(norms: Array, sizes: Any, clip: float) -> Array:
    """Return the factors of sums of blocks, min(1, clip·s/norm)/s, with norms rounded up a little.

    Args:
        norms: (n,) the norms of the sums, which are overwritten; one that is not finite has factor 0.
        sizes: the number of rows of each block, or of all.
        clip: the clipping bound of a mean.

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

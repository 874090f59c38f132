"""Rows of features, one by one: what is no number counts 0, long rows are shortened to a bound.

Fits on a cluster do it where rows are, so that little is loaded here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def finite(X: Any) -> Any:
    """Return features with 0 for what is not finite."""
    if not sparse.issparse(X):
        return np.where(np.isfinite(X), X, 0)
    X = X.copy()
    X.data[~np.isfinite(X.data)] = 0
    return X


def bounded(X: Any, bound: float) -> Any:
    """Divide rows by the bound, shorten them to norm 1 if longer; what is not finite counts 0."""
    kind = X.dtype
    # Double precision is needed: squares of single-precision numbers overflow, small bounds vanish.
    X = finite(X).astype(np.float64)
    with np.errstate(all="ignore"):
        if sparse.issparse(X):
            X = X.tocsr()
            norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
            large = ~np.isfinite(norms)
            if large.any():
                # A large row is divided by its largest entry first, so that squares do not overflow.
                most = np.where(large, abs(X).max(axis=1).toarray().ravel(), 1.0)
                X = (sparse.diags_array(1 / most) @ X).tocsr()
                norms[large] = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())[large]
            by = np.where(large, norms, np.maximum(norms, bound))
            return (sparse.diags_array(1 / by) @ X).tocsr().astype(kind)
        # A norm of a row is rounded in another way where rows are stored column by column.
        X = np.ascontiguousarray(X)
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        large = ~np.isfinite(norms[:, 0])
        X[large] /= np.abs(X[large]).max(axis=1, keepdims=True, initial=0.0)
        norms[large] = np.linalg.norm(X[large], axis=1, keepdims=True)
        return (X / np.where(large[:, None], norms, np.maximum(norms, bound))).astype(kind)

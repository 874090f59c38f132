"""Rows of features: non-finite numbers become 0, and long rows are clipped.

Fits on a cluster do this on the workers, so this module imports little.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def finite(X: Any) -> Any:
    """Replace non-finite features by 0."""
    if not sparse.issparse(X):
        return np.where(np.isfinite(X), X, 0)
    X = X.copy()
    X.data[~np.isfinite(X.data)] = 0
    return X


def bounded(X: Any, bound: float) -> Any:
    """Divide rows by the bound and clip them to norm 1; non-finite numbers become 0."""
    kind = X.dtype
    # In single precision, squares would overflow, and small bounds would underflow.
    X = finite(X).astype(np.float64)
    with np.errstate(all="ignore"):
        if sparse.issparse(X):
            X = X.tocsr()
            norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
            large = ~np.isfinite(norms)
            if large.any():
                # A large row is first divided by its largest entry, so that squares do not
                # overflow.
                most = np.where(large, abs(X).max(axis=1).toarray().ravel(), 1.0)
                X = (sparse.diags_array(1 / most) @ X).tocsr()
                norms[large] = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())[large]
            by = np.where(large, norms, np.maximum(norms, bound))
            return (sparse.diags_array(1 / by) @ X).tocsr().astype(kind)
        # Row norms are rounded differently if the array is stored column by column.
        X = np.ascontiguousarray(X)
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        large = ~np.isfinite(norms[:, 0])
        X[large] /= np.abs(X[large]).max(axis=1, keepdims=True, initial=0.0)
        norms[large] = np.linalg.norm(X[large], axis=1, keepdims=True)
        return (X / np.where(large[:, None], norms, np.maximum(norms, bound))).astype(kind)

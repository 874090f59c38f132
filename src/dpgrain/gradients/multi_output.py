"""Clipped sums of gradients with several outputs, by the cheapest method per block.

Only the size of a block determines which of four methods computes the factor that clips its
gradient R'X, so the factor does not depend on other blocks:

- *one row*: the norm is |slope|·‖x‖;
- *Gram*: ‖R'X‖² = Σ (XX')∘(RR') in double precision, with products XX' that are cached if they fit
  into memory, otherwise recomputed to the same bits;
- *formed in slices*: small gradients R'X of many blocks are formed, clipped and added at once;
- *formed*: each R'X is formed, clipped and added separately, while it is in the cache.

A Gram norm loses digits if gradients cancel. If the norm of a block is not accurate to 1e-5 (1e-12
in double precision), and the block may require clipping, its gradient is formed in double
precision.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse

from dpgrain._types import Array, BoolArray, FloatArray
from dpgrain.gradients.clip_factors import (
    UNCERTAINTY,
    block_gradient,
    clipped_vector,
    factors,
    row_squared_norms,
    zero_rows,
)
from dpgrain.gradients.tiles import MAX_CACHED_ROWS, LinearBlocks, Tile
from dpgrain.numerics.row_products import squares

# Maximum bytes of gradients formed at once.
_FORMED_BYTES = 1 << 21
# Maximum operations of a Gram matrix, s²(p+C), relative to the p·C entries of a formed gradient;
# the second number applies if the matrix is small enough to cache. Measured.
_GRAM_OPERATIONS, _KEPT_OPERATIONS = 10, 50
# Maximum entries of a gradient for which the gradients of a whole slice of blocks are formed at
# once.
_SMALL_ENTRIES = 1 << 13


def add_multi_output(
    rows: LinearBlocks, tile: Tile, slopes: Array, clip: float, total: FloatArray
) -> None:
    """Add the clipped mean gradients of a tile's blocks to ``total``, (C, p)."""
    weights = np.zeros(len(tile.sizes), dtype=slopes.dtype)
    outputs, width = total.shape
    for size, own, some in tile.classes:
        r = slopes[some]
        if size == 1:
            norms = np.sqrt(squares(r, np.float64)) * tile.longest[own]
            weights[own] = factors(norms, 1, clip)
            continue
        match clipping_method(size, outputs, width, dense=not sparse.issparse(tile.X)):
            case "gram":
                weights[own] = _by_gram(rows, tile, own, some, r, clip, total)
            case "slices":
                _add_slices(tile.X[some], r, size, clip, total)
            case "formed":
                _add_formed(tile, slopes, own, clip, total)
    weighted = slopes * np.repeat(weights, tile.sizes)[:, None]
    total += (tile.X.T @ weighted).T if sparse.issparse(tile.X) else weighted.T @ tile.X


def clipping_method(
    size: int, outputs: int, width: int, *, dense: bool
) -> Literal["gram", "slices", "formed"]:
    """Choose the clipping method of multi-row blocks from public numbers and their size.

    ``size`` is the number of rows, ``outputs`` is C, and ``width`` is p.

    >>> [clipping_method(size, 10, 100, dense=True) for size in (2, 9, 40)]
    ['gram', 'slices', 'formed']
    """
    operations = size**2 * (width + outputs)
    # A cached Gram matrix needs s²(C + 8) numbers instead of s·p·C products; measured to be about
    # eight times faster.
    caching_pays = 8 * size * (outputs + 8) <= outputs * width
    most = _KEPT_OPERATIONS if caching_pays else _GRAM_OPERATIONS
    if not dense or operations > most * width * outputs:
        return "formed"
    if not caching_pays and outputs * width <= _SMALL_ENTRIES and size > 4:
        return "slices"
    return "gram" if size <= MAX_CACHED_ROWS else "formed"


def _by_gram(
    rows: LinearBlocks,
    tile: Tile,
    own: slice,
    some: slice,
    r: Array,
    clip: float,
    total: FloatArray,
) -> Array:
    """Return the weights of equal-sized blocks from products XX' in double precision."""
    gram = rows.block_grams(tile, own, some)
    by_block = r.astype(np.float64).reshape(len(gram), -1, r.shape[1])
    size = by_block.shape[1]
    agreements = by_block @ by_block.swapaxes(1, 2)
    agreements *= gram
    result = agreements.reshape(len(gram), -1).sum(axis=1)
    doubtful = _doubtful(result, _lengths(gram, r, size), clip * size, r.dtype)
    return _settled(tile, some, r, np.sqrt(np.maximum(result, 0)), doubtful, clip, total)


def _lengths(gram: Array, r: Array, size: int) -> FloatArray:
    """Return Σ|slope|·‖x‖ for each of several equal-sized blocks."""
    rows = np.einsum("nii->ni", gram).ravel()
    lengths = np.sqrt(squares(r, np.float64) * rows)
    total: FloatArray = lengths.reshape(-1, size).sum(axis=1)
    return total


def _settled(
    tile: Tile,
    some: slice,
    r: Array,
    norms: Array,
    doubtful: BoolArray,
    clip: float,
    total: FloatArray,
) -> Array:
    """Return the weights of equal-sized blocks; add doubtful ones here, with weight 0."""
    size = len(r) // len(norms)
    weights = factors(norms, size, clip)
    for place in np.flatnonzero(doubtful):
        own = slice(some.start + place * size, some.start + (place + 1) * size)
        mean = block_gradient(tile.X[own], r[place * size : (place + 1) * size]) / size
        total += clipped_vector(mean, clip)
    weights[doubtful] = 0
    return weights


def _add_slices(X: Array, r: Array, size: int, clip: float, total: FloatArray) -> None:
    """Form, clip and add small gradients of equal-sized blocks, one slice at a time."""
    rows, by_block = X.reshape(-1, size, X.shape[1]), r.reshape(-1, size, r.shape[1])
    most = max(1, _FORMED_BYTES // (total.size * X.dtype.itemsize))
    for first in range(0, len(rows), most):
        some = slice(first, first + most)
        vectors = (by_block[some].swapaxes(1, 2) @ rows[some]).reshape(-1, total.size)
        result = row_squared_norms(vectors)
        if not np.isfinite(result.sum()):
            vectors = zero_rows(vectors, ~np.isfinite(result))
        weights = factors(np.sqrt(result, out=result), size, clip)
        total += (weights @ vectors).reshape(total.shape)


def _add_formed(tile: Tile, slopes: Array, own: slice, clip: float, total: FloatArray) -> None:
    """Form, clip and add each gradient while it is in the cache, with an accurate norm."""
    part = np.zeros(total.shape, dtype=slopes.dtype)
    for start, size in zip(tile.starts[own].tolist(), tile.sizes[own].tolist(), strict=True):
        rows = slice(start, start + size)
        X, r = tile.X[rows], slopes[rows]
        columns: Any = slice(None)
        if sparse.issparse(X):
            columns, inverse = np.unique(X.indices, return_inverse=True)
            short = sparse.csr_array((X.data, inverse, X.indptr), (size, len(columns)))
            gradient = (short.T @ r).T
        else:
            gradient = r.T @ X
        norm = np.sqrt(np.asarray([np.vdot(gradient, gradient)]))
        if np.isfinite(norm[0]):
            gradient *= factors(norm, size, clip)[0]
            part[:, columns] += gradient
    total += part


def _doubtful(squared: FloatArray, lengths: FloatArray, most: float, kind: Any) -> BoolArray:
    """Mark blocks with a norm or vector that is too uncertain compared with the bound.

    ``found`` are squared norms from Gram matrices, and ``lengths`` Σ|slope|·‖x‖, both (n,). Blocks
    with norms from ``most`` on are clipped.
    """
    # The error of the square is about 8u(Σ‖x‖|r|)², as measured, and the error of the added vector
    # about 4u(Σ‖x‖|r|) in its own dtype (docs/theory, "Gradient steps").
    of_square = 4 * float(np.finfo(np.float64).eps) * lengths**2
    of_vector = 2 * float(np.finfo(kind).eps) * lengths
    square = np.maximum(squared, 0)
    share = UNCERTAINTY[np.dtype(kind).itemsize]
    certain = of_square / 2 + of_vector * np.sqrt(square) <= share * square
    short = (np.sqrt(square + of_square) + of_vector <= most) & (of_vector <= share * most)
    doubtful: BoolArray = ~(certain | short) | ~np.isfinite(squared)
    return doubtful

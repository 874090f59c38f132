"""Clipped sums of gradients with several outputs: norms from the cheapest way, and one product.

For each size of block the cheapest of four ways gives the factor that clips its gradient R'X:

- *one row*: the norm is |slope|·‖x‖;
- *kept Gram*: ‖R'X‖² = Σ (XX')∘(RR'), with products XX' that are kept in double precision;
- *Gram*: the same with products that are made here;
- *formed*: R'X itself is made, clipped and added at once, while it is in the cache.

In single precision a Gram norm loses digits where gradients cancel. A block whose norm is not certain
to 1e-5, and that may have to be clipped, is formed again in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from dpgrain._types import Array, BoolArray, FloatArray
from dpgrain.gradients.shortening import factors, formed, shortened, squares, without
from dpgrain.gradients.tiles import LinearBlocks, Tile

# At most this many bytes of gradients are formed at once.
_FORMED_BYTES = 1 << 21
# A Gram matrix pays while its s²(p+C) operations are at most this many times the p·C numbers of a
# formed gradient. The factor was measured.
_GRAM_OPERATIONS_PER_NUMBER = 10
# Gradients with at most this many entries are formed for a whole slice of blocks at once.
_SMALL_ENTRIES = 1 << 13


def add_several(
    rows: LinearBlocks, tile: Tile, slopes: Array, clip: float, total: FloatArray
) -> None:
    """Add the clipped mean gradients of a tile's blocks to a sum.

    Args:
        rows: the arrangement that the tile is of.
        tile: the blocks.
        slopes: (rows of the tile, C) the slopes.
        clip: the clipping bound.
        total: (C, p) the sum, to which is added.
    """
    weights = np.zeros(len(tile.sizes), dtype=slopes.dtype)
    outputs, width = total.shape
    for size, own, some in tile.classes:
        r = slopes[some]
        if size == 1:
            norms = np.sqrt(np.einsum("ij,ij->i", r, r, dtype=np.float64)) * tile.longest[own]
            weights[own] = factors(norms, 1, clip)
        elif size in rows.grams and _kept_pays(size, outputs, width):
            weights[own] = _by_kept_gram(rows, tile, own, some, r, clip, total)
        elif sparse.issparse(tile.X) or not _gram_pays(size, outputs, width):
            _add_formed(tile, slopes, own, clip, total)
        elif outputs * width <= _SMALL_ENTRIES and size > 4:
            _add_slices(tile.X[some], r, size, clip, total)
        else:
            weights[own] = _by_gram(tile, own, some, r, clip, total)
    weighted = slopes * np.repeat(weights, tile.sizes)[:, None]
    total += (tile.X.T @ weighted).T if sparse.issparse(tile.X) else weighted.T @ tile.X


def _kept_pays(size: int, outputs: int, width: int) -> bool:
    # It takes s²(C + 8) numbers instead of s·p·C products, which were measured to be about eight
    # times quicker.
    return 8 * size * (outputs + 8) <= outputs * width


def _gram_pays(size: int, outputs: int, width: int) -> bool:
    return size**2 * (width + outputs) <= _GRAM_OPERATIONS_PER_NUMBER * width * outputs


def _by_kept_gram(
    rows: LinearBlocks,
    tile: Tile,
    own: slice,
    some: slice,
    r: Array,
    clip: float,
    total: FloatArray,
) -> Array:
    """Return the weights of equal blocks from their kept products XX', in double precision."""
    size = int(tile.sizes[own.start])
    first, grams = int(np.searchsorted(rows.sizes, size)), rows.grams[size]
    if isinstance(tile.places, slice):
        begin = tile.places.start - first
        gram = grams[begin + own.start : begin + own.stop]
    else:
        gram = grams[tile.places[own] - first]
    by_block = r.astype(np.float64).reshape(-1, size, r.shape[1])
    found = np.einsum("nij,nij->n", gram, by_block @ by_block.swapaxes(1, 2))
    # These norms are right, but the sum of all blocks errs by about u·Σ‖x‖|r| in single precision.
    norms = np.sqrt(np.maximum(found, 0))
    error = 4 * float(np.finfo(r.dtype).eps) / 2 * _lengths(gram, r, size)
    doubtful = ~((error <= 1e-5 * norms) | (norms + error <= clip * size))
    return _settled(tile, some, r, norms, doubtful, clip, total)


def _by_gram(
    tile: Tile, own: slice, some: slice, r: Array, clip: float, total: FloatArray
) -> Array:
    """Return the weights of equal blocks from products XX' that are made here."""
    size = int(tile.sizes[own.start])
    X = tile.X[some].reshape(-1, size, tile.X.shape[1])
    by_block = r.reshape(-1, size, r.shape[1])
    gram = X @ X.swapaxes(1, 2)
    found = np.einsum("nij,nij->n", gram, by_block @ by_block.swapaxes(1, 2))
    doubtful = _doubtful(found, _lengths(gram, r, size), clip * size)
    return _settled(tile, some, r, np.sqrt(np.maximum(found, 0)), doubtful, clip, total)


def _lengths(gram: Array, r: Array, size: int) -> FloatArray:
    """Return Σ|slope|·‖x‖ over each of equal blocks."""
    rows = np.einsum("nii->ni", gram).astype(np.float64).ravel()
    lengths = np.sqrt(np.einsum("ij,ij->i", r, r, dtype=np.float64) * rows)
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
    """Return the weights of equal blocks; those in doubt are formed and added here, and weigh 0."""
    size = len(r) // len(norms)
    weights = factors(norms, size, clip)
    for place in np.flatnonzero(doubtful):
        own = slice(some.start + place * size, some.start + (place + 1) * size)
        mean = formed(tile.X[own], r[place * size : (place + 1) * size]) / size
        total += shortened(mean, clip)
    weights[doubtful] = 0
    return weights


def _add_slices(X: Array, r: Array, size: int, clip: float, total: FloatArray) -> None:
    """Form, clip and add the small gradients of equal blocks, a slice of blocks at a time."""
    rows, by_block = X.reshape(-1, size, X.shape[1]), r.reshape(-1, size, r.shape[1])
    most = max(1, _FORMED_BYTES // (total.size * X.dtype.itemsize))
    for first in range(0, len(rows), most):
        some = slice(first, first + most)
        vectors = (by_block[some].swapaxes(1, 2) @ rows[some]).reshape(-1, total.size)
        found = squares(vectors)
        if not np.isfinite(found.sum()):
            vectors = without(vectors, ~np.isfinite(found))
        weights = factors(np.sqrt(found, out=found), size, clip)
        total += (weights @ vectors).reshape(total.shape)


def _add_formed(tile: Tile, slopes: Array, own: slice, clip: float, total: FloatArray) -> None:
    """Form, clip and add each gradient while it is in the cache; its norm is then certain."""
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


def _doubtful(found: Array, lengths: Array, most: float) -> BoolArray:
    """Mark Gram norms that are uncertain beyond 1e-5, given Σ|slope|·‖x‖, and may exceed the bound.

    Args:
        found: (n,) the squares of the norms.
        lengths: (n,) the sums of the lengths of records' gradients.
        most: the norm from which on a block is clipped.
    """
    # In the square rounding errs by about 8u(Σ‖x‖|r|)², as measured (docs/theory, "Gradient
    # steps").
    error = 4 * float(np.finfo(found.dtype).eps) * lengths.astype(np.float64) ** 2
    square = found.astype(np.float64)
    within = (square + error <= most**2) | (square >= 4e4 * error)
    doubtful: BoolArray = ~within | ~np.isfinite(square)
    return doubtful

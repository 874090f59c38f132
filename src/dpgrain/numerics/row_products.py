"""Norms and products of rows, rounded independently of a row's index and of other rows.

The order of additions in a matrix product depends on the number of rows, and on some machines on
the index of a row: one person's rows would change the contributions of others (docs/theory,
"Gradient steps").
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dpgrain._types import Array

# Columns of one piece of a sum: beyond the buffer of NumPy's iterators, the order of additions
# differs between a single row and a row of several.
_PIECE_COLUMNS = 1 << 13
# Numbers, minimum rows and maximum rows of a group; measured.
_GROUP_NUMBERS, _FEWEST_ROWS, _MOST_ROWS = 1 << 13, 32, 1 << 8
# Synthetic rows for testing a group, and its offsets in memory.
_TRIALS, _OFFSETS = 32, 8


def squares(rows: Array, kind: Any = None) -> Array:
    """Return (m,) the squared norm of each row."""
    return _added("ij,ij->i", rows, rows, kind)


def products(rows: Array, weights: Array) -> Array:
    """Return (m, C) the products of rows with weights, each summed separately."""
    return _added("ij,kj->ik", rows, weights)


def grouped_products(rows: Array, weights: Array) -> Array:
    """Return the same products with other rounding, in a fraction of the time."""
    # Each BLAS call has the same shape: groups whose size depends only on the row length, padded
    # with zeros. If a synthetic test shows rounding by index, rows are separate. Requires one BLAS
    # thread.
    (m, p), outputs = rows.shape, len(weights)
    size = rows_per_group(p)
    if not size or not _rounds_equally(size, p, outputs, rows.dtype.str):
        if not size or outputs == 1:
            return products(rows, weights)
        return np.hstack([grouped_products(rows, one[None]) for one in weights])
    result = np.empty((m, outputs), dtype=rows.dtype)
    whole = m - m % size
    np.matmul(
        rows[:whole].reshape(-1, size, p),
        weights.T,
        out=result[:whole].reshape(-1, size, outputs),
    )
    if whole < m:
        rest = np.zeros((1, size, p), dtype=rows.dtype)
        rest[0, : m - whole] = rows[whole:]
        result[whole:] = np.matmul(rest, weights.T)[0, : m - whole]
    return result


def rows_per_group(columns: int) -> int:
    """Return the number of rows of one multiplication; 0 without columns."""
    if not columns:
        return 0
    fitting = 1 << max(_GROUP_NUMBERS // columns, 1).bit_length() - 1
    return int(np.clip(fitting, _FEWEST_ROWS, _MOST_ROWS))


@cache
def _rounds_equally(size: int, columns: int, outputs: int, kind: str) -> bool:
    """Return whether BLAS rounds a row equally at each index of a group and each memory offset."""
    rng = np.random.default_rng(0)
    memory = np.empty(size * columns + _OFFSETS, dtype=kind)
    for trial in range(_TRIALS):
        row, weights = (
            (rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape)).astype(kind)
            for shape in ((columns,), (outputs, columns))
        )
        result = []
        for first in {0, 1, trial % _OFFSETS}:
            group = memory[first : first + size * columns].reshape(1, size, columns)
            group[:] = row
            result.append(np.matmul(group, weights.T)[0])
        if any((some != result[0][0]).any() for some in result):
            return False
    return True


def _added(sums: str, one: Array, other: Array, kind: Any = None) -> Array:
    """Return sums over columns, piece by piece."""
    starts = range(0, max(one.shape[1], other.shape[1]), _PIECE_COLUMNS) or (0,)
    pieces = [slice(first, first + _PIECE_COLUMNS) for first in starts]
    total: Array = np.einsum(sums, one[:, pieces[0]], other[:, pieces[0]], dtype=kind)
    for piece in pieces[1:]:
        total += np.einsum(sums, one[:, piece], other[:, piece], dtype=kind)
    return total

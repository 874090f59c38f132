"""Conversions between NumPy and Arrow arrays, without importing pandas.

``pyarrow.array`` and ``to_numpy`` import an installed pandas to check for its series, which takes a
large part of the time until the first release of a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_KINDS = {"i8": pa.int64(), "f8": pa.float64()}


def number_array(values: NDArray[Any], null: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an Arrow array of int64 or float64 numbers, (n,), with shared memory."""
    values = np.ascontiguousarray(values)
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(
        _KINDS[values.dtype.str[1:]], len(values), [valid, pa.py_buffer(values)]
    )


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def boolean_array(values: NDArray[np.bool_]) -> pa.Array:
    """Return an Arrow array of booleans."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def text_array(values: Sequence[str]) -> pa.Array:
    """Return an Arrow array of texts."""
    joined = "".join(values)
    # In ASCII a character is a byte, so lengths are known without encoding each text.
    parts = values if joined.isascii() else [value.encode() for value in values]
    ends = np.fromiter(accumulate(map(len, parts), initial=0), np.int64, len(values) + 1)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(joined.encode())]
    return pa.Array.from_buffers(pa.large_string(), len(values), buffers).cast(pa.string())

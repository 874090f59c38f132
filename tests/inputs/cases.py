"""Labels of many types, and when two of them are one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st

# Seven texts that parse to the same number.
SEVEN = ["7", "007", "7.0", " 7", "+7", "7e0", "٧"]
ONE = ["1", "1.0", " 1", "+1", "1e0", "True", "1 "]
HEX = ["12e34567890abcde", "1234567890123e45", "1e999999", "1e-999999", "0x10", "9e9999999999"]


WHOLE = st.integers(-20, 20) | st.integers(-(10**25), 10**25) | st.sampled_from([2**53, 2**53 + 1])
FLOATS = st.floats() | st.sampled_from(
    [0.0, -0.0, 5e-324, 1e308, 0.1, 2.5, 7.0, math.inf, -math.inf]
)
DECIMALS = st.builds(
    lambda sign, digits, power: Decimal((sign, digits, power)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=9).map(tuple),
    st.integers(-12, 12),
) | st.sampled_from([Decimal(text) for text in ("0.1", "7.00", "70e-1", "-0", "Infinity", "NaN")])
FRACTIONS = st.fractions(min_value=-9, max_value=9, max_denominator=20)
NUMPY = st.one_of(
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.floats(width=32).map(np.float32),
    st.floats(width=16).map(np.float16),
    FLOATS.map(np.float64),
    st.booleans().map(np.bool_),
)
NUMBERS = WHOLE | FLOATS | DECIMALS | FRACTIONS | NUMPY | st.booleans()
WRITTEN = st.one_of(
    st.sampled_from(
        [*SEVEN, *ONE, *HEX, "", "nan", "inf", "-0", "0", "true", "1/1", "١٢", "²", "Ⅷ"]
    ),
    NUMBERS.map(str),
    st.text(alphabet="01237eE.+- x", max_size=6),
    st.text(alphabet="0123456789abcdef", min_size=16, max_size=16),
    st.text(max_size=4),
)
TEXTS = WRITTEN | WRITTEN.map(np.str_) | WRITTEN.filter(str.isascii).map(str.encode)
LABELS = NUMBERS | TEXTS


def forms_of(column: pa.Array) -> Iterator[tuple[str, Any]]:
    yield "array", column
    yield "chunks", pa.chunked_array([column[:2], column[2:2], column[2:]])
    yield "column of a table", pa.table({"u": column})["u"]
    own = pd.Series(column, dtype=pd.ArrowDtype(column.type))
    yield "pandas", own
    yield "array of pandas", own.array
    yield "index of pandas", pd.Index(own)
    if pa.types.is_time(column.type) or pa.types.is_dictionary(column.type):
        return
    with contextlib.suppress(pl.exceptions.PolarsError):
        yield "Polars", pl.Series(column)

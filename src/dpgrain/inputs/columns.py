"""Columns of Arrow, Polars and pandas as Python's values, each cell by itself.

Arrow stores more than Python has: days after the year 9999, nanoseconds of a day, text that is not
UTF-8. One person's cell that Python lacks would end the conversion of everybody's column, and the error
would quote it. Here times keep the numbers that they are stored as, and any other such cell is a null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpgrain._later import later

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.types as kinds
else:
    pd = later("pandas")
    pa = later("pyarrow")
    kinds = later("pyarrow.types")

__all__ = ["is_time", "kind_of", "stored", "values"]

# What the letters of NumPy's types mean, without sizes: how long the longest text is tells of its row.
_KINDS = {"U": "text", "S": "text", "T": "text", "O": "objects", "M": "times", "m": "durations"}


def values(column: Any) -> NDArray[Any] | None:
    """A column that Arrow or Polars stores, cell by cell; None for what is no such column.

    Args:
        column: an Arrow array, chunked or not, a Polars series, or a series or array of pandas that
            Arrow stores, or of categories.

    Returns:
        (m,) times and durations as NumPy has them, or else objects, None where a cell is null, or has
        no value in Python.

    >>> values(pa.chunked_array([["a", None], ["b"]])).tolist()
    ['a', None, 'b']
    """
    if isinstance(column, pd.api.extensions.ExtensionArray):
        column = pd.Series(column)
    if isinstance(column, pd.Series | pd.Index):
        kind = column.dtype
        if isinstance(kind, pd.CategoricalDtype):
            held = column.array if isinstance(column, pd.Series) else column
            return _taken(_plain(kind.categories), np.asarray(held.codes))  # type: ignore[union-attr]
        arrow = stored(kind) is not None or (
            isinstance(kind, pd.StringDtype) and kind.storage == "pyarrow"
        )
        return _several(pa.array(column.array)) if arrow else None
    if type(column).__module__.partition(".")[0] == "polars" and hasattr(column, "to_arrow"):
        if str(column.dtype) in ("Object", "Int128", "UInt128"):
            # Arrow has no such types; to ask for one may end in a panic.
            return _objects(column.to_list())
        return _several(column.to_arrow())
    return _several(column) if isinstance(column, pa.Array | pa.ChunkedArray) else None


def stored(kind: Any) -> pa.DataType | None:
    """The type that Arrow stores a column of pandas in, None where NumPy does.

    >>> stored(pd.ArrowDtype(pa.date32())), stored(np.dtype("int64"))
    (DataType(date32[day]), None)
    """
    return kind.pyarrow_dtype if isinstance(kind, pd.ArrowDtype) else None


def is_time(kind: Any) -> bool:
    """Whether a type of NumPy, pandas, Polars or Arrow is one of moments, spans or times of day.

    >>> is_time(pa.time64("ns")), is_time(np.dtype("M8[s]")), is_time(pa.int64())
    (True, True, False)
    """
    arrow = kind if isinstance(kind, pa.DataType) else stored(kind)
    if arrow is not None:
        if kinds.is_dictionary(arrow):
            return is_time(arrow.value_type)
        return bool(kinds.is_temporal(arrow))
    if isinstance(kind, pd.DatetimeTZDtype | pd.PeriodDtype):
        return True
    if hasattr(kind, "is_temporal"):
        # A type of Polars.
        return bool(kind.is_temporal())
    return isinstance(kind, np.dtype) and kind.kind in "mM"


def kind_of(kind: Any) -> str:
    """A type in words that say nothing of the longest cell.

    >>> kind_of(np.dtype("U12")), kind_of(np.dtype("M8[ns]")), kind_of(np.dtype("i4"))
    ('text', 'times', 'int32')
    """
    if not isinstance(kind, np.dtype):
        return str(kind)
    return "records" if kind.kind == "V" else _KINDS.get(kind.kind, kind.name)


def _plain(column: Any) -> NDArray[Any]:
    """A column of objects, whatever stores it."""
    found = values(column)
    if found is None:
        found = column.to_numpy(dtype=object)
    return found if found.dtype == object else _objects(found)


def _several(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The chunks of an Arrow column, one after the other."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    kind = _unit(column.type)
    found = [_one(chunk) for chunk in chunks]
    return np.concatenate([np.empty(0, dtype=object if kind is None else kind), *found])


def _one(chunk: pa.Array) -> NDArray[Any]:
    """One Arrow array."""
    if kinds.is_dictionary(chunk.type):
        codes = np.array([-1 if code is None else code for code in chunk.indices.to_pylist()], int)
        return _taken(_plain_arrow(chunk.dictionary), codes)
    unit = _unit(chunk.type)
    if unit is not None:
        counts = chunk.cast(pa.int32()) if kinds.is_date32(chunk.type) else chunk
        # As they are stored, without a look at what they mean.
        counts = counts.view(pa.int64()) if not kinds.is_date32(chunk.type) else counts
        there = np.asarray(counts.is_valid())
        raw = counts.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return np.where(there, raw, np.iinfo(np.int64).min).view(unit)
    if kinds.is_timestamp(chunk.type):
        # Somewhere on the clock of the world: pandas has such moments, as far as they reach.
        counts = chunk.view(pa.int64()).to_pylist()
        return _objects([_moment(count, chunk.type.unit) for count in counts])
    try:
        return _objects(chunk.to_pylist())
    except Exception:
        return _objects([_python(cell) for cell in chunk])


def _plain_arrow(column: pa.Array) -> NDArray[Any]:
    found = _one(column)
    return found if found.dtype == object else _objects(found)


def _unit(kind: pa.DataType) -> np.dtype[Any] | None:
    """The type of NumPy that counts moments or spans as an Arrow type does; None where none does."""
    if kinds.is_date32(kind):
        return np.dtype("M8[D]")
    if kinds.is_date64(kind):
        return np.dtype("M8[ms]")
    if kinds.is_timestamp(kind) and kind.tz is None:
        return np.dtype(f"M8[{kind.unit}]")
    return np.dtype(f"m8[{kind.unit}]") if kinds.is_duration(kind) else None


def _moment(count: int | None, unit: Any) -> Any:
    """A moment of a known place, from its count since 1970."""
    try:
        return (
            None if count is None else pd.Timestamp(np.datetime64(count, unit)).tz_localize("UTC")
        )
    except Exception:
        return None


def _python(cell: Any) -> Any:
    """One cell; bytes for text that is not UTF-8, None where Python has no value."""
    try:
        return cell.as_py()
    except UnicodeDecodeError:
        # Whole text; text within something else has no bytes of its own.
        return cell.as_buffer().to_pybytes() if hasattr(cell, "as_buffer") else None
    except Exception:
        return None


def _taken(held: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    """Values by their numbers, None for a number that none has."""
    there = (codes >= 0) & (codes < len(held))
    return np.append(held, _objects([None]))[np.where(there, codes, len(held))]


def _objects(cells: Any) -> NDArray[Any]:
    """Cells as they are: a list among them is one cell."""
    out = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        out[place] = cell
    return out

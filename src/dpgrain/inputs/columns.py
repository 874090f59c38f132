"""Columns of Arrow, Polars and pandas as Python values, read cell by cell.

Arrow stores values that Python lacks: days after the year 9999, nanoseconds of a day, text that is
not UTF-8. One such cell would stop the conversion of the whole column, and the error would quote
it. Times are therefore read as their stored integers, and any other such cell becomes null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpgrain._lazy_import import lazy_import, loaded_types, require
from dpgrain.errors import reraise_keyboard_interrupt

if TYPE_CHECKING:
    import pandas
    import pandas as pd
    import pyarrow as pa
    import pyarrow.types as kinds
else:
    pd, pandas = loaded_types("pandas"), lazy_import("pandas")
    pa = lazy_import("pyarrow")
    kinds = lazy_import("pyarrow.types")

__all__ = [
    "arrow_type",
    "column_types",
    "is_distributed",
    "is_text",
    "is_time",
    "type_name",
    "values",
]

# Names of NumPy types without sizes, because the length of the longest text would reveal its row.
_WORDS_OF_KINDS = {
    "U": "text",
    "S": "text",
    "T": "text",
    "O": "objects",
    "M": "times",
    "m": "durations",
}


def values(column: Any) -> NDArray[Any] | None:
    """Return a column stored by Arrow or Polars as an array; None for any other column.

    Times and durations have NumPy types. Anything else becomes objects, (m,), with None for a cell
    that is null or has no value in Python.

    >>> values(pa.chunked_array([["a", None], ["b"]])).tolist()
    ['a', None, 'b']
    """
    if isinstance(column, pd.api.extensions.ExtensionArray):
        column = pd.Series(column)
    if isinstance(column, pd.Series | pd.Index):
        kind = column.dtype
        if isinstance(kind, pd.CategoricalDtype):
            categorical = column.array if isinstance(column, pd.Series) else column
            return _look_up(_plain(kind.categories), np.asarray(categorical.codes))  # type: ignore[union-attr]
        arrow = arrow_type(kind) is not None or (
            isinstance(kind, pd.StringDtype) and kind.storage == "pyarrow"
        )
        return _from_arrow(pa.array(column.array)) if arrow else None
    if type(column).__module__.partition(".")[0] == "polars" and hasattr(column, "to_arrow"):
        if str(column.dtype) in ("Object", "Int128", "UInt128"):
            # Arrow lacks these types, and Polars may panic when converting them.
            return objects(column.to_list())
        return _from_arrow(column.to_arrow())
    return _from_arrow(column) if isinstance(column, pa.Array | pa.ChunkedArray) else None


def arrow_type(kind: Any) -> pa.DataType | None:
    """Return the Arrow type of a pandas column; None if NumPy stores it.

    >>> arrow_type(pd.ArrowDtype(pa.date32())), arrow_type(np.dtype("int64"))
    (DataType(date32[day]), None)
    """
    return kind.pyarrow_dtype if isinstance(kind, pd.ArrowDtype) else None


def is_time(kind: Any) -> bool:
    """Return True for a type of timestamps, durations or times of day, of any library.

    >>> is_time(pa.time64("ns")), is_time(np.dtype("M8[s]")), is_time(pa.int64())
    (True, True, False)
    """
    arrow = kind if isinstance(kind, pa.DataType) else arrow_type(kind)
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


def is_text(kind: Any) -> bool:
    """Return True for a text type of pandas, Polars or Arrow; NumPy types depend on single cells.

    >>> is_text(pd.StringDtype()), is_text(pa.string()), is_text(np.dtype("U3")), is_text(pa.int64())
    (True, True, False, False)
    """
    arrow = kind if isinstance(kind, pa.DataType) else arrow_type(kind)
    if arrow is not None:
        return bool(kinds.is_string(arrow) or kinds.is_large_string(arrow))
    # The name of the type in Polars.
    return isinstance(kind, pd.StringDtype) or str(kind) == "String"


def column_types(X: Any) -> list[tuple[Any, Any]]:
    """Return the names and types of the columns of a frame or Arrow table; otherwise an empty list.

    >>> column_types(pa.table({"a": [1]})), column_types([[1]])
    ([('a', DataType(int64))], [])
    """
    if isinstance(X, pa.Table):
        return list(zip(X.column_names, X.schema.types, strict=True))
    if isinstance(X, pd.DataFrame):
        return list(zip(X.columns, X.dtypes, strict=True))
    if type(X).__module__.partition(".")[0] == "polars" and hasattr(X, "collect_schema"):
        return list(X.collect_schema().items())
    return []


def type_name(kind: Any) -> str:
    """Return the name of a type, without the length of the longest cell.

    >>> type_name(np.dtype("U12")), type_name(np.dtype("M8[ns]")), type_name(np.dtype("i4"))
    ('text', 'times', 'int32')
    """
    if not isinstance(kind, np.dtype):
        return str(kind)
    return "records" if kind.kind == "V" else _WORDS_OF_KINDS.get(kind.kind, kind.name)


def _plain(column: Any) -> NDArray[Any]:
    """Return a column of any library as objects."""
    cells = values(column)
    if cells is None:
        cells = column.to_numpy(dtype=object)
    return cells if cells.dtype == object else objects(cells)


def require_packages(column: Any) -> None:
    """Raise if a column of Arrow or Polars needs pandas: NumPy has no time zones."""
    kind = getattr(column, "type", None)
    if isinstance(kind, pa.DataType):
        kind = kind.value_type if kinds.is_dictionary(kind) else kind
        zoned = kinds.is_timestamp(kind) and kind.tz is not None
    else:
        zoned = getattr(getattr(column, "dtype", None), "time_zone", None) is not None
    if zoned:
        require("pandas")


def _from_arrow(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Convert an Arrow column, chunk by chunk."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    require_packages(column)
    kind = _unit(column.type)
    arrays = [_from_chunk(chunk) for chunk in chunks]
    return np.concatenate([np.empty(0, dtype=object if kind is None else kind), *arrays])


def _from_chunk(chunk: pa.Array) -> NDArray[Any]:
    """Convert one Arrow array."""
    if kinds.is_dictionary(chunk.type):
        codes = np.array([-1 if code is None else code for code in chunk.indices.to_pylist()], int)
        return _look_up(_plain_arrow(chunk.dictionary), codes)
    unit = _unit(chunk.type)
    if unit is not None:
        counts = chunk.cast(pa.int32()) if kinds.is_date32(chunk.type) else chunk
        # View the stored integers without interpreting them, so that none can be out of range.
        counts = counts.view(pa.int64()) if not kinds.is_date32(chunk.type) else counts
        valid = np.asarray(counts.is_valid())
        raw = counts.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return np.where(valid, raw, np.iinfo(np.int64).min).view(unit)
    if kinds.is_timestamp(chunk.type):
        counts = chunk.view(pa.int64()).to_pylist()
        return objects([_moment(count, chunk.type.unit) for count in counts])
    try:
        return objects(chunk.to_pylist())
    except BaseException as error:
        reraise_keyboard_interrupt(error)
        return objects([_python(cell) for cell in chunk])


def _plain_arrow(column: pa.Array) -> NDArray[Any]:
    cells = _from_chunk(column)
    return cells if cells.dtype == object else objects(cells)


def _unit(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type of an Arrow type of times, with its unit, or None."""
    if kinds.is_date32(kind):
        return np.dtype("M8[D]")
    if kinds.is_date64(kind):
        return np.dtype("M8[ms]")
    if kinds.is_timestamp(kind) and kind.tz is None:
        return np.dtype(f"M8[{kind.unit}]")
    return np.dtype(f"m8[{kind.unit}]") if kinds.is_duration(kind) else None


def _moment(count: int | None, unit: Any) -> Any:
    """Return a timestamp in UTC from its count since 1970; None if beyond pandas."""
    try:
        return (
            None
            if count is None
            else pandas.Timestamp(np.datetime64(count, unit)).tz_localize("UTC")
        )
    except BaseException as error:
        reraise_keyboard_interrupt(error)
        return None


def _python(cell: Any) -> Any:
    """Convert one cell: bytes if it is not UTF-8 text, None if Python lacks its value."""
    try:
        return cell.as_py()
    except UnicodeDecodeError:
        # A text cell has a buffer; text nested in another cell has none.
        return cell.as_buffer().to_pybytes() if hasattr(cell, "as_buffer") else None
    except BaseException as error:
        reraise_keyboard_interrupt(error)
        return None


def _look_up(values_of_codes: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    """Look up values by their codes, with None for an invalid code."""
    valid = (codes >= 0) & (codes < len(values_of_codes))
    return np.append(values_of_codes, objects([None]))[np.where(valid, codes, len(values_of_codes))]


def objects(cells: Any) -> NDArray[Any]:
    """Return an array with the cells as objects; a list among them is one cell.

    NumPy would convert booleans to text if other cells are text, and pad all text to the longest.
    """
    out = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        out[place] = cell
    return out


def is_distributed(rows: Any) -> bool:
    """Return True if rows are on a cluster, without loading its library.

    Rows on a cluster are a Spark frame, or an object with the attribute ``distributed = True``.

    >>> is_distributed(np.zeros((2, 1)))
    False
    """
    of = type(rows)
    of_spark = of.__module__.startswith("pyspark.sql.") and hasattr(rows, "mapInArrow")
    return of_spark or getattr(of, "distributed", None) is True

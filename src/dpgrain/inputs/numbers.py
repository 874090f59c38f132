"""Numeric cells of tables, each read separately, so that an invalid cell affects no other."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpgrain._lazy_import import lazy_import, loaded_types, require
from dpgrain.errors import (
    DataError,
    ParameterError,
    raise_without_context,
    reraise_keyboard_interrupt,
)
from dpgrain.inputs import columns
from dpgrain.inputs.columns import is_time, type_name

if TYPE_CHECKING:
    import pandas
    import pandas as pd
    import pyarrow as pa
else:
    pd, pandas = loaded_types("pandas"), lazy_import("pandas")
    pa = lazy_import("pyarrow")

#: Texts of booleans, and their numbers.
BOOLEANS = {"True": 1, "False": 0, "true": 1, "false": 0}
# Cell types that NumPy converts independently of each other.
_PLAIN = frozenset(
    (bool, int, float, np.bool_, np.float64, np.float32, np.int64, np.int32, np.int16, np.int8)
)


def numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Read each cell of an array as a number; NaN if it is not numeric."""
    if values.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            return values.astype(np.float64)
    if values.dtype.kind == "c":
        # One complex number makes the others complex, with the same values.
        with np.errstate(all="ignore"):
            return np.where(values.imag == 0, values.real, np.nan).astype(np.float64)
    out = np.full(values.shape, np.nan)
    if values.dtype.kind not in "OUS":
        # NumPy would convert times to counts of a unit that depends on the column.
        return out
    flat = out.reshape(-1)
    with warnings.catch_warnings():
        # A warning would reveal the cell, so a cell that causes one becomes NaN.
        warnings.simplefilter("error")
        for place, value in enumerate(values.astype(object).reshape(-1)):
            try:
                # NumPy converts booleans to text if other cells are text.
                flat[place] = float(BOOLEANS.get(value, value) if isinstance(value, str) else value)
            except BaseException as error:
                reraise_keyboard_interrupt(error)
                continue
    return out


def numeric_table(X: Any, width: int | None = None, *, name: str = "X") -> Any:
    """Read each cell of a table as a number; NaN, later treated as 0, if not numeric.

    One invalid cell can turn a table into objects, or an array into text. It must neither raise nor
    change how other cells are read. A list's row without ``width`` cells is NaN.
    """
    if isinstance(X, pa.Table) or _is_polars(X):
        X = _framed(X, name)
    if isinstance(X, pd.DataFrame):
        kinds = list(X.dtypes)
        _no_times(name, X.columns, kinds)
        if all(_is_wide(kind) for kind in kinds):
            return X

        def read(i: int) -> Any:
            if _is_wide(kinds[i]):
                return X.iloc[:, i]
            # Narrow numbers become float64, because an invalid cell elsewhere would also widen them.
            return pd.Series(numbers(vector(X.iloc[:, i])), index=X.index)

        return pd.DataFrame({i: read(i) for i in range(X.shape[1])}).set_axis(X.columns, axis=1)
    if sparse.issparse(X):
        if X.dtype in (np.float64, np.float32) or X.dtype.kind in "iub":
            return X
        X = X.tocsr()
        return sparse.csr_array((numbers(X.data), X.indices, X.indptr), shape=X.shape)
    if isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and _contains_rows(X, width)):
        return _rows(X, required_width(width))
    array = _array(X)
    if not isinstance(X, np.ndarray):
        _no_times(name, [0], [getattr(X, "dtype", None) or getattr(X, "type", None)])
    if array.dtype.kind in "mMV":
        raise ParameterError(f"{name} must be numbers, not {type_name(array.dtype)}.")
    return numbers(array) if array.dtype.kind in "OUSc" or array.dtype.itemsize > 8 else array


def required_width(width: int | None) -> int:
    """Return the stated width, or raise: one row could change a width read from rows."""
    if width is None:
        raise ParameterError(
            "n_features must be passed for a list of rows, such as n_features=2, because rows "
            "may differ in length; or pass an array, which has a shape.",
            name="n_features",
        )
    return width


def numeric_array(X: Any, width: int | None = None, *, name: str = "X") -> NDArray[Any]:
    """Read a table as an array of numbers, as :func:`numeric_table` does."""
    table = numeric_table(X, width, name=name)
    if isinstance(table, pd.DataFrame) and len({*table.dtypes}) > 1:
        # NumPy would convert columns of booleans and numbers to objects.
        return table.to_numpy(dtype=np.float64)
    return table.toarray() if sparse.issparse(table) else np.asarray(table)


def collect_rows(make: Callable[[], Any]) -> Any:
    """Call a function that reads a caller's iterator or lazy frame."""
    try:
        return make()
    except BaseException as error:
        reraise_keyboard_interrupt(error)
        message = "the iterator or frame passed as rows raised an error"
        raise_without_context(DataError(f"{message}; collect it into an array first."))


def table_and_shape(
    X: Any, width: int | None = None, *, name: str = "X"
) -> tuple[Any, tuple[int, ...]]:
    """Return a table and its :func:`numeric_array`'s shape, without reading a cell."""
    if isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and _contains_rows(X, width)):
        assert width is not None  # noqa: S101 - it is stated for a list
        return X, (len(X), width)
    if _is_polars(X) and hasattr(X, "collect"):
        X = collect_rows(X.collect)
    if isinstance(X, pa.Table) or _is_polars(X):
        require("pandas")
    types = columns.column_types(X)
    if types:
        _no_times(name, *zip(*types, strict=True))
    elif not isinstance(X, np.ndarray):
        _no_times(name, [0], [getattr(X, "dtype", None) or getattr(X, "type", None)])
    if isinstance(X, pa.Array | pa.ChunkedArray):
        return X, (len(X),)
    if getattr(X, "shape", None) is None:
        X = _array(X)
    kind = getattr(X, "dtype", None)
    if isinstance(kind, np.dtype) and kind.kind in "mMV":
        raise ParameterError(f"{name} must be numbers, not {type_name(kind)}.")
    return X, tuple(X.shape)


def vector(values: Any) -> NDArray[Any]:
    """Read each cell of a column as a number; NaN if it is not numeric."""
    if isinstance(values, list | tuple):
        return numbers(columns.objects(values))
    array = _array(values)
    return array if array.dtype.kind in "fiub" and array.dtype.itemsize <= 8 else numbers(array)


def _array(values: Any) -> NDArray[Any]:
    """Return any column as an array, of objects if NumPy lacks its type."""
    cells = columns.values(values)
    if cells is not None:
        return cells
    if isinstance(values, pd.Series | pd.Index) and not isinstance(values.dtype, np.dtype):
        return values.to_numpy(dtype=object)
    return np.asarray(values)


def _rows(values: Sequence[Any] | NDArray[Any], width: int) -> NDArray[np.float64]:
    """Return the numbers in the rows of a list, (m, width)."""
    try:
        if (
            all(type(row) in (list, tuple) and len(row) == width for row in values)
            and set(map(type, itertools.chain.from_iterable(values))) <= _PLAIN
        ):
            return np.array(list(values), dtype=np.float64).reshape(len(values), width)
    except OverflowError:
        # An integer too large for a float becomes NaN below.
        pass
    cells = np.full((len(values), width), None, dtype=object)
    for place, row in enumerate(values):
        try:
            if width == 1 and not isinstance(row, list | tuple | np.ndarray | pd.Series):
                cells[place, 0] = row
            elif isinstance(row, list | tuple | np.ndarray | pd.Series) and len(row) == width:
                cells[place] = columns.objects(list(row))
        except BaseException as error:
            reraise_keyboard_interrupt(error)
            # A row that cannot be read is NaN.
            continue
    return numbers(cells)


def _contains_rows(X: NDArray[Any], width: int | None) -> bool:
    """Return True if an array is a column of objects, each with several numbers."""
    return X.dtype == object and X.ndim == 1 and width is not None and width > 1


def _framed(X: Any, name: str) -> pd.DataFrame:
    """Convert an Arrow table or a Polars frame to a pandas frame of numbers."""
    if isinstance(X, pa.Table):
        names, columns, kinds = X.column_names, X.columns, X.schema.types
    else:
        # Read column by column, because Arrow lacks some types of Polars.
        X = X.collect() if hasattr(X, "collect") else X
        names, columns, kinds = X.columns, X.get_columns(), X.dtypes
    _no_times(name, names, kinds)
    require("pandas")
    return pandas.DataFrame(
        {i: numbers(vector(column)) for i, column in enumerate(columns)}
    ).set_axis(names, axis=1)


def _no_times(name: str, names: Iterable[Any], kinds: Iterable[Any]) -> None:
    """Reject a schema with times, because their numbers would depend on storage."""
    for column, kind in zip(names, kinds, strict=False):
        if is_time(kind):
            raise ParameterError(
                f"{name} must be numbers, not {type_name(kind)} as in its column "
                f"{column!r}; omit it, or convert it to a number, such as days since a fixed "
                "date."
            )


def _is_polars(X: Any) -> bool:
    """Return True for a Polars frame, without loading Polars."""
    frame = hasattr(X, "get_columns") or hasattr(X, "collect")
    return frame and type(X).__module__.partition(".")[0] == "polars"


def _is_wide(kind: Any) -> bool:
    """Return True if a column contains float64, integers or booleans: no conversion."""
    return isinstance(kind, np.dtype) and (kind == np.float64 or kind.kind in "iub")

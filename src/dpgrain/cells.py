"""Cells of tables as numbers, each read by itself: one odd cell must not change how others are read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: How truths are written.
TRUTHS = {"True": 1, "False": 0, "true": 1, "false": 0}
# Types of columns of less precision than others are read in.
_NARROW = (np.float16, np.float32)


def numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Targets as numbers, each by itself; NaN for what is none.

    >>> numbers(np.array([1, "2", None, "abc"], dtype=object)).tolist()
    [1.0, 2.0, nan, nan]
    """
    if values.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            return values.astype(np.float64)
    if values.dtype.kind == "c":
        # One complex number makes the others complex, without changing them.
        return np.where(values.imag == 0, values.real, np.nan).astype(np.float64)
    out, values = np.full(len(values), np.nan), values.astype(object)
    with warnings.catch_warnings():
        # A warning would tell of the cell: what is read with one is no number.
        warnings.simplefilter("error")
        for place, value in enumerate(values):
            try:
                # NumPy writes truths as text beside text.
                out[place] = float(TRUTHS.get(value, value) if isinstance(value, str) else value)
            except Exception:
                continue
    return out


def readable(X: Any) -> Any:  # noqa: N803
    """A table in which cells that are objects or text are read as numbers, each by itself.

    Args:
        X: an array, lists of numbers, a data frame or a sparse matrix.

    One odd cell makes objects of a whole table, or text or complex numbers of a list, and must neither
    be an error nor change how others are read: NaN counts as 0.

    >>> readable([[True, 2], [1j, "4"]]).tolist()
    [[1.0, 2.0], [nan, 4.0]]
    """
    if isinstance(X, pd.DataFrame):
        kinds = list(X.dtypes)
        if all(_is_numeric(kind) and kind not in _NARROW for kind in kinds):
            return X

        def read(i: int) -> Any:
            if not _is_numeric(kinds[i]):
                return readable(X.iloc[:, i].to_numpy(dtype=object))
            # In one precision: an odd cell elsewhere would widen all of them.
            return X.iloc[:, i].astype(np.float64) if kinds[i] in _NARROW else X.iloc[:, i]

        return pd.DataFrame({i: read(i) for i in range(X.shape[1])}).set_axis(X.columns, axis=1)
    if isinstance(X, list | tuple):
        X = _listed(X)  # noqa: N806
    if isinstance(X, np.ndarray) and X.dtype.kind in "OUS":
        return numbers(X.ravel()).reshape(X.shape)
    return X


def cells(X: Any) -> NDArray[Any]:  # noqa: N803
    """The same as an array; of numbers, unless its type says that it holds none.

    Args:
        X: as above, dense.

    Raises:
        ValueError: if rows of a list have several lengths.

    >>> cells(pd.Series([1, "2", None])).tolist()
    [1.0, 2.0, nan]
    """
    array: NDArray[Any] = readable(np.asarray(readable(X)))
    return array


def _listed(values: Sequence[Any]) -> Any:
    """A list as an array, of floats or objects; as it is if its rows have several lengths."""
    try:
        array = np.asarray(values)
        if _is_numeric(array.dtype):
            # One wider number must not change how finely others are added up.
            return array.astype(np.float64)
    except ValueError:
        pass
    try:
        # As they were written: NumPy would write truths as text beside text.
        objects = np.array(values, dtype=object)
    except ValueError:
        return values
    # Lists within rows of one length, or few among numbers, are odd cells. What is wrong with rows of
    # several lengths is said by who needs them.
    nested = sum(isinstance(value, list | tuple | np.ndarray) for value in values)
    return objects if objects.ndim > 1 or 2 * nested < len(values) else values


def _is_numeric(kind: Any) -> bool:
    return isinstance(kind, np.dtype) and kind.kind in "fiub"

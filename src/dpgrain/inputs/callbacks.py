"""Calls of a caller's function on records that do not reveal its behaviour on single records."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain._lazy_import import loaded_types
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError, reraise_keyboard_interrupt

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = loaded_types("pandas")


@contextmanager
def silent() -> Iterator[None]:
    """Suppress warnings, because a warning would reveal a record."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def map_records(
    call: Callable[[int, int], Any], records: int, shape: tuple[int, ...] = ()
) -> FloatArray:
    """Call a function on all records; NaN for records that it fails on.

    An exception, or missing results of other records, would reveal that such a record exists. A
    failed call is therefore repeated on each half of its records.
    """
    results = np.full((records, *shape), np.nan)
    left = [(0, records)] if records else []
    while left:
        first, last = left.pop()
        try:
            with silent():
                part = np.asarray(call(first, last), dtype=np.float64)
            if part.shape == (last - first, *shape):
                if last - first == records:
                    return part
                results[first:last] = part
                continue
        except BaseException as error:
            # Both halves are called below.
            reraise_keyboard_interrupt(error)
        if last - first > 1:
            middle = (first + last) // 2
            left += [(first, middle), (middle, last)]
    return results


def check_callback(
    call: Callable[..., Any], parts: tuple[Any, ...], shape: tuple[int, ...], name: str, wanted: str
) -> None:
    """Reject a function that fails on public records: two of zeros, or an empty batch.

    ``parts`` are records, used only for their types and shapes.
    """
    zeros = [_zeros(part) for part in parts]
    records = [part for part in zeros if part is not None]
    if len(records) == len(parts):
        try:
            with silent():
                answer_shape = np.shape(call(*records))
        except BaseException as error:
            reraise_keyboard_interrupt(error)
            raise ParameterError(
                f"{name} must return {wanted}, also for records of zeros, but raises "
                f"{type(error).__name__}: {error}."
            ) from None
        if answer_shape != (2, *shape):
            raise ParameterError(f"{name} must return {wanted}, not shape {answer_shape} for two.")
        return
    # For text and objects the only public batch is an empty one, and a function may fail on it.
    try:
        with silent():
            answer_shape = np.shape(call(*(slice_records(part, 0, 0) for part in parts)))
    except BaseException as error:
        reraise_keyboard_interrupt(error)
        return
    if answer_shape == ():
        raise ParameterError(f"{name} must return {wanted}, not one value for all of them.")


def slice_records(records: Any, first: int, last: int) -> Any:
    """Return the records from ``first`` to before ``last``, as the same type."""
    if hasattr(records, "iloc"):
        return records.iloc[first:last]
    if hasattr(records, "slice") and hasattr(records, "column_names"):
        # An Arrow table.
        return records.slice(first, last - first)
    if hasattr(records, "tocsr"):
        return records.tocsr()[first:last]
    return records[first:last]


def _zeros(records: Any) -> Any:
    """Return two records of zeros of the same type; None if the type has no zeros."""
    if isinstance(records, np.ndarray) and records.dtype.kind in "fiubc" and records.ndim > 0:
        return np.zeros((2, *records.shape[1:]), dtype=records.dtype)
    if hasattr(records, "tocsr"):
        return type(records)((2, records.shape[1]), dtype=records.dtype)
    if not hasattr(records, "iloc"):
        return None
    if isinstance(records, pd.Series) and _is_numeric(records.dtype):
        return pd.Series(np.zeros(2), dtype=records.dtype, name=records.name)
    if isinstance(records, pd.DataFrame) and all(map(_is_numeric, records.dtypes)):
        return pd.DataFrame(
            {i: np.zeros(2, dtype=kind) for i, kind in enumerate(records.dtypes)}
        ).set_axis(records.columns, axis=1)
    return None


def _is_numeric(kind: Any) -> bool:
    return isinstance(kind, np.dtype) and kind.kind in "fiub"

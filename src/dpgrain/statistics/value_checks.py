"""Validation of noisy values and their standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError, raise_without_context


def values_and_sds(name: str, values: Any, sd_name: str, sds: Any) -> tuple[FloatArray, FloatArray]:
    """Check values and their standard deviations; one standard deviation may serve all values."""
    x = finite_values(name, values, None)
    spread = np.asarray(sds)
    if spread.ndim == 0:
        spread = np.broadcast_to(spread, x.shape)
    return x, finite_values(sd_name, spread, x.size, sign=sd_name)


def finite_values(name: str, values: Any, size: int | None, *, sign: str = "") -> FloatArray:
    """Return finite numbers of the given length, (V,); non-negative if ``sign`` is given."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise_without_context(ParameterError(f"{name} must be an array of numbers."))
    if array.ndim != 1 or (size is not None and array.size != size):
        length = "one-dimensional" if size is None else f"of length {size}"
        raise ParameterError(f"{name} must be an array {length}, not of shape {array.shape}.")
    wrong = ~np.isfinite(array)
    if sign:
        wrong |= array < 0
    if wrong.any():
        rule = "finite and at least 0" if sign else "finite"
        raise ParameterError(f"{name} must be {rule} everywhere, not {array[wrong][0]:g}.")
    return array


def group_codes(groups: Any, size: int) -> IntArray:
    """Return non-negative integers, (V,)."""
    array = np.asarray(groups)
    if array.shape != (size,) or (size and not np.issubdtype(array.dtype, np.integer)):
        raise ParameterError(
            f"groups must be {size} integers, not {array.dtype} of shape {array.shape}."
        )
    if size and array.min() < 0:
        raise ParameterError(f"groups must be at least 0, not {array.min()}.")
    return np.asarray(array, dtype=np.int64)

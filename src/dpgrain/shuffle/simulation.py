"""The reporting devices of a simulated batch, and the messages of corrupt ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain.errors import ParameterError, raise_without_context


def corrupt_messages(messages: ArrayLike | None, dim: int, largest: int) -> NDArray[np.int64]:
    """Return (k, d) counts of corrupt devices; raise if a shuffler would drop them."""
    if messages is None:
        return np.zeros((0, dim), dtype=np.int64)
    try:
        array = np.atleast_2d(np.asarray(messages))
    except ValueError:
        raise_without_context(
            ParameterError(f"corrupt must be integers of shape (devices, {dim}).", name="corrupt")
        )
    if array.ndim != 2 or array.shape[1] != dim or array.dtype.kind not in "iu":
        raise ParameterError(
            f"corrupt must be integers of shape (devices, {dim}), not {array.shape} of "
            f"{array.dtype}."
        )
    if array.size and not 0 <= array.min() <= array.max() <= largest:
        raise ParameterError(
            f"corrupt counts must be between 0 and {largest:,}, because the shuffler drops others."
        )
    return array.astype(np.int64)


@dataclass(frozen=True)
class ReportingDevices:
    """The number of reporting devices, and the rows of those with data."""

    devices: int
    rows: slice | NDArray[np.bool_]


def reporting_devices(dropped: int | ArrayLike, devices: int, rows: int) -> ReportingDevices:
    """Return the reporting devices; the first devices have rows."""
    if isinstance(dropped, int | np.integer) and not isinstance(dropped, bool):
        if not 0 <= dropped <= devices:
            raise ParameterError(
                f"dropped must be between 0 and {devices:,}, not {_validate.describe(dropped)}."
            )
        left = devices - int(dropped)
        return ReportingDevices(left, slice(0, left))
    try:
        lost = np.asarray(dropped)
    except ValueError:
        raise_without_context(
            ParameterError(f"dropped must be {devices:,} booleans.", name="dropped")
        )
    if lost.shape != (devices,) or lost.dtype != np.bool_:
        raise ParameterError(
            f"dropped must be a number of devices or {devices:,} booleans, not "
            f"{_validate.describe(dropped)}."
        )
    return ReportingDevices(devices - int(lost.sum()), ~lost[:rows])

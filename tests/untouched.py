"""Arrays that must not be read, but for their shape and type."""

from __future__ import annotations

from typing import Any

import numpy as np


class Untouched:
    """An array with known shape and type, and numbers that must not be read."""

    def __init__(self, *shape: int, dtype: Any = np.float64) -> None:
        self.shape, self.ndim, self.dtype = shape, len(shape), np.dtype(dtype)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("it was read")

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        raise AssertionError("it was read")

    def __getitem__(self, _: Any) -> Any:
        raise AssertionError("it was read")

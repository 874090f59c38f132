"""Types of arrays by their contents."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Array of any type.
Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
#: Indices into an array.
IndexArray: TypeAlias = NDArray[np.intp]
#: Real numbers of any width.
RealArray: TypeAlias = NDArray[np.floating[Any]]

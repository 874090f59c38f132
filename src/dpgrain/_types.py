"""The arrays of the whole library, by their contents."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Any array, of any shape.
Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
#: Places in an array.
IndexArray: TypeAlias = NDArray[np.intp]
#: Real numbers of any width.
RealArray: TypeAlias = NDArray[np.floating[Any]]

"""Ideals and events near to them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.errors import ParameterError

Array = NDArray[np.float64]


def refused(*calls: Callable[[], object]) -> None:
    for call in calls:
        with pytest.raises(ParameterError):
            call()

"""A sum that was made in floating point, with integer noise of an exact law on a grid."""

from __future__ import annotations

import math

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.noise.laws import raised, rounded_gaussian
from dpgrain.noise.sources import Source

# The grid has so many steps to the noise.
_STEPS_TO_THE_NOISE = 2.0**30
# Where integers saturate: public, and far above what any roster adds up to.
_LARGEST = 2.0**62


def noised(
    total: FloatArray, sensitivity: float, noise_multiplier: float, source: Source
) -> FloatArray:
    """A sum with Gaussian noise, as a release on a grid.

    Args:
        total: (d,) the sum; what is not finite counts 0.
        sensitivity: how far one unit moves it, l2.
        noise_multiplier: noise sd ÷ sensitivity.
        source: where noise comes from.

    Formal guarantee: a Gaussian mechanism with the stated multiplier, for a sum that moves by at most
    the sensitivity: rounding to the grid moves it by √d steps at most, and the noise is larger for it.

    >>> from dpgrain.noise import SeededSource
    >>> bool(abs(noised(np.ones(1), 1.0, 0.01, SeededSource(1)) - 1) < 0.1)
    True
    """
    step = 2.0 ** math.floor(math.log2(noise_multiplier * sensitivity / _STEPS_TO_THE_NOISE))
    finite = np.nan_to_num(total, nan=0.0, posinf=0.0, neginf=0.0)
    steps = np.clip(np.rint(finite / step), -_LARGEST, _LARGEST).astype(np.int64)
    moved = sensitivity / step + math.sqrt(len(total))
    noise = rounded_gaussian(raised(raised(noise_multiplier * moved)), len(total), source=source)
    return (steps + noise).astype(np.float64) * step

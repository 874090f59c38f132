"""Sums with noise: the one place where noise of a law is added to what it hides.

A release asks here for its noisy sums and never holds the noise itself, so that whoever watches these
functions sees all noise that is added, each draw with its scale and the sums beneath it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._types import FloatArray
from dpgrain.noise.laws import discrete_laplace, raised, rounded_gaussian, truncated_geometric
from dpgrain.noise.sources import Source

# Steps of the grid to one standard deviation of the noise.
_STEPS_PER_SD = 2.0**30
# Steps of the grid at which integers saturate: public, and far above what any roster adds up to.
_LARGEST = 2.0**62


def with_gaussian(sums: NDArray[Any], scale: ArrayLike, *, source: Source) -> NDArray[Any]:
    """Add normal noise, rounded to integers, to sums of integers.

    Args:
        sums: the sums, of any shape: int64, added modulo 2^64, or Python's integers as objects.
        scale: the standard deviation, one number or one per sum.
        source: where noise comes from.

    Formal guarantee: that of :func:`dpgrain.noise.laws.rounded_gaussian`.

    >>> from dpgrain.noise import SeededSource
    >>> with_gaussian(np.zeros((2, 3), dtype=np.int64), 9.0, source=SeededSource(1)).shape
    (2, 3)
    """
    return _added(sums, rounded_gaussian(np.ravel(scale), sums.size, source=source))


def with_laplace(sums: NDArray[Any], scale: ArrayLike, *, source: Source) -> NDArray[Any]:
    """Add discrete Laplace noise to sums of integers.

    Args:
        sums: the sums, as in :func:`with_gaussian`.
        scale: the scale of the law, one number or one per sum.
        source: where noise comes from.

    Formal guarantee: that of :func:`dpgrain.noise.discrete_laplace`.

    >>> from dpgrain.noise import SeededSource
    >>> with_laplace(np.array([2**70], dtype=object), 0.01, source=SeededSource(1))[0] == 2**70
    True
    """
    return _added(sums, discrete_laplace(np.ravel(scale), sums.size, source=source))


def with_truncated_geometric(
    counts: NDArray[Any], epsilon: float, cutoff: int, *, source: Source
) -> NDArray[Any]:
    """Add noise of the truncated geometric law to counts.

    Args:
        counts: (V,) the counts.
        epsilon: the rate of the law.
        cutoff: the largest noise.
        source: where noise comes from.

    Formal guarantee: that of :func:`dpgrain.noise.truncated_geometric`.

    >>> from dpgrain.noise import SeededSource
    >>> bool(with_truncated_geometric(np.zeros(9), 0.5, 4, source=SeededSource(1)).max() <= 4)
    True
    """
    return _added(counts, truncated_geometric(epsilon, cutoff, counts.size, source=source))


def noised(
    total: FloatArray, sensitivity: float, noise_multiplier: float, source: Source
) -> FloatArray:
    """Release a sum that was made in floating point, with Gaussian noise on a grid.

    Args:
        total: (d,) the sum; what is not finite counts 0.
        sensitivity: the largest l2 distance by which one unit moves it.
        noise_multiplier: noise sd ÷ sensitivity.
        source: where noise comes from.

    Formal guarantee: a Gaussian mechanism with the stated multiplier, for a sum that moves by at most
    the sensitivity: rounding to the grid moves it by √d steps at most, and the noise is larger for it.

    >>> from dpgrain.noise import SeededSource
    >>> bool(abs(noised(np.ones(1), 1.0, 0.01, SeededSource(1)) - 1) < 0.1)
    True
    """
    step = 2.0 ** math.floor(math.log2(noise_multiplier * sensitivity / _STEPS_PER_SD))
    finite = np.nan_to_num(total, nan=0.0, posinf=0.0, neginf=0.0)
    steps = np.clip(np.rint(finite / step), -_LARGEST, _LARGEST).astype(np.int64)
    moved = sensitivity / step + math.sqrt(len(total))
    noisy = with_gaussian(steps, raised(raised(noise_multiplier * moved)), source=source)
    return noisy.astype(np.float64) * step


def _added(sums: NDArray[Any], noise: NDArray[np.int64]) -> NDArray[Any]:
    whole = noise.astype(object) if sums.dtype == object else noise
    noisy: NDArray[Any] = sums + whole.reshape(sums.shape)
    return noisy

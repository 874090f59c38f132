"""Noisy sums: the only place where noise is added to the sums it protects.

Releases get their noisy sums here and never have access to the noise itself. Observing these
functions therefore shows all added noise, each draw with its scale and its sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._types import FloatArray
from dpgrain.noise.distributions import (
    discrete_laplace,
    raise_scale,
    rounded_gaussian,
    truncated_geometric,
)
from dpgrain.noise.sources import RandomSource

# Grid steps per standard deviation of the noise.
_STEPS_PER_SD = 2.0**30
# Grid steps where integers saturate: public, and far above the sum of any known population.
_LARGEST = 2.0**62


def with_gaussian(sums: NDArray[Any], scale: ArrayLike, *, source: RandomSource) -> NDArray[Any]:
    """Add rounded normal noise to sums of int64, modulo 2^64, or of Python integers.

    Formal guarantee: see :func:`dpgrain.noise.distributions.rounded_gaussian`.
    """
    return _added(sums, rounded_gaussian(np.ravel(scale), sums.size, source=source))


def with_laplace(sums: NDArray[Any], scale: ArrayLike, *, source: RandomSource) -> NDArray[Any]:
    """Add discrete Laplace noise to sums of int64 or of Python integers.

    Formal guarantee: see :func:`dpgrain.noise.discrete_laplace`.
    """
    return _added(sums, discrete_laplace(np.ravel(scale), sums.size, source=source))


def with_truncated_geometric(
    counts: NDArray[Any], epsilon: float, cutoff: int, *, source: RandomSource
) -> NDArray[Any]:
    """Add truncated geometric noise of rate ``epsilon`` to (V,) counts.

    Formal guarantee: see :func:`dpgrain.noise.truncated_geometric`.
    """
    return _added(counts, truncated_geometric(epsilon, cutoff, counts.size, source=source))


def add_gaussian_noise(
    total: FloatArray, sensitivity: float, noise_multiplier: float, source: RandomSource
) -> FloatArray:
    """Release a floating-point sum of shape (d,) with Gaussian noise on a grid.

    Formal guarantee: a Gaussian mechanism with the multiplier (sd ÷ l2 sensitivity): the noise is
    increased for the √d steps that rounding adds at most. Non-finite sums are treated as 0.
    """
    step = 2.0 ** math.floor(math.log2(noise_multiplier * sensitivity / _STEPS_PER_SD))
    finite = np.nan_to_num(total, nan=0.0, posinf=0.0, neginf=0.0)
    steps = np.clip(np.rint(finite / step), -_LARGEST, _LARGEST).astype(np.int64)
    moved = sensitivity / step + math.sqrt(len(total))
    noisy = with_gaussian(steps, raise_scale(raise_scale(noise_multiplier * moved)), source=source)
    return noisy.astype(np.float64) * step


def _added(sums: NDArray[Any], noise: NDArray[np.int64]) -> NDArray[Any]:
    whole = noise.astype(object) if sums.dtype == object else noise
    noisy: NDArray[Any] = sums + whole.reshape(sums.shape)
    return noisy

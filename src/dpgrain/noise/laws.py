"""The rounded Gaussian and the discrete Laplace law on the integers."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.noise.inversion import FloatArray, IntArray, sample
from dpgrain.noise.sources import Source, SystemSource

MIN_SCALE, MAX_SCALE = 2.0**-30, 2.0**40


class _RoundedGaussian:
    """round(N(0, scale²)): P(X ≥ k) = Φ̄((k − ½)/scale)."""

    def jump_position(self, tail: FloatArray, scale: FloatArray) -> FloatArray:
        position: FloatArray = ndtri(tail)
        position *= scale
        np.subtract(0.5, position, out=position)
        return position

    def tail(self, k: int, scale: float) -> Any:
        z = (mpmath.mpf(2 * k - 1) / 2) / (mpmath.mpf(scale) * mpmath.sqrt(2))
        return mpmath.erfc(z) / 2


class _DiscreteLaplace:
    """P(X = k) ∝ e^{−|k|/scale}: P(X ≥ k) = e^{−k/scale}/(1 + e^{−1/scale})."""

    def jump_position(self, tail: FloatArray, scale: FloatArray) -> FloatArray:
        # y = −scale·ln(U(1 + e^{−1/scale})), as −scale·(ln 2U + ln((1 + e^{−1/scale})/2)).
        shift = np.log1p(np.expm1(-1.0 / scale) / 2)
        position: FloatArray = -scale * (np.log(2 * tail) + shift)
        return np.maximum(position, 0.0, out=position)

    def tail(self, k: int, scale: float) -> Any:
        scale_ = mpmath.mpf(scale)
        return mpmath.exp(-k / scale_) / (1 + mpmath.exp(-1 / scale_))


def rounded_gaussian(
    scale: ArrayLike, size: int | None = None, *, source: Source | None = None
) -> IntArray:
    """Draw round(Z), Z normal with mean 0 and the given standard deviation, exactly.

    Args:
        scale: standard deviation in grid steps, one number or one per sample, in [2^-30, 2^40].
        size: number of samples; by default one per scale.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a scale is not in [2^-30, 2^40].

    Formal guarantee: f + round(Z) = round(f + Z) for an integer vector f, so releasing it is
    post-processing of the continuous Gaussian mechanism, whose exact curve applies in any dimension.
    The law is exact (total-variation distance 0): see :mod:`dpgrain.noise.inversion`.

    >>> rounded_gaussian(1000.0, 5).shape
    (5,)
    """
    return sample(_RoundedGaussian(), _scales(scale, size), source or SystemSource())


def discrete_laplace(
    scale: ArrayLike, size: int | None = None, *, source: Source | None = None
) -> IntArray:
    """Draw from P(k) ∝ exp(−|k|/scale) on the integers, exactly; arguments as above.

    Formal guarantee: added to an integer vector of l1 sensitivity Δ it is (Δ/scale)-DP. The law is
    exact. Source: element-level paper, eq. (6), on the integers (two-sided geometric law).

    >>> discrete_laplace([1.5, 2.0**40]).shape
    (2,)
    """
    return sample(_DiscreteLaplace(), _scales(scale, size), source or SystemSource())


def raised(scale: FloatArray | float) -> FloatArray:
    """A scale that was computed with one rounding, raised above what it should be: more noise.

    >>> bool(raised(3.0) > 3.0)
    True
    """
    return np.asarray(scale * (1 + 2.0**-51), dtype=np.float64)


def _scales(scale: ArrayLike, size: int | None) -> FloatArray:
    given = np.asarray(scale)
    if given.ndim > 1 or given.dtype.kind not in "fiu":
        raise ParameterError(f"scale must be a number or a list of numbers, not {scale!r}.")
    scales = np.atleast_1d(given).astype(np.float64)
    bad = ~((scales >= MIN_SCALE) & (scales <= MAX_SCALE))
    if bad.any():
        raise ParameterError(
            f"scale must lie in [2^-30, 2^40] grid steps, not {float(scales[bad][0])!r}; "
            "use another grid."
        )
    if size is None:
        return scales
    size = _validate.integer(minimum=0, size=size)
    if scales.size not in (1, size):
        raise ParameterError(f"size must be the number of scales, {scales.size}, not {size}.")
    return np.broadcast_to(scales, (size,))

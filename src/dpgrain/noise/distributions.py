"""The rounded Gaussian and the discrete Laplace distribution on the integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.inversion import sample
from dpgrain.noise.sources import RandomSource, resolve_source
from dpgrain.numerics.special_functions import ndtri

MIN_SCALE, MAX_SCALE = 2.0**-30, 2.0**40
# Smallest share of draws that a truncation may retain, to bound the running time.
_LEAST_KEPT_SHARE = 2.0**-10
# Max numbers drawn at a time for a truncated distribution, including rejected ones.
_BATCH_DRAWS = 1 << 20


class _RoundedGaussian:
    """The distribution of round(N(0, scale²)), with P(X ≥ k) = Φ̄((k − ½)/scale)."""

    def jump_position(self, tail: FloatArray, scale: FloatArray) -> FloatArray:
        position: FloatArray = ndtri(tail)
        position *= scale
        np.subtract(0.5, position, out=position)
        return position

    def tail(self, k: int, scale: float, mp: Any) -> Any:
        z = (mp.mpf(2 * k - 1) / 2) / (mp.mpf(scale) * mp.sqrt(2))
        return mp.erfc(z) / 2


class _DiscreteLaplace:
    """P(X = k) ∝ e^{−|k|/scale}, with P(X ≥ k) = e^{−k/scale}/(1 + e^{−1/scale})."""

    def jump_position(self, tail: FloatArray, scale: FloatArray) -> FloatArray:
        # y = −scale·ln(U(1 + e^{−1/scale})) is computed as −scale·(ln 2U + ln((1 +
        # e^{−1/scale})/2)), because the second logarithm remains precise at large scales.
        shift = np.log1p(np.expm1(-1.0 / scale) / 2)
        position: FloatArray = -scale * (np.log(2 * tail) + shift)
        return np.maximum(position, 0.0, out=position)

    def tail(self, k: int, scale: float, mp: Any) -> Any:
        scale_ = mp.mpf(scale)
        return mp.exp(-k / scale_) / (1 + mp.exp(-1 / scale_))


def rounded_gaussian(
    scale: ArrayLike, size: int | None = None, *, source: RandomSource | None = None
) -> IntArray:
    """Draw rounded normal numbers with sd ``scale`` in grid steps, exactly.

    Scales are in [2^-30, 2^40], one number or one per sample.

    Formal guarantee: f + round(Z) = round(f + Z) for an integer vector f, so releasing it is
    post-processing of the continuous Gaussian mechanism, and its exact curve applies in any
    dimension. The distribution is exact (total-variation distance 0): see
    :mod:`dpgrain.noise.inversion`.
    """
    return sample(_RoundedGaussian(), _scales(scale, size), resolve_source(source))


def discrete_laplace(
    scale: ArrayLike, size: int | None = None, *, source: RandomSource | None = None
) -> IntArray:
    """Draw from P(k) ∝ exp(−|k|/scale) on the integers, exactly.

    Args:
        scale: scale in grid steps, one number or one per sample, in [2^-30, 2^40].
        size: number of samples; by default one per scale.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a scale is not in [2^-30, 2^40].

    Formal guarantee: added to an integer vector of l1 sensitivity Δ the noise is (Δ/scale)-DP. The
    distribution is exact. Source: element-level paper, eq. (6), on the integers (two-sided
    geometric law).

    >>> discrete_laplace([1.5, 2.0**40]).shape
    (2,)
    """
    return sample(_DiscreteLaplace(), _scales(scale, size), resolve_source(source))


def truncated_geometric(
    epsilon: float, cutoff: int, size: int, *, source: RandomSource | None = None
) -> IntArray:
    """Draw from P(x) ∝ exp(−ε|x|) on the integers from −cutoff to cutoff, exactly.

    Args:
        epsilon: the rate ε of the distribution, in (2^-40, 2^30).
        cutoff: the largest value, with ε·cutoff ≥ 2^-10.
        size: the number of samples.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: if one of several integer counts changes by one, adding this noise to all of
    them is (ε, P(X = cutoff))-DP. The distribution is exact: discrete Laplace draws beyond the
    cutoff are repeated, and the scale 1/ε is rounded up. Source: docs/theory, "Truncated noise".

    >>> bool(abs(truncated_geometric(0.5, 4, 100)).max() <= 4)
    True
    """
    epsilon = _validate.positive(epsilon=epsilon)
    cutoff = _validate.integer(minimum=1, cutoff=cutoff)
    out = np.empty(_validate.integer(minimum=0, size=size), dtype=np.int64)
    if epsilon * cutoff < _LEAST_KEPT_SHARE:
        # Nearly all draws would be rejected.
        raise ParameterError(
            f"cutoff must be at least 2^-10/epsilon, not {_validate.describe(cutoff)}."
        )
    scale = raise_scale(1 / epsilon)
    # A larger share of the draws is accepted, so on average one batch supplies all missing samples.
    share, filled = min(epsilon * cutoff, 1.0) / 2, 0
    while filled < out.size:
        tries = min(math.ceil((out.size - filled) / share), _BATCH_DRAWS)
        drawn = discrete_laplace(scale, tries, source=source)
        inside = drawn[np.abs(drawn) <= cutoff][: out.size - filled]
        out[filled : filled + inside.size] = inside
        filled += inside.size
    return out


def raise_scale(scale: FloatArray | float) -> FloatArray:
    """Round scales up by one rounding error: more noise, not less."""
    return np.asarray(scale * (1 + 2.0**-51), dtype=np.float64)


def _scales(scale: ArrayLike, size: int | None) -> FloatArray:
    scales = np.atleast_1d(_validate.float_array(scale=scale))
    if scales.ndim > 1 or np.asarray(scale).dtype.kind == "b":
        raise ParameterError(
            f"scale must be a number or a list of numbers, not {_validate.describe(scale)}."
        )
    bad = ~((scales >= MIN_SCALE) & (scales <= MAX_SCALE))
    if bad.any():
        raise ParameterError(
            f"scale must be in [2^-30, 2^40] grid steps, not {float(scales[bad][0])!r}; use "
            "another grid."
        )
    if size is None:
        return scales
    size = _validate.integer(minimum=0, size=size)
    if scales.size not in (1, size):
        raise ParameterError(f"size must be the number of scales, {scales.size}, not {size}.")
    return np.broadcast_to(scales, (size,))

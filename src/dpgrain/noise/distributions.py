"""Exact samplers of the rounded Gaussian and the discrete Laplace distribution on the integers.

A symmetric integer distribution is sampled as ±M, where M is the largest k ≥ 0 with P(X ≥ k) ≥ U
and U is uniform on (0, ½) (the two signs share the mass at 0 equally). U has infinitely many bits,
and 63 are drawn at first. Floating point then computes a candidate from the inverse of the tail. It
is accepted only if its distance from every jump exceeds the floating-point error plus the effect of
the unread bits of U. The few others are decided by comparing U with the exact tail at the nearest
jump in 160-bit arithmetic, with more bits if needed. There is no table and no truncated tail: the
output has exactly the stated distribution (total-variation distance 0), provided that the
floating-point inverse is within `RELATIVE_ERROR`. The tests check this against 160-bit arithmetic
with a wide margin.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import RandomSource, resolve_source
from dpgrain.numerics.special_functions import ndtri

# Bound on the error of the floating-point inverse, relative to its size plus the scale.
RELATIVE_ERROR = 2.0**-47
# Steps of U from 0. Closer to 0, the inverse changes too much over one step for its derivative to
# bound the change, so such draws are decided exactly.
_RARE_STEPS = 1 << 12
# Samples per chunk; their work space fits in the cache.
_CHUNK_SAMPLES = 1 << 15
_PRECISION_BITS = 160


class IntegerDistribution(Protocol):
    """A symmetric distribution on the integers, defined by its upper tail."""

    def jump_position(self, tail: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the real y ≥ 0 with M = ⌊y⌋ for U = tail in (0, ½], to RELATIVE_ERROR."""

    def tail(self, k: int, scale: float, mp: Any) -> Any:
        """Return P(X ≥ k) for k ≥ 1 in the mpmath context ``mp``."""


def sample(law: IntegerDistribution, scale: FloatArray, source: RandomSource) -> IntArray:
    """Draw independent samples, one for each of (n,) scales in grid steps."""
    out = np.empty(scale.shape, dtype=np.int64)
    for start in range(0, scale.size, _CHUNK_SAMPLES):
        part = slice(start, start + _CHUNK_SAMPLES)
        out[part] = _sample_chunk(law, scale[part], source)
    return out


def _sample_chunk(law: IntegerDistribution, scale: FloatArray, source: RandomSource) -> IntArray:
    words = source.words(scale.size)
    bits = words >> np.uint64(1)
    # The 63 bits determine an interval of width 2^-64 inside (0, ½) for U; use its midpoint.
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-64
    position = law.jump_position(uniform, scale)
    magnitude = np.floor(position)
    # |dy/dU| ≤ 1.26·scale/U for both distributions and U is known to within 2^-65, so the unread
    # bits change y by less than scale·2^-64/U (doubled here); floating point adds the relative
    # error.
    slack = scale * (2.0**-63 / uniform) + (position + scale + 1.0) * RELATIVE_ERROR
    near = (np.abs(position - np.rint(position)) <= slack) | (bits < _RARE_STEPS)
    result = magnitude.astype(np.int64)
    for i in np.flatnonzero(near):
        result[i] = _decide(law, int(bits[i]), float(position[i]), float(scale[i]), source)
    return np.where(words & np.uint64(1), -result, result)


def _decide(
    law: IntegerDistribution, bits: int, position: float, scale: float, source: RandomSource
) -> int:
    """Return M for the U with these first 63 bits, by exact comparison with the tail."""
    known_bits = 64
    near = max(round(position), 0)
    while True:
        mp = arithmetic(known_bits - 64 + _PRECISION_BITS)
        low = mp.ldexp(mp.mpf(bits), -known_bits)
        high = mp.ldexp(mp.mpf(bits + 1), -known_bits)
        if low > 0:
            # U is in [low, high), so k is settled if no jump of the tail is there.
            k = _largest(law, scale, high, near, mp)
            if _largest(law, scale, low, k, mp) == k:
                return k
        bits = (bits << 64) | int(source.words(1)[0])
        known_bits += 64


def _largest(law: IntegerDistribution, scale: float, level: Any, near: int, mp: Any) -> int:
    """Return the largest k ≥ 0 with P(X ≥ k) ≥ level, or 0, searching from ``near``."""

    def holds(k: int) -> bool:
        return k <= 0 or bool(law.tail(k, scale, mp) >= level)

    step = 1
    if holds(near):
        low = near
        while holds(low + step):
            low, step = low + step, 2 * step
        high = low + step
    else:
        high = near
        while not holds(high - step):
            high, step = high - step, 2 * step
        low = max(high - step, 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


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
    """Draw rounded normal numbers exactly, with sd ``scale`` in [2^-30, 2^40] steps.

    Formal guarantee: f + round(Z) = round(f + Z) for an integer vector f, so releasing it is
    post-processing of the Gaussian mechanism, with its exact curve in any dimension.
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

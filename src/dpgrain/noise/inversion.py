"""Exact samplers on the integers, by inversion with lazily drawn bits.

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

from typing import Any, Protocol

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import RandomSource

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

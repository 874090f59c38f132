"""Exact selection of the largest score with exponential noise (permute-and-flip).

The largest sⱼ + scale·Eⱼ, with E exponential, has the distribution of permute-and-flip: visit the
indices in random order and return the first successful coin. Coin j succeeds with probability
exp(−(max s − sⱼ)/scale). This is a uniform choice among all successful coins, and the coin of the
largest score always succeeds. A coin compares a uniform number, with 64 bits drawn at first, with
its probability in floating point. If the two are too close, they are compared in higher precision,
with more bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.choice import uniform_below
from dpgrain.noise.distributions import RELATIVE_ERROR
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import RandomSource, resolve_source

# Max size of scores, so that they and their differences are exact as floats.
_LARGEST_SCORE = 2**52


def permute_and_flip(scores: IntArray, scale: float, *, source: RandomSource | None = None) -> int:
    """Draw the index of the largest of (n,) integer scores + exponential noise.

    Formal guarantee: Δ/scale-DP if one unit changes each score by at most Δ and all in the same
    direction, else 2Δ/scale-DP. Source: McKenna & Sheldon 2020, Algorithm 1; docs/theory,
    "Choosing among hypotheses".
    """
    return int(permutes_and_flips(scores, scale, 1, source=source)[0])


def permutes_and_flips(
    scores: IntArray, scale: float, times: int, *, source: RandomSource | None = None
) -> IntArray:
    """Draw ``times`` indices of the same scores; see :func:`permute_and_flip`."""
    scores = np.asarray(scores)
    if scores.ndim != 1 or scores.dtype.kind not in "iu" or scores.size == 0:
        raise ParameterError("scores must be a list of at least one integer.")
    scale = _validate.positive(scale=scale)
    times = _validate.integer(minimum=1, times=times)
    if max(abs(int(scores.min())), abs(int(scores.max()))) > _LARGEST_SCORE:
        raise ParameterError("scores must be at most 2^52 in absolute value.")
    source = resolve_source(source)
    behind = (int(scores.max()) - scores.astype(np.int64)).astype(np.float64)
    fallen = _coins(np.tile(behind, times), scale, source).reshape(times, scores.size)
    # Each successful coin is chosen with equal probability.
    place = uniform_below(fallen.sum(axis=1), source=source)
    chosen: IntArray = (fallen.cumsum(axis=1) <= place[:, None]).sum(axis=1)
    return chosen


def _coins(behind: FloatArray, scale: float, source: RandomSource) -> NDArray[np.bool_]:
    """Draw independent coins that are true with probabilities exp(−behind/scale)."""
    words = source.words(behind.size)
    with np.errstate(over="ignore", under="ignore"):
        exponent = np.minimum(behind / scale, 1e300)
        chance = np.exp(-exponent)
    uniform = words.astype(np.float64) * 2.0**-64
    # 64 bits determine the uniform number to within 2^-64; rounding them adds a relative error of
    # 2^-53.
    error = 2.0**-63 + (chance * (exponent + 1) + uniform) * RELATIVE_ERROR
    coins: NDArray[np.bool_] = uniform < chance
    for i in np.flatnonzero((np.abs(uniform - chance) <= error) & (behind > 0)):
        coins[i] = _decide(int(words[i]), float(behind[i]), scale, source)
    # The coin of a largest score always succeeds.
    coins |= behind == 0
    return coins


def _decide(bits: int, behind: float, scale: float, source: RandomSource) -> bool:
    """Decide if the uniform number with these first 64 bits is below exp(−behind/scale)."""
    known_bits = 64
    while True:
        mp = arithmetic(2 * known_bits + 64)
        low, high = (mp.ldexp(mp.mpf(v), -known_bits) for v in (bits, bits + 1))
        chance = mp.exp(-mp.mpf(behind) / mp.mpf(scale))
        # The slack is far more than the rounding of these few operations.
        slack = chance * mp.ldexp(1 + mp.mpf(behind) / scale, -known_bits - 32)
        if high <= chance - slack:
            return True
        if low >= chance + slack:
            return False
        bits, known_bits = _longer(bits, known_bits, source)


def _longer(bits: int, known_bits: int, source: RandomSource) -> tuple[int, int]:
    return (bits << 64) | int(source.words(1)[0]), known_bits + 64

"""The largest of noisy scores with exponential noise (permute-and-flip), in the exact law.

The largest of sⱼ + scale·Eⱼ, E exponential, has the law of permute-and-flip: go through the indices
in a random order and take the first whose coin falls, where the coin of j falls with the chance
exp(−(max s − sⱼ)/scale). That is a uniform choice among all whose coin falls, and the coin of the
largest score always does. A coin compares a uniform number, of which 64 bits are drawn first, with
its chance in floating point. Where the two are too close to call, they are compared in higher
precision, with more bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.choice import uniform_below
from dpgrain.noise.inversion import RELATIVE_ERROR
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import Source, given

# Size up to which scores, and their differences, are exact as floats.
_LARGEST_SCORE = 2**52


def permute_and_flip(scores: IntArray, scale: float, *, source: Source | None = None) -> int:
    """Draw the index of the largest of scores + exponential noise, exactly.

    Args:
        scores: (n,) whole numbers of at most 2^52 in size, at least one.
        scale: the mean of the noise, above 0.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: where one unit moves each score by at most Δ, and all of them the same way, the
    choice is Δ/scale-DP; where it may move some up and others down, 2Δ/scale-DP. The law is exact.
    Source: McKenna & Sheldon 2020, Algorithm 1; Ding et al. 2021 for the noise; docs/theory,
    "Choosing among hypotheses".

    >>> permute_and_flip(np.array([0, 900, 0]), 1.0)
    1
    """
    return int(permutes_and_flips(scores, scale, 1, source=source)[0])


def permutes_and_flips(
    scores: IntArray, scale: float, times: int, *, source: Source | None = None
) -> IntArray:
    """Draw ``times`` indices of the same scores at once, each as :func:`permute_and_flip` does.

    Args:
        scores: (n,) whole numbers of at most 2^52 in size, at least one.
        scale: the mean of the noise, above 0.
        times: the number of choices, at least 1.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range.

    >>> permutes_and_flips(np.array([0, 900, 0]), 1.0, 3).tolist()
    [1, 1, 1]
    """
    scores = np.asarray(scores)
    if scores.ndim != 1 or scores.dtype.kind not in "iu" or scores.size == 0:
        raise ParameterError("scores must be a list of at least one integer.")
    scale = _validate.positive(scale=scale)
    times = _validate.integer(minimum=1, times=times)
    if max(abs(int(scores.min())), abs(int(scores.max()))) > _LARGEST_SCORE:
        raise ParameterError("scores must be at most 2^52 in absolute value.")
    source = given(source)
    behind = (int(scores.max()) - scores.astype(np.int64)).astype(np.float64)
    fallen = _coins(np.tile(behind, times), scale, source).reshape(times, scores.size)
    # One of those whose coin fell is chosen, each as likely as the others.
    place = uniform_below(fallen.sum(axis=1), source=source)
    chosen: IntArray = (fallen.cumsum(axis=1) <= place[:, None]).sum(axis=1)
    return chosen


def _coins(behind: FloatArray, scale: float, source: Source) -> NDArray[np.bool_]:
    """Draw independent coins, which are true with probabilities exp(−behind/scale)."""
    words = source.words(behind.size)
    with np.errstate(over="ignore", under="ignore"):
        exponent = np.minimum(behind / scale, 1e300)
        chance = np.exp(-exponent)
    uniform = words.astype(np.float64) * 2.0**-64
    # 64 bits place the uniform number to within 2^-64; rounding them moves it by 2^-53 of itself.
    error = 2.0**-63 + (chance * (exponent + 1) + uniform) * RELATIVE_ERROR
    coins: NDArray[np.bool_] = uniform < chance
    for i in np.flatnonzero((np.abs(uniform - chance) <= error) & (behind > 0)):
        coins[i] = _decide(int(words[i]), float(behind[i]), scale, source)
    # The coin of a largest score always falls.
    coins |= behind == 0
    return coins


def _decide(bits: int, behind: float, scale: float, source: Source) -> bool:
    """Decide if the uniform number that begins with these 64 bits is below exp(−behind/scale)."""
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


def _longer(bits: int, known_bits: int, source: Source) -> tuple[int, int]:
    return (bits << 64) | int(source.words(1)[0]), known_bits + 64

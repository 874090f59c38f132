"""Choices among very many outcomes that are alike in groups, in the exact law.

A choice with probability ∝ e^{−rate·score} among outcomes of which whole groups have the same score
needs the sizes of the groups only. A uniform number U, of which 64 bits are drawn first, falls between
two sums of weights; floating point decides where, unless U lies within the rounding error of a sum.
Then integers of any length decide, with more bits of U.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.inversion import RELATIVE_ERROR
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import Source, SystemSource

Words: TypeAlias = NDArray[np.uint64]

# Sizes are exact as floats, and so are their sums.
_LARGEST = 2**52
# Weights that are held at a time: 8 MB.
_WEIGHTS = 1 << 20


def choose_scores(sizes: IntArray, rate: float, *, source: Source | None = None) -> IntArray:
    """One score for each row, drawn with probability ∝ sizes[row, score]·e^{−rate·score}, exactly.

    Args:
        sizes: (rows, scores): how many outcomes of each row have the scores 0, 1, 2, …; whole numbers,
            each row with a sum from 1 to 2^52.
        rate: the rate of the weights, above 0.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: the law is exact (total-variation distance 0), provided that NumPy's exp is within
    2^-48 of itself; with a uniform choice among the outcomes of the score it is the exponential
    mechanism. Source: docs/theory.md, "A range for each coordinate".

    >>> choose_scores(np.array([[0, 1, 10**15], [0, 0, 5]]), 90.0).tolist()
    [1, 2]
    """
    sizes = np.asarray(sizes)
    if sizes.ndim != 2 or sizes.dtype.kind not in "iu":
        raise ParameterError("sizes must be whole numbers of shape (rows, scores).")
    rate = _validate.positive(rate=rate)
    source = source or SystemSource()
    words = source.words(len(sizes))
    out = np.empty(len(sizes), dtype=np.int64)
    most = max(1, _WEIGHTS // max(sizes.shape[1], 1))
    for first in range(0, len(sizes), most):
        part = slice(first, first + most)
        out[part] = _chosen(sizes[part], rate, words[part], source)
    return out


def _chosen(sizes: IntArray, rate: float, words: Words, source: Source) -> IntArray:
    sums, error = _sums(sizes, rate)
    u = (words.astype(np.float64) + 0.5) * 2.0**-64
    target = u * sums[:, -1]
    found: IntArray = (sums <= target[:, None]).sum(axis=1, dtype=np.int64)
    rows = np.arange(len(sizes))
    last = sizes.shape[1] - 1
    above = sums[rows, np.minimum(found, last)] - target
    below = np.where(found > 0, target - sums[rows, np.maximum(found - 1, 0)], target)
    for i in np.flatnonzero(~((above > error) & (below > error))):
        found[i] = _decide(sizes[i], rate, int(words[i]), source)
    return found


def _sums(sizes: IntArray, rate: float) -> tuple[FloatArray, FloatArray]:
    """Sums of weights, relative to that of the best score of each row, and a bound on their errors."""
    some = sizes > 0
    total = sizes.sum(axis=1)
    if not (some.any(axis=1).all() and (sizes >= 0).all() and (total <= _LARGEST).all()):
        raise ParameterError("sizes must be at least 0, each row with a sum from 1 to 2^52.")
    first, columns = int(some.argmax(axis=1).min()), sizes.shape[1]
    best = some.argmax(axis=1)
    sums = np.zeros(sizes.shape)
    # Rows whose best scores differ need weights of their own, so that none is lost by underflow.
    exponents = np.arange(first, columns)[None, :] - best[:, None]
    weights = np.exp(-rate * np.maximum(exponents, 0))
    np.cumsum(weights * sizes[:, first:], axis=1, out=sums[:, first:])
    # A weight of relative size w has the error w·x·2^-53, x its exponent; the mean of x is at most
    # ln 2^52, because at most 2^52 outcomes share the weights. Each sum adds one rounding a score.
    return sums, sums[:, -1] * (RELATIVE_ERROR + columns * 2.0**-51)


def _decide(sizes: IntArray, rate: float, bits: int, source: Source) -> int:
    """The score for the U that begins with these 64 bits."""
    known = 64
    scores = np.flatnonzero(sizes)
    # As many steps up as there are scores at most, each of one unit in the last place.
    slack = 2 * int(sizes.sum()) * (len(sizes) + 2)
    while True:
        precision = 2 * known + 192
        mp = arithmetic(precision + 64)
        ratio = int(mp.floor(mp.ldexp(mp.exp(-mp.mpf(rate)), precision)))
        sums, total, power, at = [], 0, 1 << precision, int(scores[0])
        for score in scores:
            for _ in range(int(score) - at):
                power = power * ratio >> precision
            at = int(score)
            total += int(sizes[score]) * power
            sums.append(total)
        # U·total lies in [low, high), each known to within the slack.
        low, high = bits * total - (slack << known), (bits + 1) * total + (slack << known)
        index = next((i for i, s in enumerate(sums) if (s + slack) << known > low), len(sums) - 1)
        if index == len(sums) - 1 or (sums[index] - slack) << known >= high:
            return int(scores[index])
        bits, known = (bits << 64) | int(source.words(1)[0]), known + 64


def uniform_below(bounds: IntArray, *, source: Source | None = None) -> IntArray:
    """A whole number for each bound, uniform on {0, …, bound − 1}, exactly.

    Args:
        bounds: (n,) whole numbers from 1 to 2^62.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a bound is out of range.

    >>> uniform_below(np.array([1, 1])).tolist()
    [0, 0]
    """
    bounds = np.asarray(bounds)
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu":
        raise ParameterError("bounds must be a list of whole numbers.")
    if len(bounds) and not 1 <= int(bounds.min()) <= int(bounds.max()) <= 2**62:
        raise ParameterError("bounds must lie between 1 and 2^62.")
    source = source or SystemSource()
    out, left = np.empty(len(bounds), dtype=np.int64), np.arange(len(bounds))
    while len(left):
        most = bounds[left].astype(np.uint64)
        words = source.words(len(left))
        rest = words % most
        # The last, incomplete run of multiples is drawn again: words − rest is where a run begins.
        whole = words - rest <= np.uint64(2**64 - 1) - (most - np.uint64(1))
        out[left[whole]] = rest[whole].astype(np.int64)
        left = left[~whole]
    return out

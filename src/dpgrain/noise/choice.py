"""Exact choices among very many outcomes, grouped by their scores.

A choice with probability ∝ e^{−rate·score} only needs the sizes of the groups. A uniform number U,
with 64 bits drawn at first, falls between two sums of weights. Floating point decides between which
two, unless U is within the rounding error of a sum. Then integers of any length decide, with more
bits of U.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.distributions import RELATIVE_ERROR
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import RandomSource, resolve_source

Words: TypeAlias = NDArray[np.uint64]

# Largest total of sizes, so that sizes and their sums are exact as floats.
_LARGEST_TOTAL = 2**52
# Max weights in a batch of rows; 8 MB of float64.
_BATCH_WEIGHTS = 1 << 20


def choose_scores(sizes: IntArray, rate: float, *, source: RandomSource | None = None) -> IntArray:
    """Draw a score per row exactly, with P ∝ sizes[row, score]·e^{−rate·score}.

    Formal guarantee: the distribution is exact if NumPy's exp is within 2^-48 of its value; with a
    uniform choice among the outcomes of a score, it is the exponential mechanism. Source:
    docs/theory, "A range for each coordinate".
    """
    sizes = np.asarray(sizes)
    if sizes.ndim != 2 or sizes.dtype.kind not in "iu":
        raise ParameterError("sizes must be integers of shape (rows, scores).")
    rate = _validate.positive(rate=rate)
    source = resolve_source(source)
    words = source.words(len(sizes))
    out = np.empty(len(sizes), dtype=np.int64)
    rows_at_once = max(1, _BATCH_WEIGHTS // max(sizes.shape[1], 1))
    for first in range(0, len(sizes), rows_at_once):
        part = slice(first, first + rows_at_once)
        out[part] = _chosen(sizes[part], rate, words[part], source)
    return out


def _chosen(sizes: IntArray, rate: float, words: Words, source: RandomSource) -> IntArray:
    sums, error = _sums(sizes, rate)
    u = (words.astype(np.float64) + 0.5) * 2.0**-64
    target = u * sums[:, -1]
    choice: IntArray = (sums <= target[:, None]).sum(axis=1, dtype=np.int64)
    rows = np.arange(len(sizes))
    last = sizes.shape[1] - 1
    above = sums[rows, np.minimum(choice, last)] - target
    below = np.where(choice > 0, target - sums[rows, np.maximum(choice - 1, 0)], target)
    for i in np.flatnonzero(~((above > error) & (below > error))):
        choice[i] = _decide(sizes[i], rate, int(words[i]), source)
    return choice


def _sums(sizes: IntArray, rate: float) -> tuple[FloatArray, FloatArray]:
    """Return each row's cumulative weights, relative to its best score, and error bounds."""
    some = sizes > 0
    total = sizes.sum(axis=1)
    if not (some.any(axis=1).all() and (sizes >= 0).all() and (total <= _LARGEST_TOTAL).all()):
        raise ParameterError("sizes must be at least 0, each row with a sum from 1 to 2^52.")
    first, columns = int(some.argmax(axis=1).min()), sizes.shape[1]
    best = some.argmax(axis=1)
    sums = np.zeros(sizes.shape)
    # Each row has its own weights, so that a row with a distant best score does not underflow.
    exponents = np.arange(first, columns)[None, :] - best[:, None]
    weights = np.exp(-rate * np.maximum(exponents, 0))
    np.cumsum(weights * sizes[:, first:], axis=1, out=sums[:, first:])
    # A weight w with exponent x has error w·x·2^-53. The mean of x is at most ln 2^52, because at
    # most 2^52 outcomes share the weights. Each sum adds one rounding for each score.
    return sums, sums[:, -1] * (RELATIVE_ERROR + columns * 2.0**-51)


def _decide(sizes: IntArray, rate: float, bits: int, source: RandomSource) -> int:
    """Return the score selected by U, given its first 64 bits, by comparing integers."""
    known_bits = 64
    scores = np.flatnonzero(sizes)
    # There is at most one product per score, and each adds at most two units in the last place to
    # the error: one for the rounding of the ratio, and one for its own.
    slack = 2 * int(sizes.sum()) * (len(sizes) + 2)
    while True:
        precision = 2 * known_bits + 192
        mp = arithmetic(precision + 64)
        ratio = int(mp.floor(mp.ldexp(mp.exp(-mp.mpf(rate)), precision)))
        sums, total, power, at = [], 0, 1 << precision, int(scores[0])
        for score in scores:
            for _ in range(int(score) - at):
                power = power * ratio >> precision
            at = int(score)
            total += int(sizes[score]) * power
            sums.append(total)
        # U·total is between low and high, which already allow for the slack.
        low, high = bits * total - (slack << known_bits), (bits + 1) * total + (slack << known_bits)
        index = next(
            (i for i, s in enumerate(sums) if (s + slack) << known_bits > low), len(sums) - 1
        )
        if index == len(sums) - 1 or (sums[index] - slack) << known_bits >= high:
            return int(scores[index])
        bits, known_bits = (bits << 64) | int(source.words(1)[0]), known_bits + 64


def uniform_below(bounds: IntArray, *, source: RandomSource | None = None) -> IntArray:
    """Draw exact uniform integers below each of (n,) bounds, which are at most 2^62."""
    bounds = np.asarray(bounds)
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu":
        raise ParameterError("bounds must be a list of integers.")
    if len(bounds) and not 1 <= int(bounds.min()) <= int(bounds.max()) <= 2**62:
        raise ParameterError("bounds must be between 1 and 2^62.")
    source = resolve_source(source)
    out, left = np.empty(len(bounds), dtype=np.int64), np.arange(len(bounds))
    while len(left):
        limits = bounds[left].astype(np.uint64)
        words = source.words(len(left))
        rest = words % limits
        # Words form runs as long as the bound, and the current run begins at words − rest. A last
        # run that does not fit below 2^64 would favour small remainders, so its words are drawn
        # again.
        whole = words - rest <= np.uint64(2**64 - 1) - (limits - np.uint64(1))
        out[left[whole]] = rest[whole].astype(np.int64)
        left = left[~whole]
    return out

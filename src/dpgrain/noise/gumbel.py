"""The largest of noisy scores, in the exact law: Gumbel noise with lazily drawn bits.

A key is s + scale·G with G = −ln(−ln(1 − V)), V uniform on (0, 1) with infinitely many bits, of which
64 are drawn first. Floating point then gives each key an interval that holds it whatever the unread
bits are; intervals that lie apart are in the order of their keys. Where they overlap, and it matters
for the items that are asked for, the keys are narrowed in higher precision, with more bits, until
they lie apart. So the order has exactly the stated law, provided that the floating-point key is within
`RELATIVE_ERROR`, which the tests check against higher precision with a wide margin.
"""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.inversion import RELATIVE_ERROR
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import Source, SystemSource

# Scores are float64 integers, and their differences exact.
_LARGEST = 2**52
# Within this many steps of 0 or 1 the key changes too much over an interval of V: decide exactly.
_RARE = 1 << 12


def gumbel_order(
    scores: IntArray, scale: float, count: int, *, source: Source | None = None
) -> IntArray:
    """The indices of the ``count`` largest of scores + Gumbel noise, the largest first, exactly.

    Args:
        scores: (n,) whole numbers of at most 2^52 in size.
        scale: the scale of the noise, above 0.
        count: how many indices, at most n.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: the same law as ``count`` choices one after the other, without replacement,
    each of index j with probability ∝ exp(scoreⱼ/scale). Source: Durfee & Rogers 2019, Lemma 4.2;
    docs/theory.md, "Choosing the best items".

    >>> [int(i) for i in gumbel_order(np.array([0, 90, 180]), 1.0, 2)]
    [2, 1]
    """
    scores = np.asarray(scores)
    if scores.ndim != 1 or scores.dtype.kind not in "iu":
        raise ParameterError("scores must be a list of whole numbers.")
    scale = _validate.positive(scale=scale)
    count = _validate.integer(minimum=0, count=count)
    if count > scores.size:
        raise ParameterError(f"count must be at most the number of scores, not {count}.")
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if max(abs(int(scores.min())), abs(int(scores.max()))) > _LARGEST:
        raise ParameterError("scores must be at most 2^52 in size.")
    # Distances from the largest: what is near it, and alone matters, has the smallest errors.
    below = (scores.astype(np.int64) - int(scores.max())).astype(np.float64)
    source = source or SystemSource()
    words = source.words(scores.size)
    keys = _Keys(words, below, scale, source)
    order = np.argsort(-keys.middle, kind="stable")
    # A cut between two neighbours in this order, where all above lies apart from all below.
    least = np.minimum.accumulate(keys.low[order])
    most = np.maximum.accumulate(keys.high[order][::-1])[::-1]
    ends = np.flatnonzero(np.append(least[:-1] > most[1:], True)) + 1
    start = 0
    for end in ends[: int(np.searchsorted(ends, count)) + 1]:
        if end - start > 1:
            order[start:end] = sorted(order[start:end], key=cmp_to_key(keys.compare))
        start = end
    return order[:count].astype(np.int64)


class _Keys:
    """Noisy scores as intervals, which are narrowed where they overlap."""

    def __init__(
        self, words: NDArray[np.uint64], below: FloatArray, scale: float, source: Source
    ) -> None:
        self._words, self._below, self._scale, self._source = words, below, scale, source
        # The bits of V that are known of narrowed keys, and their number.
        self._bits: dict[int, tuple[int, int]] = {}
        self.middle, error = _keys(words, below, scale)
        self.low, self.high = self.middle - error, self.middle + error
        # Exact bounds of the keys that were narrowed; floating point would lose them.
        self._exact: dict[int, tuple[Any, Any]] = {}
        rare = (words < _RARE) | (words > np.uint64(2**64 - 1 - _RARE))
        for i in np.flatnonzero(rare):
            low, high = self._narrowed(int(i))
            while not (arithmetic(64).isfinite(low) and arithmetic(64).isfinite(high)):
                low, high = self._narrowed(int(i))
            # Rounded outwards.
            self.low[i] = np.nextafter(float(low), -np.inf)
            self.high[i] = np.nextafter(float(high), np.inf)
            self.middle[i] = (self.low[i] + self.high[i]) / 2

    def compare(self, i: int, j: int) -> int:
        """−1 if the key of i is the larger one, else 1."""
        if i == j:
            return 0
        while True:
            (low_i, high_i), (low_j, high_j) = self._interval(i), self._interval(j)
            if low_i > high_j:
                return -1
            if low_j > high_i:
                return 1
            self._narrowed(i)
            self._narrowed(j)

    def _interval(self, i: int) -> tuple[Any, Any]:
        return self._exact.get(i) or (self.low[i], self.high[i])

    def _narrowed(self, i: int) -> tuple[Any, Any]:
        """The interval of a key in higher precision: first of the bits at hand, then of 64 more."""
        if i in self._bits:
            bits, known = self._bits[i]
            bits, known = (bits << 64) | int(self._source.words(1)[0]), known + 64
        else:
            bits, known = int(self._words[i]), 64
        self._bits[i] = bits, known
        mp = arithmetic(2 * known + 64)
        ends = (
            _key(mp.ldexp(mp.mpf(v), -known), float(self._below[i]), self._scale, mp)
            for v in (bits + 1, bits)
        )
        low, high = ends
        # Far more than the rounding of these few operations.
        slack = mp.ldexp(1 + abs(float(self._below[i])) + self._scale * known, -known - 32)
        self._exact[i] = low - slack, high + slack
        return self._exact[i]


def _keys(
    words: NDArray[np.uint64], below: FloatArray, scale: float
) -> tuple[FloatArray, FloatArray]:
    """Keys in floating point, for the middle of what the words say of V, and bounds on their errors."""
    # The word places V in an interval of width 2^-64; below ½ it is used, above ½ its distance from 1.
    upper = words >> np.uint64(63) == 1
    v = (words.astype(np.float64) + 0.5) * 2.0**-64
    rest = ((~words).astype(np.float64) + 0.5) * 2.0**-64
    waiting = np.where(upper, -np.log(rest), -np.log1p(-np.where(upper, 0.5, v)))
    logarithm = np.log(waiting)
    # |d ln(−ln(1−V))/dV| = 1/((1−V)·waiting), and V is known to within 2^-65; doubled, since the
    # derivative varies over the interval, by less than 2^-10 of itself.
    unread = 2.0**-64 / (waiting * np.where(upper, rest, 1 - v))
    rounding = (np.abs(below) + scale * (np.abs(logarithm) + 1)) * RELATIVE_ERROR
    return below - scale * logarithm, scale * unread + rounding


def _key(v: Any, below: float, scale: float, mp: Any) -> Any:
    """The key for V = v in the arithmetic ``mp``."""
    if v == 0:
        return mp.inf
    if v == 1:
        return -mp.inf
    return below - scale * mp.log(-mp.log1p(-v))

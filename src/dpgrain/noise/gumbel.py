"""Exact selection of the largest scores with lazily drawn Gumbel noise.

A key is s + scale·G with G = −ln(−ln(1 − V)), V uniform on (0, 1) with infinitely many bits. The
first 64 bits and floating point give each key an interval that contains it for any unread bits.
Disjoint intervals determine the order of their keys. If two intervals overlap and the requested
indices depend on their order, they are narrowed in higher precision, with more bits, until they are
disjoint. The distribution of the order is therefore exact, provided that the floating-point key is
within `RELATIVE_ERROR`. The tests check this against higher precision with a wide margin.
"""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise.distributions import RELATIVE_ERROR
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import RandomSource, resolve_source

# Max size of scores, so that they and their differences are exact as floats.
_LARGEST_SCORE = 2**52
# Steps of 2^-64 from 0 or 1. Closer to them, the key changes too much over one step of V for its
# derivative to bound the change, so such keys are decided exactly.
_RARE_STEPS = 1 << 12


def gumbel_order(
    scores: IntArray, scale: float, count: int, *, source: RandomSource | None = None
) -> IntArray:
    """Draw the ordered indices of the ``count`` largest (n,) scores + Gumbel noise.

    Formal guarantee: exactly ``count`` choices without replacement, index j with P ∝ exp(scoreⱼ/scale).
    Source: Durfee & Rogers 2019, Lemma 4.2; docs/theory, "Choosing the best items".
    """
    order: IntArray = gumbel_orders(scores, scale, count, 1, source=source)[0]
    return order


def gumbel_orders(
    scores: IntArray, scale: float, count: int, times: int, *, source: RandomSource | None = None
) -> IntArray:
    """Draw ``times`` independent orders of the same scores; see :func:`gumbel_order`."""
    scores = np.asarray(scores)
    if scores.ndim != 1 or scores.dtype.kind not in "iu":
        raise ParameterError("scores must be a list of integers.")
    scale = _validate.positive(scale=scale)
    count = _validate.integer(minimum=0, count=count)
    times = _validate.integer(minimum=1, times=times)
    if count > scores.size:
        raise ParameterError(f"count must be at most the number of scores, not {count}.")
    if count == 0:
        return np.empty((times, 0), dtype=np.int64)
    if max(abs(int(scores.min())), abs(int(scores.max()))) > _LARGEST_SCORE:
        raise ParameterError("scores must be at most 2^52 in absolute value.")
    # Scores are relative to the largest, so that the scores near it, the only relevant ones, round
    # least.
    below = (scores.astype(np.int64) - int(scores.max())).astype(np.float64)
    source = resolve_source(source)
    words = source.words(times * scores.size).reshape(times, scores.size)
    orders, doubtful = _plain_orders(words, below, scale, count)
    for place in np.flatnonzero(doubtful):
        orders[place] = _exact_order(words[place], below, scale, count, source)
    return orders


def _plain_orders(
    words: NDArray[np.uint64], below: FloatArray, scale: float, count: int
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return (times, count) indices by the midpoints of keys, and a mask of rows in doubt."""
    middle, error = _keys(words.ravel(), np.tile(below, len(words)), scale)
    middle, error = middle.reshape(words.shape), error.reshape(words.shape)
    order = np.argsort(-middle, axis=1, kind="stable")
    low, high = (
        np.take_along_axis(ends, order, axis=1) for ends in (middle - error, middle + error)
    )
    # Every key before a position must be above all keys after it.
    most = np.maximum.accumulate(high[:, ::-1], axis=1)[:, ::-1]
    apart = np.minimum.accumulate(low, axis=1)[:, :-1] > most[:, 1:]
    doubtful = ~np.asarray(apart[:, :count].all(axis=1)) | np.asarray(_rare(words).any(axis=1))
    return order[:, :count].astype(np.int64), np.asarray(doubtful)


def _rare(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return np.asarray((words < _RARE_STEPS) | (words > np.uint64(2**64 - 1 - _RARE_STEPS)))


def _exact_order(
    words: NDArray[np.uint64], below: FloatArray, scale: float, count: int, source: RandomSource
) -> IntArray:
    """Return the indices of the largest keys of one order, narrowing keys that overlap."""
    keys = _Keys(words, below, scale, source)
    order = np.argsort(-keys.middle, kind="stable")
    # The order is split wherever all intervals before a position are disjoint from all after it.
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
    """Noisy scores as intervals that can be narrowed."""

    def __init__(
        self, words: NDArray[np.uint64], below: FloatArray, scale: float, source: RandomSource
    ) -> None:
        self._words, self._below, self._scale, self._source = words, below, scale, source
        # Bits of V drawn for each narrowed key, and their number.
        self._bits: dict[int, tuple[int, int]] = {}
        self.middle, error = _keys(words, below, scale)
        self.low, self.high = self.middle - error, self.middle + error
        # Exact bounds of the narrowed keys; floating point would lose them.
        self._exact: dict[int, tuple[Any, Any]] = {}
        for i in np.flatnonzero(_rare(words)):
            low, high = self._narrowed(int(i))
            while not (arithmetic(64).isfinite(low) and arithmetic(64).isfinite(high)):
                low, high = self._narrowed(int(i))
            # Rounding outwards keeps the key inside.
            self.low[i] = np.nextafter(float(low), -np.inf)
            self.high[i] = np.nextafter(float(high), np.inf)
            self.middle[i] = (self.low[i] + self.high[i]) / 2

    def compare(self, i: int, j: int) -> int:
        """Return −1 if the key of i is larger than the key of j, else 1."""
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
        """Compute a key's interval in higher precision; later calls draw 64 more bits."""
        if i in self._bits:
            bits, known_bits = self._bits[i]
            bits, known_bits = (bits << 64) | int(self._source.words(1)[0]), known_bits + 64
        else:
            bits, known_bits = int(self._words[i]), 64
        self._bits[i] = bits, known_bits
        mp = arithmetic(2 * known_bits + 64)
        ends = (
            _key(mp.ldexp(mp.mpf(v), -known_bits), float(self._below[i]), self._scale, mp)
            for v in (bits + 1, bits)
        )
        low, high = ends
        # The slack is far more than the rounding of these few operations.
        slack = mp.ldexp(
            1 + abs(float(self._below[i])) + self._scale * known_bits, -known_bits - 32
        )
        self._exact[i] = low - slack, high + slack
        return self._exact[i]


def _keys(
    words: NDArray[np.uint64], below: FloatArray, scale: float
) -> tuple[FloatArray, FloatArray]:
    """Return floating-point keys, at the midpoints of their intervals, and error bounds."""
    # Above ½, use the distance of V from 1 instead of V, because it rounds less.
    upper = words >> np.uint64(63) == 1
    v = (words.astype(np.float64) + 0.5) * 2.0**-64
    rest = ((~words).astype(np.float64) + 0.5) * 2.0**-64
    waiting = np.where(upper, -np.log(rest), -np.log1p(-np.where(upper, 0.5, v)))
    logarithm = np.log(waiting)
    # |d ln(−ln(1−V))/dV| = 1/((1−V)·waiting), and V is known to within 2^-65. The product is
    # doubled because the derivative varies over the interval, though by less than a relative 2^-10.
    unread = 2.0**-64 / (waiting * np.where(upper, rest, 1 - v))
    rounding = (np.abs(below) + scale * (np.abs(logarithm) + 1)) * RELATIVE_ERROR
    return below - scale * logarithm, scale * unread + rounding


def _key(v: Any, below: float, scale: float, mp: Any) -> Any:
    """Return the key for V = v in the mpmath context ``mp``."""
    if v == 0:
        return mp.inf
    if v == 1:
        return -mp.inf
    return below - scale * mp.log(-mp.log1p(-v))

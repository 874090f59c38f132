"""The largest of noisy scores, in the exact law: Gumbel noise with lazily drawn bits.

A key is s + scale·G with G = −ln(−ln(1 − V)), V uniform on (0, 1) with infinitely many bits, of which
64 are drawn first. Floating point then gives each key an interval that contains it whatever the
unread bits are. Intervals that lie apart are in the order of their keys. Where two overlap, and this
matters for the indices that are asked for, they are narrowed in higher precision, with more bits,
until they lie apart. So the order has exactly the stated law, provided that the floating-point key
is within `RELATIVE_ERROR`, which the tests check against higher precision with a wide margin.
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
from dpgrain.noise.sources import Source, given

# Size up to which scores, and their differences, are exact as floats.
_LARGEST_SCORE = 2**52
# Steps of 2^-64 from 0 or 1 within which the key changes too much over one step of V for its
# derivative to bound the change: such keys are decided exactly.
_RARE_STEPS = 1 << 12


def gumbel_order(
    scores: IntArray, scale: float, count: int, *, source: Source | None = None
) -> IntArray:
    """Draw the indices of the ``count`` largest of scores + Gumbel noise, the largest first.

    Args:
        scores: (n,) whole numbers of at most 2^52 in size.
        scale: the scale of the noise, above 0.
        count: the number of indices, at most n.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: the law is exactly that of ``count`` choices one after the other, without
    replacement, each of index j with probability ∝ exp(scoreⱼ/scale). Source: Durfee & Rogers 2019,
    Lemma 4.2; docs/theory, "Choosing the best items".

    >>> [int(i) for i in gumbel_order(np.array([0, 90, 180]), 1.0, 2)]
    [2, 1]
    """
    order: IntArray = gumbel_orders(scores, scale, count, 1, source=source)[0]
    return order


def gumbel_orders(
    scores: IntArray, scale: float, count: int, times: int, *, source: Source | None = None
) -> IntArray:
    """Draw ``times`` orders of the same scores at once, each as :func:`gumbel_order` does.

    Args:
        scores: (n,) whole numbers of at most 2^52 in size.
        scale: the scale of the noise, above 0.
        count: the number of indices of each order, at most n.
        times: the number of orders, at least 1.
        source: random bits; by default the operating system's.

    Raises:
        ParameterError: if a parameter is out of range.

    >>> gumbel_orders(np.array([0, 90, 180]), 1.0, 2, 3).tolist()
    [[2, 1], [2, 1], [2, 1]]
    """
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
    # Scores are counted from the largest: those near it, which alone matter, then round the least.
    below = (scores.astype(np.int64) - int(scores.max())).astype(np.float64)
    source = given(source)
    words = source.words(times * scores.size).reshape(times, scores.size)
    orders, doubtful = _plain_orders(words, below, scale, count)
    for place in np.flatnonzero(doubtful):
        orders[place] = _exact_order(words[place], below, scale, count, source)
    return orders


def _plain_orders(
    words: NDArray[np.uint64], below: FloatArray, scale: float, count: int
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return (times, count) indices by the middles of keys, and in which rows they are in doubt."""
    middle, error = _keys(words.ravel(), np.tile(below, len(words)), scale)
    middle, error = middle.reshape(words.shape), error.reshape(words.shape)
    order = np.argsort(-middle, axis=1, kind="stable")
    low, high = (
        np.take_along_axis(ends, order, axis=1) for ends in (middle - error, middle + error)
    )
    # Every key before a place must lie above all those after it.
    most = np.maximum.accumulate(high[:, ::-1], axis=1)[:, ::-1]
    apart = np.minimum.accumulate(low, axis=1)[:, :-1] > most[:, 1:]
    doubtful = ~np.asarray(apart[:, :count].all(axis=1)) | np.asarray(_rare(words).any(axis=1))
    return order[:, :count].astype(np.int64), np.asarray(doubtful)


def _rare(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return np.asarray((words < _RARE_STEPS) | (words > np.uint64(2**64 - 1 - _RARE_STEPS)))


def _exact_order(
    words: NDArray[np.uint64], below: FloatArray, scale: float, count: int, source: Source
) -> IntArray:
    """Return the indices of the largest keys of one order, which are narrowed where they overlap."""
    keys = _Keys(words, below, scale, source)
    order = np.argsort(-keys.middle, kind="stable")
    # The order is cut wherever all intervals before a place lie apart from all those after it.
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
        # For each narrowed key, the bits of V that were drawn, and their number.
        self._bits: dict[int, tuple[int, int]] = {}
        self.middle, error = _keys(words, below, scale)
        self.low, self.high = self.middle - error, self.middle + error
        # Exact bounds of the keys that were narrowed; floating point would lose them.
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
        """Return −1 if the key of i is the larger one, else 1."""
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
        """Compute a key's interval in higher precision.

        The first call uses the 64 bits at hand, and each further call draws 64 more.
        """
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
    """Return keys in floating point, and bounds on their errors.

    A word places V in an interval of width 2^-64, and the key is that of the middle of the interval.
    """
    # Above ½ the distance of V from 1 is used instead of V, since it rounds less.
    upper = words >> np.uint64(63) == 1
    v = (words.astype(np.float64) + 0.5) * 2.0**-64
    rest = ((~words).astype(np.float64) + 0.5) * 2.0**-64
    waiting = np.where(upper, -np.log(rest), -np.log1p(-np.where(upper, 0.5, v)))
    logarithm = np.log(waiting)
    # |d ln(−ln(1−V))/dV| = 1/((1−V)·waiting), and V is known to within 2^-65. The product is doubled,
    # since the derivative varies over the interval, though by less than 2^-10 of itself.
    unread = 2.0**-64 / (waiting * np.where(upper, rest, 1 - v))
    rounding = (np.abs(below) + scale * (np.abs(logarithm) + 1)) * RELATIVE_ERROR
    return below - scale * logarithm, scale * unread + rounding


def _key(v: Any, below: float, scale: float, mp: Any) -> Any:
    """Return the key for V = v in the arithmetic ``mp``."""
    if v == 0:
        return mp.inf
    if v == 1:
        return -mp.inf
    return below - scale * mp.log(-mp.log1p(-v))

"""A private range is a bin of a fine grid in the middle of the data, for many coordinates at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Gaussian
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.accounting.events.choices import GDP_OF_RANGE
from dpgrain.errors import ParameterError
from dpgrain.noise import Source
from dpgrain.noise.choice import choose_scores, uniform_below

# Bins, at most, so that their numbers are exact as floats, with room for sums.
_MOST_BINS = 2**50
# Bins of users that are held at a time, which take 8 MB.
_BATCH_ENTRIES = 1 << 20


@dataclass(frozen=True)
class PrivateRange:
    """A bin near the median, by the exponential mechanism, with the score max(#left, #right).

    Args:
        bound: values are clipped to [−bound, bound].
        width: the width of the bins; an odd number of them cover the range, 0 in the middle of one.
        rate: bin x is chosen with probability ∝ e^{−rate·c(x)}, c(x) = max(#{bins < x}, #{bins > x}).

    Raises:
        ParameterError: if a value is out of range, or there are more than 2^50 bins.

    Formal guarantee: bounded range of ``rate`` if a value is removed, of twice that if it is exchanged,
    for each coordinate; ``rate``-DP, and of :meth:`event`. With n values a bin that leaves
    more than (1 − a)n of them strictly to one side is chosen with probability at most
    bins·e^{−rate·n(½ − a)}. Source: Levy et al. 2021, Algorithm 6 (Feldman & Steinke 2017);
    docs/theory, "A range for each coordinate".

    >>> from dpgrain.noise import SystemSource
    >>> PrivateRange(8.0, 2.0, 90.0).middles(np.array([[3.9, 4.1, 4.2]]), SystemSource()).tolist()
    [4.0]
    """

    bound: float
    width: float
    rate: float

    def __post_init__(self) -> None:
        _validate.plain(self)
        _validate.positive(bound=self.bound)
        _validate.positive(width=self.width)
        _validate.positive(rate=self.rate)
        if not self.bound / self.width < _MOST_BINS / 4:
            raise ParameterError(
                f"width = {self.width!r} results in more than 2^50 bins of ±{self.bound:g}; use a "
                "smaller bound, or a larger radius."
            )

    @property
    def bins(self) -> int:
        """The number of bins."""
        return 2 * self._side + 1

    @property
    def _side(self) -> int:
        return max(0, math.ceil(self.bound / self.width - 0.5))

    def event(self, choices: int) -> Gaussian:
        """Return the accountant's event for some choices: √(π/8)·rate for one, under ``zero_out``.

        Args:
            choices: the number of coordinates × rounds.

        >>> round(PrivateRange(1.0, 0.1, 0.01).event(100).loss().mu, 5)
        0.06267
        """
        return range_event(self.rate, choices)

    def index(self, values: FloatArray) -> IntArray:
        """Return the bin of each value, from 0."""
        steps = np.rint(np.clip(values, -self.bound, self.bound) / self.width)
        return np.clip(steps.astype(np.int64) + self._side, 0, self.bins - 1)

    def middle(self, index: IntArray) -> FloatArray:
        """Return the middle of each bin."""
        middles: FloatArray = (index - self._side).astype(np.float64) * self.width
        return middles

    def middles(self, values: FloatArray, source: Source) -> FloatArray:
        """Return the middle of a private bin for each coordinate.

        Args:
            values: (coordinates, n): one row for each coordinate; n may be 0.
            source: random bits.
        """
        out = np.empty(len(values))
        most = max(1, _BATCH_ENTRIES // max(values.shape[1], 1))
        for first in range(0, len(values), most):
            some = slice(first, first + most)
            bins = np.sort(self.index(values[some]), axis=1)
            out[some] = self.middle(chosen_bins(bins, self.bins, self.rate, source))
        return out


def range_event(rate: float, choices: int) -> Gaussian:
    """Return the accountant's event for some choices of bounded range.

    Args:
        rate: the range of one choice if a user is removed; it is twice that if the data are exchanged.
        choices: the number of choices.

    Formal guarantee: a choice of η-bounded range is √(π/8)·η-GDP, however it depends on the
    choices before it; that is tight as η → 0. Source: docs/theory, "A range for each coordinate".
    """
    return Gaussian(1 / (GDP_OF_RANGE * (1 + 2.0**-48) * rate), ONE_EACH, choices)


def chosen_bins(ordered: IntArray, bins: int, rate: float, source: Source) -> IntArray:
    """Choose one bin for each row, by the exponential mechanism.

    Args:
        ordered: (rows, n) the bins of the values, each row in order.
        bins: the number of bins.
        rate: bin x is chosen with probability ∝ e^{−rate·c(x)}, c as in :class:`PrivateRange`.
        source: random bits.

    The bins with scores of at most t are those from the (t+1)-th largest of the values to the (t+1)-th
    smallest, and all for t = n: an interval, empty where the ends are exchanged. So the time does not
    depend on the number of bins.

    >>> from dpgrain.noise import SystemSource
    >>> chosen_bins(np.array([[1, 5, 6, 9]]), 10, 90.0, SystemSource())[0] in (5, 6)
    True
    """
    rows, n = ordered.shape
    low, high = np.zeros((rows, n + 1), np.int64), np.full((rows, n + 1), bins - 1, np.int64)
    low[:, :n], high[:, :n] = ordered[:, ::-1], ordered
    held = np.maximum(high - low + 1, 0)
    score = choose_scores(np.diff(held, axis=1, prepend=0), rate, source=source)
    at = np.arange(rows)
    before = np.where(score > 0, held[at, score - 1], 0)
    drawn = uniform_below(held[at, score] - before, source=source)
    # The bins with this score lie on both sides of the bins with smaller scores.
    left = np.where(before > 0, low[at, score - 1] - low[at, score], drawn + 1)
    above = drawn >= left
    return np.where(above, high[at, score - 1] + 1 + drawn - left, low[at, score] + drawn)

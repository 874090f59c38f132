"""Private ranges: median bins of a fine grid, for many coordinates at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Gaussian
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource
from dpgrain.publishing.draws import counted, range_event

# Max bins, so that their numbers are exact as floats, with room for sums.
_MOST_BINS = 2**50
# Users' bins per batch; they take 8 MB.
_BATCH_ENTRIES = 1 << 20


@dataclass(frozen=True)
class PrivateRange:
    """A bin near the median, by the exponential mechanism.

    Formal guarantee: bounded range of ``rate`` if a value is removed, of twice that if it is
    replaced, for each coordinate; ``rate``-DP. Source: Levy et al. 2021, Algorithm 6 (Feldman &
    Steinke 2017); docs/theory, "A range for each coordinate".
    """

    bound: float
    width: float
    rate: float

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
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
        """Number of bins."""
        return 2 * self._side + 1

    @property
    def _side(self) -> int:
        return max(0, math.ceil(self.bound / self.width - 0.5))

    def event(self, choices: int) -> Gaussian:
        """Return the accountant's event for some choices (coordinates × rounds)."""
        return range_event(self.rate, choices)

    def index(self, values: FloatArray) -> IntArray:
        """Return the bin of each value, from 0."""
        steps = np.rint(np.clip(values, -self.bound, self.bound) / self.width)
        return np.clip(steps.astype(np.int64) + self._side, 0, self.bins - 1)

    def middle(self, index: IntArray) -> FloatArray:
        """Return the midpoint of each bin."""
        middles: FloatArray = (index - self._side).astype(np.float64) * self.width
        return middles

    def middles(
        self, values: FloatArray, source: RandomSource, *, pure: bool = False
    ) -> FloatArray:
        """Return the midpoint of a private bin for each row of (coordinates, n) values."""
        out = np.empty(len(values))
        most = max(1, _BATCH_ENTRIES // max(values.shape[1], 1))
        for first in range(0, len(values), most):
            some = slice(first, first + most)
            bins = np.sort(self.index(values[some]), axis=1)
            out[some] = self.middle(chosen_bins(bins, self.bins, self.rate, source, pure=pure))
        return out


def chosen_bins(
    ordered: IntArray, bins: int, rate: float, source: RandomSource, *, pure: bool = False
) -> IntArray:
    """Choose a bin for each row of sorted bins, (rows, n): the exponential mechanism."""
    # Bins with scores ≤ t are an interval between the (t+1)-th largest and smallest values (all
    # bins for t = n), so the running time does not depend on the number of bins.
    rows, n = ordered.shape
    low, high = np.zeros((rows, n + 1), np.int64), np.full((rows, n + 1), bins - 1, np.int64)
    low[:, :n], high[:, :n] = ordered[:, ::-1], ordered
    counts = np.maximum(high - low + 1, 0)
    draws = counted(source, range_event(rate, rows))
    score, drawn = draws.choose(np.diff(counts, axis=1, prepend=0), rate, pure=pure)
    at = np.arange(rows)
    before = np.where(score > 0, counts[at, score - 1], 0)
    # The bins with this score are on both sides of the bins with smaller scores.
    left = np.where(before > 0, low[at, score - 1] - low[at, score], drawn + 1)
    above = drawn >= left
    return np.where(above, high[at, score - 1] + 1 + drawn - left, low[at, score] + drawn)

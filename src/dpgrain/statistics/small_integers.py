"""Ends of columns of small integers, from noisy counts of values.

Half of each record counts in the bin of its value (:class:`~dpgrain.statistics.values.ValueBins`).
All functions of this module process noisy counts only (post-processing).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpgrain._types import BoolArray, FloatArray
from dpgrain.statistics.intervals import tail_of
from dpgrain.statistics.values import INTEGERS
from dpgrain.units import Law

# False-positive probabilities: for one of 66 integers, for the next one, and for other numbers.
_FALSE, _FALSE_NEXT, _FALSE_OTHERS = 1e-5, 1e-2, 1e-3
# The same for the next one in an interval, which is wider by its likely part.
_FALSE_LIKELY = 0.16
# Share of records with a credible integer from which a column has small integers.
_NEARLY_ALL = 0.9
# Standard errors for a likely count.
_LIKELY = 2.0
# Index of 0.
_ZERO = 1
# Largest fraction of a count that continues beyond the last credible one.
_SLOWEST = 0.8


@dataclass(frozen=True, eq=False)
class SmallIntegers:
    """Noisy numbers of records with each integer from −1 to 64."""

    counts: FloatArray  # (66,)
    sd: float
    law: Law = "gaussian"

    @cached_property
    def _credible(self) -> FloatArray:
        """Counts of credible integers, and 0 for the others, (66,)."""
        return self._continued(tail_of(self.law, self.counts / self.sd) <= _FALSE, _FALSE_NEXT)

    @property
    def likely(self) -> FloatArray:
        """Counts of credible integers, and of adjacent ones above the noise, (66,)."""
        return self._continued(self._credible > 0, _FALSE_LIKELY)

    def _continued(self, seen: BoolArray, level: float) -> FloatArray:
        """Return counts of integers and adjacent ones, with false-positive probability."""
        near = tail_of(self.law, self.counts / self.sd) <= level
        # Most columns without visible negative numbers have none.
        near[INTEGERS < 0] = False
        for place in range(1, near.size):
            seen[place] |= seen[place - 1] and near[place]
            seen[-1 - place] |= seen[-place] and near[-1 - place]
        return np.where(seen, self.counts, 0.0)

    def are_all(self, records: float, others: float) -> bool:
        """Return True if nearly all records have credible integers, and no others visibly.

        Args:
            records: the noisy number of records.
            others: the noisy number of those with other numbers, in standard deviations.
        """
        nearly = float(self._credible.sum()) >= _NEARLY_ALL * max(records, self.sd)
        return nearly and float(tail_of(self.law, others)) > _FALSE_OTHERS

    def ends(self, noise: float, *, from_zero: bool = False) -> tuple[float, float]:
        """Return the smallest and largest integer of interest.

        An end is the last credible integer if counts stop there; else it minimises noise and
        clamped part. With ``from_zero``, noise grows with magnitude, so the range includes 0.
        """
        seen = np.flatnonzero(self._credible)
        first, last = int(seen[0]), int(seen[-1])
        width = max(last - _ZERO, _ZERO - first) if from_zero else last - first
        # Without visible negative numbers, there are none.
        low = max(first - self._beyond(first, -1, width, noise), min(first, _ZERO))
        high = last + self._beyond(last, 1, width, noise)
        if from_zero:
            low, high = min(low, _ZERO), max(high, _ZERO)
        # A range contains two numbers, and no negative one for a column of zeros.
        if low == high:
            low, high = (low, high + 1) if low == _ZERO else (low - 1, high)
        return float(INTEGERS[low]) if low >= 0 else -2.0, float(INTEGERS[high])

    def _beyond(self, end: int, step: int, width: int, noise: float) -> int:
        """Return the number of integers to include beyond the last credible one of a side."""
        counts = self.counts[end::step]
        before = self._credible[end - step] if 0 <= end - step < self.counts.size else 0.0
        rate = min(float(counts[0] / before) if before > 0 else _SLOWEST, 1.0)
        likely = np.maximum(counts[1:], 0.0) + _LIKELY * self.sd
        guess = np.minimum(counts[0] * min(rate, _SLOWEST) ** np.arange(1.0, counts.size), likely)
        if likely.size and likely[0] < rate * counts[0]:
            guess = np.zeros(likely.size)
        # Clamped parts if k integers are included, for k = 0, 1, and so on.
        far = np.maximum(np.arange(1.0, counts.size) - np.arange(counts.size)[:, None], 0.0)
        return int(np.hypot(noise * (width + np.arange(counts.size)), far @ guess).argmin())

    def spread(self) -> float:
        """Return the standard deviation of the credible integers."""
        weight = self._credible / self._credible.sum()
        return math.sqrt(float(weight @ (INTEGERS - float(weight @ INTEGERS)) ** 2))

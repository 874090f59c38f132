"""Narrower range of numbers far from 0, from noisy counts of sixteenths of bins.

All functions of this module process noisy counts only (post-processing). Why they help, and what
they assume: docs/theory/sums.md, "Numbers as masses".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.statistics.intervals import tail_of
from dpgrain.units import Law

#: Number of narrow bins of equal width in each bin.
NARROW = 16
# Probabilities that the fullest narrow bin is false, another one, and one adjacent to these.
_FALSE, _FALSE_OTHER, _FALSE_ADJACENT = 1e-5, 1e-4, 1e-2
# Standard errors for a clear fall of counts, and for a likely count.
_CLEARLY, _LIKELY = 3.0, 2.0
# Smallest power of the numbers by which counts fall beyond visible ones: a power law of this order.
_SLOWEST = 2.0
# Largest width of a narrower range ÷ width of the whole one, at equal errors of clamping.
_MUCH_NARROWER = 0.5


@dataclass(frozen=True, eq=False)
class NarrowCounts:
    """Noisy counts of narrow bins, and likely counts of the bins that contain them."""

    edges: FloatArray  # (B + 1,)
    noisy: FloatArray  # (B,)
    sd: FloatArray  # (B,) of the noise
    parent: IntArray  # (B,) bin that contains each narrow bin
    likely: FloatArray  # (bins,)
    visible: BoolArray  # (bins,)
    law: Law

    def within(self, low: float, high: float) -> Self:
        """Return the counts of the narrow bins between bounds."""
        first = int(np.searchsorted(self.edges, low, side="right")) - 1
        inside = slice(first, int(np.searchsorted(self.edges, high)))
        edges = self.edges[inside.start : inside.stop + 1].copy()
        edges[[0, -1]] = low, high
        noisy, sd, parent = self.noisy[inside], self.sd[inside], self.parent[inside]
        return replace(self, edges=edges, noisy=noisy, sd=sd, parent=parent)

    @property
    def middles(self) -> FloatArray:
        """Middles of the narrow bins, (B,)."""
        return (self.edges[:-1] + self.edges[1:]) / 2

    def narrower(self, noise: float, power: int, *, ratio: bool) -> tuple[float, float] | None:
        """Return the ends with the smallest error, or None if it is not much smaller.

        Args:
            noise: the standard deviation of the sum's noise ÷ width^power, or ÷ magnitude^power.
            power: 1 for sums of numbers, 2 for sums of their squares.
            ratio: True if noise grows with the width of the range, not with its magnitude.
        """
        counts = self.counts()
        if counts is None:
            return None
        edges, centre = self.edges, float(counts @ self.middles / counts.sum())
        far, end = np.abs(self.middles - centre) ** power, np.abs(edges - centre) ** power
        before, mass = (_sums_before(part) for part in (counts * far, counts))
        # Error of clamping to each end: numbers beyond it count as the end.
        below, above = before - end * mass, before[-1] - before - end * (mass[-1] - mass)
        lows, highs = np.flatnonzero(edges < centre), np.flatnonzero(edges > centre)
        low, high = edges[lows, None], edges[highs]
        size = high - low if ratio else np.maximum(np.abs(low), np.abs(high))
        error = np.hypot(noise * size**power, below[lows, None] + above[highs])
        if error.min() > _MUCH_NARROWER**power * error[0, -1]:
            return None
        first, last = np.unravel_index(error.argmin(), error.shape)
        return float(edges[lows[first]]), float(edges[highs[last]])

    def counts(self) -> FloatArray | None:
        """Return likely counts of narrow bins, (B,); None if none of them is visible."""
        level = np.where(self.visible[self.parent], tail_of(self.law, self.noisy / self.sd), 1.0)
        if not level.size or level.min() > _FALSE:
            return None
        first, last = np.flatnonzero(level <= _FALSE_OTHER)[[0, -1]]
        while first > 0 and level[first - 1] <= _FALSE_ADJACENT:
            first -= 1
        while last + 1 < level.size and level[last + 1] <= _FALSE_ADJACENT:
            last += 1
        seen, counts = np.arange(first, last + 1), np.maximum(self.noisy, 0.0)
        counts[:first] = self._beyond(seen[::-1], np.arange(first)[::-1])[::-1]
        counts[last + 1 :] = self._beyond(seen, np.arange(last + 1, counts.size))
        # If a bin beyond is visible as a whole only, its numbers may be anywhere in it.
        size = np.bincount(self.parent, minlength=self.likely.size)
        whole = (self.likely / np.maximum(size, 1))[self.parent]
        for side in (self.parent < self.parent[first], self.parent > self.parent[last]):
            if self.visible[self.parent[side]].any():
                counts = np.where(side, whole, counts)
        return counts

    def _beyond(self, seen: IntArray, unseen: IntArray) -> FloatArray:
        """Return likely counts of bins beyond the last visible one; indices go outwards.

        They fall like a power of the numbers: the second, or a larger one if counts clearly fall
        faster from the fullest bin to the last visible one, or from that to the next.
        """
        fullest, last = seen[np.argmax(self.noisy[seen])], seen[-1]
        likely = np.maximum(self.noisy, 0.0) + _LIKELY * self.sd
        size = np.log(np.maximum(np.abs(self.middles), np.finfo(np.float64).tiny))
        power = _SLOWEST
        for more, less in ((fullest, last), *((last, place) for place in unseen[:1])):
            least = self.noisy[more] - _CLEARLY * self.sd[more]
            most = max(self.noisy[less], 0.0) + _CLEARLY * self.sd[less]
            apart = abs(size[more] - size[less])
            if least > most and apart > 0:
                power = max(power, math.log(least / most) / apart)
        distance = np.maximum.accumulate(np.abs(size[unseen] - size[last]))
        return np.asarray(np.minimum(self.noisy[last] * np.exp(-power * distance), likely[unseen]))


def _sums_before(values: FloatArray) -> FloatArray:
    """Return the sum of the values before each of n + 1 places, (n + 1,)."""
    return np.concatenate([[0.0], np.cumsum(values)])

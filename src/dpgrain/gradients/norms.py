"""Noisy histogram of gradient norms, for choosing a clipping bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Gaussian
from dpgrain.means import Contributions
from dpgrain.means.mean_protocol import DistributedGradients
from dpgrain.noise import RandomSource
from dpgrain.numerics.row_products import squares
from dpgrain.publishing.draws import counted, one_draw

# Edges of bins: half octaves from 2^-12 to 2^12; the first and the last bin also contain all
# smaller and larger norms.
_BIN_EDGES = 2.0 ** np.arange(-12, 12.5, 0.5)
#: Number of bins.
BINS = len(_BIN_EDGES) + 1
# Standard deviations of noise that the next bins, three octaves, must contain for norms beyond an
# edge to be significant. All higher bins together have more noise, and one draw could raise the
# edge far.
_SEEN, _NEXT_BINS = 2.0, 6
# The same above a gap without norms, because many edges are compared.
_SEEN_ABOVE_GAP = 4.0
# Number of bins beyond a bound that estimate its effect.
_EXCESS_BINS = 3
# Standard deviations above 0 from which the number of all norms is significant.
_CERTAIN = 3.0
# Maximum entries of a batch of gradients, which fits in the cache.
_BATCH_ENTRIES = 1 << 17


@dataclass(frozen=True)
class NormHistogram:
    """Noisy histogram, (bins,), of the norms of blocks' gradients in half octaves."""

    counts: FloatArray
    noise_sd: float

    @property
    def blocks(self) -> float:
        """Noisy number of blocks with nonzero gradients, at least 1."""
        return max(self._total, 1.0)

    @property
    def blocks_sd(self) -> float:
        """Standard deviation of the noise of that number."""
        return self.noise_sd * math.sqrt(len(self.counts))

    @property
    def resolved(self) -> bool:
        """True if the number of blocks is significant compared with its noise."""
        return self._total > _CERTAIN * self.blocks_sd

    @property
    def middle(self) -> float:
        """Upper edge of the bin with the median norm; 1 if the noise obscures it."""
        return float(_BIN_EDGES[self._median]) if self.resolved else 1.0

    def bound(self, worth: float, otherwise: float, *, gaps: bool = False) -> float:
        """Return the lowest edge, from the median up, with no significant norms beyond it.

        ``worth`` norms beyond an edge justify no higher bound; ``otherwise`` is the result if noise
        obscures all norms. ``gaps`` includes norms far above the median.
        """
        if not self.resolved:
            return otherwise
        total, first = np.concatenate([[0.0], np.cumsum(self.counts)]), self._median
        if gaps:
            ends = np.minimum(np.arange(len(_BIN_EDGES)) + 1 + _NEXT_BINS, len(self.counts))
            starts = np.arange(len(_BIN_EDGES)) + 1
            noise = _SEEN_ABOVE_GAP * self.noise_sd * np.sqrt(ends - starts)
            far = np.flatnonzero(total[ends] - total[starts] > np.maximum(worth, noise))
            first = max(first, int(far[-1]) if len(far) else 0)
        for edge in range(first, len(_BIN_EDGES) - 1):
            end = min(edge + 1 + _NEXT_BINS, len(self.counts))
            unseen = _SEEN * self.noise_sd * math.sqrt(end - edge - 1)
            if total[end] - total[edge + 1] <= max(worth, unseen):
                return float(_BIN_EDGES[edge])
        return float(_BIN_EDGES[-1])

    @property
    def _median(self) -> int:
        """Index of the edge above the median norm."""
        # The last sum is the total, which is positive if norms are resolved.
        reached = np.flatnonzero(np.cumsum(self.counts) >= self._total / 2)
        return min(int(reached[0]), len(_BIN_EDGES) - 1)

    @property
    def _total(self) -> float:
        """Noisy number of blocks with nonzero gradients, possibly negative."""
        return float(np.cumsum(self.counts)[-1])

    def is_largest(self, edge: float) -> bool:
        """Return True if no larger edge can be chosen as a bound."""
        return edge >= float(_BIN_EDGES[-1])

    def share_beyond(self, edge: float) -> tuple[float, float]:
        """Return the noisy share of blocks beyond a bin edge, and the sd of its noise."""
        beyond = self.counts[int(np.searchsorted(_BIN_EDGES, edge)) + 1 :]
        share = min(max(float(beyond.sum()) / self.blocks, 0.0), 1.0)
        return share, self.noise_sd * math.sqrt(len(beyond)) / self.blocks

    def excess(self, edge: float) -> float:
        """Return the estimated mean of (norm ÷ edge − 1)₊ over blocks, at least 0.

        Norms beyond 2√2 edges are ignored, because their noise would dominate.
        """
        first = int(np.searchsorted(_BIN_EDGES, edge)) + 1
        some = self.counts[first : first + _EXCESS_BINS]
        middles = 2.0 ** (0.25 + 0.5 * np.arange(len(some)))
        return max(float(some @ (middles - 1)) / self.blocks, 0.0)


def release_norms(gradients: Contributions, event: Gaussian, source: RandomSource) -> NormHistogram:
    """Publish a noisy histogram of the norms of blocks' nonzero gradients.

    Formal guarantee: each block adds 1 to one bin, so ``event``'s sensitivity in blocks is that of
    the histogram. Source: docs/theory, "Clipping bounds from norms".
    """
    counts = (
        gradients.in_bins()
        if isinstance(gradients, DistributedGradients)
        else norm_counts(gradients)
    )
    noisy = counted(source, event).floating(one_draw(event), counts.astype(np.float64))
    return NormHistogram(noisy, event.noise_multiplier)


def norm_counts(gradients: Contributions) -> IntArray:
    """Return the number of blocks by gradient norm, (BINS,), without zero gradients."""
    counts = np.zeros(BINS, dtype=np.int64)
    most = max(1, _BATCH_ENTRIES // max(gradients.dimension, 1))
    for first in range(0, gradients.blocks, most):
        some = np.arange(first, min(first + most, gradients.blocks))
        with np.errstate(all="ignore"):
            # A norm that overflows is in the last bin, and a warning would reveal it.
            vectors = gradients.vectors(some)
            lengths = np.sqrt(squares(vectors))
        bins = np.searchsorted(_BIN_EDGES, lengths[lengths > 0])
        counts += np.bincount(bins, minlength=len(counts))
    return counts

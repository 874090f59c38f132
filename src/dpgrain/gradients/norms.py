"""A noisy histogram of the norms of gradients, for the choice of a clipping bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain._rows import squares
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Gaussian
from dpgrain.means import Contributions
from dpgrain.means.protocol import DistributedGradients
from dpgrain.noise import Source
from dpgrain.noise.sums import noised

# Edges of bins: half octaves from 2^-12 to 2^12; the first and the last bin hold all shorter and
# longer norms.
_BIN_EDGES = 2.0 ** np.arange(-12, 12.5, 0.5)
#: The largest clipping bound that can be chosen.
LARGEST_BOUND = float(_BIN_EDGES[-1])
#: The number of bins.
BINS = len(_BIN_EDGES) + 1
# Standard deviations of noise that the next bins, three octaves of them, must hold for norms to be
# seen beyond an edge: all bins above would hold more noise, and one draw of it could lift the edge
# far.
_SEEN, _NEXT_BINS = 2.0, 6
# Standard deviations above 0 from which on the number of all norms is certain.
_CERTAIN = 3.0
# Entries of a batch of gradients, at most, so that it stays in the cache.
_BATCH_ENTRIES = 1 << 17


@dataclass(frozen=True)
class Norms:
    """A noisy histogram of the norms of blocks' gradients.

    Args:
        counts: (bins,) the noisy counts of blocks by half octaves.
        noise_sd: the standard deviation of the noise of each count.
    """

    counts: FloatArray
    noise_sd: float

    @property
    def blocks(self) -> float:
        """The noisy number of blocks that are not zero, at least 1."""
        return max(self._total, 1.0)

    @property
    def blocks_sd(self) -> float:
        """The standard deviation of the noise of that number."""
        return self.noise_sd * math.sqrt(len(self.counts))

    @property
    def resolved(self) -> bool:
        """True where the number of blocks stands out from its noise."""
        return self._total > _CERTAIN * self.blocks_sd

    @property
    def middle(self) -> float:
        """The upper edge of the bin with the median norm; 1 where the noise hides it."""
        return float(_BIN_EDGES[self._median]) if self.resolved else 1.0

    def bound(self, worth: float, otherwise: float) -> float:
        """Return the lowest edge, from the median on, beyond which few norms are seen.

        Args:
            worth: the number of norms for whose sake alone the bound should not be higher.
            otherwise: the answer where the noise hides all norms.
        """
        if not self.resolved:
            return otherwise
        total = np.concatenate([[0.0], np.cumsum(self.counts)])
        for edge in range(self._median, len(_BIN_EDGES) - 1):
            end = min(edge + 1 + _NEXT_BINS, len(self.counts))
            unseen = _SEEN * self.noise_sd * math.sqrt(end - edge - 1)
            if total[end] - total[edge + 1] <= max(worth, unseen):
                return float(_BIN_EDGES[edge])
        return float(_BIN_EDGES[-1])

    @property
    def _median(self) -> int:
        """The place of the edge above the median norm."""
        # The last sum is the total, which is above 0 where norms are resolved.
        reached = np.flatnonzero(np.cumsum(self.counts) >= self._total / 2)
        return min(int(reached[0]), len(_BIN_EDGES) - 1)

    @property
    def _total(self) -> float:
        """The noisy number of blocks that are not zero, which may be below 0."""
        return float(np.cumsum(self.counts)[-1])

    def share_beyond(self, edge: float) -> tuple[float, float]:
        """Return the noisy share of longer blocks, and the standard deviation of its noise.

        Args:
            edge: the norm, which is an edge of a bin.
        """
        beyond = self.counts[int(np.searchsorted(_BIN_EDGES, edge)) + 1 :]
        share = min(max(float(beyond.sum()) / self.blocks, 0.0), 1.0)
        return share, self.noise_sd * math.sqrt(len(beyond)) / self.blocks

    def most_beyond(self, edge: float) -> float:
        """Return the largest share of blocks that may be longer, at two standard deviations of noise.

        Args:
            edge: the norm, which is an edge of a bin.
        """
        share, error = self.share_beyond(edge)
        return min(share + 2 * error, 1.0)


def release_norms(gradients: Contributions, event: Gaussian, source: Source) -> Norms:
    """Publish a noisy histogram of the norms of blocks' gradients.

    Args:
        gradients: the blocks' mean gradients at a public point; a gradient that is 0 is in no bin.
        event: the calibrated noise, whose sensitivity is in blocks.
        source: random bits for the noise.

    Formal guarantee: each block adds 1 to one bin, so the event's sensitivity in blocks is that of the
    histogram. Source: docs/theory, "Clipping bounds from norms".

    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SystemSource
    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> event = Gaussian(0.01, Contribution(layout="shared"))
    >>> release_norms(Vectors(np.full((99, 4), 1.0)), event, SystemSource()).middle
    2.0
    """
    counts = (
        gradients.in_bins() if isinstance(gradients, DistributedGradients) else counts_of(gradients)
    )
    noisy = noised(counts.astype(np.float64), 1.0, event.noise_multiplier, source)
    return Norms(noisy, event.noise_multiplier)


def counts_of(gradients: Contributions) -> IntArray:
    """Return (BINS,) the number of blocks by the norms of their gradients; one that is 0 is in no bin.

    Args:
        gradients: the blocks' mean gradients.
    """
    counts = np.zeros(BINS, dtype=np.int64)
    most = max(1, _BATCH_ENTRIES // max(gradients.dimension, 1))
    for first in range(0, gradients.blocks, most):
        some = np.arange(first, min(first + most, gradients.blocks))
        with np.errstate(all="ignore"):
            # A norm that overflows falls into the last bin, and no warning may reveal it.
            vectors = gradients.vectors(some)
            lengths = np.sqrt(squares(vectors))
        bins = np.searchsorted(_BIN_EDGES, lengths[lengths > 0])
        counts += np.bincount(bins, minlength=len(counts))
    return counts

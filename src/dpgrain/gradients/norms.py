"""A clipping bound, and how many blocks a user holds, chosen inside the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.means import Contributions
from dpgrain.noise import Source
from dpgrain.noise.sums import noised

# Half octaves from 2^-12 to 2^12; shorter and longer blocks are in the first and the last bin.
_EDGES = 2.0 ** np.arange(-12, 12.5, 0.5)
# Entries of gradients that are held at a time.
_ENTRIES = 1 << 21


@dataclass(frozen=True)
class Norms:
    """A noisy histogram of the norms of blocks' gradients.

    Args:
        counts: (bins,) the noisy counts of blocks by half octaves.
        noise_sd: their noise.
    """

    counts: FloatArray
    noise_sd: float

    @property
    def blocks(self) -> float:
        """About how many blocks are not zero, at least 1."""
        return max(float(self.counts.sum()), 1.0)

    @property
    def middle(self) -> float:
        """The upper edge of the first bin below which half of the blocks lie; 1 if there is none."""
        reached = np.flatnonzero(np.cumsum(self.counts) >= self.blocks / 2)
        seen = self.blocks > 3 * self.noise_sd * math.sqrt(len(self.counts))
        return float(_EDGES[min(reached[0], len(_EDGES) - 1)]) if seen and len(reached) else 1.0


def norms_event(noise_multiplier: float, contribution: Contribution) -> Gaussian:
    """What a histogram of norms is to the accountant: each block adds 1 to one bin."""
    return Gaussian(noise_multiplier, contribution)


def release_norms(gradients: Contributions, event: Gaussian, source: Source) -> Norms:
    """Publish how many blocks have gradients of which length.

    Args:
        gradients: the blocks' mean gradients at a public point; what is 0 is in no bin.
        event: the noise, calibrated; its sensitivity is in blocks.
        source: where noise comes from.

    Formal guarantee: each block adds 1 to one bin, so the event's sensitivity in blocks is that of the
    histogram. Source: docs/theory.md, "Clipping bounds from norms".

    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SystemSource
    >>> event = norms_event(0.01, Contribution(layout="shared"))
    >>> release_norms(Vectors(np.full((99, 4), 1.0)), event, SystemSource()).middle
    2.0
    """
    counts = np.zeros(len(_EDGES) + 1, dtype=np.int64)
    most = max(1, _ENTRIES // max(gradients.dimension, 1))
    for first in range(0, gradients.blocks, most):
        some = np.arange(first, min(first + most, gradients.blocks))
        with np.errstate(all="ignore"):
            # A norm that overflows is in the last bin, without a word.
            lengths = np.linalg.norm(gradients.vectors(some), axis=1)
        bins = np.searchsorted(_EDGES, lengths[lengths > 0])
        counts += np.bincount(bins, minlength=len(counts))
    noisy = noised(counts.astype(np.float64), 1.0, event.noise_multiplier, source)
    return Norms(noisy, event.noise_multiplier)

"""Lower bounds on ε from counts of outcomes: exact, and corrected for selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import gaussian_epsilon

stats = lazy_import("scipy.stats")

#: Bins of scores, with edges as thresholds.
BINS = 4096

#: Points (false alarms, misses) of a test between two neighbours.
Points: TypeAlias = tuple[tuple[float, float], ...]


def probability_lower_bound(count: int, draws: int, alpha: float) -> float:
    """Return a Clopper-Pearson lower bound on a probability, with error ``alpha``."""
    return float(stats.beta.ppf(alpha, count, draws - count + 1)) if count else 0.0


def probability_upper_bound(count: int, draws: int, alpha: float) -> float:
    """Return a Clopper-Pearson upper bound on a probability, with error ``alpha``."""
    return float(stats.beta.ppf(1 - alpha, count + 1, draws - count)) if count < draws else 1.0


def event_epsilon(likely: float, unlikely: float, delta: float) -> float:
    """Return the smallest ε ≥ 0 for which two probabilities are (ε, δ)-close."""
    if likely - delta <= unlikely:
        return 0.0
    return math.inf if unlikely == 0 else math.log((likely - delta) / unlikely)


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """Counts of scores by neighbour, likelier first, half and bin, (2, 2, bins).

    The threshold is chosen from the first half of the draws, and the bound computed from the second
    half, so it needs no correction for this choice.
    """

    counts: IntArray

    @staticmethod
    def empty() -> ScoreCounts:
        """Return empty counts."""
        return ScoreCounts(np.zeros((2, 2, BINS), dtype=np.int64))

    def add_scores(self, one: FloatArray, other: FloatArray, reach: float) -> ScoreCounts:
        """Add scores on both neighbours, alternately to both halves, within ±``reach``."""
        counts = self.counts.copy()
        for place, scores in enumerate((one, other)):
            bins = np.clip((scores / reach + 1) * (BINS / 2), 0, BINS - 1).astype(np.int64)
            for half in (0, 1):
                counts[place, half] += np.bincount(bins[half::2], minlength=BINS)
        return ScoreCounts(counts)

    @property
    def draws(self) -> int:
        """Number of draws on each neighbour."""
        return int(self.counts[0].sum())

    def bound(self, delta: float, alpha: float) -> float:
        """Return a lower bound on ε, wrong with probability ``alpha``."""
        above = self.counts[:, :, ::-1].cumsum(axis=2)[:, :, ::-1]
        below = self.counts.cumsum(axis=2)
        return max(
            _bound_at_threshold(above[0], above[1], delta, alpha / 4),
            _bound_at_threshold(below[1], below[0], delta, alpha / 4),
        )

    def curve(self) -> Points:
        """Return the trade-off of tests between the neighbours, from all draws."""
        one, other = self.counts.sum(axis=1)
        alarms = other[::-1].cumsum() / max(int(other.sum()), 1)
        misses = 1 - one[::-1].cumsum() / max(int(one.sum()), 1)
        indices = np.unique(np.linspace(0, alarms.size - 1, 400).astype(int))
        return tuple(zip(alarms[indices].tolist(), misses[indices].tolist(), strict=True))


def _bound_at_threshold(likely: IntArray, unlikely: IntArray, delta: float, alpha: float) -> float:
    """Return the bound of the second halves at the first halves' best threshold."""
    draws = int(likely[0].max()), int(unlikely[0].max())
    if not all(draws):
        return 0.0
    low = stats.beta.ppf(alpha, np.maximum(likely[0], 0.5), draws[0] - likely[0] + 1)
    high = stats.beta.ppf(1 - alpha, unlikely[0] + 1, np.maximum(draws[1] - unlikely[0], 0.5))
    best = int(np.argmax((low - delta) / high))
    return event_epsilon(
        probability_lower_bound(int(likely[1][best]), int(likely[1].max()), alpha),
        probability_upper_bound(int(unlikely[1][best]), int(unlikely[1].max()), alpha),
        delta,
    )


def largest_noise(gaussian: Sequence[float], laplace: Sequence[float], alpha: float) -> float:
    """Return an upper bound on the scale of noise with a named distribution."""
    # Noise and bound are in units of the named scales: standard deviations of ``gaussian`` noise,
    # and scales of ``laplace`` noise.
    bounds = []
    if len(gaussian):
        squares = float((np.asarray(gaussian) ** 2).sum())
        bounds.append(math.sqrt(squares / float(stats.chi2.ppf(alpha / 2, len(gaussian)))))
    if len(laplace):
        sizes = float(np.abs(np.asarray(laplace)).sum())
        bounds.append(sizes / float(stats.gamma.ppf(alpha / 2, len(laplace))))
    return max(bounds, default=math.inf)


def named_epsilon(mu: float, pure: float, delta: float) -> float:
    """Return the ε of noise with a named distribution; 0 for a mixture of both.

    ``mu`` is the distance in standard deviations of Gaussian noise, ``pure`` in Laplace scales.
    """
    if mu and pure:
        return 0.0
    if pure:
        # For one Laplace draw: δ(ε') = 1 − e^((ε' − ε)/2).
        return max(0.0, pure + 2 * math.log1p(-delta))
    return gaussian_epsilon(delta, mu)


def one_run_epsilon(correct: int, guesses: int, canaries: int, delta: float, alpha: float) -> float:
    """Return a lower bound on ε from guesses about canaries of probability ½.

    Formal guarantee: under (ε, δ)-DP for each canary, ≥ ``correct`` right guesses have probability
    ≤ P(Bin(guesses, e^ε/(1+e^ε)) ≥ correct) + 2·canaries·δ·max_i P(correct > Bin ≥ correct − i)/i,
    for any choice of the guesses. Source: Steinke, Nasr & Jagielski 2023, Theorem 5.2.
    """

    def chance(epsilon: float) -> float:
        right = 1 / (1 + math.exp(-epsilon))
        below = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))
        ratio = float((below / np.arange(1, below.size + 1)).max()) if below.size else 0.0
        return float(stats.binom.sf(correct - 1, guesses, right)) + 2 * canaries * delta * ratio

    # If this is improbable for an ε, that ε and all smaller ones are refuted.
    low, high = 0.0, 50.0
    if guesses == 0 or chance(0.0) > alpha:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) <= alpha else (low, middle)
    return low


def min_shift(present: FloatArray, absent: FloatArray, alpha: float) -> float:
    """Return a lower bound on the distance of two normal distributions, in their sd."""
    # The bound inverts Student's t, which has a non-central t distribution for that distance.
    n, m = present.size, absent.size
    if min(n, m) < 2:
        return 0.0
    pooled = (n - 1) * float(present.var(ddof=1)) + (m - 1) * float(absent.var(ddof=1))
    spread = math.sqrt(pooled / (n + m - 2) * (1 / n + 1 / m))
    if spread == 0:
        return 0.0
    t = (float(present.mean()) - float(absent.mean())) / spread
    low, high = 0.0, max(t, 0.0)
    # The largest distance with probability at most alpha of such a large t.
    for _ in range(60):
        middle = (low + high) / 2
        improbable = float(stats.nct.sf(t, n + m - 2, middle)) <= alpha
        low, high = (middle, high) if improbable else (low, middle)
    return low * math.sqrt(1 / n + 1 / m)

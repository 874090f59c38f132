"""Lower bounds on the divergence of two neighbours' outcomes, for statistical audits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpgrain.auditing.epsilon_bounds import (
    event_epsilon,
    probability_lower_bound,
    probability_upper_bound,
)

Scores = NDArray[np.float64]
# Error probability of a bound.
CHANCE = 1e-7


def rates(
    present: Scores, absent: Scores, threshold: float | None = None, chance: float = CHANCE
) -> tuple[float, float]:
    """A lower bound on P(score ≥ threshold | unit present), an upper one if it is absent.

    The default threshold is the median of all scores.
    """
    cut = np.median(np.concatenate([present, absent])) if threshold is None else threshold
    hits, false = (int((scores >= cut).sum()) for scores in (present, absent))
    return probability_lower_bound(hits, len(present), chance / 2), probability_upper_bound(
        false, len(absent), chance / 2
    )


def mu_below(
    present: Scores, absent: Scores, threshold: float | None = None, chance: float = CHANCE
) -> float:
    """A lower bound on the distance of two laws, in standard deviations."""
    low, high = ndtri(rates(present, absent, threshold, chance))
    return float(low - high)


def epsilon_below(
    present: Scores, absent: Scores, threshold: float | None = None, delta: float = 0.0
) -> float:
    """A lower bound on ε at δ."""
    return event_epsilon(*rates(present, absent, threshold), delta)

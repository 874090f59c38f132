"""Floor of choices among many hypotheses, with one world for each of them."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.papers.floors.two_points import steps_between
from dpgrain.papers.floors.worlds import (
    CLOSE,
    gaps_between,
    group_sizes,
    min_error_of_records,
    raised_probability,
    size_probabilities,
)
from dpgrain.units import RELATIONS, Relation


def min_excess_of_choice(
    epsilon: float,
    delta: float,
    n: int,
    hypotheses: int,
    *,
    records: int = 1,
    relation: Relation = "zero_out",
) -> float:
    """Return a floor under the excess risk of a private choice, in bounds of the loss.

    Args:
        epsilon: the promised ε for one user.
        delta: the promised δ.
        n: the number of users.
        hypotheses: the number of hypotheses, 2 or more.
        records: the number of independent records per user, from one distribution.
        relation: ``"zero_out"`` or ``"replace"``.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: for every (ε, δ)-DP choice there are losses in [0, 1] and a distribution of
    records with at least this expected excess risk. Proof: docs/theory, "How little error there can
    be". Source: user-level learning paper, Thm. 8, of order ln K/(n·ε·√m), with numbers, for δ > 0,
    and without its log K ≥ 32 log 2; its sample space has log K coordinates, this one K.

    >>> round(min_excess_of_choice(1.0, 0.0, 10_000, 1000, records=10), 6)
    5.1e-05
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    n = _validate.integer(minimum=1, n=n)
    hypotheses = _validate.integer(minimum=2, hypotheses=hypotheses)
    records = _validate.integer(minimum=1, records=records)
    _validate.one_of(RELATIONS, relation=relation)
    sizes = group_sizes(epsilon, n)
    wrong = np.array(
        [
            1 - raised_probability(epsilon, delta, steps_between(int(j), relation), 1 / hypotheses)
            for j in sizes
        ]
    )
    gaps = gaps_between(epsilon, n, records)

    def several(gaps: FloatArray, distinguishability: FloatArray) -> float:
        # For J users, world v differs from the world with equally good hypotheses.
        within = np.cumsum(size_probabilities(sizes, n, distinguishability), axis=1)
        return float(np.max(gaps[:, None] * (within - 1 + wrong)))

    fair = several(gaps / 2, _bias_distinguishability(records, gaps / 2))
    sure = several(gaps, -np.expm1(records * np.log1p(-np.minimum(gaps, 1 - 1e-16))))
    # One of two hypotheses is right in each world here, and the others are never better.
    two = min_error_of_records(
        epsilon, delta, n, records=records, relation=relation, penalty="absolute"
    )
    return max(fair, sure, two / 2)


def _bias_distinguishability(records: int, gaps: FloatArray) -> FloatArray:
    """Return the total variation between records with P(1) = ½ − gap and fair ones."""
    low = np.maximum(0.5 - gaps, 1e-300)
    # From about this number of ones, fair records are likelier; any number gives a floor.
    odds = np.log1p(2 * gaps) - np.log1p(-np.minimum(2 * gaps, 1 - 1e-16))
    ones = np.ceil(records * np.log1p(2 * gaps) / odds)
    ones = np.clip(ones, 1, records)
    difference = betainc(ones, records - ones + 1, 0.5) - betainc(ones, records - ones + 1, low)
    # Pinsker's inequality, for very small gaps.
    bound = gaps * math.sqrt(records) * (1 + 4 * gaps * gaps)
    return np.where(gaps * math.sqrt(records) < CLOSE, bound, np.clip(difference, 0.0, 1.0))

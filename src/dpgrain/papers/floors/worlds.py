"""Floors by two worlds that few users can distinguish, and by one world per hypothesis."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.papers.floors.sum_floors import (
    GAPS,
    SIZES,
    group_delta,
    steps_between,
    traced_loss,
    traced_mean,
)
from dpgrain.units import RELATIONS, Relation

Penalty: TypeAlias = Literal["squared", "absolute"]
PENALTIES: tuple[Penalty, ...] = ("squared", "absolute")
# Longer chains of neighbours are processed in groups: a valid floor, barely smaller.
_MOST_STEPS = 1 << 14
# Distance in ε where the overlap of two worlds is below the smallest float.
_APART_EPSILON = 1400.0
# Smaller differences of probabilities are bounded instead of computed.
CLOSE = 1e-7


def min_error_of_worlds(
    epsilon: float,
    delta: float,
    n: int,
    *,
    relation: Relation = "zero_out",
    penalty: Penalty = "squared",
) -> float:
    """Return a floor under the error of distinguishing two worlds.

    Args:
        epsilon: the promised ε for one user.
        delta: the promised δ.
        n: the number of users.
        relation: ``"zero_out"`` or ``"replace"``.
        penalty: the error E(A − ϑ)² or E|A − ϑ|, for the world ϑ in {0, 1} and the answer A in [0,
            1].

    Raises:
        ParameterError: if a parameter is out of range.

    In world 0 all records of all users have one value, and in world 1 another. For means of records
    in [−B, B] the rms error is 2B times the root of this; for linear losses of slope G on [−R, R]
    the excess risk is 2·G·R times the absolute one.

    Formal guarantee: for every (ε, δ)-DP mechanism one of the two worlds has at least this error.
    For δ = 0 the floor is tight: noise on the number of users attains it. Proof: docs/theory, "How
    little error there can be". Source: user-level learning paper, Thm. 9. Its order e^(−nε) becomes
    e^(−nε/2) for replaced users, because a group of half of them leads to a data set in between.

    >>> round(min_error_of_worlds(0.1, 1e-6, 50), 5)
    0.00263
    >>> round(min_error_of_worlds(0.1, 1e-6, 50, relation="replace"), 4)
    0.0322
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    n = _validate.integer(minimum=1, n=n)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.one_of(PENALTIES, penalty=penalty)
    return _unsure(epsilon, delta, steps_between(n, relation), penalty)


def min_error_of_records(
    epsilon: float,
    delta: float,
    n: int,
    *,
    records: int = 1,
    dimension: int = 1,
    relation: Relation = "zero_out",
    penalty: Penalty = "squared",
) -> float:
    """Return a floor under the error that privacy adds to means or convex losses.

    Args:
        epsilon: the promised ε for one user.
        delta: the promised δ.
        n: the number of users.
        records: the number of independent records per user, from one distribution.
        dimension: the number of coordinates of a record, or of the parameter.
        relation: ``"zero_out"`` or ``"replace"``.
        penalty: with ``"squared"`` the error is the rms l2 error of the mean of the distribution,
            in bounds of a record's norm; with ``"absolute"`` it is the excess risk of a linear
            loss, in G·R.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: for every (ε, δ)-DP mechanism there is a distribution on {±1/√d}^d such that
    the error, over the records and the mechanism's noise, is at least this. For small ε and δ, and
    many users, it is near √d/(3nε√m), and near √d/(8nε√m) for losses. Proof: docs/theory, "How
    little error there can be". Source: user-level learning paper, Cor. 1 and Thm. 6 and 9, with
    numbers.

    >>> [round(min_error_of_records(1.0, 1e-9, 1000, records=m), 6) for m in (1, 100)]
    [0.001325, 0.000167]
    """
    epsilon = _validate.positive(epsilon=epsilon)
    delta = _validate.delta(allow_zero=True, delta=delta)
    n = _validate.integer(minimum=1, n=n)
    records = _validate.integer(minimum=1, records=records)
    dimension = _validate.integer(minimum=1, dimension=dimension)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.one_of(PENALTIES, penalty=penalty)
    sizes = group_sizes(epsilon, n)
    left = np.array(
        [_unsure(epsilon, delta, steps_between(int(j), relation), penalty) for j in sizes]
    )
    gaps = gaps_between(epsilon, n, records)
    expected = size_probabilities(sizes, n, _distinguishability(records, gaps)) @ left
    errors = 2 * gaps * (np.sqrt(expected) if penalty == "squared" else expected)
    if penalty == "squared":
        traced = traced_mean(epsilon, delta, n, records, dimension, relation)
    else:
        traced = traced_loss(epsilon, delta, n, records, dimension)
    return max(float(errors.max()), traced)


def _chain(epsilon: float, delta: float, steps: int) -> tuple[FloatArray, FloatArray]:
    """Return the best test of two data sets: corners (π, 1 − largest attainable π)."""
    # One step takes a probability π to at most min(e^ε·π + δ, 1 − e^{−ε}(1 − π − δ)).
    group = -(-steps // _MOST_STEPS)
    if group > 1:
        epsilon, delta = (
            group * epsilon,
            float(group_delta(epsilon, delta, np.array([group]))[0]),
        )
        steps = -(-steps // group)
    i = np.arange(steps + 1.0)
    worn = np.exp(-np.minimum(i * epsilon, 700.0))
    lost = delta * np.expm1(np.minimum(i * epsilon, 700.0)) / math.expm1(min(epsilon, 700.0))
    turn = (1 - delta) / (math.exp(min(epsilon, 700.0)) + 1)
    # The bend of one step, traced back i times; by symmetry it is also the remainder to 1 on the
    # other side.
    back = np.maximum(worn * (turn - lost), 0.0)[:-1]
    risen = int(np.searchsorted(lost, turn, side="right"))
    if risen > steps:
        ends = 1 - lost[steps]
    else:
        ends = max(worn[steps - risen] * (1 - lost[risen] - lost[steps - risen]), 0.0)
    chances = np.concatenate(([0.0], np.minimum(back[::-1], ends), [ends]))
    missing = np.concatenate(([ends], np.minimum(back, ends), [0.0]))
    return chances, missing


def _unsure(epsilon: float, delta: float, steps: int, penalty: Penalty) -> float:
    """Return the least error of distinguishing two worlds, averaged over both."""
    if steps == 0:
        return 0.25 if penalty == "squared" else 0.5
    if steps * epsilon > _APART_EPSILON:
        return 0.0
    chances, missing = _chain(epsilon, delta, steps)
    one, other = np.diff(chances), -np.diff(missing)
    if penalty == "absolute":
        return float(np.minimum(one, other).sum()) / 2
    total = one + other
    shared = np.divide(one * other, total, out=np.zeros_like(total), where=total > 0)
    return float(shared.sum()) / 2


def raised_probability(epsilon: float, delta: float, steps: int, chance: float) -> float:
    """Return the largest probability attainable from ``chance`` within some steps."""
    if steps == 0:
        return chance
    if steps * epsilon > _APART_EPSILON:
        return 1.0
    chances, missing = _chain(epsilon, delta, steps)
    return 1 - float(np.interp(chance, chances, missing))


def group_sizes(epsilon: float, n: int) -> NDArray[np.int64]:
    """Return relevant numbers of users with different records in the two worlds."""
    most = min(n, math.ceil(min(60 / epsilon, 1e15)) + 2)
    sizes = np.unique(np.rint(np.geomspace(1, most, SIZES)))
    return np.concatenate(([0], sizes)).astype(np.int64)


def gaps_between(epsilon: float, n: int, records: int) -> FloatArray:
    """Return distances of worlds to try, from indistinguishable up to 1."""
    least = 1e-3 / (n * math.sqrt(records) * max(epsilon, 1e-3))
    return np.geomspace(max(min(least, 1.0), 1e-300), 1.0, GAPS)


def size_probabilities(sizes: NDArray[np.int64], n: int, apart: FloatArray) -> FloatArray:
    """Return (gaps, sizes) probabilities of Bin(n, apart) in (previous size, size]."""
    most = np.minimum(sizes, n - 1).astype(np.float64)[None, :]
    below = betaincc(most + 1, n - most, apart[:, None])
    below = np.where(sizes[None, :] >= n, 1.0, below)
    return np.diff(below, axis=1, prepend=0.0)


def _distinguishability(records: int, gaps: FloatArray) -> FloatArray:
    """Return the total variation between records with probabilities (1 ± gap)/2 of 1."""
    # An even number of records reveals no more than the odd number before it. The best test is
    # whether more than half of them are 1.
    half = (records - 1) // 2
    more, fewer = (betainc(half + 1, half + 1, (1 + sign * gaps) / 2) for sign in (1, -1))
    # The total variation is concave in the gap; C(2h, h)/4^h is at most 1/√(π(h + ¼)).
    slope = (2 * half + 1) * min(1.0, 1 / math.sqrt(math.pi * (half + 0.25)))
    return np.where(gaps * slope < CLOSE, gaps * slope, np.clip(more - fewer, 0.0, 1.0))


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

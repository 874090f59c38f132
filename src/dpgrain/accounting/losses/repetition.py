"""Curve of the best of a random number of private runs, from the curve of one run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgrain._types import FloatArray, IndexArray
from dpgrain.accounting.losses.curves import PrivacyCurve, inverse
from dpgrain.accounting.losses.rounding import fails_closed

if TYPE_CHECKING:
    from dpgrain.accounting.losses.loss import Loss

# Points of a run's curve on each side of 0, and cells of the probability of a better result.
_POINTS, _CELLS = 80, 200
# Smallest δ and largest ε where the curve of a run is evaluated.
_LEAST_DELTA, _LARGEST_EPSILON = 1e-25, 500.0
# Smallest probability of a better result that is distinguished from 0.
_LEAST_CHANCE = 1e-20
# Bounds on the rounding of an exponent, relative to its terms, and of a sum.
_EXPONENT_ROUNDING, _SUM_ROUNDING = 2.0**-50, 2.0**-36
# A bound on the rounding of a difference, relative to its two parts.
_DIFFERENCE_ROUNDING = 2.0**-51


@dataclass(frozen=True)
class RunCount:
    """Distribution of the number of runs: Poisson for γ = 0, else negative binomial."""

    mean: float
    gamma: float = 0.0
    eta: float = 1.0

    def weight(self, chance: FloatArray) -> FloatArray:
        """Return (n,) relative probabilities of being best, given (n,) of a better run."""
        if self.gamma == 0:
            return np.exp(-self.mean * chance)
        return (self.gamma / self._rest(chance)) ** (1 + self.eta)

    def steps(self, chances: FloatArray) -> FloatArray:
        """Return (n−1,) differences of neighbouring weights, rounded up."""
        weights = self.weight(chances)
        # The rounding of logarithms of weights is proportional to their size and to their factor.
        terms = 2 + self.eta - np.log(np.maximum(weights, 1e-300))
        off = _EXPONENT_ROUNDING * terms * weights
        steps: FloatArray = weights[:-1] - weights[1:] + off[:-1] + off[1:]
        return steps

    def log_falls(self, chance: FloatArray, moved: FloatArray) -> FloatArray:
        """Return (n,) ln of the quotient of slopes at ``chance + moved`` and ``chance``."""
        if self.gamma == 0:
            return -self.mean * moved
        return -(2 + self.eta) * np.log1p((1 - self.gamma) * moved / self._rest(chance))

    def _rest(self, chance: FloatArray) -> FloatArray:
        return self.gamma + (1 - self.gamma) * chance


@dataclass(frozen=True)
class BestOfCurve:
    """Curve of the best result, from a run's curve in both orders of the neighbours.

    The number of runs must be independent of the data. Proof: docs/theory, "Repeating and keeping
    the best".
    """

    run: Loss
    runs: RunCount

    @fails_closed(1.0)
    def delta(self, epsilon: float) -> float:
        known = _chord(self.run)
        if known is None:
            return 1.0
        return min(known.best(self.runs, epsilon), 1.0)

    @fails_closed(math.inf)
    def epsilon(self, delta: float) -> float:
        return inverse(self, delta)

    def bounds(self, delta: float) -> tuple[float, float]:
        return 0.0, self.epsilon(delta)


@dataclass(frozen=True, eq=False)
class _Chord:
    """Chord of γ → H_γ of one run, through points (ln γ, H_γ) with increasing slopes."""

    logs: FloatArray
    values: FloatArray

    def best(self, runs: RunCount, epsilon: float) -> float:
        """Bound δ(ε) of the best result."""
        # Between two of these probabilities s, the largest probability s' on the other side is
        # γ_j·s + H_j for one j.
        turns = self._turns
        chances = np.append(0.0, np.geomspace(_LEAST_CHANCE, 1.0, _CELLS))
        chances = np.unique(np.concatenate([chances, turns[(turns > 0) & (turns < 1)]]))
        left, right = chances[:-1], chances[1:]
        j = np.searchsorted(-turns, -left, side="left")
        falls = np.minimum(*(runs.log_falls(s, self._moved(s, j)) for s in (left, right)))
        logs = epsilon + self.logs[j] + falls
        logs -= _EXPONENT_ROUNDING * (epsilon + np.abs(self.logs[j]) + np.abs(falls))
        gained = float(runs.steps(chances) @ self._gained(right, logs))
        # The lowest line may be above 1, where the largest probability is 1.
        one = np.ones(1)
        excess = np.maximum(self._moved(one, np.zeros(1, dtype=np.int64)), 0.0)
        last = float(runs.weight(one) @ self._at(epsilon + runs.log_falls(one, excess)))
        return runs.mean * (gained + last) * (1 + _SUM_ROUNDING)

    @property
    def _turns(self) -> FloatArray:
        """The (n−1,) decreasing probabilities where the next point's line becomes lower."""
        one, two = np.arange(self.logs.size - 1), np.arange(1, self.logs.size)
        turns: FloatArray = -_slopes(self.logs, self.values, one, two)
        return turns

    def _moved(self, chance: FloatArray, j: IndexArray) -> FloatArray:
        """Return (n,) distances of the lines of points j above the probability, rounded up."""
        slopes = np.expm1(self.logs[j]) * chance
        moved: FloatArray = slopes + self.values[j]
        return moved + _DIFFERENCE_ROUNDING * (np.abs(slopes) + self.values[j])

    def _at(self, logs: FloatArray) -> FloatArray:
        """Return (n,) values of the chord at ln γ, rounded up."""
        place = np.clip(np.searchsorted(self.logs, logs, side="right") - 1, 0, self.logs.size - 2)
        width = np.expm1(self.logs[place + 1] - self.logs[place])
        with np.errstate(over="ignore"):
            share = np.clip(np.expm1(logs - self.logs[place]) / width, 0.0, 1.0)
        first, last = self.values[place], self.values[place + 1]
        inside = first + share * (last - first) + _DIFFERENCE_ROUNDING * first * (share < 1)
        return np.where(logs < self.logs[0], 1.0, inside)

    def _gained(self, most: FloatArray, logs: FloatArray) -> FloatArray:
        """Bound P(A) − ρQ(A) over events A with P(A) ≤ ``most``, for given ln ρ.

        For every γ ≥ ρ it is at most (1 − ρ/γ)·most + (ρ/γ)·H_γ.
        """
        apart = self.logs[None, :] - logs[:, None]
        ratio = np.exp(-np.maximum(apart, 0.0))
        limited = most[:, None] * -np.expm1(-np.maximum(apart, 0.0)) + ratio * self.values[None, :]
        limited[apart < 0] = math.inf
        gained: FloatArray = np.minimum(np.minimum(limited.min(axis=1), self._at(logs)), most)
        return gained


@lru_cache(maxsize=64)
def _chord(run: PrivacyCurve) -> _Chord | None:
    """Return a chord of a run's curve; None if the run reveals everything."""
    high = 1e-12
    while run.delta(high) > _LEAST_DELTA and high < _LARGEST_EPSILON:
        high *= 1.5
    positive = np.linspace(0.0, high, _POINTS)
    deltas = np.array([run.delta(float(x)) for x in positive]) * (1 + 1e-12)
    deltas = np.minimum.accumulate(np.minimum(deltas, 1.0))
    if deltas[0] >= 1:
        return None
    # Below ε = 0 the curve is H_γ = 1 − γ + γ·H_{1/γ}, for the pair in the other order.
    below = -np.expm1(-positive) + np.exp(-positive) * deltas
    logs = np.concatenate([-positive[:0:-1], positive])
    values = np.concatenate([below[:0:-1], deltas])
    hull = _convex(logs, values)
    return _Chord(logs[hull], values[hull]) if len(hull) > 1 else None


def _convex(logs: FloatArray, values: FloatArray) -> list[int]:
    """Return the points of a decreasing chord that is convex in γ."""
    hull = [0]
    for i in range(1, logs.size):
        if values[i] >= values[hull[-1]]:
            continue
        while len(hull) > 1 and _slopes(logs, values, hull[-2], hull[-1]) >= _slopes(
            logs, values, hull[-1], i
        ):
            hull.pop()
        hull.append(i)
    return hull


def _slopes(logs: FloatArray, values: FloatArray, one: Any, two: Any) -> Any:
    """Return the slopes between points with respect to γ, from ln γ."""
    return (values[two] - values[one]) / (np.exp(logs[one]) * np.expm1(logs[two] - logs[one]))

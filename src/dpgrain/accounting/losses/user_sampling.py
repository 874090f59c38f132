"""Dominating pair of a sampled person with several vectors, some of them changed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.accounting.losses.discretization import (
    GridDistribution,
    LossDistribution,
    spread_masses,
)
from dpgrain.accounting.losses.mixtures import FUNCTION_ROUNDING, normal_masses
from dpgrain.accounting.losses.pairs import DominatingPair, MixturePair, sampled_pair
from dpgrain.numerics.special_functions import ndtr

# Points on each side for a coarse distribution.
_TABLE_POINTS = 2048
# Rounding error of a loss relative to the largest exponent, because it is a difference of
# exponents.
_EXPONENT_ROUNDING = 1e-15


@dataclass(frozen=True)
class TwoSidedPair(DominatingPair):
    """A pair with H_γ of one pair of mixtures for γ ≥ 1, and of another for γ < 1.

    Each is (1−q)N(0) + qN(up) and (1−q)N(0) + qN(down), swapped for γ < 1, with equal up − down.
    Losses above 0 are from the first, losses below 0 from the second. Proof: docs/theory,
    "Users are drawn".
    """

    rate: float
    above: tuple[float, float]
    below: tuple[float, float]

    @property
    def swapped(self) -> DominatingPair:
        return self if self.above == self.below else TwoSidedPair(self.rate, self.below, self.above)

    def coarse_distribution(self) -> LossDistribution:
        return _coarse_distribution(self)

    def log_moment(self, theta: float) -> float:
        # For large θ, losses beyond all points of the coarse distribution matter.
        above, law = _Side.create(self.rate, self.above), self.coarse_distribution()
        rest = LossDistribution(law.values[:_TABLE_POINTS], law.mass[:_TABLE_POINTS]).log_moment(
            theta
        )
        return float(np.logaddexp(above.mixtures.log_moment_beyond(theta, above.first), rest))

    def losses(
        self, step: float, tail: float, floor: float, *, upper: bool = True
    ) -> GridDistribution:
        """Return the distribution on a grid; from below, the one with the only loss 0."""
        if not upper:
            return GridDistribution(step, 0, np.ones(1))
        above, below = _Side.create(self.rate, self.above), _Side.create(self.rate, self.below)
        up, down = above.on_a_grid(step, tail, floor), below.on_a_grid(step, floor, floor)
        _, mass, infinite = _join_halves(up, down)
        low = 1 - down.ends.size
        return GridDistribution(step, low, mass, infinite, max(up.slip, down.slip))


@dataclass(frozen=True, eq=False)
class _Cells:
    """The positive losses of a side, cell by cell."""

    ends: FloatArray  # (n,) increasing losses from 0
    up: tuple[FloatArray, FloatArray]  # (n−1,) masses under the higher distribution, with rounding
    down: tuple[FloatArray, FloatArray]  # the same under the lower distribution
    # Both masses to the left and to the right of all cells, rounded up.
    rest: tuple[tuple[float, float], tuple[float, float]]
    slip: float  # bound on the excess of a loss over its stated value


@dataclass(frozen=True)
class _Side:
    """The points where (1−q)N(0) + qN(up) is likelier, so that its loss increases."""

    mixtures: MixturePair
    first: float

    @staticmethod
    def create(rate: float, shifts: tuple[float, float]) -> _Side:
        up, down = shifts
        pair = sampled_pair(rate, up, down)
        assert isinstance(pair, MixturePair)  # noqa: S101 - a rate of 0 is no sample
        return _Side(pair, (up + down) / 2)

    def on_a_grid(self, step: float, tail: float, floor: float) -> _Cells:
        last = self._last(tail, floor)
        most = float(self.mixtures.loss(np.array([last]))[0][0])
        ends = step * np.arange(0, max(math.ceil(most / step), 1) + 1, dtype=np.float64)
        inner, slip = self.mixtures.places(ends[1:-1], self.first, last)
        return self.cells(ends, np.concatenate([[self.first], inner, [last]]), slip)

    def table(self) -> _Cells:
        places = np.linspace(self.first, self._last(0.0, 0.0), _TABLE_POINTS)
        ends = np.maximum.accumulate(self.mixtures.loss(places)[0])
        ends[0] = 0.0
        return self.cells(np.maximum.accumulate(ends), places, 0.0)

    def _rounding(self, last: float) -> float:
        """Return the largest rounding error of a loss between the first point and another."""
        farthest = max(abs(self.first), abs(last))
        means = [abs(m) for _, m in (*self.mixtures.p, *self.mixtures.q)]
        return _EXPONENT_ROUNDING * (1 + max(m * farthest + m * m / 2 for m in means))

    def _last(self, tail: float, floor: float) -> float:
        return max(self.mixtures._ends(tail, floor)[1], self.first + 1e-3)

    def cells(self, ends: FloatArray, places: FloatArray, slip: float) -> _Cells:
        laws = self.mixtures.p, self.mixtures.q
        up, down = (normal_masses(law, places) for law in laws)
        left, right = (
            tuple(
                float(sum(w * ndtr(sign * (place - m)) for w, m in law)) * (1 + FUNCTION_ROUNDING)
                for law in laws
            )
            for place, sign in ((float(places[0]), 1.0), (float(places[-1]), -1.0))
        )
        slip += self._rounding(float(places[-1]))
        return _Cells(ends, up, down, ((left[0], left[1]), (right[0], right[1])), slip)


def _join_halves(above: _Cells, below: _Cells) -> tuple[FloatArray, FloatArray, float]:
    """Return both sides' losses, their masses under P, and the mass at infinite loss."""
    infinite = above.rest[1][0]
    positive = spread_masses(above.ends, *above.up, *above.down)[1:]
    # Below 0 the distributions are swapped, and P is the lower one.
    ends = -below.ends[::-1]
    (p, p_error), (q, q_error) = (
        (mass[::-1], error[::-1]) for mass, error in (below.down, below.up)
    )
    negative = spread_masses(ends, p, p_error, q, q_error)
    # The smallest losses are raised to the second end, because the first may be below some of them.
    negative[1] += below.rest[1][1]
    # Mass that is not below 0 under the second pair is above 0 under the first, or 0.
    rest = negative[-1] + below.rest[0][1] - float(positive.sum()) - infinite
    mass = np.concatenate([negative[:-1], [max(rest, 0.0)], positive])
    return np.concatenate([ends[:-1], above.ends]), mass, infinite


@lru_cache(maxsize=64)
def _coarse_distribution(pair: TwoSidedPair) -> LossDistribution:
    above = _Side.create(pair.rate, pair.above).table()
    below = _Side.create(pair.rate, pair.below).table()
    losses, mass, infinite = _join_halves(above, below)
    return LossDistribution(losses + max(above.slip, below.slip), mass, infinite)

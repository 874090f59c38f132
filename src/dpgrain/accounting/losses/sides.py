"""The dominating pair of people who are drawn with all that they hold, of which a part changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.accounting.losses.mixtures import FUNCTION_ROUNDING, normal_masses
from dpgrain.accounting.losses.on_a_grid import Law, Losses, spread_masses
from dpgrain.accounting.losses.pairs import Mixtures, Pair, drawn
from dpgrain.noise.special import ndtr

# Places on each side for a first look at the law.
_TABLE_POINTS = 2048
# Share of the largest exponent that rounding may add to a loss, which is a difference of exponents.
_EXPONENT_ROUNDING = 1e-15


@dataclass(frozen=True)
class Sides(Pair):
    """A pair whose H_γ is that of one pair of mixtures for γ ≥ 1, and of another one for γ < 1.

    Args:
        rate: the probability q to take part, below 1.
        above: (up, down), up > down: for γ ≥ 1 the pair is (1−q)N(0) + qN(up), (1−q)N(0) + qN(down).
        below: (up, down) for γ < 1, of the pair in the other order: (1−q)N(0) + qN(down),
            (1−q)N(0) + qN(up). It must have the same up − down.

    Losses above 0 are those of the first pair, losses below 0 those of the second, and the rest of the
    mass has loss 0. Proof: docs/theory, "Users are drawn".
    """

    rate: float
    above: tuple[float, float]
    below: tuple[float, float]

    @property
    def swapped(self) -> Pair:
        return self if self.above == self.below else Sides(self.rate, self.below, self.above)

    def look(self) -> Law:
        """Return the law with losses at equally spaced places on either side."""
        return _look(self)

    def log_moment(self, theta: float) -> float:
        # Where θ is large, losses count that are beyond all places of a look.
        above, law = _Side.of(self.rate, self.above), self.look()
        rest = Law(law.values[:_TABLE_POINTS], law.mass[:_TABLE_POINTS]).log_moment(theta)
        return float(np.logaddexp(above.mixtures.log_moment_beyond(theta, above.first), rest))

    def losses(self, step: float, tail: float, floor: float, *, upper: bool = True) -> Losses:
        """Return the law on a grid; from below, the law whose only loss is 0."""
        if not upper:
            return Losses(step, 0, np.ones(1))
        above, below = _Side.of(self.rate, self.above), _Side.of(self.rate, self.below)
        up, down = above.on_a_grid(step, tail, floor), below.on_a_grid(step, floor, floor)
        _, mass, infinite = _joined(up, down)
        low = 1 - down.ends.size
        return Losses(step, low, mass, infinite, max(up.slip, down.slip))


@dataclass(frozen=True, eq=False)
class _Cells:
    """The positive losses of a side, cell by cell.

    Args:
        ends: (n,) increasing losses, the first of which is 0.
        up: masses under the law farther up, and bounds on their rounding, (n−1,) each.
        down: the same under the other law.
        rest: the masses of both laws to the left of all cells, and to the right of them, rounded up.
        slip: the most by which a loss may be larger than stated, where places and losses are rounded.
    """

    ends: FloatArray
    up: tuple[FloatArray, FloatArray]
    down: tuple[FloatArray, FloatArray]
    rest: tuple[tuple[float, float], tuple[float, float]]
    slip: float


@dataclass(frozen=True)
class _Side:
    """The places from which on (1−q)N(0) + qN(up) is the likelier law, where its loss increases."""

    mixtures: Mixtures
    first: float

    @staticmethod
    def of(rate: float, shifts: tuple[float, float]) -> _Side:
        up, down = shifts
        pair = drawn(rate, up, down)
        assert isinstance(pair, Mixtures)  # noqa: S101 - a rate of 0 is no sample
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
        """Return the most by which rounding may change a loss between the first place and another."""
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


def _joined(above: _Cells, below: _Cells) -> tuple[FloatArray, FloatArray, float]:
    """Return the losses of both sides, their masses under P, and the mass at infinite loss."""
    infinite = above.rest[1][0]
    positive = spread_masses(above.ends, *above.up, *above.down)[1:]
    # Below 0 the laws change places, and P is the one that lies farther down.
    ends = -below.ends[::-1]
    (p, p_error), (q, q_error) = (
        (mass[::-1], error[::-1]) for mass, error in (below.down, below.up)
    )
    negative = spread_masses(ends, p, p_error, q, q_error)
    # The smallest losses are raised to the second end: the first may lie below some of them.
    negative[1] += below.rest[1][1]
    # What is not below 0 under the second pair is above 0 under the first, or 0.
    rest = negative[-1] + below.rest[0][1] - float(positive.sum()) - infinite
    mass = np.concatenate([negative[:-1], [max(rest, 0.0)], positive])
    return np.concatenate([ends[:-1], above.ends]), mass, infinite


@lru_cache(maxsize=64)
def _look(pair: Sides) -> Law:
    above = _Side.of(pair.rate, pair.above).table()
    below = _Side.of(pair.rate, pair.below).table()
    losses, mass, infinite = _joined(above, below)
    return Law(losses + max(above.slip, below.slip), mass, infinite)

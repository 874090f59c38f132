"""Exact privacy curve of two mixtures of normal distributions, by one threshold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from dpgrain._types import BoolArray, FloatArray
from dpgrain.accounting.losses.mixtures import log_ratio
from dpgrain.accounting.losses.rounding import fails_closed
from dpgrain.numerics.special_functions import log_ndtr

# Parts of a mixture: (weight, mean) of normal distributions with standard deviation 1.
Parts: TypeAlias = tuple[tuple[float, float], ...]

# Points per search step, and number of search steps.
_POINTS, _TIMES = 17, 14
# A bound on the rounding of a loss, relative to its terms.
_LOSS_ROUNDING = 2.0**-48
# Bounds on the rounding of a tail: relative, for each unit of its logarithm; and of a coefficient,
# relative to the two weights that it is a difference of.
_TAIL_ROUNDING, _WEIGHT_ROUNDING = 2.0**-46, 2.0**-50
# Relative amount by which ε is raised until its δ is small enough, and max number of raises.
_RAISE, _MOST_RAISES = 1e-12, 40
# Relative amounts by which ε is lowered until its δ exceeds the requested one.
_SHARES = (1e-9, 1e-7, 1e-5, 1e-3, 0.1)
# Smallest float above 0, because no δ is rounded down to 0.
_LEAST_FLOAT = 5e-324
# Standard deviations that limit the search for a threshold.
_FAR = 60.0


class IncreasingLoss(Protocol):
    """Two mixtures with a loss that increases with the point x."""

    @property
    def p(self) -> Parts:
        """Parts of the first distribution."""

    @property
    def q(self) -> Parts:
        """Parts of the second distribution."""


@dataclass(frozen=True)
class OneRoundCurve:
    """Curve of one draw from a pair of mixtures, in both orders.

    δ(ε) = P(x > x*) − e^ε·Q(x > x*), where the loss is ε at x*. Parts with the same mean are
    subtracted before the multiplication by tails. Proof: docs/theory, "Losses on a grid".
    """

    ways: tuple[IncreasingLoss, ...]  # the pair, and the pair in the other order if different

    @fails_closed(1.0)
    def delta(self, epsilon: float) -> float:
        return min(max(_LEAST_FLOAT, *(_delta(way, epsilon) for way in self.ways)), 1.0)

    @fails_closed(math.inf)
    def epsilon(self, delta: float) -> float:
        if delta <= 0:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        answer = max(_epsilon(way, delta) for way in self.ways)
        for turn in range(_MOST_RAISES):
            if self.delta(answer) <= delta:
                return answer
            answer += max(answer, 1e-300) * _RAISE * 2.0**turn
        return math.inf

    def bounds(self, delta: float) -> tuple[float, float]:
        high = self.epsilon(delta)
        if math.isfinite(high):
            for share in _SHARES:
                low = high * (1 - share)
                if any(_least(way, low) > delta for way in self.ways):
                    return low, high
        return 0.0, high


def _ends(way: IncreasingLoss) -> tuple[float, float]:
    means = [mean for _, mean in way.p + way.q]
    return min(means) - _FAR, max(means) + _FAR


def _delta(way: IncreasingLoss, epsilon: float) -> float:
    """Return δ at ε for one order, rounded up."""
    low, high = _places(way, epsilon)
    if high is None:
        # The loss is nowhere above ε for certain: all mass beyond the first point may count.
        return math.exp(min(_log_tail(way.p, low), 0.0))
    return sum(_beyond(way, high, epsilon)) + _between(way, low, high, epsilon)


def _least(way: IncreasingLoss, epsilon: float) -> float:
    """Return δ at ε for one order, rounded down."""
    _, high = _places(way, epsilon)
    if high is None:
        return 0.0
    gain, rounding = _beyond(way, high, epsilon)
    return gain * (1 - 2.0**-48) - rounding


def _losses(way: IncreasingLoss, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (n,) losses at points x, and bounds on their rounding."""
    (top, rises), (bottom, falls) = log_ratio(way.p, x), log_ratio(way.q, x)
    farthest = max(abs(mean) for _, mean in way.p + way.q)
    # The rounding of a logarithm is proportional to its size, and of its exponents to m·x.
    terms = np.abs(top) + np.abs(bottom) + (np.abs(rises) + np.abs(falls)) * (np.abs(x) + farthest)
    return top - bottom, _LOSS_ROUNDING * terms


def _places(way: IncreasingLoss, epsilon: float) -> tuple[float, float | None]:
    """Return nearby points with loss certainly below and above ε; None if missing."""
    ends = _ends(way)

    def above(x: FloatArray) -> BoolArray:
        loss, rounding = _losses(way, x)
        return np.asarray(loss - 2 * rounding > epsilon)

    def not_below(x: FloatArray) -> BoolArray:
        loss, rounding = _losses(way, x)
        return np.asarray(loss + 2 * rounding > epsilon)

    # The loss may be flat in between, so each edge is searched separately.
    low, high = _edge(not_below, *ends)[0], _edge(above, *ends)[1]
    return low, high if above(np.array([high]))[0] else None


def _edge(holds: Callable[[FloatArray], BoolArray], low: float, high: float) -> tuple[float, float]:
    """Return the last point that fails a condition, and the next one that does not."""
    for _ in range(_TIMES):
        x = np.linspace(low, high, _POINTS)
        indices = np.flatnonzero(holds(x))
        first = int(indices[0]) if indices.size else _POINTS - 1
        low, high = float(x[max(first - 1, 0)]), float(x[first])
    return low, high


def _between(way: IncreasingLoss, low: float, high: float, epsilon: float) -> float:
    """Bound the contribution to δ of the points between two others."""
    losses, rounding = _losses(way, np.array([low, high]))
    first, last = losses + np.array([1, 1]) * rounding
    share = -math.expm1(min(epsilon - float(last), 0.0))
    # To the left of the first point the loss is below ε, unless it never is.
    outside = 0.0 if first <= epsilon else share
    return share * math.exp(min(_log_tail(way.p, low), 0.0)) + outside


def _log_tail(parts: Parts, place: float) -> float:
    """Return ln of the mass to the right of a point, rounded up."""
    logs = [math.log(w) + float(log_ndtr(m - place)) for w, m in parts if w > 0]
    total = float(np.logaddexp.reduce(logs))
    return total + _TAIL_ROUNDING * (1 + abs(total))


def _beyond(way: IncreasingLoss, place: float, epsilon: float) -> tuple[float, float]:
    """Return P(x > place) − e^ε·Q(x > place), and a bound on its rounding."""
    added, taken, rounding = [-math.inf], [-math.inf], [-math.inf]
    for mean in {mean for _, mean in way.p + way.q}:
        one = sum(w for w, m in way.p if m == mean)
        two = sum(w for w, m in way.q if m == mean)
        tail = float(log_ndtr(mean - place))
        sign, size = _difference(one, two, epsilon)
        (added if sign > 0 else taken).append(size + tail)
        weights = np.logaddexp(_log(one), epsilon + _log(two))
        # The rounding of a difference of logarithms is proportional to them.
        logs = abs(epsilon) + sum(abs(_log(weight)) for weight in (one, two) if weight > 0)
        terms = 1 + (logs if epsilon >= 1 else 0)
        rounding += [
            size + tail + math.log(_TAIL_ROUNDING * (1 + abs(tail))),
            float(weights) + tail + math.log(_WEIGHT_ROUNDING * terms),
        ]
    up, down = float(np.logaddexp.reduce(added)), float(np.logaddexp.reduce(taken))
    gain = math.exp(min(up, 0.0)) * -math.expm1(min(down - up, 0.0)) if up > -math.inf else 0.0
    return gain, gain * 2.0**-50 + math.exp(min(float(np.logaddexp.reduce(rounding)), 0.0))


def _difference(one: float, two: float, epsilon: float) -> tuple[int, float]:
    """Return the sign of one − e^ε·two, and ln of its size."""
    if two == 0 or one == 0:
        return (1, _log(one)) if two == 0 else (-1, epsilon + _log(two))
    if epsilon < 1:
        rest = (one - two) - two * math.expm1(epsilon)
        return (1 if rest > 0 else -1), _log(abs(rest))
    logs = _log(one), epsilon + _log(two)
    apart = abs(logs[0] - logs[1])
    return (1 if logs[0] > logs[1] else -1), max(logs) + _log(-math.expm1(-apart))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _epsilon(way: IncreasingLoss, delta: float) -> float:
    """Return the approximate smallest ε at δ for one order: the loss at its point."""
    low, high = _ends(way)
    for _ in range(_TIMES):
        x = np.linspace(low, high, _POINTS)
        losses = _losses(way, x)[0]
        inside = np.array(
            [_beyond(way, float(a), float(e))[0] for a, e in zip(x, losses, strict=True)]
        )
        above = np.flatnonzero((inside > delta) & (losses >= 0) | (losses < 0))
        place = int(above[-1]) if above.size else 0
        low, high = float(x[place]), float(x[min(place + 1, _POINTS - 1)])
    return max(float(_losses(way, np.array([high]))[0][0]), 0.0)

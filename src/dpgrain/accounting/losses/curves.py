"""Privacy curves ε → δ(ε), in closed form or derived from others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.accounting.losses.gaussian import gaussian_deltas, gaussian_epsilon
from dpgrain.accounting.losses.rounding import fails_closed, product_up, sum_up
from dpgrain.numerics.special_functions import bdtr, bdtrc, gammaln, log_ndtr

# Max distinct numbers of rounds; above it, neighbouring numbers are merged, rounded up.
_MOST_NUMBERS = 600
# Max numbers of rounds that are computed individually; beyond, the largest represents all.
_MOST_EXACT_NUMBERS = 1 << 20
# Relative amounts by which ε is lowered until its δ exceeds the requested one.
_SHARES = (1e-8, 1e-6, 1e-4, 1e-2)


class PrivacyCurve(Protocol):
    """A function from each ε ≥ 0 to the guaranteed δ."""

    def delta(self, epsilon: float) -> float:
        """Return δ at ε, rounded up."""


class InvertibleCurve(PrivacyCurve, Protocol):
    """A curve that also has the ε at each δ."""

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε ≥ 0 at δ, rounded up."""

    def bounds(self, delta: float) -> tuple[float, float]:
        """Return a lower bound on the exact smallest ε at δ, and :meth:`epsilon`."""


def evaluate_deltas(curve: PrivacyCurve, epsilons: FloatArray) -> FloatArray:
    """Return (n,) values of δ, at once where the curve can compute them together."""
    together = getattr(curve, "deltas", None)
    if together is None:
        return np.array([curve.delta(float(epsilon)) for epsilon in epsilons])
    deltas: FloatArray = together(epsilons)
    return deltas


def inverse(curve: PrivacyCurve, delta: float) -> float:
    """Return the smallest ε ≥ 0 where a curve is at most δ, rounded up, or infinity."""
    if curve.delta(0.0) <= delta:
        return 0.0
    high = 1.0
    while not curve.delta(high) <= delta:
        high *= 2
        if high > 1e7:
            return math.inf
    low = high / 2 if high > 1 else 0.0
    for _ in range(60):
        middle = (low + high) / 2
        if high - low <= 1e-9 * high:
            break
        low, high = (low, middle) if curve.delta(middle) <= delta else (middle, high)
    return high


@dataclass(frozen=True)
class WorstCurve:
    """The largest of several curves, for a person in an unknown part."""

    curves: tuple[InvertibleCurve, ...]

    def delta(self, epsilon: float) -> float:
        return max(curve.delta(epsilon) for curve in self.curves)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Return (n,) values of the largest δ."""
        deltas: FloatArray = np.maximum.reduce(
            [evaluate_deltas(one, epsilons) for one in self.curves]
        )
        return deltas

    def epsilon(self, delta: float) -> float:
        return max(curve.epsilon(delta) for curve in self.curves)

    def bounds(self, delta: float) -> tuple[float, float]:
        both = [curve.bounds(delta) for curve in self.curves]
        return max(low for low, _ in both), max(high for _, high in both)


@dataclass(frozen=True)
class GroupCurve:
    """Curve of k steps with the same curve: δ_k(ε) = Σ_{i<k} e^{iε/k} δ(ε/k)."""

    curve: InvertibleCurve
    steps: int

    @fails_closed(1.0)
    def delta(self, epsilon: float) -> float:
        # Delta mass has a larger factor at a larger ε; the δ of a smaller ε is valid there too.
        return min(self._delta(x, self.curve.delta(x / self.steps)) for x in self._smaller(epsilon))

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Return (n,) values of δ of all steps."""
        smaller = np.array([self._smaller(float(epsilon)) for epsilon in epsilons])
        ones = evaluate_deltas(self.curve, smaller.ravel() / self.steps).reshape(smaller.shape)
        delta = fails_closed(1.0)(self._delta)
        return np.array([min(map(delta, *row)) for row in np.stack([smaller, ones], axis=1)])

    @staticmethod
    def _smaller(epsilon: float) -> list[float]:
        return [epsilon / 2**halvings for halvings in (0, 0.5, 1, 2, 4)]

    def _delta(self, epsilon: float, one: float) -> float:
        """Return δ at ε, where one step has this δ at its share of ε."""
        if one == 0:
            return 0.0
        share = epsilon / self.steps
        if share == 0:
            return min(self.steps * one, 1.0)
        # ln of (e^ε − 1)/(e^{ε/k} − 1), without overflow.
        grown = epsilon - share + math.log(-math.expm1(-epsilon)) - math.log(-math.expm1(-share))
        return min(math.exp(min(grown + math.log(one), 0.0)), 1.0)

    @fails_closed(math.inf)
    def epsilon(self, delta: float) -> float:
        if delta <= 0:
            return self.steps * self.curve.epsilon(0.0)
        return inverse(self, delta)

    def bounds(self, delta: float) -> tuple[float, float]:
        return 0.0, self.epsilon(delta)


@dataclass(frozen=True)
class ResponsesCurve:
    """The exact curve of ``count`` randomised responses with odds e^odds."""

    odds: float
    count: int

    @fails_closed(1.0)
    def delta(self, epsilon: float) -> float:
        return 0.0 if epsilon >= self._largest else min(self._delta(epsilon, 1.0), 1.0)

    @fails_closed(math.inf)
    def epsilon(self, delta: float) -> float:
        return min(inverse(self, delta), self._largest)

    def bounds(self, delta: float) -> tuple[float, float]:
        high = self.epsilon(delta)
        for share in _SHARES:
            if self._delta(low := high * (1 - share), -1.0) > delta:
                return low, high
        return 0.0, high

    @property
    def _largest(self) -> float:
        """Largest loss, rounded up."""
        return product_up(self.count, self.odds)

    def _delta(self, epsilon: float, side: float) -> float:
        """Return δ at an ε, rounded up if ``side`` is 1, and down if it is −1."""
        # The loss is (count − 2·false) times the odds, where `false` is the number of false
        # responses.
        least = max((self.count - epsilon / self.odds) / 2, 0.0)
        false = np.arange(min(math.floor(least) + 1, self.count) + 1, dtype=np.float64)
        whole = float(gammaln(self.count + 1))
        logs = whole - gammaln(false + 1) - gammaln(self.count - false + 1) - false * self.odds
        logs += side * 4e-15 * (1 + whole) - self.count * math.log1p(math.exp(-self.odds))
        losses = (self.count - 2 * false) * self.odds * (1 + side * 2.0**-51)
        with np.errstate(under="ignore"):
            terms = np.exp(logs) * -np.expm1(np.minimum(epsilon - losses, 0.0))
        # Each probability may have underflowed, and then counts as the smallest float.
        return float(terms.sum()) * (1 + side * 1e-12) + side * false.size * 5e-324


@dataclass(frozen=True)
class OffsetCurve:
    """Curve of pairs with second distribution ≥ e^{−by} times a known curve's."""

    curve: InvertibleCurve
    by: float

    def delta(self, epsilon: float) -> float:
        left = -sum_up(-epsilon, self.by)
        return self.curve.delta(left) if left >= 0 else 1.0

    def epsilon(self, delta: float) -> float:
        return sum_up(self.curve.epsilon(delta), self.by)

    def bounds(self, delta: float) -> tuple[float, float]:
        return self.curve.bounds(delta)[0], self.epsilon(delta)


@dataclass(frozen=True)
class SampledRoundsCurve:
    """Gaussian rounds that reveal whether a person participates, at a public rate.

    Formal guarantee: δ(ε) = E[δ_G(ε; √(J·shift² + mu²))], J ~ Bin(rounds, rate), for any sampling
    that is independent of data and earlier outputs and has this distribution of J.
    """

    rate: float
    rounds: int
    shift: float  # change of a round's sum, in noise standard deviations
    mu: float  # μ of a Gaussian part composed with the rounds

    def delta(self, epsilon: float) -> float:
        return self._delta(epsilon, 1e-300)

    @fails_closed(1.0)
    def _delta(self, epsilon: float, tail: float) -> float:
        weights, numbers, rest = participation_weights(self.rate, self.rounds, tail)
        mus = np.sqrt(numbers * self.shift**2 + self.mu**2)
        return min(float(np.dot(weights, gaussian_deltas(epsilon, mus))) * (1 + 1e-12) + rest, 1.0)

    @fails_closed(math.inf)
    def epsilon(self, delta: float) -> float:
        tail = delta * 2.0**-30
        if delta <= 0:
            return math.inf
        if self._delta(0.0, tail) <= delta:
            return 0.0
        _, numbers, _ = participation_weights(self.rate, self.rounds, tail)
        high = gaussian_epsilon(
            delta * (1 - 2.0**-29), math.hypot(math.sqrt(numbers[-1]) * self.shift, self.mu)
        )
        low, epsilon = 0.0, 0.8 * high
        # Newton's method on ln δ, which falls faster and faster, inside the bracket.
        for _ in range(60):
            reached = self._delta(epsilon, tail)
            low, high = (low, epsilon) if reached <= delta else (epsilon, high)
            if high - low <= 1e-9 * high:
                break
            with np.errstate(divide="ignore"):
                move = (
                    math.log(reached / delta) * reached / self._slope(epsilon, tail)
                    if reached > 0
                    else 0.0
                )
            # Overshoot slightly, so that the next step closes the bracket from the other side.
            near = epsilon + move + math.copysign(1e-10 * epsilon, move)
            epsilon = near if low < near < high else (low + high) / 2
        return high

    def bounds(self, delta: float) -> tuple[float, float]:
        """Return bounds on ε at δ; the lower one rounds merged numbers of rounds down."""
        high = self.epsilon(delta)
        _, numbers, _ = participation_weights(self.rate, self.rounds, delta * 2.0**-30)
        stride = numbers[1] - numbers[0] if numbers.size > 2 else 1.0
        # One round less changes μ², and ε with it, by less than its share of the smallest number.
        share = (stride - 1) / max(float(numbers[0]), 1.0)
        return high * max(1 - 1e-8 - 2 * share, 0.0), high

    def _slope(self, epsilon: float, tail: float) -> float:
        """Return −dδ/dε, approximately."""
        weights, numbers, _ = participation_weights(self.rate, self.rounds, tail)
        mus = np.sqrt(numbers * self.shift**2 + self.mu**2)
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            falls = np.exp(epsilon + log_ndtr(-epsilon / mus - mus / 2))
        return float(np.dot(weights, falls)) + 1e-300


@lru_cache(maxsize=64)
def participation_weights(
    rate: float, rounds: int, tail: float
) -> tuple[FloatArray, FloatArray, float]:
    """Return weights and numbers of a person's rounds, and the omitted mass."""
    # Many numbers are merged by rounding up, and those above the largest are omitted.
    mean = rate * rounds
    reach = math.sqrt(-2 * math.log(max(tail, 1e-300)))
    deviation = math.sqrt(mean * (1 - rate))
    # Bernstein's inequality: P(J ≥ mean + r·sd + r²/3) ≤ e^{−r²/2}.
    low = max(math.floor(mean - reach * deviation), 0)
    high = min(math.ceil(mean + reach * deviation + reach * reach / 3), rounds)
    if rate < 1 and high - low > _MOST_EXACT_NUMBERS:
        # There are too many numbers to distinguish, so the largest represents all.
        return np.ones(1), np.array([high * (1 + 1e-12)]), max(tail, 1e-300)
    stride = -(-(high - low + 1) // _MOST_NUMBERS)
    if rate >= 1:
        return np.ones(1), np.array([float(rounds)]), 0.0
    numbers = np.arange(low, high + 1, dtype=np.float64)
    logs = gammaln(rounds + 1) - gammaln(numbers + 1) - gammaln(rounds - numbers + 1)
    logs += numbers * math.log(rate) + (rounds - numbers) * math.log1p(-rate)
    weights = np.exp(logs + 4e-15 * (1 + gammaln(rounds + 1)))
    # Numbers below the lowest count as the lowest.
    weights[0] += float(bdtr(low - 1, rounds, rate)) if low > 0 else 0.0
    rest = float(bdtrc(high, rounds, rate)) if high < rounds else 0.0
    if stride > 1:
        starts = np.arange(0, numbers.size, stride)
        weights = np.add.reduceat(weights, starts)
        numbers = numbers[np.minimum(starts + stride - 1, numbers.size - 1)]
    return weights, numbers, rest

"""Privacy curves ε → δ(ε), in closed form or made from others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.accounting.losses.gaussian import gaussian_deltas, gaussian_epsilon
from dpgrain.accounting.losses.rounding import fails_closed, product_up, sum_up
from dpgrain.noise.special import bdtr, bdtrc, gammaln, log_ndtr

# Numbers of rounds that are kept apart, at most; neighbours are put together, rounded up.
_MOST_NUMBERS = 600
# Numbers of rounds up to which each is computed; of more, the largest stands for all.
_MOST_EXACT_NUMBERS = 1 << 20
# Shares by which an ε is lowered until its δ is above what was asked.
_SHARES = (1e-8, 1e-6, 1e-4, 1e-2)


class Curve(Protocol):
    """A function from each ε ≥ 0 to the promised δ."""

    def delta(self, epsilon: float) -> float:
        """Return δ at ε."""


class Invertible(Curve, Protocol):
    """A curve with the ε at each δ as well."""

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε ≥ 0 at δ."""

    def bounds(self, delta: float) -> tuple[float, float]:
        """Return a lower bound on the exact smallest ε at δ, and the answer of :meth:`epsilon`."""


def inverse(curve: Curve, delta: float) -> float:
    """Return the smallest ε ≥ 0 at which a curve is at most δ, rounded up, or infinity."""
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
class Worst:
    """The largest of several curves, for a person in an unknown part.

    Args:
        curves: the curves of the parts, at least one.
    """

    curves: tuple[Invertible, ...]

    def delta(self, epsilon: float) -> float:
        """Return the largest δ at ε."""
        return max(curve.delta(epsilon) for curve in self.curves)

    def epsilon(self, delta: float) -> float:
        """Return the largest ε at δ."""
        return max(curve.epsilon(delta) for curve in self.curves)

    def bounds(self, delta: float) -> tuple[float, float]:
        """Return the largest of the lower bounds, and of the upper ones."""
        both = [curve.bounds(delta) for curve in self.curves]
        return max(low for low, _ in both), max(high for _, high in both)


@dataclass(frozen=True)
class Group:
    """The curve of several steps with one curve each: δ_k(ε) = Σ_{i<k} e^{iε/k} δ(ε/k).

    Args:
        curve: the curve of one step.
        steps: how many steps there are, at least 1.
    """

    curve: Invertible
    steps: int

    @fails_closed(1.0)
    def delta(self, epsilon: float) -> float:
        """Return δ of all steps at ε."""
        # What is given away counts more at a larger ε; the δ of a smaller ε holds there too.
        return min(self._delta(epsilon / 2**halvings) for halvings in (0, 0.5, 1, 2, 4))

    def _delta(self, epsilon: float) -> float:
        one = self.curve.delta(epsilon / self.steps)
        if one == 0:
            return 0.0
        share = epsilon / self.steps
        if share == 0:
            return min(self.steps * one, 1.0)
        # This is ln of (e^ε − 1)/(e^{ε/k} − 1), without overflow.
        grown = epsilon - share + math.log(-math.expm1(-epsilon)) - math.log(-math.expm1(-share))
        return min(math.exp(min(grown + math.log(one), 0.0)), 1.0)

    @fails_closed(math.inf)
    def epsilon(self, delta: float) -> float:
        """Return the smallest ε at δ, rounded up."""
        if delta <= 0:
            return self.steps * self.curve.epsilon(0.0)
        return inverse(self, delta)

    def bounds(self, delta: float) -> tuple[float, float]:
        """Return 0, since nothing is known from below, and the smallest ε at δ."""
        return 0.0, self.epsilon(delta)


@dataclass(frozen=True)
class Responses:
    """The exact curve of several randomised responses with odds e^odds.

    Args:
        odds: the ε of one response, above 0.
        count: how many there are.

    >>> round(Responses(0.1, 100).epsilon(1e-6), 2)
    4.77
    """

    odds: float
    count: int

    @fails_closed(1.0)
    def delta(self, epsilon: float) -> float:
        """Return δ at ε, rounded up."""
        return 0.0 if epsilon >= self._largest else min(self._delta(epsilon, 1.0), 1.0)

    @fails_closed(math.inf)
    def epsilon(self, delta: float) -> float:
        """Return the smallest ε at δ, rounded up."""
        return min(inverse(self, delta), self._largest)

    def bounds(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest ε at δ."""
        high = self.epsilon(delta)
        for share in _SHARES:
            if self._delta(low := high * (1 - share), -1.0) > delta:
                return low, high
        return 0.0, high

    @property
    def _largest(self) -> float:
        """The largest loss, rounded up."""
        return product_up(self.count, self.odds)

    def _delta(self, epsilon: float, side: float) -> float:
        """Return δ at an ε, rounded up where ``side`` is 1, and down where it is −1."""
        # The loss is (count − 2·false) times the odds, where so many responses are false.
        least = max((self.count - epsilon / self.odds) / 2, 0.0)
        false = np.arange(min(math.floor(least) + 1, self.count) + 1, dtype=np.float64)
        whole = float(gammaln(self.count + 1))
        logs = whole - gammaln(false + 1) - gammaln(self.count - false + 1) - false * self.odds
        logs += side * 4e-15 * (1 + whole) - self.count * math.log1p(math.exp(-self.odds))
        losses = (self.count - 2 * false) * self.odds * (1 + side * 2.0**-51)
        with np.errstate(under="ignore"):
            terms = np.exp(logs) * -np.expm1(np.minimum(epsilon - losses, 0.0))
        # Each chance may have been less than the smallest float, and is then counted as that.
        return float(terms.sum()) * (1 + side * 1e-12) + side * false.size * 5e-324


@dataclass(frozen=True)
class Moved:
    """The curve of pairs whose second law is at least e^{−by} times that of a known curve.

    Args:
        curve: the known curve.
        by: the amount by which losses are larger, at least 0.
    """

    curve: Invertible
    by: float

    def delta(self, epsilon: float) -> float:
        """Return δ at ε, rounded up."""
        left = -sum_up(-epsilon, self.by)
        return self.curve.delta(left) if left >= 0 else 1.0

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε at δ, rounded up."""
        return sum_up(self.curve.epsilon(delta), self.by)

    def bounds(self, delta: float) -> tuple[float, float]:
        """Return a lower bound of the known curve's, and the smallest ε at δ."""
        return self.curve.bounds(delta)[0], self.epsilon(delta)


@dataclass(frozen=True)
class Rounds:
    """Gaussian rounds that reveal, each at a public rate, whether a person takes part.

    Args:
        rate: the probability to take part in a round.
        rounds: how many rounds there are.
        shift: the distance that the sum moves in a round with the person, in noise standard deviations.
        mu: the μ of a Gaussian part that is composed with the rounds.

    Formal guarantee: δ(ε) = E[δ_G(ε; √(J·shift² + mu²))], J ~ Bin(rounds, rate). The curve
    is exact for what is revealed, and valid for any sampling of the roster that ignores data and
    earlier outputs and has that law of J.

    >>> round(Rounds(0.01, 10_000, 1.0, 0.0).epsilon(1e-6), 2)
    107.19
    """

    rate: float
    rounds: int
    shift: float
    mu: float

    def delta(self, epsilon: float) -> float:
        """Return δ at ε, rounded up."""
        return self._delta(epsilon, 1e-300)

    @fails_closed(1.0)
    def _delta(self, epsilon: float, tail: float) -> float:
        weights, numbers, rest = participation(self.rate, self.rounds, tail)
        mus = np.sqrt(numbers * self.shift**2 + self.mu**2)
        return min(float(np.dot(weights, gaussian_deltas(epsilon, mus))) * (1 + 1e-12) + rest, 1.0)

    @fails_closed(math.inf)
    def epsilon(self, delta: float) -> float:
        """Return the smallest ε at δ, rounded up."""
        tail = delta * 2.0**-30
        if delta <= 0:
            return math.inf
        if self._delta(0.0, tail) <= delta:
            return 0.0
        _, numbers, _ = participation(self.rate, self.rounds, tail)
        high = gaussian_epsilon(
            delta * (1 - 2.0**-29), math.hypot(math.sqrt(numbers[-1]) * self.shift, self.mu)
        )
        low, epsilon = 0.0, 0.8 * high
        # We use Newton's method on ln δ, which falls faster and faster, inside the bracket.
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
            # We go a little too far, so that the next step closes the bracket from the other side.
            near = epsilon + move + math.copysign(1e-10 * epsilon, move)
            epsilon = near if low < near < high else (low + high) / 2
        return high

    def bounds(self, delta: float) -> tuple[float, float]:
        """Return bounds on ε at δ; the lower one rounds down the numbers of rounds put together."""
        high = self.epsilon(delta)
        _, numbers, _ = participation(self.rate, self.rounds, delta * 2.0**-30)
        stride = numbers[1] - numbers[0] if numbers.size > 2 else 1.0
        # One round less moves μ², and ε with it, by less than its share of the smallest number.
        share = (stride - 1) / max(float(numbers[0]), 1.0)
        return high * max(1 - 1e-8 - 2 * share, 0.0), high

    def _slope(self, epsilon: float, tail: float) -> float:
        """Return −dδ/dε, approximately."""
        weights, numbers, _ = participation(self.rate, self.rounds, tail)
        mus = np.sqrt(numbers * self.shift**2 + self.mu**2)
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            falls = np.exp(epsilon + log_ndtr(-epsilon / mus - mus / 2))
        return float(np.dot(weights, falls)) + 1e-300


@lru_cache(maxsize=64)
def participation(rate: float, rounds: int, tail: float) -> tuple[FloatArray, FloatArray, float]:
    """Return the weights and numbers of rounds that a person takes part in, and the mass left out.

    Where there are many numbers they are rounded up, and those above the largest are left out.
    """
    mean = rate * rounds
    reach = math.sqrt(-2 * math.log(max(tail, 1e-300)))
    deviation = math.sqrt(mean * (1 - rate))
    # Bernstein's inequality says: P(J ≥ mean + r·sd + r²/3) ≤ e^{−r²/2}.
    low = max(math.floor(mean - reach * deviation), 0)
    high = min(math.ceil(mean + reach * deviation + reach * reach / 3), rounds)
    if rate < 1 and high - low > _MOST_EXACT_NUMBERS:
        # There are too many numbers to keep apart, so the largest stands for all.
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

"""Composition of privacy losses by a tilted Fourier transform.

The distributions are tilted by e^{θ·loss} before convolution, where θ is the saddle point of the
query. The answer is then in the middle of a short window, and the error of the transform is
relative to it: δ = 1e-30 is as exact as δ = 1e-3. Proof: docs/theory, "Losses on a grid".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from dpgrain._types import FloatArray
from dpgrain.accounting.losses.discretization import GridDistribution, LossDistribution
from dpgrain.accounting.losses.pairs import CountedPairs
from dpgrain.accounting.losses.rounding import fails_closed, or_worst
from dpgrain.accounting.losses.sequences import discounted_sums

# Log of the smallest composed δ; smaller ones only have the initial bound.
_LEAST_LOG_DELTA = -695.0
# Relative error of ε that discretisation may add.
_RELATIVE_ACCURACY = 1e-4
# Max points of a distribution; transforms have up to four times as many.
_MOST_POINTS = 1 << 21
# Mass that may count as infinite loss, as a log relative to δ; and mass of the smallest losses that
# may be merged.
_TAIL_LOG_MASS, _FLOOR_MASS = -12.0, 1e-8
# Log of the quotient between δ and its expected upper bound.
_SPARE_LOG_DELTA = 5.0
# The δ to which a composition around ε = 0 is accurate; what a risk needs is larger.
_SMALL_DELTA = 1e-12
# Max attempts if the answer is outside the expected window.
_MOST_TRANSFORMS = 4
# Max steps of a search for an answer by the δ of several ε.
_MOST_HALVINGS = 12
# Log of the mass that a window may truncate, relative to the answer; and log of the additional
# margin of a bound from below.
_CUT_LOG_MASS, _SPARE_LOG_MASS = -40.0, 14.0
# A bound on the relative rounding of a sum of discounted terms.
_RELATIVE_ROUNDING = 2e-14
# A bound on the relative error of one transform of numbers with sum 1.
_TRANSFORM_ERROR = 8 * 2.0**-53


@dataclass(frozen=True)
class _Saddle:
    """Location of an answer: the tilt, ε, ln δ, and the tilted sum's deviation."""

    theta: float
    epsilon: float
    log_delta: float
    deviation: float

    def __post_init__(self) -> None:
        # A NaN means that nothing is known, so nothing is composed around the location.
        numbers = (self.theta, self.epsilon, self.log_delta, self.deviation)
        if any(map(math.isnan, numbers)):
            for name, worst in (("epsilon", math.inf), ("log_delta", 0.0), ("deviation", math.inf)):
                object.__setattr__(self, name, worst)

    def expecting(self, delta: float) -> _Saddle:
        """Return the location for an expected δ below the known bound."""
        # Less mass then counts as infinite loss, but not too little: otherwise the rarest losses
        # would dominate the tilted sum.
        if not delta > 0:
            return self
        return replace(self, log_delta=min(self.log_delta, math.log(delta) + _SPARE_LOG_DELTA))


@fails_closed(1.0)
def composed_delta(pairs: CountedPairs, epsilon: float) -> float:
    """Bound δ(ε), ε ≥ 0, of pairs fixed in advance, from above."""
    answer = 0.0
    saddles = [(_at_epsilon(way, epsilon), way) for way in _both_orders(pairs)]
    for saddle, way in sorted(saddles, key=lambda one: -one[0].log_delta):
        # The initial estimate is also a bound, so skip orders that cannot give the larger δ.
        if math.exp(saddle.log_delta) > answer:
            answer = max(answer, _delta_one_way(way, saddle))
    return min(answer, 1.0)


def composed_deltas(pairs: CountedPairs, epsilons: FloatArray) -> FloatArray:
    """Bound δ at n values of ε ≥ 0 from above by one composition; shape (n,).

    The bound is valid at every ε, and as close as :func:`composed_delta` down to about 1e-12.
    """
    deltas = np.zeros(epsilons.size)
    for way in _both_orders(pairs):
        summed = _around_zero(way)
        numerical = (
            np.array([_rough_delta(way, float(epsilon)) for epsilon in epsilons])
            if summed is None
            else summed.deltas(epsilons)
        )
        # NaN means unknown.
        deltas = np.maximum(deltas, np.where(np.isnan(numerical), 1.0, numerical))
    return np.minimum(deltas, 1.0)


@fails_closed(1.0)
def _rough_delta(way: CountedPairs, epsilon: float) -> float:
    """Bound δ(ε) by Rényi divergences, for one order of the neighbours."""
    return math.exp(_at_epsilon(way, epsilon).log_delta)


@lru_cache(maxsize=8)
def _around_zero(way: CountedPairs) -> _Sum | None:
    """Compose pairs around ε = 0; None where arithmetic has no answer."""
    try:
        with np.errstate(all="ignore"):
            return _Sum.create(way, _at_epsilon(way, 0.0).expecting(_SMALL_DELTA), upper=True)
    except ArithmeticError:
        return None


def _delta_one_way(way: CountedPairs, saddle: _Saddle) -> float:
    """Bound δ at the ε of a location, for one order of the neighbours."""
    answer = math.exp(saddle.log_delta)
    for _ in range(_MOST_TRANSFORMS):
        summed = _Sum.create(way, saddle, upper=True)
        if summed is None:
            break
        tilted = or_worst(summed.delta(saddle.epsilon), 1.0)
        answer = min(answer, tilted)
        nearer = saddle.expecting(tilted)
        if nearer == saddle:
            break
        saddle = nearer
    return answer


@fails_closed(math.inf)
def composed_epsilon(pairs: CountedPairs, delta: float, *, upper: bool = True) -> float:
    """Bound the smallest ε ≥ 0 with δ(ε) ≤ delta for pairs fixed in advance, or infinity."""

    if delta <= 0:
        return math.inf
    answer = 0.0
    saddles = [(_at_delta(way, delta), way) for way in _both_orders(pairs)]
    for saddle, way in sorted(saddles, key=lambda one: -one[0].epsilon):
        if saddle.epsilon > answer:
            answer = max(answer, _epsilon_one_way(way, saddle, delta, upper=upper))
    return answer


def _epsilon_one_way(way: CountedPairs, saddle: _Saddle, delta: float, *, upper: bool) -> float:
    if math.isinf(saddle.epsilon):
        return math.inf if upper else 0.0
    answer = saddle.epsilon if upper else 0.0
    for _ in range(_MOST_TRANSFORMS):
        summed = _Sum.create(way, saddle, upper)
        if summed is None:
            break
        next_ = summed.epsilon(delta)
        if next_ is not None:
            answer = min(answer, next_) if upper else next_
        if next_ is not None and 0.7 * saddle.epsilon < next_ <= saddle.epsilon:
            return answer
        if next_ is not None and next_ > saddle.epsilon:
            break
        # The initial estimate was inaccurate, so use a finer step and a window around a smaller ε.
        nearer = 0.9 * saddle.epsilon if next_ is None else next_
        saddle = _at_epsilon(way, nearer)
        saddle = saddle.expecting(delta) if upper else saddle
    return _bisect_tilts(way, saddle, delta, answer, upper=upper)


def _bisect_tilts(
    way: CountedPairs, saddle: _Saddle, delta: float, answer: float, *, upper: bool
) -> float:
    """Bound ε(δ) by the δ of several ε, if the initial tilt does not fit the answer."""
    # This happens if losses much larger than ε are rare but not negligible: they dominate Rényi
    # divergences, but not δ. Every window gives a bound, wherever it is.
    # The location of an estimate is not a bound: only answers are.
    low, high = 0.0, answer if upper else saddle.epsilon
    epsilon = min(high, saddle.epsilon) / 2
    for _ in range(_MOST_HALVINGS):
        saddle = _at_epsilon(way, epsilon)
        summed = _Sum.create(way, saddle.expecting(delta) if upper else saddle, upper)
        if summed is None:
            return answer
        enough, reached = summed.delta(epsilon) <= delta, summed.epsilon(delta)
        low, high = (low, epsilon) if enough else (epsilon, high)
        answer = min(answer, high) if upper else max(answer, low)
        if high <= low * (1 + _RELATIVE_ACCURACY):
            break
        if reached is None or not low < reached < high:
            epsilon = math.sqrt(low * high) if low else high / 4
            continue
        answer = min(answer, reached) if upper else max(answer, reached)
        if abs(reached - epsilon) <= 0.01 * epsilon:
            break
        epsilon = reached
    return answer


@fails_closed(math.inf)
def rough_epsilon(pairs: CountedPairs, delta: float) -> float:
    """Bound ε(δ) quickly, by Rényi divergences."""
    return max(_at_delta(way, delta).epsilon for way in _both_orders(pairs))


def _both_orders(pairs: CountedPairs) -> list[CountedPairs]:
    swapped = tuple((pair.swapped, count) for pair, count in pairs)
    return [pairs] if swapped == pairs else [pairs, swapped]


def _log_moment(laws: Sequence[tuple[LossDistribution, int]], theta: float) -> float:
    return sum(count * law.log_moment(theta) for law, count in laws)


def _deviation(laws: Sequence[tuple[LossDistribution, int]], theta: float) -> float:
    return math.sqrt(sum(count * law.spread(theta)[1] for law, count in laws))


def _conversion(theta: float) -> float:
    """Return ln of (1−1/α)^{α−1}/α, the factor of α = 1+θ compared with e^{K − θε}."""
    return theta * (math.log(theta) - math.log1p(theta)) - math.log1p(theta)


def _smallest(value: Callable[[float], float]) -> float:
    """Return an approximate minimiser θ > 0; each θ gives a valid bound."""
    grid = np.geomspace(1e-4, 1e10, 57)
    first, last = 0, grid.size - 1
    while first < last:
        middle = (first + last) // 2
        if value(float(grid[middle + 1])) < value(float(grid[middle])):
            first = middle + 1
        else:
            last = middle
    low, high = grid[max(first - 1, 0)], grid[min(first + 1, grid.size - 1)]
    golden = (math.sqrt(5) - 1) / 2
    low, high = math.log(low), math.log(high)
    for _ in range(12):
        one, two = high - golden * (high - low), low + golden * (high - low)
        if value(math.exp(one)) < value(math.exp(two)):
            high = two
        else:
            low = one
    return math.exp((low + high) / 2)


def _coarse_distributions(
    pairs: CountedPairs, log_delta: float
) -> list[tuple[LossDistribution, int]]:
    """Return coarse distributions of the parts, without losses too rare for this δ."""
    tail = _tail(pairs, log_delta)
    return [(pair.coarse_distribution().cut(tail), count) for pair, count in pairs]


def _infinite(laws: Sequence[tuple[LossDistribution, int]]) -> float:
    """Return the mass at infinite loss, rounded up."""
    return sum(count * law.infinite for law, count in laws) * (1 + 1e-12)


def _tail(pairs: CountedPairs, log_delta: float) -> float:
    """Return the mass of each part that counts as infinite loss."""
    total = sum(count for _, count in pairs)
    return math.exp(max(log_delta + _TAIL_LOG_MASS, -700.0)) / total


def _at_epsilon(pairs: CountedPairs, epsilon: float) -> _Saddle:
    """Return the saddle point for δ(ε), with a bound on that δ."""
    bound = -math.inf
    while True:
        laws = _coarse_distributions(pairs, bound)

        def log_delta(theta: float, laws: Sequence[tuple[LossDistribution, int]] = laws) -> float:
            return _log_moment(laws, theta) - theta * epsilon + _conversion(theta)

        theta = _smallest(log_delta)
        before = bound
        bound = min(
            math.log(math.exp(min(max(log_delta(theta), -700.0), 700.0)) + _infinite(laws)), 0.0
        )
        # The rarest losses have the largest moments. Once a bound shows that they are irrelevant,
        # the next bound omits them and is smaller.
        if before > -math.inf and bound > before - 1:
            return _Saddle(theta, epsilon, bound, _deviation(laws, theta))


def _at_delta(pairs: CountedPairs, delta: float) -> _Saddle:
    log_delta = math.log(delta)
    laws = _coarse_distributions(pairs, log_delta)
    rest = delta - _infinite(laws)
    if rest <= 0:
        return _Saddle(1.0, math.inf, log_delta, 0.0)

    def epsilon(theta: float) -> float:
        return (_log_moment(laws, theta) + _conversion(theta) - math.log(rest)) / theta

    theta = _smallest(epsilon)
    return _Saddle(theta, max(epsilon(theta), 0.0), log_delta, _deviation(laws, theta))


@dataclass(frozen=True, eq=False)
class _Sum:
    """The tilted distribution of the sum of all losses, on a window of the grid.

    δ(ε) = e^{log_scale} · Σ tilted(ℓ)·e^{−θℓ}·(1 − e^{ε−ℓ}) over ℓ > ε.
    """

    step: float
    low: int
    tilted: FloatArray
    saddle: _Saddle
    log_scale: float
    error: float
    outside: float
    slip: float
    upper: bool

    @staticmethod
    def create(pairs: CountedPairs, saddle: _Saddle, upper: bool) -> _Sum | None:
        """Compose the pairs around a location; None if only the initial bound is available."""
        if saddle.log_delta < _LEAST_LOG_DELTA or math.isinf(saddle.deviation):
            return None
        total = sum(count for _, count in pairs)
        step = _step(pairs, saddle, total)
        tail = _tail(pairs, saddle.log_delta)
        parts = [
            (pair.losses(step, tail, _FLOOR_MASS / total, upper=upper), count)
            for pair, count in pairs
        ]
        laws = [(part.law, count) for part, count in parts]
        theta = saddle.theta
        moment = _log_moment(laws, theta)
        low, least = _window(parts, laws, saddle, moment)
        if least > 4 * _MOST_POINTS:
            return None
        size = next_fast_len(least, real=True)
        logs = []
        for (part, count), (law, _) in zip(parts, laws, strict=True):
            exponents = np.minimum(theta * law.values - law.log_moment(theta), 700.0)
            weights = part.mass * np.exp(exponents)
            first = part.low % size
            folded = np.zeros(-(-(first + weights.size) // size) * size)
            folded[first : first + weights.size] = weights
            spectrum = rfft(folded.reshape(-1, size).sum(axis=0))
            logs.append((count, np.log(np.where(spectrum == 0, 1e-300, spectrum))))
        whole = sum(count * log for count, log in logs)
        tilted = np.roll(irfft(np.exp(whole), size), -(low % size))
        # The spectrum of each factor has the error of a transform; the last transform adds its own
        # error.
        off = np.exp(np.real(whole))
        for count, log in logs:
            off += count * np.exp(np.minimum(np.real(whole - log), 0.0))
        error = _TRANSFORM_ERROR * math.log2(size + 1) * float(off.sum()) * 2 / size
        infinite = -math.expm1(sum(count * math.log1p(-min(p.infinite, 0.5)) for p, count in parts))
        if any(part.infinite >= 0.5 for part, _ in parts):
            infinite = 1.0
        # In a bound from below, mass that wraps around has more effect at a smaller ε, which
        # `epsilon` evaluates.
        spare = 0.0 if upper else _SPARE_LOG_MASS
        beyond = math.exp(min(saddle.log_delta + _CUT_LOG_MASS + spare, 0.0))
        outside = infinite + beyond if upper else -beyond
        # Bounds the rounding of exponents up to some hundreds, in every factor.
        rounding = 1e-10 + 1e-13 * total
        moment += rounding if upper else -rounding
        slip = sum(count * part.slip for part, count in parts)
        slip = slip if upper else -slip
        return _Sum(step, low, tilted, saddle, moment, error, outside, slip, upper)

    @property
    def _values(self) -> FloatArray:
        return self.step * np.arange(self.low, self.low + self.tilted.size, dtype=np.float64)

    @cached_property
    def _beyond(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return Σ tilted·e^{−θ(ℓ'−ℓ)} over ℓ' > ℓ, with θ, with θ+1, and the error.

        δ(ε) = e^{log_scale − θℓ}·(first − e^{ε−ℓ}·second) for ε from ℓ to the next point.
        """
        mass = np.maximum(self.tilted, 0.0)
        theta = self.saddle.theta
        first = discounted_sums(mass, theta * self.step)
        second = discounted_sums(mass, (theta + 1) * self.step)
        # Every later point has the same error, so the sum of the errors is geometric.
        rate, later = theta * self.step, np.arange(mass.size - 1, -1, -1, dtype=np.float64)
        error = self.error * math.exp(-rate) * (np.expm1(-rate * later) / math.expm1(-rate))
        return first, second, error + _RELATIVE_ROUNDING * first

    def delta(self, epsilon: float) -> float:
        """Return δ at the window's ε."""
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Return δ at n values of ε, none of which is below the window's; shape (n,)."""
        shifted, values = epsilons - self.slip, self._values
        j = np.maximum(np.searchsorted(values, shifted, side="right") - 1, 0)
        first, second, error = (sums[j] for sums in self._beyond)
        change = error if self.upper else -error
        with np.errstate(over="ignore", invalid="ignore"):
            # Beyond the window only the mass outside is left.
            inside = (
                first - np.where(second > 0, np.exp(shifted - values[j]) * second, 0.0) + change
            )
        factor = np.exp(np.minimum(self.log_scale - self.saddle.theta * values[j], 700.0))
        deltas: FloatArray = np.maximum(inside, 0.0) * factor + self.outside
        return deltas

    def epsilon(self, delta: float) -> float | None:
        """Return the smallest ε ≥ 0 with δ(ε) ≤ delta, or None if it is below the window."""
        target = delta - self.outside
        if target <= 0:
            return math.inf if self.upper else 0.0
        values = self._values
        first, second, error = self._beyond
        first = first + (error if self.upper else -error)
        # The sum that each point would need for δ(ε) = delta.
        with np.errstate(over="ignore"):
            wanted = np.exp(math.log(target) - self.log_scale + self.saddle.theta * values)
        # NaN counts as too large, because nothing is known there.
        above = np.flatnonzero(~(first - second <= wanted))
        # Below a trusted loss, mass that wraps around might matter.
        if not self.upper and (above.size == 0 or values[above[-1]] < _trusted(self.saddle)):
            return None
        if above.size == 0:
            # The answer is 0 only if the window starts at or below 0.
            return 0.0 if float(values[0]) + self.slip <= 0 else None
        j = int(above[-1])
        if j == values.size - 1:  # pragma: no cover - the window reaches beyond the answer
            return math.inf if self.upper else 0.0
        answer = float(values[j + 1])
        if second[j] > 0 and first[j] > wanted[j]:
            inside = float(values[j]) + math.log(first[j] - wanted[j]) - math.log(second[j])
            answer = min(max(inside, float(values[j])), answer)
        return max(answer + self.slip, 0.0)


def _trusted(saddle: _Saddle) -> float:
    """Return the loss above which wrapped mass is irrelevant to a bound from below."""
    return saddle.epsilon - _SPARE_LOG_MASS / saddle.theta


def _step(pairs: CountedPairs, saddle: _Saddle, total: int) -> float:
    """Return a step with the required accuracy, or a larger one to limit arrays."""
    # Spreading within a step h adds about θ(θ+1)h²/12 to each ln E e^{θ·loss}, and 1/θ of that to
    # ε.
    scale = max(saddle.epsilon, 0.1 * saddle.deviation, 1e-12)
    step = math.sqrt(12 * _RELATIVE_ACCURACY * scale / (total * (1 + saddle.theta)))
    step = min(step, max(saddle.deviation, 1e-12) / 40)
    longest = 30 * saddle.deviation
    for law, _ in _coarse_distributions(pairs, saddle.log_delta):
        low = law.values[np.cumsum(law.mass) > _FLOOR_MASS / total]
        longest = max(longest, float(law.values[-1] - low[0]) if low.size else 0.0)
    return max(step, longest / _MOST_POINTS)


def _window(
    parts: Sequence[tuple[GridDistribution, int]],
    laws: Sequence[tuple[LossDistribution, int]],
    saddle: _Saddle,
    moment: float,
) -> tuple[int, int]:
    """Return a window's first loss, in steps, and its transform's minimum length."""
    # Chernoff's bound gives both. Mass above the window, and mass that the transform wraps beyond ε
    # from far below or above, is negligible for δ.
    step, theta = parts[0][0].step, saddle.theta
    deviation = max(saddle.deviation, step)
    cut = saddle.log_delta + _CUT_LOG_MASS
    speeds = [2.0**power / deviation for power in range(-4, 6)]
    moments = {s: _log_moment(laws, theta + s) for s in (*speeds, *(-s for s in speeds))}
    # The mass above `high` is at most e^{K(θ+s) − (θ+s)·high}.
    high = min((moments[s] - cut) / (theta + s) for s in speeds)
    # Beyond ε, a tilted mass is multiplied by at most e^{K(θ) − θε}.
    wrapped = cut - moment + theta * saddle.epsilon
    low = max((wrapped + moment - moments[-s]) / s for s in speeds)
    far = min((moments[s] - moment - wrapped) / s for s in speeds)
    lowest = sum(count * part.low for part, count in parts)
    highest = sum(count * part.high for part, count in parts)
    first = max(min(math.floor(low / step), math.floor(saddle.epsilon / step) - 1), lowest - 1)
    last = min(math.ceil(high / step), highest)
    last = max(last, first + 1, math.ceil(saddle.epsilon / step) + 1)
    # An answer may be below ε, but not below this.
    back = min(math.ceil(far / step), highest) - math.floor(_trusted(saddle) / step)
    return first, max(last - first + 1, back + 1)

"""The best result of a private candidate that runs a random number of times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray, IndexArray
from dpgrain.accounting.events.base import Compose, Event, Neighbours
from dpgrain.accounting.losses.curves import InvertibleCurve, PrivacyCurve, inverse
from dpgrain.accounting.losses.gaussian import bisect
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.rounding import fails_closed, product_up, sum_up
from dpgrain.errors import ParameterError
from dpgrain.units import Level

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
class BestRunCurve:
    """Curve of the best result; the number of runs must not depend on the data.

    Proof: docs/theory, "Repeating and keeping the best".
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
        """Bound P(A) − ρQ(A) over events A with P(A) ≤ ``most``, for given ln ρ."""
        # For every γ ≥ ρ it is at most (1 − ρ/γ)·most + (ρ/γ)·H_γ.
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


Stopping: TypeAlias = Literal["negative_binomial", "poisson"]

# Rényi orders used for the answer and for the candidate.
_ORDERS = (1.25, 1.5, 1.75, *(2.0 ** (i / 2) for i in range(2, 21)))
# Limits on the mean number of runs and on η; beyond them γ is lost in rounding.
_MOST_RUNS, _LARGEST_ETA = 1e18, 1e6
# A bound on the relative effect of rounding.
_RELATIVE_ROUNDING = 2.0**-40


@dataclass(frozen=True)
class SelectBest(Event):
    """The best of a random number of runs of a private candidate.

    A run draws settings (for example, a model or a step size) from a public distribution, uses the
    data as the candidate's events describe, and ends with a result and a score. The number of runs
    is drawn from the distribution ``stopping``. Only the result with the best score is published:
    its settings, the result and the score. The other results, the number of runs and their running
    time must remain secret.

    Args:
        events: the event, or the events, of one run: they compute the result *and* the score.
        mean: the mean number of runs; above 1 for ``"negative_binomial"``.
        stopping: the distribution of the number of runs. ``"negative_binomial"`` is truncated to 1,
            2, …, with the parameters ``eta`` and :attr:`gamma`. ``"poisson"`` has mean ``mean``;
            after 0 runs, the output must be independent of the data.
        eta: η > −1 of the negative binomial distribution; 1 is the geometric distribution (stop
            after each run with probability γ = 1/mean), 0 the logarithmic one. A small η costs
            less, and the number of runs varies more.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: (2+η)ε-DP for candidates of ε-DP, so 3ε for geometric stopping. Otherwise δ(ε
    + (1+η)·c) = mean·δ₁(ε), where δ₁ is the candidate's curve and e^c bounds the ratio of γ +
    (1−γ)·(probability of a better result) between neighbours; also the Rényi divergences of the
    source. The cost to k units, of any type and relation, follows from the candidate's cost to the
    same units. Source: Papernot & Steinke 2022, Theorems 2, 6; Koskela, Redberg & Wang 2024 for the
    curve; Levy et al. 2021, Algorithm 5, is η = 1. Proofs: docs/theory, "Repeating and keeping the
    best".

    >>> from dpgrain.accounting import Gaussian, PureDP
    >>> round(SelectBest(PureDP(0.1), mean=10_000).epsilon(), 3)
    0.3
    >>> round(SelectBest(Gaussian(10.0), mean=100).epsilon(1e-6), 2)
    0.79
    """

    events: Event | tuple[Event, ...]
    mean: float
    stopping: Stopping = "negative_binomial"
    eta: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.events, Event):
            object.__setattr__(self, "events", (self.events,))
        # The composed event validates the events of a run.
        Compose(self._run)
        _validate.positive(mean=self.mean)
        if self.stopping == "negative_binomial" and not self.mean > 1:
            raise ParameterError(
                f"mean must be above 1, not {self.mean!r}, because at least one candidate is run."
            )
        if self.mean > _MOST_RUNS:
            raise ParameterError(f"mean must be at most 10^18, not {self.mean!r}.")
        if not -1 < self.eta <= _LARGEST_ETA:
            raise ParameterError(f"eta must be above -1 and at most 10^6, not {self.eta!r}.")

    @property
    def _run(self) -> tuple[Event, ...]:
        return (self.events,) if isinstance(self.events, Event) else self.events

    @property
    def candidate(self) -> Event:
        """The event of one run."""
        return self._run[0] if len(self._run) == 1 else Compose(self._run)

    @property
    def level(self) -> Level:
        return self.candidate.level

    @property
    def gamma(self) -> float:
        """The γ of the truncated negative binomial distribution with this mean.

        P(k) ∝ (1−γ)^k·η(η+1)…(η+k−1)/k! for k = 1, 2, …

        Raises:
            ParameterError: if the number of runs has another distribution.
        """
        if self.stopping != "negative_binomial":
            raise ParameterError("stopping must be 'negative_binomial' to have a gamma.")
        return bisect(lambda x: _mean(self.eta, x) <= self.mean, 1e-300, 1.0)[1]

    def cost(self, neighbours: Neighbours) -> Loss:
        one = self.candidate.cost(neighbours)
        if one == Loss():
            return one
        if self.stopping == "poisson":
            return _after_poisson(one, self.mean)
        return _after_negative_binomial(one, self.eta, self.gamma)


def _mean(eta: float, gamma: float) -> float:
    """Return the mean of the truncated distribution: η(1−γ)/(γ(1−γ^η)), or its limit."""
    if gamma >= 1:
        return 1.0
    log = -math.log(gamma)
    # The share is (1 − γ^η)/η.
    share = log if eta == 0 else -math.expm1(max(-eta * log, -700.0)) / eta
    if -eta * log > 700.0:
        share = math.exp(700.0) / -eta
    return (1 - gamma) / (gamma * share)


@dataclass(frozen=True)
class _AffineCurve:
    """The curve δ(ε) = scale·δ₁(ε − shift) of the best of runs with curve δ₁."""

    run: Loss
    shift: float
    scale: float

    def delta(self, epsilon: float) -> float:
        # The number of runs is independent of the data, so δ at 0 grows at most by its mean.
        left = max(-sum_up(-epsilon, self.shift), 0.0)
        return min(product_up(self.scale, self.run.delta(left)), 1.0)

    def epsilon(self, delta: float) -> float:
        if self.delta(0.0) <= delta:
            return 0.0
        return sum_up(self.shift, self.run.epsilon(math.nextafter(delta / self.scale, 0.0)))

    def bounds(self, delta: float) -> tuple[float, float]:
        high = self.epsilon(delta)
        low = self.shift + self.run.bounds(delta / self.scale)[0]
        return (min(low, high) if high > self.shift else 0.0), high


def _after_negative_binomial(run: Loss, eta: float, gamma: float) -> Loss:
    scale = _mean(eta, gamma) * (1 + _RELATIVE_ROUNDING)
    step = min(_log_ratio_by_curve(run, gamma), _log_ratio_by_renyi(run, gamma))
    shift = (1 + eta) * step * (1 + _RELATIVE_ROUNDING)

    def divergence(order: float) -> float:
        return run.renyi_at(order) + shift + math.log(scale) / (order - 1)

    return _bounds(run, RunCount(scale, gamma, eta), shift, scale, divergence)


def _after_poisson(run: Loss, exact: float) -> Loss:
    mean = exact * (1 + _RELATIVE_ROUNDING)
    shift = mean * run.delta(0.0) * (1 + _RELATIVE_ROUNDING)

    def divergence(order: float) -> float:
        # The ε̂ of the source has e^{ε̂} = λ/(λ−1).
        rest = run.delta(-math.log1p(-1 / order))
        bound = run.renyi_at(order) + mean * rest
        # Both sides have the same probability of no run.
        both = (order - 1) * bound + math.log(mean)
        return math.inf if math.isinf(both) else float(_log_sum(-mean, both) / (order - 1))

    # The probability of a result to be the best may fall as the mean rises, so the mean is not
    # rounded.
    return _bounds(run, RunCount(exact), shift, mean, divergence)


def _log_sum(one: float, two: float) -> float:
    return max(one, two) + math.log1p(math.exp(-abs(one - two)))


def _bounds(
    run: Loss, runs: RunCount, shift: float, scale: float, divergence: Callable[[float], float]
) -> Loss:
    """Return the loss of the best of several runs, with all known bounds on it."""
    curve: InvertibleCurve = _AffineCurve(run, shift, scale)
    others = [Loss.from_curve(curve)]
    if run._closed is not None or not run.pairs:
        # A numerically composed curve takes long to evaluate at many ε.
        others.append(Loss.from_curve(BestRunCurve(run, runs)))
    divergences = tuple((order, divergence(order) * (1 + _RELATIVE_ROUNDING)) for order in _ORDERS)
    if finite := tuple((order, value) for order, value in divergences if value < math.inf):
        others.append(Loss(renyi=finite))
    if run.is_pure and (pure := run.epsilon(0.0)) < math.inf:
        return Loss(pure=sum_up(pure, shift)).or_else(*others)
    return others[0].or_else(*others[1:])


def _log_ratio_by_curve(run: Loss, gamma: float) -> float:
    """Bound ln(r'/r), r = γ + (1−γ)s, by the curve: s' ≤ e^ε s + δ(ε) and s' ≤ 1."""

    def at(epsilon: float) -> tuple[float, float]:
        delta = run.delta(epsilon)
        rare = math.log1p((1 - gamma) * delta / gamma)
        sure = -math.log(gamma + (1 - gamma) * (1 - delta) * math.exp(-epsilon))
        return rare, sure

    # As ε grows, the first bound falls and the second rises; every ε is valid.
    high = 1.0
    while at(high)[0] > at(high)[1] and high < 1e3:
        high *= 2
    low, best = 0.0, min(max(at(0.0)), max(at(high)))
    for _ in range(14):
        middle = (low + high) / 2
        rare, sure = at(middle)
        best = min(best, max(rare, sure))
        low, high = (middle, high) if rare > sure else (low, middle)
    return best


def _log_ratio_by_renyi(run: Loss, gamma: float) -> float:
    """Bound ln(r'/r), where r = γ + (1−γ)s, by divergences: (1−1/λ)·D_λ + ln(1/γ)/λ."""
    return min(
        ((1 - 1 / order) * run.renyi_at(order) - math.log(gamma) / order for order in _ORDERS),
        default=math.inf,
    )

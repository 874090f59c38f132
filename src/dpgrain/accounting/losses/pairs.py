"""Dominating pairs: distributions that bound the distance of neighbours' outputs.

A pair supplies the distribution of its privacy loss, ln(dP/dQ) under P, on a grid:

- from above, the mass of every interval is spread onto its two ends so that the masses under P and
  under Q are both preserved. That is the chord of the convex curve γ → H_γ(P‖Q);
- from below, the mass between the midpoints of neighbouring intervals is merged (post-processing) and
  moved onto the grid by the tangents of that curve.

The error of both is quadratic in the step. Proofs: docs/theory, "Losses on a grid".
"""

from __future__ import annotations

import decimal
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import ClassVar, TypeAlias

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.accounting.losses.curves import InvertibleCurve, ResponsesCurve, SampledRoundsCurve
from dpgrain.accounting.losses.discretization import (
    GridDistribution,
    LossDistribution,
    merge_masses,
    spread_masses,
    spread_onto_grid,
)
from dpgrain.accounting.losses.mixture_curve import OneRoundCurve
from dpgrain.accounting.losses.mixtures import (
    FUNCTION_ROUNDING,
    log_normal_masses,
    log_ratio,
    mirrored_points,
    normal_masses,
    normal_quantile,
)
from dpgrain.accounting.losses.sequences import isotonic_fit
from dpgrain.numerics.special_functions import log_ndtr, ndtr

#: Largest shift, or loss of one response, on a grid.
LARGEST_SHIFT = 2.0**13
# Largest loss with computed odds e^loss.
_LARGEST_ODDS_LOSS = 690.0
# Spacing in standard deviations of the points for moments, and max number of points.
_SPACING_DEVIATIONS, _MOST_PLACES = 0.04, 1 << 18
# Points for an initial guess of the location of a loss, and for a coarse distribution.
_TABLE_POINTS = 2048
# Steps of the search for the point beyond which there is little mass.
_NARROWINGS = 12
# Arithmetic without overflow, or loss of a float's digit, in products of many factors.
_MANY_DIGITS = decimal.Context(40, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[])
# Max responses with a distribution that is summed term by term.
_MOST_RESPONSES = 1 << 16


class DominatingPair(ABC):
    """Two distributions (P, Q) that dominate every pair of neighbours' outputs."""

    # True if P may have mass where Q has none.
    leaks: ClassVar[bool] = False

    @property
    def swapped(self) -> DominatingPair:
        """The pair (Q, P), or this pair itself if the two are mirror images."""
        return self

    @abstractmethod
    def losses(
        self, step: float, tail: float, floor: float, *, upper: bool = True
    ) -> GridDistribution:
        """Return a bound on the distribution of the loss on a grid, from above or below.

        A mass ``tail`` of the largest losses may become infinite, and a mass ``floor`` of the
        smallest ones may be merged.
        """

    @abstractmethod
    def coarse_distribution(self) -> LossDistribution:
        """Return a coarse upper bound on the loss's distribution."""

    def log_moment(self, theta: float) -> float:
        """Return ln E_P[(dP/dQ)^θ] over finite losses, rounded up."""
        return self.coarse_distribution().log_moment(theta)

    def curve(self, count: int, mu: float) -> InvertibleCurve | None:  # noqa: ARG002
        """Return the exact curve of ``count`` such pairs and a Gaussian part, or None."""
        return None


# Each item is (pair, number of times it is composed).
CountedPairs: TypeAlias = tuple[tuple[DominatingPair, int], ...]


@dataclass(frozen=True)
class MixturePair(DominatingPair):
    """Two mixtures of unit-variance normal distributions, P to the right of Q.

    Parts are ((weight, mean), …). No mean of Q is larger than one of P, so that the loss increases.
    """

    p: tuple[tuple[float, float], ...]
    q: tuple[tuple[float, float], ...]

    @property
    def swapped(self) -> DominatingPair:
        p = tuple((weight, -mean) for weight, mean in self.q)
        q = tuple((weight, -mean) for weight, mean in self.p)
        return self if set(p) == set(self.p) and set(q) == set(self.q) else MixturePair(p, q)

    def coarse_distribution(self) -> LossDistribution:
        return _coarse_mixture(self)

    def curve(self, count: int, mu: float) -> InvertibleCurve | None:
        if count > 1 or mu > 0:
            return None
        swapped = self.swapped
        return OneRoundCurve(
            (self, swapped) if isinstance(swapped, MixturePair) and swapped != self else (self,)
        )

    def _ends(self, tail: float, floor: float) -> tuple[float, float]:
        """Return points with mass of P ≤ ``floor`` to the left and ≤ ``tail`` to the right."""
        parts = [(weight * len(self.p), mean) for weight, mean in self.p if weight > 0]
        low = min(mean - normal_quantile(floor / weight) for weight, mean in parts)
        high = max(mean + normal_quantile(tail / weight) for weight, mean in parts)
        # Far parts of P may have less than that mass together; then they are irrelevant here.
        near = low
        for _ in range(_NARROWINGS if self._beyond(low) > tail > 0 else 0):
            middle = (near + high) / 2
            near, high = (middle, high) if self._beyond(middle) > tail else (near, middle)
        return low, max(high, low + 1e-3)

    def _beyond(self, place: float) -> float:
        """Return the mass of P to the right of a point, rounded up."""
        return float(sum(w * ndtr(m - place) for w, m in self.p)) * (1 + FUNCTION_ROUNDING)

    @lru_cache(maxsize=4096)  # noqa: B019 - a pair is a few numbers.
    def log_moment(self, theta: float) -> float:
        return self.log_moment_beyond(theta, -math.inf)

    def log_moment_beyond(self, theta: float, first: float) -> float:
        """Return ln E_P[(dP/dQ)^θ] over x > ``first``, from where the loss must increase."""
        # The distribution tilted by e^{θ·loss} is further to the right, so include points further
        # there.
        apart = max(m for _, m in self.p) - min(m for _, m in self.q)
        low, high = self._ends(0.0, 0.0)
        low, high = max(low, first), high + theta * apart
        points = math.ceil((high - low) / _SPACING_DEVIATIONS)
        if points > _MOST_PLACES:
            return math.inf
        places = np.linspace(low, high, points)
        ends = np.maximum.accumulate(self.loss(places)[0])
        places[0] = first
        p, q = log_normal_masses(self.p, places), log_normal_masses(self.q, places)
        left, right = ends[:-1], ends[1:]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # The share that goes to the right preserves the masses under P and under Q, as on a
            # grid.
            share = -np.expm1(left + q - p) / -np.expm1(left - right) * (1 + 1e-9)
            share = np.clip(np.where(np.isnan(share), 1.0, share), 0.0, 1.0)
            inside = p + np.logaddexp(
                np.log1p(-share) + theta * left, np.log(share) + theta * right
            )
        # Beyond the last point the loss grows by at most `apart` for each unit of x.
        rest = [
            math.log(w)
            + theta * (float(ends[-1]) - apart * (high - m - theta * apart / 2))
            + float(log_ndtr(m + theta * apart - high))
            for w, m in self.p
            if w > 0
        ]
        return float(np.logaddexp.reduce([*inside, *rest])) + 1e-12

    def loss(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (n,) losses at points x, and their derivatives."""
        (top, rises), (bottom, falls) = log_ratio(self.p, x), log_ratio(self.q, x)
        return top - bottom, rises - falls

    @property
    def _mirrored(self) -> tuple[float, float] | None:
        """The (rate, shift) of a pair (1−q)N(0) + qN(±shift), with an invertible loss."""
        if len(self.p) == len(self.q) == 2 and self.p[0] == self.q[0] and self.p[0][1] == 0:
            (_, up), (rate, down) = self.p[1], self.q[1]
            return (rate, up) if up == -down and self.p[1][0] == rate else None
        return None

    def places(self, losses: FloatArray, low: float, high: float) -> tuple[FloatArray, float]:
        """Return (n,) points with given increasing losses, and their largest error."""
        if losses.size == 0:
            return losses, 0.0
        if self._mirrored is not None:
            x = np.clip(mirrored_points(losses, *self._mirrored), low, high)
            miss = np.abs(self.loss(x)[0] - losses)
            if float(np.max(miss)) < 1e-12:
                return x, float(np.max(miss)) + 8e-16 * (1 + float(np.max(np.abs(losses))))
        table = np.linspace(low, high, _TABLE_POINTS)
        values = self.loss(table)[0]
        cell = np.clip(np.searchsorted(values, losses) - 1, 0, _TABLE_POINTS - 2)
        left, right = table[cell], table[cell + 1]
        x = np.clip(np.interp(losses, values, table), left, right)
        for _ in range(6):
            value, slope = self.loss(x)
            miss = value - losses
            if float(np.max(np.abs(miss))) <= 4e-15 * (1 + float(np.max(np.abs(losses)))):
                break
            left, right = np.where(miss < 0, x, left), np.where(miss < 0, right, x)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = x - miss / slope
            inside = (newton >= left) & (newton <= right)
            x = np.where(inside, newton, (left + right) / 2)
        miss = np.abs(self.loss(x)[0] - losses)
        return x, float(np.max(miss)) + 8e-16 * (1 + float(np.max(np.abs(losses))))

    def losses(
        self, step: float, tail: float, floor: float, *, upper: bool = True
    ) -> GridDistribution:
        if {mean for _, mean in self.p + self.q} == {0.0}:
            return GridDistribution(step, 0, np.ones(1))
        low, high = self._ends(tail, floor)
        first, last = self.loss(np.array([low, high]))[0]
        bottom = math.floor(first / step)
        top = max(math.ceil(last / step), bottom + 1)
        if upper:
            inner, slip = self.places(step * np.arange(bottom + 1, top), low, high)
            places = np.concatenate([[low], inner, [high]])
            (p, p_error), (q, q_error) = (
                normal_masses(self.p, places),
                normal_masses(self.q, places),
            )
            ends = step * np.arange(bottom, top + 1)
            mass = spread_masses(ends, p, p_error, q, q_error)
            # Losses to the left of the first point are raised to the second grid point, above them.
            mass[1] += float(sum(w * ndtr(low - m) for w, m in self.p)) * (1 + FUNCTION_ROUNDING)
            return GridDistribution(step, bottom, mass, self._beyond(high), slip)
        # Losses with odds beyond double precision count as the largest one within it.
        top = min(top, math.floor(_LARGEST_ODDS_LOSS / step))
        bottom = max(bottom, -math.floor(_LARGEST_ODDS_LOSS / step))
        if bottom >= top:
            return GridDistribution(step, min(bottom, top), np.ones(1))
        # Every point makes a valid test, so the points need not be exact.
        middles, _ = self.places(step * (np.arange(bottom, top) + 0.5), low, high)
        places = np.concatenate([[-np.inf], middles, [np.inf]])
        p, q = normal_masses(self.p, places)[0], normal_masses(self.q, places)[0]
        return merge_masses(step, bottom, p, q)


@dataclass(frozen=True)
class MixedPair(DominatingPair):
    """One of several mirrored pairs, drawn with public weights and revealed."""

    pairs: tuple[DominatingPair, ...]
    weights: tuple[float, ...]

    def coarse_distribution(self) -> LossDistribution:
        laws = [pair.coarse_distribution() for pair in self.pairs]
        values = np.concatenate([law.values for law in laws])
        order = np.argsort(values)
        mass = np.concatenate([w * x.mass for w, x in zip(self.weights, laws, strict=True)])
        infinite = sum(w * x.infinite for w, x in zip(self.weights, laws, strict=True))
        return LossDistribution(values[order], mass[order], infinite).thinned(_TABLE_POINTS)

    def log_moment(self, theta: float) -> float:
        moments = [pair.log_moment(theta) for pair in self.pairs]
        return float(np.logaddexp.reduce(np.log(self.weights) + moments))

    @property
    def swapped(self) -> DominatingPair:
        swapped = tuple(pair.swapped for pair in self.pairs)
        return self if swapped == self.pairs else MixedPair(swapped, self.weights)

    def losses(
        self, step: float, tail: float, floor: float, *, upper: bool = True
    ) -> GridDistribution:
        parts = [pair.losses(step, tail, floor, upper=upper) for pair in self.pairs]
        low, high = min(part.low for part in parts), max(part.high for part in parts)
        mass = np.zeros(high - low + 1)
        for weight, part in zip(self.weights, parts, strict=True):
            mass[part.low - low : part.high - low + 1] += weight * part.mass
        infinite = sum(w * part.infinite for w, part in zip(self.weights, parts, strict=True))
        return GridDistribution(step, low, mass, infinite, max(part.slip for part in parts))


@lru_cache(maxsize=256)
def _coarse_mixture(pair: MixturePair) -> LossDistribution:
    """Return the distribution with losses at equally spaced points."""
    low, high = pair._ends(0.0, 0.0)
    places = np.linspace(low, high, _TABLE_POINTS)
    ends = pair.loss(places)[0]
    ends = np.maximum.accumulate(ends)
    places[0] = -np.inf
    (p, p_error), (q, q_error) = normal_masses(pair.p, places), normal_masses(pair.q, places)
    return LossDistribution(ends, spread_masses(ends, p, p_error, q, q_error), pair._beyond(high))


@dataclass(frozen=True)
class NullPair(DominatingPair):
    """The pair of two equal distributions: it reveals nothing."""

    def coarse_distribution(self) -> LossDistribution:
        return LossDistribution(np.zeros(1), np.ones(1))

    def losses(
        self,
        step: float,
        tail: float,  # noqa: ARG002
        floor: float,  # noqa: ARG002
        *,
        upper: bool = True,  # noqa: ARG002
    ) -> GridDistribution:
        return GridDistribution(step, 0, np.ones(1))


@dataclass(frozen=True)
class ResponsePair(DominatingPair):
    """Randomised response with odds e^ε, which dominates every ε-DP mechanism."""

    epsilon: float

    def curve(self, count: int, mu: float) -> InvertibleCurve | None:
        return ResponsesCurve(self.epsilon, count) if mu == 0 and count <= _MOST_RESPONSES else None

    def coarse_distribution(self) -> LossDistribution:
        odd = math.exp(-self.epsilon) / (1 + math.exp(-self.epsilon))
        return LossDistribution(np.array([-self.epsilon, self.epsilon]), np.array([odd, 1 - odd]))

    def losses(
        self, step: float, tail: float, floor: float, *, upper: bool = True
    ) -> GridDistribution:
        """Return the two losses on the grid; from below, the loss 0 if it is too fine."""
        if not upper and self.epsilon > _MOST_PLACES * step:
            return GridDistribution(step, 0, np.ones(1))
        if not upper:
            place = math.floor(self.epsilon / step)
            mass = np.zeros(2 * place + 1)
            mass[0] = math.exp(-place * step) / (1 + math.exp(-place * step))
            mass[-1] += 1 - mass[0]
            return GridDistribution(step, -place, mass)
        return spread_onto_grid(self.coarse_distribution(), step, tail, floor)


@dataclass(frozen=True)
class RevealedPair(DominatingPair):
    """A Gaussian sum that a person shifts with a public rate, and that reveals when."""

    rate: float
    shift: float  # in noise standard deviations

    @property
    def _mixed(self) -> MixedPair:
        shifted = MixturePair(((1.0, self.shift),), ((1.0, 0.0),))
        return MixedPair((NullPair(), shifted), (1 - self.rate, self.rate))

    def coarse_distribution(self) -> LossDistribution:
        return self._mixed.coarse_distribution()

    def losses(
        self, step: float, tail: float, floor: float, *, upper: bool = True
    ) -> GridDistribution:
        return self._mixed.losses(step, tail, floor, upper=upper)

    def log_moment(self, theta: float) -> float:
        return self._mixed.log_moment(theta)

    def curve(self, count: int, mu: float) -> InvertibleCurve:
        """Return the mean of Gaussian curves over the number of rounds with the person."""
        return SampledRoundsCurve(self.rate, count, self.shift, mu)


@dataclass(frozen=True)
class CurvePair(DominatingPair):
    """A pair with a known privacy curve, in both orders of the neighbours."""

    known: InvertibleCurve
    leaks: ClassVar[bool] = True

    def coarse_distribution(self) -> LossDistribution:
        return _coarse_curve(self)

    def losses(
        self, step: float, tail: float, floor: float, *, upper: bool = True
    ) -> GridDistribution:
        """Return the chord's distribution on the grid; from below, only the loss 0."""
        if not upper:
            return GridDistribution(step, 0, np.ones(1))
        return spread_onto_grid(self.coarse_distribution(), step, tail, floor)

    def curve(self, count: int, mu: float) -> InvertibleCurve | None:
        return self.known if count == 1 and mu == 0 else None


@lru_cache(maxsize=64)
def _coarse_curve(pair: CurvePair) -> LossDistribution:
    """Return the distribution of the chord on a grid that is coarser away from 0."""
    curve, high = pair.known, 1e-3
    while curve.delta(high) > 1e-25 and high < _LARGEST_ODDS_LOSS / 2:
        high *= 2
    positive = np.concatenate([[0.0], np.geomspace(high * 1e-5, high, 600)])
    mass, infinite = _curve_masses(curve, positive)
    return LossDistribution(np.concatenate([-positive[:0:-1], positive]), mass, infinite)


def _curve_masses(curve: InvertibleCurve, positive: FloatArray) -> tuple[FloatArray, float]:
    """Return masses at losses −x, …, x, (2n−1,), and at infinity, of a chord of H_γ."""
    # Below ε = 0 the curve is H_γ = 1 − γ + γ·H_{1/γ} of the swapped pair, which has the same
    # bound.
    deltas = np.array([curve.delta(float(x)) for x in positive]) * (1 + 1e-10)
    delta: FloatArray = np.minimum.accumulate(np.minimum(deltas, 1.0))
    ratio = np.exp(np.concatenate([-positive[:0:-1], positive]))
    # The part of H_γ above (1 − γ)₊.
    extra = np.concatenate([ratio[: positive.size - 1] * delta[:0:-1], delta])
    slope = np.diff(extra) / np.diff(ratio)
    # To the left of the grid the chord goes to (0, 1), because H_γ is 1 − γ there; to the right it
    # is flat.
    slope = np.concatenate([[extra[0] / ratio[0]], slope, [0.0]])
    slope[: positive.size] -= 1.0
    weights = np.concatenate([[ratio[0]], np.diff(ratio), [1e300]])
    slope = isotonic_fit(slope, weights)
    mass = ratio * np.diff(slope)
    return np.maximum(mass, 0.0), float(delta[-1])


@dataclass(frozen=True)
class GramPair(DominatingPair):
    """A person with several vectors, some changed, sampled with a public rate.

    The pair is (1−q)N(0) + qN((middle, up)) against (1−q)N(0) + qN((middle, down)), in noise sds;
    the first coordinate reveals participation. Proof: docs/theory, "Users are drawn".
    """

    rate: float
    middle: float  # norm of the unchanged part, > 0
    up: float  # norm of the vectors before the change, ≥ 0
    down: float  # minus the norm after it, ≤ 0

    @property
    def swapped(self) -> DominatingPair:
        return GramPair(self.rate, self.middle, -self.down, -self.up)

    def _parts(self, spacing: float, tail: float, floor: float, *, upper: bool) -> MixedPair:
        """Return the mixture over participation rates that the first coordinate reveals."""
        ends = (-normal_quantile(floor), self.middle + normal_quantile(tail))
        rates, weights = revealed_rates(self.rate, self.middle, ends, spacing, upper=upper)
        pairs = tuple(sampled_pair(float(rate), self.up, self.down) for rate in rates)
        return MixedPair(pairs, tuple(float(weight) for weight in weights))

    def coarse_distribution(self) -> LossDistribution:
        """Return the distribution of a coarse mixture over the revealed rates."""
        return _coarse_gram(self)

    def log_moment(self, theta: float) -> float:
        return self._parts(1.0, 1e-25, 1e-15, upper=True).log_moment(theta)

    def losses(
        self, step: float, tail: float, floor: float, *, upper: bool = True
    ) -> GridDistribution:
        """Return the distribution of a fine mixture over the revealed rates, on the grid."""
        parts = self._parts(0.1, tail, floor, upper=upper)
        return parts.losses(step, tail, floor, upper=upper)


@lru_cache(maxsize=64)
def _coarse_gram(pair: GramPair) -> LossDistribution:
    return pair._parts(1.0, 1e-25, 1e-15, upper=True).coarse_distribution()


def sampled_pair(rate: float, up: float, down: float) -> DominatingPair:
    """Return the pair (1−q)N(0) + qN(up), (1−q)N(0) + qN(down), for up ≥ 0 ≥ down."""
    return (
        MixturePair(_sampled_mixture(rate, up), _sampled_mixture(rate, down))
        if rate > 0
        else NullPair()
    )


def _sampled_mixture(rate: float, mean: float) -> tuple[tuple[float, float], ...]:
    if mean == 0:
        return ((1.0, 0.0),)
    return ((1.0, mean),) if rate >= 1 else ((1 - rate, 0.0), (rate, mean))


def revealed_rates(
    rate: float, shift: float, ends: tuple[float, float], spacing: float, *, upper: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the rates revealed by x ~ (1−q)N(0) + qN(shift), and their probabilities."""
    # H_γ of the remaining pair is convex in its rate, so spreading rates onto a grid with the same
    # mean bounds it from above, and merging them bounds it from below.
    odds = math.log(rate) - math.log1p(-rate)
    low, high = np.clip([odds + shift * (x - shift / 2) for x in ends], -45.0, 25.0)
    cells = max(math.ceil((high - low) / spacing), 2)
    logits = np.linspace(low, high, cells + 1)
    places = (logits - odds) / shift + shift / 2
    places[0], places[-1] = -np.inf, np.inf
    out, _ = normal_masses(((1.0, 0.0),), places)
    taking, _ = normal_masses(((1.0, shift),), places)
    weights, taking = ((1 - rate) * out + rate * taking) * (1 + 1e-15), rate * taking
    if not upper:
        occupied = weights > 0
        return np.minimum(taking[occupied] / weights[occupied], 1.0), weights[occupied]
    rates = 1 / (1 + np.exp(-logits))
    rates[0], rates[-1] = 0.0, 1.0
    right = (taking - rates[:-1] * weights) / np.diff(rates)
    right = np.clip(right * (1 + 1e-12), 0.0, weights)
    spread = np.zeros(rates.size)
    spread[:-1] += weights - right
    spread[1:] += right
    occupied = spread > 0
    return rates[occupied], spread[occupied]


@lru_cache(maxsize=64)
def binomial_weights(trials: int, rate: float) -> tuple[float, ...]:
    """Return P(Bin(trials, rate) = j) for j = 0..trials, correctly rounded."""
    if rate == 1:
        return tuple(float(j == trials) for j in range(trials + 1))
    # Logarithms of factorials would lose three digits for thousands of trials.
    with decimal.localcontext(_MANY_DIGITS):
        one = Decimal(rate)
        odds, weight = one / (1 - one), (1 - one) ** trials
        weights = []
        for j in range(trials + 1):
            weights.append(float(weight))
            weight = weight * odds * (trials - j) / (j + 1)
    return tuple(weights)

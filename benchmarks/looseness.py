"""Looseness of the accountant: each event's claim over the best known lower bound.

Usage: python benchmarks/looseness.py [--only WORDS] [--all]

A case is an event, a query and a pair of neighbours with a known output distribution: no claim can
be less than its exact privacy curve, or a lower bound on it. The ratio is the claimed ε over that
ε. Nothing is random. A type of event without a case is named, and the
exit code is then 1: a new event needs one. If the lower bound is 0 there is no ratio, and the
largest claim there is shown under "at 0".
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, gammaln, log_ndtr, ndtr, ndtri

import dpgrain.accounting.events as homes
from dpgrain.accounting import Contribution, Event, Gaussian, Laplace
from dpgrain.accounting.events.approximate import StatisticallyClose
from dpgrain.accounting.events.base import Compose, Parallel
from dpgrain.accounting.events.best_of import SelectBest
from dpgrain.accounting.events.choices import (
    AboveThreshold,
    BoundedRange,
    ExponentialMechanism,
    SoftCore,
)
from dpgrain.accounting.events.opaque import RDP, ZCDP, ApproximateDP
from dpgrain.accounting.events.partition_selection import (
    AdaptiveSelection,
    Selection,
    TruncatedGeometric,
)
from dpgrain.accounting.events.region_events import Scoped
from dpgrain.accounting.events.shuffling import Binomial, Poisson
from dpgrain.accounting.events.subsampling import BandedGaussian, Participation, SampledGaussian
from dpgrain.accounting.losses.composition import composed_epsilon
from dpgrain.accounting.losses.discretization import (
    GridDistribution,
    LossDistribution,
    merge_masses,
)
from dpgrain.accounting.losses.pairs import CountedPairs, DominatingPair, MixturePair, ResponsePair
from dpgrain.scope.regions import LabelSet, Region, Side
from dpgrain.units import Record

Array: TypeAlias = NDArray[np.float64]
#: A privacy curve ε → δ, exact or from below.
Curve: TypeAlias = Callable[[float], float]

DELTAS = (1e-2, 1e-5, 1e-10, 1e-30)
# For events with a stated failure probability of about 10⁻¹² in their analysis.
ABOVE_LEAKS = DELTAS[:3]
# Share of a probability that rounding may have added to it.
_ROUNDING = 1e-12
# Halvings of an interval of ε.
_HALVINGS = 60


@dataclass(frozen=True)
class Case:
    """An event, a query of it, and a lower bound on its cost.

    Args:
        lower: from δ to an ε that the event cannot be below.
    """

    said: str
    event: Event
    lower: Callable[[float], float]
    asked: dict[str, Any] = field(default_factory=dict)
    deltas: tuple[float, ...] = DELTAS

    @property
    def kind(self) -> str:
        return type(self.event).__name__

    def claim(self, delta: float) -> float:
        return float(self.event.epsilon(delta, **self.asked))


# ------------------------------------------------------------------------------------ lower bounds


def inverse(curve: Curve) -> Callable[[float], float]:
    """Return δ → the largest ε at which a curve is still above δ, rounded down."""

    def epsilon(delta: float) -> float:
        if not curve(0.0) > delta:
            return 0.0
        low, high = 0.0, 1e-9
        while curve(high) > delta:
            low, high = high, 2 * high
            if high > 1e12:
                return math.inf
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if curve(middle) > delta else (low, middle)
        return low

    return epsilon


def normal(mu: float) -> Curve:
    """Return the curve of N(μ, 1) and N(0, 1), by the same formula in logarithms."""

    def delta(epsilon: float) -> float:
        above, below = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        first, second = float(log_ndtr(above)), epsilon + float(log_ndtr(below))
        slack = _ROUNDING * (1 + above * above)
        return math.exp(first) * max(-math.expm1(min(second - first, 0.0)) - slack, 0.0)

    return delta


def outcomes(p: Array, q: Array) -> Curve:
    """Return the larger curve of two laws on the same finite outcomes, in both orders."""

    def one_way(epsilon: float, p: Array, q: Array) -> float:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            gain = np.where(q > 0, p - np.exp(np.minimum(epsilon + np.log(q), 700.0)), p)
        return float((np.maximum(gain, 0.0) - (gain > 0) * _ROUNDING * p).sum())

    def delta(epsilon: float) -> float:
        with np.errstate(divide="ignore"):
            return max(one_way(epsilon, p, q), one_way(epsilon, q, p))

    return delta


@dataclass(frozen=True, eq=False)
class Outcomes(DominatingPair):
    """Two laws with masses on the same finite outcomes, to be composed from below."""

    p: Array
    q: Array

    @property
    def swapped(self) -> DominatingPair:
        return Outcomes(self.q, self.p)

    @property
    def _known(self) -> tuple[Array, Array, Array]:
        kept = (self.p > 0) & (self.q > 0)
        loss = np.log(self.p[kept]) - np.log(self.q[kept])
        order = np.argsort(loss)
        return loss[order], self.p[kept][order], self.q[kept][order]

    def coarse_distribution(self) -> LossDistribution:
        loss, p, _ = self._known
        return LossDistribution(loss, p)

    def losses(
        self,
        step: float,
        tail: float,  # noqa: ARG002
        floor: float,  # noqa: ARG002
        *,
        upper: bool = True,  # noqa: ARG002
    ) -> GridDistribution:
        loss, p, q = self._known
        place = np.rint(np.clip(loss, -690.0, 690.0) / step).astype(np.int64)
        low = int(place.min())
        size = int(place.max()) - low + 2
        merged = [np.bincount(place - low, mass, size).astype(np.float64) for mass in (p, q)]
        return merge_masses(step, low, *merged)


def composed(pairs: CountedPairs) -> Callable[[float], float]:
    """Return a bound from below on the ε of pairs, each of which neighbours attain."""
    return lambda delta: composed_epsilon(pairs, delta, upper=False)


def repeated(p: Array, q: Array, count: int) -> Callable[[float], float]:
    """Return a lower bound on the ε of finite distributions drawn ``count`` times."""
    return inverse(outcomes(p, q)) if count == 1 else composed(((Outcomes(p, q), count),))


def largest(*bounds: Callable[[float], float]) -> Callable[[float], float]:
    return lambda delta: max(bound(delta) for bound in bounds)


def binomial(count: int, chance: float) -> Array:
    """Return the law of how many of ``count`` happen, each with a chance."""
    with np.errstate(under="ignore"):
        return np.asarray(np.exp(log_binomial(count, chance)))


def log_binomial(count: int, chance: float) -> Array:
    """Return the logarithms of that law."""
    k = np.arange(count + 1, dtype=np.float64)
    ways = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)
    return np.asarray(ways + k * math.log(chance) + (count - k) * math.log1p(-chance))


def responses(epsilon: float, count: int, leak: float) -> Curve:
    """Return the curve of ``count`` randomised responses that reveal all with a probability."""
    p = binomial(count, math.exp(-epsilon) / (1 + math.exp(-epsilon)))
    told = -math.expm1(count * math.log1p(-leak))
    inner = outcomes(p, p[::-1].copy())
    return lambda asked: told * (1 - _ROUNDING) + (1 - told) * inner(asked) * (1 - 1e-9)


def passed(rate: float, up: float, down: float, rounds: int) -> Callable[[float], float]:
    """Return the ε of tests whether some rounds pass a threshold, from below.

    A round is (1−q)N(0) + qN(up), or the same with ``down``; for a single round this is exact.
    """
    points = 24001 if rounds == 1 else 2401
    near = np.linspace(-60, 60, points)
    x = np.unique(np.concatenate([near, up + near]))

    def one_round(mean: float, side: float) -> Array:
        drawn = log_ndtr(side * (mean - x)) + math.log(rate)
        spared = log_ndtr(-side * x) + (math.log1p(-rate) if rate < 1 else -math.inf)
        return np.asarray(np.logaddexp(drawn, spared))

    def tails(mean: float, side: float, least: int) -> Array:
        one = one_round(mean, side)
        if rounds == 1:
            return one
        with np.errstate(under="ignore"):
            several = bdtrc(least - 1, rounds, np.exp(one))
        # Values too small for a float are not 0, in either distribution.
        return np.asarray(np.log(np.maximum(several, 1e-300)))

    numbers = (1,) if rounds == 1 else (1, 2, 3, 4, 6, 9, 13, 20, 40, 70)
    sides = [
        (tails(up, s, j), tails(down, s, j)) for s, j in itertools.product((1.0, -1.0), numbers)
    ]
    p, q = (np.concatenate(laws) for laws in zip(*sides, *((q, p) for p, q in sides), strict=True))
    slack = _ROUNDING * (1 + abs(p) + abs(q))

    def delta(epsilon: float) -> float:
        gain = -np.expm1(np.minimum(epsilon + q - p, 0.0)) - slack
        with np.errstate(under="ignore"):
            return float((np.exp(p) * np.maximum(gain, 0.0)).max())

    return inverse(delta)


# ----------------------------------------------------------------------------------------- the cases


def gaussians() -> Iterator[Case]:
    for noise, count, units in itertools.product((0.05, 1.0, 30.0), (1, 100), (1, 5)):
        mu = math.sqrt(count * units) / noise
        yield Case(
            f"σ={noise:g}, {count} sums, k={units}",
            Gaussian(noise, count=count),
            inverse(normal(mu)),
            {"units": units},
        )
    for units in (1, 8):
        # All records of a user's block become others, which turns it round.
        whole = Contribution(block="user", layout="shared", coordinates="signed")
        yield Case(
            f"{units} records of a user, σ=4",
            Gaussian(4.0, whole),
            inverse(normal(2 / 4.0)),
            {"units": units, "unit": Record(), "relation": "replace"},
        )


def laplaces() -> Iterator[Case]:
    for noise, count in itertools.product((0.2, 1.0, 5.0, 50.0), (1, 100)):
        # The geometric distribution of a sum in whole steps, twelve per clipping bound.
        scale = 12 * noise
        x = np.arange(-int(60 * scale) - 12, int(60 * scale) + 13, dtype=np.float64)
        p, q = (np.exp(-np.abs(x - shift) / scale) for shift in (12, 0))
        p, q = p / p.sum(), q / q.sum()
        yield Case(
            f"scale {noise:g}, {count} sums", Laplace(noise, count=count), repeated(p, q, count)
        )


def selections() -> Iterator[Case]:
    for noise, threshold, items in itertools.product((1.0, 10.0), (6.0, 12.0), (1, 10)):
        said = f"σ={noise:g}, threshold {threshold:g}σ, T={items}"
        event = Selection(noise, threshold * noise, items)
        yield Case(said, event, naming(noise, float(ndtr((1 - threshold * noise) / noise))))


def naming(noise: float, named: float) -> Callable[[float], float]:
    """Return the larger ε of a new item, selected with a probability, and of a common one.

    The count of the common one is at the best test's threshold.
    """
    common = inverse(normal(1 / noise))
    return lambda delta: math.inf if delta < named * (1 - 1e-9) else common(delta)


def second_rounds() -> Iterator[Case]:
    for noise, threshold in itertools.product((1.0, 10.0), (6.0, 12.0)):
        one, floor = 1.5 * noise, 3 * noise
        # A new item that its only holder gives all weight goes on, and is named.
        passes = [float(ndtr((1 - least) / one)) for least in (floor, threshold * one)]
        named = (passes[0] - passes[1]) * float(ndtr((1 - threshold * noise) / noise))
        yield Case(
            f"σ={noise:g}, threshold {threshold:g}σ",
            AdaptiveSelection(noise, threshold * noise, one, threshold * one, floor, max_items=1),
            naming(noise, named),
        )


def seen_taking_part(shift: float, rate: float, rounds: int, *, replaced: bool) -> Curve:
    """Return a lower curve of rounds with noise so small that participation is visible.

    In a round with the person x = s + z, and the loss is at least s·x − s²/2 + ln q, less ln(1−q)
    if the person is replaced; in other rounds it is at least ln(1−q), or about 0. So the curve is a
    shifted one of Gaussians, except for the probability that |z| is above s/4 somewhere.
    """
    taking = np.arange(rounds + 1, dtype=np.float64)
    logs = log_binomial(rounds, rate)
    gains = taking * math.log(rate) - 1e-9
    gains -= (taking if replaced else taking - rounds) * math.log1p(-rate)
    far = 2 * rounds * float(ndtr(-shift / 4))

    def delta(epsilon: float) -> float:
        curves = [
            normal(shift * math.sqrt(j))(epsilon - g)
            for j, g in zip(taking[1:], gains[1:], strict=True)
        ]
        return float(np.exp(logs[1:]) @ np.array(curves)) * (1 - 1e-9) - far

    return delta


def truncated() -> Iterator[Case]:
    for rate, cutoff, items in itertools.product((1e-2, 0.1, 1.0), (10, 100, 3000), (1, 10, 1000)):
        if rate * cutoff > 90:
            continue
        event = TruncatedGeometric(rate, cutoff, items)
        near = (*DELTAS, *(items * event.passes(1) * more for more in (1.001, 2.0)))
        yield Case(
            f"rate {rate:g}, cutoff {cutoff}, T={items}",
            event,
            inverse(responses(rate, items, event.passes(1) * (1 - 1e-9))),
            deltas=tuple(d for d in near if d < 0.1),
        )
    for units in (3, 30):
        event = TruncatedGeometric(0.1, 100, 1, Contribution(block="record"))
        x = np.arange(-100, 101 + units)
        p, q = (np.where(abs(x - j) <= 100, np.exp(-0.1 * abs(x - j)), 0.0) for j in (units, 0))
        yield Case(
            f"{units} records on one item",
            event,
            inverse(outcomes(p / p.sum(), q / q.sum())),
            {"units": units},
        )


def sampled() -> Iterator[Case]:
    for noise, rate, rounds, relation in itertools.product(
        (1e-4, 0.02, 0.3, 1.0, 5.0), (1e-4, 0.01, 0.5), (1, 100), ("zero_out", "replace")
    ):
        up, down = 1 / noise, (-1 / noise if relation == "replace" else 0.0)
        drawn = [((1 - rate, 0.0), (rate, mean)) if mean else ((1.0, 0.0),) for mean in (up, down)]
        pair = MixturePair(drawn[0], drawn[1])
        lower = passed(rate, up, down, rounds)
        if rounds > 1 and noise > 1e-3:
            lower = largest(lower, composed(((pair, rounds),)))
        if noise < 0.03:
            seen = seen_taking_part(up, rate, rounds, replaced=relation == "replace")
            lower = largest(lower, inverse(seen))
        yield Case(
            f"σ={noise:g}, q={rate:g}, T={rounds}, {relation}",
            SampledGaussian(noise, rate, rounds),
            lower,
            {"relation": relation},
        )
    for units in (2, 10):
        weights = [math.comb(units, j) * 0.01**j * 0.99 ** (units - j) for j in range(units + 1)]
        many = MixturePair(tuple((w, j / 2) for j, w in enumerate(weights)), ((1.0, 0.0),))
        yield Case(
            f"σ=2, q=0.01, T=100, k={units}",
            SampledGaussian(2.0, 0.01, 100),
            composed(((many, 100),)),
            {"units": units},
        )
    yield from users_of_three()


def _plane(rate: float, mean: tuple[float, float], places: Array) -> Array:
    """Return the masses of (1−q)N(0) + qN(mean) in the cells of a grid of the plane."""

    def masses(shift: float) -> Array:
        ends = ndtr(places - shift)
        ends[0], ends[-1] = 0.0, 1.0
        return np.diff(ends)

    drawn = np.outer(masses(mean[0]), masses(mean[1]))
    law: Array = ((1 - rate) * np.outer(masses(0.0), masses(0.0)) + rate * drawn).ravel()
    return law


def users_drawn(
    noise: float, rate: float, rounds: int, held: int, *, replaced: bool
) -> Callable[[float], float]:
    """Return a lower bound for one element if users are sampled with all of theirs.

    The others add up to a vector of norm ``held`` − 1, and the element is at several angles to it.
    """
    bounds, places = [], np.linspace(-8, 8 + held / noise, 161)
    for angle in np.linspace(0, math.pi, 7):
        x, y = math.cos(angle) / noise, math.sin(angle) / noise
        rest = (held - 1) / noise
        one = _plane(rate, (rest + x, y), places)
        other = _plane(rate, (rest - x, -y) if replaced else (rest, 0.0), places)
        bounds.append(repeated(one, other, rounds))
    return largest(*bounds)


def users_of_three() -> Iterator[Case]:
    for noise, rounds, relation in itertools.product((1.0, 4.0), (1, 300), ("zero_out", "replace")):
        event = SampledGaussian(noise, 0.05, rounds, "users")
        lower = users_drawn(noise, 0.05, rounds, 3, replaced=relation == "replace")
        asked = {"relation": relation, "max_elements": 3}
        said = f"users of 3 elements, σ={noise:g}, q=0.05, T={rounds}, {relation}"
        yield Case(said, event, lower, asked, deltas=(1e-2, 1e-5))


def participations() -> Iterator[Case]:
    for noise, rounds in itertools.product((0.3, 3.0), (1, 50)):
        lower = inverse(normal(math.sqrt(rounds) / noise))
        yield Case(f"σ={noise:g}, {rounds} passes", Participation(noise, rounds), lower)


def banded() -> Iterator[Case]:
    for noise, bands in itertools.product((1.0, 4.0), (1, 8)):
        # Columns of norm 1 that do not overlap: a part's rounds are independent.
        pair = MixturePair(((1 - 0.01 * bands, 0.0), (0.01 * bands, 1 / noise)), ((1.0, 0.0),))
        yield Case(
            f"σ={noise:g}, {bands} bands",
            BandedGaussian(noise, 0.01, 800, bands),
            composed(((pair, 800 // bands),)),
        )


def _first_to_pass(scales: tuple[float, float], values: Array) -> Array:
    """Return the law of the first query to pass a threshold at 0, last: none, under geometric noise."""
    z = np.arange(-int(45 * max(scales)), int(45 * max(scales)) + 1)
    wide, narrow = (math.exp(-1 / scale) for scale in scales)
    weights = (1 - wide) / (1 + wide) * wide ** np.abs(z)
    law, left = np.zeros(values.size + 1), weights
    for place, value in enumerate(values):
        need = z - int(value)
        tail = narrow ** np.maximum(need, 0) / (1 + narrow)
        passes = np.where(need > 0, tail, 1 - narrow ** np.maximum(1 - need, 0) / (1 + narrow))
        law[place], left = float(left @ passes), left * (1 - passes)
    law[-1] = left.sum()
    return law


def above_threshold() -> Iterator[Case]:
    for scale, one_way in itertools.product((2.0, 20.0), (False, True)):
        scales = (scale, 2 * scale)
        bounds = []
        for queries, far in itertools.product((1, 10, 300), (0.0, 2.0, 8.0)):
            # All queries but the last decrease, and the last one increases: only the last passes.
            low = -np.full(queries, math.floor(far * scale))
            high = low.copy()
            high[:-1] += 1
            low[-1] += 0 if one_way else 1
            one, two = (_first_to_pass(scales, values) for values in (low, high))
            bounds.append(inverse(outcomes(one, two)))
        yield Case(
            f"scales {scale:g}, {2 * scale:g}{', one way' if one_way else ''}",
            AboveThreshold(*scales, one_way=one_way),
            largest(*bounds),
        )


def _choice(spread: float, count: int) -> Callable[[float], float]:
    """Return the ε of choices between two, with log odds that move by a spread, at worst odds."""
    bounds = []
    for odds in (0.0, 0.5, 2.0, 8.0, 20.0):
        sides = (1 / (1 + math.exp(odds - moved)) for moved in (0.0, spread))
        bounds.append(inverse(outcomes(*(binomial(count, chance) for chance in sides))))
    return largest(*bounds)


def exponential() -> Iterator[Case]:
    for scale, count in itertools.product((0.5, 4.0, 100.0), (1, 100)):
        yield Case(
            f"scale {scale:g}, {count} choices",
            ExponentialMechanism(scale, count=count),
            _choice(2 / scale, count),
        )


def bounded_ranges() -> Iterator[Case]:
    for rate, count in itertools.product((0.01, 0.1, 1.0), (1, 100)):
        lower = _choice(rate, count)
        yield Case(f"rate {rate:g}, {count} items", BoundedRange(rate, count, "user"), lower)
    yield Case(
        "10 records of a user, rate 0.1",
        BoundedRange(0.1, 1, "user"),
        _choice(0.1, 1),
        {"units": 10, "unit": Record()},
    )


def soft_cores() -> Iterator[Case]:
    for noise, rounds in itertools.product((0.005, 0.05), (1, 100)):
        event = SoftCore(noise, 4000, 3000, 1400.0, 20.0, 40.0, rounds)
        # Two clusters attain the sensitivity of the mean.
        mean = normal(math.sqrt(rounds) * event.sensitivity / noise)
        yield Case(f"σ={noise:g}τ, T={rounds}", event, inverse(mean), deltas=ABOVE_LEAKS)


def _shifted(event: Binomial | Poisson, mass: Array, shift: int) -> Callable[[float], float]:
    p, q = np.append(np.zeros(shift), mass), np.append(mass, np.zeros(shift))
    return repeated(p, q, event.rounds)


def binomials() -> Iterator[Case]:
    for trials, grid, rounds in itertools.product((2000, 200_000), (2, 20), (1, 10)):
        event = Binomial(trials, 0.5, grid, 1, 1e-12, rounds)
        mass = np.exp(np.maximum(log_binomial(trials, 0.5), -700.0))
        lower = _shifted(event, mass, grid // 2)
        yield Case(f"{trials} coins, g={grid}, T={rounds}", event, lower, deltas=ABOVE_LEAKS)


def poissons() -> Iterator[Case]:
    for mean, grid in itertools.product((1000.0, 100_000.0), (2, 20)):
        event = Poisson(mean, grid, 1, 1e-12)
        k = np.arange(int(mean + 40 * math.sqrt(mean)), dtype=np.float64)
        mass = np.exp(np.maximum(k * math.log(mean) - mean - gammaln(k + 1), -700.0))
        lower = _shifted(event, mass, grid // 2)
        yield Case(f"mean {mean:g}, g={grid}", event, lower, deltas=ABOVE_LEAKS)


def best_two_places(mu: float, event: SelectBest) -> Curve:
    """Return the curve of results that are preferred if x is small, and next if it is large.

    A run's result is x ~ N(μ, 1) or N(0, 1). Those below a first place are preferred to those above
    a second one, and these to all others: whether the best is above the second one is visible.
    """
    first = np.concatenate([[-np.inf], np.linspace(-9, 9, 300)])
    second = np.linspace(-9, 9 + mu, 300)
    a, b = np.meshgrid(first, second, indexing="ij")
    ordered = a <= b

    def chosen(shift: float) -> Array:
        better, own = ndtr(a - shift), ndtr(shift - b)
        return np.asarray(_among_best(event, better + own) - _among_best(event, better))

    one, two = chosen(mu), chosen(0.0)

    def delta(epsilon: float) -> float:
        odds = math.exp(min(epsilon, 700.0))
        gains = [(p - odds * q - 1e-14)[ordered].max() for p, q in ((one, two), (two, one))]
        return max(0.0, float(max(gains)))

    return delta


def _among_best(event: SelectBest, share: Array) -> Array:
    """Return the probability that the best of the runs is among the best results of a share."""
    if event.stopping == "poisson":
        return np.asarray(-np.expm1(-event.mean * share))
    gamma, eta = event.gamma, event.eta
    # 1 − f(1 − s), where f(x) = ((1 − (1−γ)x)^{−η} − 1)/(γ^{−η} − 1).
    rest = gamma + (1 - gamma) * share
    if eta == 0:
        return np.asarray(1 - np.log(rest) / math.log(gamma))
    scaled = np.expm1(eta * np.log(rest / gamma)) / math.expm1(-eta * math.log(gamma))
    return np.asarray(scaled * rest**-eta)


def selected() -> Iterator[Case]:
    for mu, mean in itertools.product((1e-5, 1e-3, 0.01, 0.1, 1.0), (2.0, 10.0, 1e4)):
        event = SelectBest(Gaussian(1 / mu), mean)
        lower = inverse(best_two_places(mu, event))
        # A test of a thousandth of the mass is the rarest that two places distinguish exactly.
        yield Case(f"μ={mu:g}, mean {mean:g}", event, lower, deltas=(1e-2, 1e-5, 1e-7))
    for stopping, eta in (("negative_binomial", 0.0), ("poisson", 1.0)):
        event = SelectBest(Gaussian(10.0), 10.0, stopping, eta)  # type: ignore[arg-type]
        lower = inverse(best_two_places(0.1, event))
        yield Case(f"μ=0.1, mean 10, {stopping}, η={eta:g}", event, lower, deltas=(1e-2, 1e-5))


def close() -> Iterator[Case]:
    for noise, variation in itertools.product((1.0, 10.0), (1e-12, 1e-6)):
        event = StatisticallyClose(Gaussian(noise), variation)
        place = np.append(np.linspace(-40, 40, 8001), -ndtri(variation))
        accepted = ndtr(1 / noise - place), np.maximum(ndtr(-place) - variation, 0.0)

        def delta(epsilon: float, accepted: Any = accepted, variation: float = variation) -> float:
            # η of mass is added if the test outputs one, and removed there on the other side.
            one, other = accepted
            gain = one + variation - math.exp(min(epsilon, 700.0)) * other
            return float(min(gain.max(), 1.0)) * (1 - 1e-9)

        yield Case(f"σ={noise:g}, η={variation:g}", event, inverse(delta))


def approximate() -> Iterator[Case]:
    for epsilon, delta, count in itertools.product((1e-3, 0.1, 1.0), (0.0, 1e-8), (1, 100)):
        event = ApproximateDP(epsilon, delta, count=count)
        yield Case(
            f"({epsilon:g}, {delta:g}), {count} times",
            event,
            inverse(responses(epsilon, count, delta)),
        )
    for units in (1, 10):
        # Whatever happens to a user's records, one user is removed and another one added.
        yield Case(
            f"{units} records of a user, 0.1-DP",
            ApproximateDP(0.1),
            inverse(responses(0.2, 1, 0.0)),
            {"units": units, "unit": Record()},
        )


def concentrated() -> Iterator[Case]:
    for rho, count in itertools.product((1e-4, 0.02, 1.0), (1, 10)):
        lower = inverse(normal(math.sqrt(2 * rho * count)))
        yield Case(f"ρ={rho:g}, {count} times", ZCDP(rho, count=count), lower)


def renyi() -> Iterator[Case]:
    orders = tuple(1 + 0.1 * 1.15**i for i in range(60))
    for rho in (1e-3, 0.1):
        event = RDP(orders, tuple(rho * order for order in orders))
        yield Case(f"ρ={rho:g}", event, inverse(normal(math.sqrt(2 * rho))))


def scoped() -> Iterator[Case]:
    days = [Region((Side("day", LabelSet((day,))),)) for day in ("Monday", "Tuesday")]
    for units in (1, 2, 6):
        # All units may be in the region with less noise.
        event = Scoped((Gaussian(4.0), Gaussian(2.0)), tuple(days), (None, None))
        lower = inverse(normal(math.sqrt(units) / 2.0))
        yield Case(f"σ=4 and 2, k={units}", event, lower, {"units": units})


def compositions() -> Iterator[Case]:
    for noise, pure in itertools.product((1.0, 10.0), (0.01, 0.5)):
        event = Compose((Gaussian(noise), ApproximateDP(pure, level="element")))
        both: CountedPairs = (
            (MixturePair(((1.0, 1 / noise),), ((1.0, 0.0),)), 1),
            (ResponsePair(pure), 1),
        )
        yield Case(f"σ={noise:g} beside {pure:g}-DP", event, composed(both))
        pair = MixturePair(((0.99, 0.0), (0.01, 1.0)), ((1.0, 0.0),))
        mixed = Compose((SampledGaussian(1.0, 0.01, 100), Gaussian(noise)))
        yield Case(f"σ={noise:g} beside samples", mixed, composed(((pair, 100), both[0])))


def parallels() -> Iterator[Case]:
    event = Parallel((Gaussian(4.0, Contribution("user")), Gaussian(2.0, Contribution("user"))))
    for units in (1, 3):
        # All of k users may be in the group with less noise.
        yield Case(f"σ=4 or 2, k={units}", event, inverse(normal(units / 2.0)), {"units": units})


#: Cases of each kind of event.
CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "AboveThreshold": above_threshold,
    "AdaptiveSelection": second_rounds,
    "ApproximateDP": approximate,
    "BandedGaussian": banded,
    "Binomial": binomials,
    "BoundedRange": bounded_ranges,
    "Compose": compositions,
    "ExponentialMechanism": exponential,
    "Gaussian": gaussians,
    "Laplace": laplaces,
    "Parallel": parallels,
    "Participation": participations,
    "Poisson": poissons,
    "RDP": renyi,
    "SampledGaussian": sampled,
    "Scoped": scoped,
    "SelectBest": selected,
    "Selection": selections,
    "SoftCore": soft_cores,
    "StatisticallyClose": close,
    "TruncatedGeometric": truncated,
    "ZCDP": concentrated,
}


def kinds() -> list[str]:
    """Return the kinds of events that the package has, read from its tree."""
    for module in pkgutil.iter_modules(homes.__path__):
        importlib.import_module(f"{homes.__name__}.{module.name}")
    of_package = {n for n, kind in Event._kinds.items() if kind.__module__.startswith("dpgrain.")}
    return sorted(of_package)


@dataclass(frozen=True)
class Measured:
    """One case's claim at one δ, and its lower bound."""

    case: Case
    delta: float
    claim: float
    lower: float

    @property
    def ratio(self) -> float:
        """The claim over the lower bound; 1 where both are 0 or infinite."""
        if self.claim == self.lower:
            return 1.0
        return self.claim / self.lower if self.lower else math.inf


def measured(case: Case) -> list[Measured]:
    return [Measured(case, d, case.claim(d), case.lower(d)) for d in case.deltas]


def show(kind: str, found: list[Measured], *, every: bool) -> None:
    """Print the line of a type, and its loosest point."""
    known = sorted((m for m in found if 0 < m.lower < math.inf), key=lambda m: m.ratio)
    at_zero = max((m.claim for m in found if m.lower == 0), default=0.0)
    if not known:
        print(f"{kind:22}{len(found):6}")
        return
    worst = known[-1]
    where = f"{worst.case.said}, δ={worst.delta:g}: {worst.claim:.4g} for {worst.lower:.4g}"
    middle = known[len(known) // 2].ratio
    print(f"{kind:22}{len(found):6}{middle:9.3f}{worst.ratio:10.3f}{at_zero:10.2g}  {where}")
    for m in found if every else ():
        print(f"    {m.case.said}, δ={m.delta:g}: {m.claim:.5g} for {m.lower:.5g}, {m.ratio:.4f}")


def main() -> int:
    """Print a line for each kind of event."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="kinds with these letters")
    parser.add_argument("--all", action="store_true", help="print every case")
    options = parser.parse_args()
    print(f"{'event':22}{'points':>6}{'median':>9}{'largest':>10}{'at 0':>10}  where it is loosest")
    for kind in kinds():
        if options.only in kind and kind in CASES:
            show(kind, [m for case in CASES[kind]() for m in measured(case)], every=options.all)
    missing = [kind for kind in kinds() if kind not in CASES]
    if missing:
        print(f"no lower bound is known of: {', '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

"""Binomial and Poisson noise on integer sums, as seen by a shuffler's analyzer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting.events.base import Event, Neighbours
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.rounding import fails_closed
from dpgrain.errors import ParameterError
from dpgrain.noise.counts import (
    LARGEST_COUNT,
    BinomialDistribution,
    CountDistribution,
    PoissonDistribution,
)
from dpgrain.numerics.special_functions import ndtri, ndtri_exp
from dpgrain.units import Level

# Negative log of the mass omitted from sums, relative to the delta mass.
_LEFT_OUT_LOG_MASS = 50.0
# Max number of summed values of a distribution.
_MOST_VALUES = 1 << 22
# Every shift up to this is evaluated, and only some larger ones.
_EVERY_SHIFT = 2000
# Bounds on the rounding of a sum of logarithms, and of one term at a distance of 1 from the mean.
_SUM_ROUNDING, _TERM_ROUNDING = 1e-11, 2.0**-49
# A bound on the rounding of a difference of two normal quantiles.
_SCORE_ROUNDING = 1e-12


@lru_cache(maxsize=256)
def _largest_ratio(noise: CountDistribution, reach: int, leak: float) -> float:
    """Return the largest μ(k)/k for k = 1..reach, rounded up."""
    if max(reach, _width(noise, leak)) > _MOST_VALUES:
        # The shift is larger than supported, or the distribution is wider than any sampled noise.
        return math.inf
    rejected, accepted = _scores(noise, reach, leak)
    # A test rejects from some t onwards. Tests that reject, or accept, all but the delta mass are
    # ignored: the remaining t are from `start` to `end` + k, as array indices.
    counted_left = np.flatnonzero(rejected > -math.inf)
    counted_right = np.flatnonzero(accepted < math.inf)
    start, end = int(counted_left[0]), int(counted_right[-1])
    if start - reach < 0 or end + reach >= rejected.size:
        # The distribution starts, or ends, before all but the delta mass is rejected or accepted,
        # so the two data sets can be distinguished.
        return math.inf
    largest, before = 0.0, 0
    for k in _shifts(reach):
        apart = float(np.max(rejected[start : end + k + 1] - accepted[start - k : end + 1]))
        if not math.isfinite(apart):
            return math.inf
        # μ increases, so this shift covers all shifts since the last one.
        largest = max(largest, (apart + _SCORE_ROUNDING) / (before + 1))
        before = k
    return largest


def _width(noise: CountDistribution, leak: float) -> float:
    """Return a distance from the mean with negligible mass beyond it."""
    depth = _LEFT_OUT_LOG_MASS - math.log(leak)
    # By Bernstein's inequality the mass further from the mean is less than e^{−depth}.
    return math.sqrt(2 * noise.variance * depth) + depth


def _shifts(reach: int) -> list[int]:
    """Return every shift up to some thousand, then some of the larger ones."""
    few = list(range(1, min(reach, _EVERY_SHIFT) + 1))
    while few[-1] < reach:
        few.append(min(math.ceil(few[-1] * (1 + 1 / _EVERY_SHIFT)), reach))
    return few


def _scores(noise: CountDistribution, reach: int, leak: float) -> tuple[FloatArray, FloatArray]:
    """Return Φ⁻¹ of 1 − P(X ≥ t)/(1−δ₀), rounded up, and P(X < t)/(1−δ₀), down."""
    # Both are at the same successive t; they are −∞ and ∞ if the quotient is at least 1.
    width = _width(noise, leak)
    first = max(math.floor(noise.mean - width) - reach, 0)
    last = int(min(math.ceil(noise.mean + width) + reach, noise.last))
    x = np.arange(first, last + 1, dtype=np.float64)
    logs = noise.log_mass(x)
    slack = _SUM_ROUNDING + _TERM_ROUNDING * (1 + float(np.max(np.abs(x - noise.mean))))
    none = np.array([-math.inf])
    below = np.concatenate([none, np.logaddexp.accumulate(logs)])
    above = np.concatenate([np.logaddexp.accumulate(logs[::-1])[::-1], none])
    rejected = -_score(above - slack, below + slack, leak)
    accepted = _score(below - slack, above + slack, leak)
    if last < noise.last:
        # The last index represents all larger ones, because their mass was omitted.
        rejected, accepted = rejected[:-1], accepted[:-1]
    return rejected, accepted


def _score(small: FloatArray, rest: FloatArray, leak: float) -> FloatArray:
    """Return (n,) Φ⁻¹(e^small/(1−leak)), by the rest of the mass if that is smaller."""
    by_small = ndtri_exp(np.minimum(small - math.log1p(-leak), -1e-3))
    by_rest = -ndtri(np.clip((np.exp(np.minimum(rest, 0.0)) - leak) / (1 - leak), 0.0, 1.0))
    scores: FloatArray = np.where(small < math.log(0.5), by_small, by_rest)
    return scores


class _ShiftedSum(ABC):
    """A noisy sum of integers with bounded vectors from users."""

    grid: int
    coordinates: int
    leak: float
    rounds: int
    centred: bool

    def _check(self) -> None:
        _validate.integer(minimum=1, grid=self.grid)
        _validate.integer(minimum=1, coordinates=self.coordinates)
        _validate.integer(minimum=1, rounds=self.rounds)
        _validate.fraction(leak=self.leak)
        if self.leak >= 0.25:
            raise ParameterError(f"leak must be below 0.25, not {self.leak!r}.")

    @property
    @abstractmethod
    def _noise(self) -> CountDistribution:
        """Distribution of the noise in one coordinate."""

    @property
    def level(self) -> Level:
        return "user"

    def is_narrower(self, law: CountDistribution) -> bool:
        """Return True if a distribution is that of the noise, or of more devices."""
        own, bias = self._noise, "probability"
        same = type(law) is type(own) and getattr(law, bias, 0) == getattr(own, bias, 0)
        return same and law.variance >= own.variance

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in one coordinate, in grid steps."""
        return math.sqrt(self._noise.variance)

    def ratio(self, reach: int) -> float:
        """Return the ratio c: the largest μ(k)/k for shifts k of a coordinate, rounded up."""
        return self._ratio(_validate.integer(minimum=1, reach=reach))

    @fails_closed(math.inf)
    def _ratio(self, reach: int) -> float:
        return _largest_ratio(self._noise, reach, self.leak)

    def cost(self, neighbours: Neighbours) -> Loss:
        people = neighbours.units if neighbours.level == "user" else 1
        removed = neighbours.level == "user" and neighbours.relation == "zero_out"
        # Users without data are in the middle, or at an end, of the range of contributions.
        step = self.grid / 2 if removed and self.centred else float(self.grid)
        most = math.ceil(step)
        # Rounding changes every coordinate by less than 1 more.
        distance = min(step + math.sqrt(self.coordinates), most * math.sqrt(self.coordinates))
        mu = math.sqrt(self.rounds) * self._ratio(people * most) * people * distance
        return Loss(mu=mu, leak=min(self.rounds * self.coordinates * self.leak, 1.0))


@dataclass(frozen=True)
class Binomial(_ShiftedSum, Event):
    """Binomial noise on a sum of integer vectors that users send as shuffled bits.

    Every user rounds the vector at random to integers and adds that number of ones in each
    coordinate; each honest participant also adds Bin(b, p) ones. The analyzer sees the number of
    ones of *all* users together, never of one user.

    Args:
        trials: N·b, the noise bits of the honest participants of a round. Drop-outs count as
            dishonest.
        probability: p of one noise bit.
        grid: g, the largest l2 change of a replaced user's vector before rounding, in steps of the
            integer grid; a removed vector changes half as much.
        coordinates: d, the number of coordinates.
        leak: δ₀, the delta mass per coordinate and round.
        rounds: T, the number of rounds of one user; 1 if each round has its own users.
        centred: True if a user without data is in the middle of the range of contributions, so that
            removing a user changes half as much as replacing one; otherwise it changes equally
            much.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: T·d·δ₀ in addition to μ-GDP with μ = √T·c·‖k‖₂, where c = max μ(k)/k over all
    shifts k of one coordinate, and ‖k‖₂ ≤ g + √d (replaced) or g/2 + √d (removed). μ is infinite if
    a shift leaves the support of the distribution with a probability above δ₀. Source: Cheu,
    Joseph, Mao & Peng 2022, protocols P1D and PVEC, with the analysis of docs/theory, "Binomial
    noise", instead of theirs.

    >>> event = Binomial(2 * 10**6, 0.5, grid=100, coordinates=100, leak=1e-9)
    >>> round(event.ratio(100) * event.deviation, 3)
    1.0
    """

    trials: int
    probability: float
    grid: int
    coordinates: int
    leak: float
    rounds: int = 1
    centred: bool = True

    def __post_init__(self) -> None:
        if _validate.integer(minimum=1, trials=self.trials) > LARGEST_COUNT:
            raise ParameterError(f"trials must be at most 2^52, not {self.trials!r}.")
        _validate.fraction(probability=self.probability)
        self._check()

    @property
    def _noise(self) -> BinomialDistribution:
        return BinomialDistribution(self.trials, self.probability)


@dataclass(frozen=True)
class Poisson(_ShiftedSum, Event):
    """Poisson noise on a sum of integer vectors, added in parts by the participants.

    It differs from :class:`Binomial` because each of N honest participants adds Poisson(mean/N)
    ones in each coordinate, and the mean is subtracted from the sum. Only ones are sent: it does
    not cover messages of +1 and −1 that the analyzer can distinguish.

    Args:
        mean: λ, the mean number of ones that all honest participants add together, in one
            coordinate.
        grid: g, the largest l2 change of a replaced user's vector before rounding, in steps of the
            integer grid; a removed vector changes half as much.
        coordinates: d, the number of coordinates.
        leak: δ₀, the delta mass per coordinate and round.
        rounds: T, the number of rounds of one user; 1 if each round has its own users.
        centred: True if a user without data is in the middle of the range of contributions, so that
            removing a user changes half as much as replacing one; otherwise it changes equally
            much.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: as for :class:`Binomial`, with the distribution Poisson(λ). Source:
    docs/theory, "Binomial noise".

    >>> round(Poisson(1e6, grid=100, coordinates=100, leak=1e-9).ratio(100) * 1e3, 3)
    1.001
    """

    mean: float
    grid: int
    coordinates: int
    leak: float
    rounds: int = 1
    centred: bool = True

    def __post_init__(self) -> None:
        if _validate.positive(mean=self.mean) > LARGEST_COUNT / 2:
            raise ParameterError(f"mean must be at most 2^51, not {self.mean!r}.")
        self._check()

    @property
    def _noise(self) -> PoissonDistribution:
        return PoissonDistribution(self.mean)

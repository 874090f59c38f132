"""The winsorized mean: rotation, clipping to private intervals, and noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting import (
    Contribution,
    Event,
    Gaussian,
    Laplace,
    PureDP,
    calibrate,
    calibrate_laplace,
)
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.errors import ParameterError
from dpgrain.means.grid import tiles
from dpgrain.means.mean_protocol import Central, Contributions, CountedRounds
from dpgrain.means.problem import SMALLEST, Candidate, Method, Problem
from dpgrain.noise import RandomSource
from dpgrain.numerics.row_clipping import clipped
from dpgrain.papers.winsorized.median_ranges import PrivateRange
from dpgrain.papers.winsorized.rotation import Rotation, padded
from dpgrain.publishing.draws import counted, range_event
from dpgrain.publishing.facts import Fact
from dpgrain.units import RELATIONS, Level, Relation

# Max share of the users far from an interval's midpoint on one side.
_TAIL_SHARE = 1 / 16
# Width of a bin, relative to the concentration radius of a coordinate.
_BIN_PER_RADIUS = 1 / 8
# Steps in the half width: clipped values are whole steps, so that floating point adds them exactly.
_STEPS_PER_HALF_WIDTH = 2.0**20
# Values clipped per batch; they take 8 MB.
_BATCH_ENTRIES = 1 << 20


@dataclass(frozen=True)
class Winsorized(Central):
    """The mean of one vector per user, with less noise for concentrated vectors.

    In each round vectors are clipped to l2 norm ``bound`` and rotated at random. Each coordinate is
    clipped to an interval chosen privately from the data, and the sum gets Gaussian noise.

    Args:
        radius: τ: the assumed l2 distance of all vectors of a round from one point. Only accuracy
            depends on it.
        bound: the l2 clipping bound B of vectors.
        dimension: d, the length of vectors.
        noise_multiplier: noise sd of the sum ÷ the largest l2 norm of one user's contribution,
            half_width·√D.
        range_epsilon: ε of the choice of one interval if a user is removed.
        n_users: n, the public size of the known population.
        rounds: T, the number of published means.
        failure: β: if the vectors of all users are within τ of a point, the probability that a
            vector is clipped in any round is at most this, if ``range_epsilon`` is at least
            :attr:`range_epsilon_needed`.

    Raises:
        ParameterError: if a value is out of range.

    A user without a block is absent: such a user enters no choice, and counts as the midpoint of
    the intervals; the mean is the midpoint + Σ(clipped − midpoint)/n. A user with a block is
    present for any vector: zeros count as zeros, and so does a non-finite vector. With fewer than
    about :attr:`min_users` present users, midpoints are random, anywhere within the bound.

    Formal guarantee: :attr:`event`, for every choice of signs of the rotation, so that they may be
    published. Clipped values are whole steps, so the sum is also exact. Source: Levy et al. 2021,
    Algorithms 1, 2 and 6, with one Gaussian for all coordinates, D (padded) instead of d, and wider
    intervals: 4τ' clips concentrated data; docs/theory, "The winsorized mean".

    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SystemSource
    >>> mean = Winsorized.calibrate(
    ...     epsilon=8.0, delta=1e-6, n_users=4000, rounds=1, radius=0.001, bound=1.0, dimension=2
    ... )
    >>> found = mean.start(SystemSource()).estimate(Vectors(np.full((4000, 2), 0.5)))
    >>> found.round(1).tolist()
    [0.5, 0.5]
    """

    radius: float
    bound: float
    dimension: int
    noise_multiplier: float
    range_epsilon: float
    n_users: int
    rounds: int
    failure: float = 0.01

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        for name in ("radius", "bound"):
            _validate.scale(**{name: getattr(self, name)})
        for name in ("dimension", "n_users", "rounds"):
            _validate.integer(minimum=1, **{name: getattr(self, name)})
        _validate.noise(noise_multiplier=self.noise_multiplier)
        _validate.positive(range_epsilon=self.range_epsilon)
        _validate.fraction(failure=self.failure)
        # The range validates the number of bins.
        _ = self.ranges

    @staticmethod
    def calibrate(
        *,
        epsilon: float,
        delta: float,
        n_users: int,
        rounds: int,
        radius: float,
        bound: float,
        dimension: int,
        relation: Relation = "zero_out",
        failure: float = 0.01,
        beside: Event | None = None,
    ) -> Winsorized:
        """Calibrate the winsorized mean with the least noise for all rounds.

        Args:
            epsilon: the promised ε.
            delta: the promised δ.
            n_users: the public size of the known population.
            rounds: the number of published means.
            radius: τ, the assumed l2 distance of vectors of a round from one point.
            bound: the l2 clipping bound of vectors.
            dimension: the length of vectors.
            relation: the neighbouring relation.
            failure: the largest probability that a vector so near is clipped in any round; the
                choices get the smallest part of the promise that it allows.
            beside: the event of other releases under the same promise; nothing by default.

        Raises:
            ParameterError: if a value is out of range, or there are too few users to find the
                intervals under the promise; the message states a sufficient number.

        >>> mean = Winsorized.calibrate(
        ...     epsilon=1.0, delta=1e-6, n_users=10_000, rounds=10, radius=0.1, bound=10.0, dimension=50
        ... )
        >>> 0.999 < mean.event.epsilon(1e-6) <= 1.0
        True
        """
        _validate.integer(minimum=1, n_users=n_users)

        def build(noise: float, users: int) -> Winsorized:
            shape = Winsorized(radius, bound, dimension, noise, 1.0, users, rounds, failure)
            rate = shape.range_epsilon_needed
            return Winsorized(radius, bound, dimension, noise, rate, users, rounds, failure)

        def choices(users: int, times: float = 1.0) -> float:
            """Return the ε of the choices and of the other releases."""
            own = build(1.0, users)
            event: Event = range_event(math.sqrt(times) * own.range_epsilon, own.choices)
            return event.beside(beside).epsilon(delta, relation=relation)

        if choices(n_users) >= epsilon and (
            beside is None or _cost(beside, delta, relation) < epsilon
        ):
            enough = _enough(lambda users: choices(users, 2.0) <= epsilon, n_users)
            raise ParameterError(
                f"n_users = {n_users} is too small to choose the intervals of {padded(dimension)} "
                f"coordinates in {rounds} rounds with failure = {failure!r} and epsilon = "
                f"{epsilon!r}; use {enough:,} users, fewer rounds or a larger epsilon.",
                name="n_users",
            )

        def event(noise: float) -> Event:
            own = build(noise, n_users).event
            return own.beside(beside)

        result = calibrate(event, epsilon, delta, relation=relation, low=2.0**-10, high=2.0**30)
        return build(result.parameter, n_users)

    @property
    def event(self) -> Event:
        """The accountant's event for all rounds: the noisy sums, and the choices."""
        return Gaussian(self.noise_multiplier, ONE_EACH, self.rounds) + range_event(
            self.range_epsilon, self.choices
        )

    @property
    def level(self) -> Level:
        """The unit of a block: a user."""
        return "user"

    @property
    def size(self) -> int:
        """D, the padded length of vectors, a power of two."""
        return padded(self.dimension)

    @property
    def choices(self) -> int:
        """Number of intervals chosen in all rounds: D·T."""
        return self.size * self.rounds

    @property
    def coordinate_radius(self) -> float:
        """τ', the users' distance from the common point in all coordinates and rounds.

        min(τ, τ√(2 ln(4nDT/β)/D)); it fails with probability at most β/2.
        """
        return self._within(2 * self.n_users * self.choices / self.failure)

    @property
    def half_width(self) -> float:
        """Half width of an interval: τ' for the users, and the rest for its midpoint."""
        # All but a sixteenth of the users are within this, in all coordinates of all rounds, with
        # probability 1 − β/4.
        most = self._within(4 * self.choices / (_TAIL_SHARE * self.failure))
        width = self.coordinate_radius + min(most, self.coordinate_radius) + self.ranges.width / 2
        step = _step(width)
        return math.ceil(width / step) * step

    @property
    def ranges(self) -> PrivateRange:
        """The choice of an interval for each coordinate."""
        return PrivateRange(
            self.bound, _BIN_PER_RADIUS * self.coordinate_radius, self.range_epsilon
        )

    @property
    def range_epsilon_needed(self) -> float:
        """Smallest ``range_epsilon`` for all choices to succeed with probability 1 − β/4."""
        return math.log(4 * self.choices * self.ranges.bins / self.failure) / (
            (0.5 - _TAIL_SHARE) * self.n_users
        )

    @property
    def min_users(self) -> int:
        """Approximate number of users with a vector below which midpoints are random."""
        ranges = self.ranges
        return math.ceil(math.log(ranges.bins) / ((0.5 - _TAIL_SHARE) * ranges.rate))

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of a mean."""
        return self.noise_multiplier * self.half_width * math.sqrt(self.size) / self.n_users

    @property
    def reach(self) -> float:
        """Clipping bound of vectors."""
        return self.bound

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts that the guarantee rests on, and what accuracy rests on."""
        return (
            Fact("enrolled-users", (self.n_users,)),
            Fact("rotated-vectors", (self.dimension, self.bound, self.size)),
            Fact("clipped-coordinates", (self.half_width, self.radius, self.failure)),
            self.by_chance,
        )

    @property
    def by_chance(self) -> Fact:
        """The number of users that the intervals need."""
        return Fact("intervals-of-few", (self.min_users,))

    def start(
        self,
        source: RandomSource,
        owners: NDArray[Any] | None = None,  # noqa: ARG002
    ) -> WinsorizedRounds:
        """Start a run.

        Args:
            source: the source of signs, choices and noise.
            owners: unused, because each block belongs to one user.
        """
        return WinsorizedRounds(self, source)

    def _within(self, trials: float) -> float:
        """Return the bound of a rotated coordinate, exceeded with probability 1/trials."""
        return self.radius * min(1.0, math.sqrt(2 * math.log(2 * trials) / self.size))


class WinsorizedRounds(CountedRounds):
    """One run of a :class:`Winsorized` mean."""

    def __init__(self, mean: Winsorized, source: RandomSource) -> None:
        super().__init__(mean)
        self.mean, self.source = mean, counted(source, mean.event)

    @property
    def radius(self) -> float:
        """The distance from a common point where vectors are not clipped."""
        return self.mean.radius

    def _round(self, contributions: Contributions) -> FloatArray:
        mean = self.mean
        if contributions.dimension != mean.dimension:
            raise ParameterError(
                f"dimension must be the length of the vectors, {contributions.dimension}, not "
                f"{mean.dimension}."
            )
        # Signs are new in every round, because vectors may depend on outputs with the old ones.
        rotation = Rotation.draw(mean.dimension, self.source)
        columns = rotation.of(_shortened(contributions, mean.bound))
        middles = mean.ranges.middles(columns, self.source)
        total = _clipped_sums(columns, middles, mean.half_width)
        moved = mean.half_width * math.sqrt(mean.size)
        part = Gaussian(mean.noise_multiplier, ONE_EACH)
        noisy = self.source.floating(part, total, moved)
        return rotation.back(middles + noisy / mean.n_users)


@dataclass(frozen=True)
class WinsorizedScalar:
    """The mean of one number per user, for numbers close together, with δ = 0.

    Numbers are clipped to [−bound, bound], and are assumed within ``radius`` τ of one point; only
    accuracy depends on this. Half of ε is for the choice of the interval, half for Laplace noise.

    Formal guarantee: ``epsilon``-DP for one user under the relation, with exact integer noise.
    Absent users enter no choice and count as the interval's midpoint; a non-finite number is
    treated as 0. Source: Levy et al. 2021, Algorithm 1, with wider intervals; docs/theory, "The
    winsorized mean".
    """

    radius: float
    bound: float
    n_users: int
    epsilon: float
    relation: Relation = "zero_out"

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        for name in ("radius", "bound"):
            _validate.scale(**{name: getattr(self, name)})
        _validate.integer(minimum=1, n_users=self.n_users)
        if not 2.0**-16 <= _validate.positive(epsilon=self.epsilon) <= 2.0**10:
            raise ParameterError(
                f"epsilon must be between 2^-16 and 2^10, not {self.epsilon!r}.",
                name="epsilon",
            )
        _validate.one_of(RELATIONS, relation=self.relation)
        _ = self.ranges

    @property
    def ranges(self) -> PrivateRange:
        """The choice of the interval."""
        rate = self.epsilon / (2 if self.relation == "zero_out" else 4)
        return PrivateRange(self.bound, _BIN_PER_RADIUS * self.radius, rate)

    @property
    def half_width(self) -> float:
        """Half of the width of the interval: 2τ, and half a bin."""
        width = 2 * self.radius + self.ranges.width / 2
        step = _step(width)
        return math.ceil(width / step) * step

    @property
    def noise(self) -> Laplace:
        """The noise on the sum, in half widths."""
        contribution = Contribution(block="user", layout="shared", coordinates="signed", norm="l1")
        return calibrate_laplace(
            self.epsilon / 2, contribution=contribution, relation=self.relation
        )

    @property
    def event(self) -> Event:
        """The accountant's event for the choice and the noisy sum."""
        return PureDP(self.ranges.rate) + self.noise

    @property
    def failure(self) -> float:
        """The largest probability that any of n numbers within τ of a point is clipped."""
        best = math.log(self.ranges.bins) - self.ranges.rate * self.n_users / 2
        return math.exp(min(best, 0.0))

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of the mean."""
        return math.sqrt(2.0) * self.noise.noise_multiplier * self.half_width / self.n_users

    def estimate(self, values: ArrayLike, source: RandomSource) -> float:
        """Return the noisy mean of (k,) numbers, one per present user."""
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "fiub":
            raise ParameterError(
                f"values must be numbers of shape (n,), not {array.shape} of {array.dtype}."
            )
        array = array.astype(np.float64)
        clamped = np.clip(np.where(np.isfinite(array), array, 0.0), -self.bound, self.bound)[
            None, :
        ]
        draws = counted(source, self.event)
        middles = self.ranges.middles(clamped, draws, pure=True)
        step = _step(self.half_width)
        total = np.rint(_clipped_sums(clamped, middles, self.half_width) / step).astype(np.int64)
        noisy = draws.noisy(self.noise, total, self.half_width / step)
        return float(middles[0] + float(noisy[0]) * step / self.n_users)


def _cost(event: Event, delta: float, relation: Relation) -> float:
    return event.epsilon(delta, relation=relation)


def _enough(suffices: Callable[[int], bool], few: int) -> int:
    """Return approximately the smallest sufficient number of users, above ``few``."""
    low, high = few, 2 * few
    while not suffices(high):
        low, high = high, 2 * high
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _step(width: float) -> float:
    """Return the step of the grid of clipped values, a power of two."""
    return 2.0 ** math.floor(math.log2(width / _STEPS_PER_HALF_WIDTH))


def _shortened(contributions: Contributions, bound: float) -> FloatArray:
    """Return (blocks, d) the clipped vectors of all present users."""
    parts = [clipped(part, bound) for part in tiles(contributions)]
    return np.concatenate([np.zeros((0, contributions.dimension)), *parts])


def _clipped_sums(columns: FloatArray, middles: FloatArray, half: float) -> FloatArray:
    """Add clipped distances from the midpoints, (coordinates,), as exact whole steps."""
    step = _step(half)
    total = np.empty(len(columns))
    most = max(1, _BATCH_ENTRIES // max(columns.shape[1], 1))
    for first in range(0, len(columns), most):
        some = slice(first, first + most)
        steps = columns[some] - middles[some, None]
        np.clip(steps, -half, half, out=steps)
        np.rint(np.divide(steps, step, out=steps), out=steps)
        total[some] = steps.sum(axis=1)
    return total * step


def _for_users(problem: Problem) -> Candidate:
    """Return the winsorized mean as a candidate for a mean of users."""
    finder, calibration = problem.finder()
    # Intervals of the smallest radius are the hardest to find.
    radius = problem.radius or problem.bound * SMALLEST
    mean = Winsorized.calibrate(
        **calibration, rounds=1, radius=radius, bound=problem.bound, dimension=problem.d
    )
    facts = (
        problem.near(finder),
        Fact("padded-vectors", (mean.size,)),
        mean.by_chance,
    )
    return Candidate(
        "winsorized",
        mean,
        mean.noise_sd * math.sqrt(problem.d),
        facts,
        finder,
        lambda radius: replace(mean, radius=radius),
    )


METHOD = Method("winsorized", _for_users, centre="a common centre")

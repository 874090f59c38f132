"""The soft core: a private mean of the users who are close to most others."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate, accounting
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Event, calibrate
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.errors import ParameterError, RunEnded
from dpgrain.means.close_vectors import close, on_grid
from dpgrain.means.mean_protocol import Central, Contributions, CountedRounds
from dpgrain.means.problem import Candidate, Method, Problem
from dpgrain.means.radius import min_gap
from dpgrain.noise import RandomSource
from dpgrain.publishing.draws import counted
from dpgrain.publishing.facts import Fact
from dpgrain.units import Level, Relation, User

# The radius is 2 to this power grid steps; users are close if they are within 2^17 steps.
_STEP_BITS = 16
_CLOSE_SQUARE = 4 ** (_STEP_BITS + 1)
# The noise has at least 2 to this power steps of its own, finer grid.
_NOISE_BITS = 30
# Multiple of the radius that limits the noise; larger noise makes the mean useless.
_LARGEST_NOISE_PER_RADIUS = 2.0**20
# Points tried in an interval of the search for a test, in half widths from its midpoint, and number
# of halvings of the interval.
_CUTS, _SEARCHES = (-1.0, -0.5, 0.0, 0.5, 1.0), 7

_Point: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class SoftCoreMean(Central):
    """The mean of one vector per user, over users within 2·radius of most others.

    Args:
        radius: the concentration radius τ. If all vectors are within it of some point, their mean
            is unbiased; more distant users have less weight, or none.
        noise_multiplier: noise sd of the mean ÷ radius.
        n_users: the public size of the known population, including users without a vector.
        core: H; a mean is safe if at least H users are close to at least H users.
        gap: the distance from H − 1 up to the threshold.
        threshold_scale: scale of the geometric noise on the threshold, drawn once.
        query_scale: scale of the geometric noise on the count of a round.
        rounds: the maximum number of published means.

    Raises:
        ParameterError: if a value is out of range.

    Every block is the vector of one user. A user without data has no block, and removing data
    removes a block. A non-finite vector is treated as the zero vector, which counts like any other.

    Formal guarantee: :attr:`event`, with the numbers that the sampler uses, for any vectors. They
    are rounded independently to a grid of radius/65536; all later steps, including the noise, use
    integers. The run publishes the rounds' means until one round fails, and which one. Source: Asi
    & Liu 2024, Algorithm 1, with another score, other weights and other constants, because the
    printed ones are not private; docs/theory, "Choosing by a threshold".

    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SystemSource
    >>> mean = SoftCoreMean.calibrate(epsilon=1.0, delta=1e-6, n_users=1000, rounds=10, radius=0.5)
    >>> run = mean.start(SystemSource())
    >>> bool(abs(run.estimate(Vectors(np.full((1000, 2), 7.0))) - 7.0).max() < 1.0)
    True
    >>> mean.event.epsilon(1e-6, relation="replace") <= 1.0
    True
    """

    radius: float
    noise_multiplier: float
    n_users: int
    core: int
    gap: int
    threshold_scale: float
    query_scale: float
    rounds: int

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _validate.scale(radius=self.radius)
        _validate.noise(low=-20, high=20, noise_multiplier=self.noise_multiplier)
        # The weights are integers, and so are their sums with vectors.
        if _validate.integer(minimum=1, n_users=self.n_users) > 10**6:
            raise ParameterError(f"n_users must be at most 10^6, not {self.n_users!r}.")
        for name in ("threshold_scale", "query_scale"):
            if not 2.0**-20 <= _validate.positive(**{name: getattr(self, name)}) <= 2.0**30:
                raise ParameterError(
                    f"{name} must be between 2^-20 and 2^30, not {getattr(self, name)!r}."
                )
        # The event validates the other fields.
        _ = self.event

    @staticmethod
    def calibrate(
        *,
        epsilon: float,
        delta: float,
        n_users: int,
        rounds: int,
        radius: float,
        relation: Relation = "replace",
        failure: float = 0.01,
        beside: Event | None = None,
    ) -> SoftCoreMean:
        """Calibrate the soft core with the least noise for a guarantee over all rounds.

        Args:
            epsilon: the promised ε.
            delta: the promised δ.
            n_users: the public size of the known population.
            rounds: the maximum number of published means.
            radius: the concentration radius τ.
            relation: the neighbouring relation.
            failure: the maximum probability that the run ends early although in every round all
                n_users vectors are within the radius of some point.
            beside: the event of other releases under the same promise; nothing by default.

        Raises:
            ParameterError: if a value is out of range, or there are too few users.

        >>> few, many = (
        ...     SoftCoreMean.calibrate(epsilon=1.0, delta=1e-6, n_users=n, rounds=1000, radius=1.0)
        ...     for n in (500, 10**4))
        >>> few.noise_sd > 20 * many.noise_sd
        True
        """
        epsilon = _validate.positive(epsilon=epsilon)
        delta = _validate.delta(allow_zero=False, delta=delta)
        n_users = _validate.integer(minimum=1, n_users=n_users)
        rounds = _validate.integer(minimum=1, rounds=rounds)
        search = _Search(delta, n_users, rounds, relation, _validate.fraction(failure=failure))
        means: list[SoftCoreMean] = []
        for share in (1.0,) if beside is None else (0.85, 0.6, 0.4, 0.2):
            test = search.best(share * epsilon)
            if test is None:
                continue

            def event(noise: float, test: _Test = test) -> Event:
                own = test.event(noise, n_users, rounds)
                return own.beside(beside)

            try:
                result = calibrate(
                    event,
                    epsilon,
                    delta,
                    unit=User(),
                    relation=relation,
                    low=1 / _LARGEST_NOISE_PER_RADIUS,
                )
            except ParameterError:
                # Without other releases, the search has found sufficient noise.
                if beside is None:
                    raise
                continue
            means.append(test.mean(radius, result.parameter, n_users, rounds))
        if not means:
            raise ParameterError(_too_few(search, epsilon, beside), name="n_users")
        return min(means, key=lambda mean: mean.noise_multiplier)

    @property
    def event(self) -> accounting.SoftCore:
        """The accountant's event for all rounds together."""
        return accounting.SoftCore(
            self.noise_multiplier,
            self.n_users,
            self.core,
            self.gap,
            self.threshold_scale,
            self.query_scale,
            self.rounds,
        )

    @property
    def level(self) -> Level:
        """The unit of a block."""
        return "user"

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of a mean."""
        return self.noise_multiplier * self.radius

    @property
    def reach(self) -> float:
        """Concentration radius."""
        return self.radius

    @property
    def compares(self) -> bool:
        """True, because every user is compared with every other."""
        return True

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts of the run."""
        return (
            Fact("rounds-at-most", (self.rounds, self.n_users)),
            Fact("concentration", (self.radius,)),
            Fact("distance-grid", (self.radius / 2**_STEP_BITS,)),
            Fact("close-users", (int(self.event.threshold),)),
        )

    def start(self, source: RandomSource, owners: NDArray[Any] | None = None) -> SoftCoreRounds:  # noqa: ARG002
        """Start a run.

        Args:
            source: the source of noise.
            owners: unused, because each block belongs to one user.
        """
        return SoftCoreRounds(self, source)


class SoftCoreRounds(CountedRounds):
    """One run of a :class:`SoftCoreMean`; it ends for good in the first round that fails."""

    def __init__(self, mean: SoftCoreMean, source: RandomSource) -> None:
        super().__init__(mean)
        self.mean, self._event, self._ended = mean, mean.event, ""
        # The noise of the threshold is drawn once for all rounds: fresh noise would let each round
        # reveal something.
        self._comparisons = counted(source, self._event).comparisons(self._event)

    def estimate(self, contributions: Contributions) -> FloatArray:
        """Return the noisy mean of one round, (dimension,)."""
        if self._ended:
            raise RunEnded(self._ended)
        return super().estimate(contributions)

    def _round(self, contributions: Contributions) -> FloatArray:
        mean = self.mean
        if contributions.blocks > mean.n_users:
            raise ParameterError(
                f"n_users = {mean.n_users} is less than the number of vectors; pass the size of "
                "the roster, and one vector per user."
            )
        vectors, step = contributions.vectors(), mean.radius / 2**_STEP_BITS
        (counts,) = close(vectors, step, [_CLOSE_SQUARE])
        weights = integer_weights(counts, mean.n_users, mean.core)
        few = not weights.any()
        if self._comparisons.stop(
            np.array([h_index(counts)]),
            lambda noisy, lowered: (noisy + lowered < self._event.threshold) | few,
        )[0]:
            self._ended = (
                f"The run ended in round {self._done}: too few users are within 2·radius of most "
                "others. Use a larger radius, or more users."
            )
            raise RunEnded(self._ended)
        core = np.flatnonzero(weights)
        return self._noised(on_grid(vectors[core], step), weights[core])

    def _noised(self, steps: IntArray, weights: IntArray) -> FloatArray:
        """Add noise to the weighted mean of vectors on the grid, in steps of a finer grid."""
        mean, d = self.mean, steps.shape[1]
        shift = max(0, math.ceil(_NOISE_BITS - _STEP_BITS - math.log2(mean.noise_multiplier)))
        total = weighted_sum(steps, weights)
        divisor = 2 * int(weights.sum())
        nearest = [((part << shift + 1) + divisor // 2) // divisor for part in total]
        # Rounding changes each coordinate by half a step, in both of two neighbours.
        moved = self._event.sensitivity
        radius = 2.0 ** (_STEP_BITS + shift) + math.sqrt(d) / moved
        noisy = self._comparisons.noisy(np.array(nearest, dtype=object), radius)
        return noisy.astype(np.float64) * (mean.radius / 2.0 ** (_STEP_BITS + shift))


def h_index(counts: IntArray) -> int:
    """Return h, the largest h such that h users are close to at least h users each."""
    ordered = np.sort(counts)[::-1]
    return int((ordered >= np.arange(1, ordered.size + 1)).sum())


def integer_weights(counts: IntArray, users: int, core: int) -> IntArray:
    """Return the weights w times 2·core − users − 4, which are integers."""
    weights: IntArray = np.clip(2 * counts - users - 2, 0, 2 * core - users - 4)
    return weights


def weighted_sum(steps: IntArray, weights: IntArray) -> list[int]:
    """Return Σ w·x exactly, for vectors within 2^18 steps of each other."""
    # Vectors with positive weight are that close, because any two of them share a close one.
    # 2^18 steps, 10^6 users and weights below 10^6 stay below 2^63.
    first = steps[0]
    rest = weights @ (steps - first)
    total = int(weights.sum())
    return [total * int(a) + int(b) for a, b in zip(first, rest, strict=True)]


@dataclass(frozen=True)
class _Test:
    """A test of concentration, with its scales and its threshold."""

    threshold_scale: float
    query_scale: float
    core: int
    gap: int

    def event(self, noise: float, users: int, rounds: int) -> accounting.SoftCore:
        scales = self.threshold_scale, self.query_scale
        return accounting.SoftCore(noise, users, self.core, self.gap, *scales, rounds)

    def mean(self, radius: float, noise: float, users: int, rounds: int) -> SoftCoreMean:
        scales = self.threshold_scale, self.query_scale
        return SoftCoreMean(radius, noise, users, self.core, self.gap, *scales, rounds)


@dataclass(frozen=True)
class _Search:
    """A search for the test with the least noise in the mean."""

    delta: float
    users: int
    rounds: int
    relation: Relation
    failure: float

    def best(self, epsilon: float) -> _Test | None:
        """Return the test with the least noise, by a shrinking grid; None if none exists."""
        best: tuple[float, _Test] | None = None
        centre, width = (0.5, 0.5, 0.5), 0.5
        for _ in range(_SEARCHES):
            for point in _around(centre, width):
                result = self._at(epsilon, point)
                if result is not None and (best is None or result[0] < best[0]):
                    best, centre = result, point
            width /= 2
        return None if best is None else best[1]

    def enough(self, epsilon: float) -> int:
        """Return a sufficient number of users for a mean under the promise."""
        needs = [self._needs(epsilon, point) for point in _around((0.5, 0.5, 0.5), 0.5)]
        # The core is then three quarters of all users; with half of them no noise would be
        # sufficient.
        return min(4 * (gap + spare) for _, _, gap, spare in needs)

    def _at(self, epsilon: float, point: _Point) -> tuple[float, _Test] | None:
        one, two, gap, spare = self._needs(epsilon, point)
        core = self.users + 2 - spare - gap
        if core <= self.users / 2 + 2:
            return None
        test = _Test(one, two, core, gap)
        spent, _, leaks = point
        mu = _mu(epsilon * (1 - spent), self.delta * (1 - leaks))
        return test.event(1.0, self.users, self.rounds).sensitivity / mu, test

    def _needs(self, epsilon: float, point: _Point) -> tuple[float, float, int, int]:
        """Return both scales, the gap below the threshold, and n + 1 minus the threshold."""
        spent, once, leaks = point
        # Removing a person's vector only decreases counts, which halves the cost of rounds.
        turns = 1 if self.relation == "zero_out" else 2
        one = 1 / (epsilon * spent * once)
        two = turns / (epsilon * spent * (1 - once))
        gap = min_gap(self.delta * leaks, one, two)
        # A round fails if Z + ν ≤ θ − 1 − n.
        return one, two, gap, min_gap(self.failure / self.rounds, one, two)


# Many points have the same two parts of the promise, so results are cached.
_mu = functools.lru_cache(maxsize=4096)(gaussian_mu)


def _around(centre: _Point, width: float) -> Iterator[_Point]:
    """Yield points of the open unit cube around one of them."""
    # A point contains the share of ε for the test, the share of that for the threshold, and the
    # share of δ for the tail.
    steps = [sorted({min(max(x + width * s, 0.01), 0.99) for s in _CUTS}) for x in centre]
    yield from itertools.product(*steps)


def _too_few(search: _Search, epsilon: float, beside: Event | None) -> str:
    if beside is not None:
        return (
            f"n_users = {search.users} is too small for epsilon = {epsilon!r} in addition to the "
            "other published results; use more users, a larger epsilon, or fewer other results."
        )
    return (
        f"n_users = {search.users} is too small to detect that users agree at epsilon = "
        f"{epsilon!r}, delta = {search.delta!r} and rounds = {search.rounds}; use "
        f"{search.enough(epsilon)} users, or a larger epsilon or delta."
    )


def _for_users(problem: Problem) -> Candidate:
    """Return the soft core as a candidate for a mean of users."""
    finder, calibration = problem.finder()
    mean = SoftCoreMean.calibrate(**calibration, rounds=1, radius=problem.radius or problem.bound)
    facts = (
        problem.near(finder),
        Fact("no-mean", (int(mean.event.threshold),)),
    )
    return Candidate(
        "softcore",
        mean,
        mean.noise_sd * math.sqrt(problem.d),
        facts,
        finder,
        lambda radius: replace(mean, radius=radius),
    )


METHOD = Method("softcore", _for_users, centre="a common centre")

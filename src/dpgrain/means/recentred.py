"""Recentred mean, which clips each round around the result of the last round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting import Event, ExponentialMechanism, Gaussian, calibrate
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.errors import ParameterError
from dpgrain.means.clipped import ratio, weights
from dpgrain.means.grid import exactly_noised, tiles
from dpgrain.means.mean_protocol import (
    Central,
    Contributions,
    CountedRounds,
    DistributedVectors,
    Rule,
    Vectors,
)
from dpgrain.means.problem import MeanEstimate
from dpgrain.means.rules import ExcessVector, WeightedClip, count_by_radius
from dpgrain.means.total_error import UserCount
from dpgrain.noise import RandomSource
from dpgrain.numerics.row_clipping import clipped
from dpgrain.publishing.draws import counted
from dpgrain.publishing.facts import Fact
from dpgrain.units import Level, Relation

# Radii per octave, and octaves below the largest radius, among which one is chosen.
_RADII_PER_OCTAVE, _OCTAVES = 32, 16
# Parts per user: half of them are inside at the first radius that contains the user, and half of
# the rest at every second larger radius, over the second number of radii to either side. Any share
# of the users can therefore be outside, even if all have the same distance.
_PARTS_PER_USER, _REACH_RADII = 1024, 22
# Maximum share of the budget (of μ², of zCDP) for choices of radii.
_CHOICES_SHARE = 0.03
# Standard deviations of noise by which the norm of the removed sum must at least exceed its noise
# to stop clipping around the centre, with a false alarm rate of 2 to 3%.
_ALARM_SDS = 1.5


@dataclass(frozen=True)
class Recentred(Central):
    """Mean of one vector per user, clipped around the published centre.

    A round publishes centre + Σ clip(x − centre, r)/n + noise, where n is the number of users in
    the population: users without data count as the centre. The centre then moves to the result, or
    part of the way.

    Args:
        radius: r, the clipping bound of the l2 distance to the centre; the largest one if radii are
            chosen; or (T,) one for each round.
        noise_multiplier: noise sd of a round's sum ÷ radius, for rounds with equal shares.
        n_users: n, the public number of users in the known population.
        rounds: T, the number of published means.
        shares: (T,) the budget shares of rounds, with sum 1; None for equal shares.
        weight: the fraction of the way from the centre to the published mean, in [0, 1]. Rounds
            with noise above the radius need a small one.
        choice_scale: the scale of the noise, in users, of each round's choice of a radius near the
            median distance of users to the centre; 0 for a fixed radius.
        beyond: the share of the users outside the last round's radius, in (0, ½].
        bound: a public bound on the norm of vectors, required for the check.
        check: the noise multiplier of a check: after the last round has chosen a radius, it
            publishes the sum of what clipping removes from users' vectors. If this sum is
            significant, or clipping to the bound has noise below the expected error, the last round
            clips to the bound around 0 instead. 0 for no check.
        centre: the public centre of the first round, one number for all coordinates or (d,).

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: :attr:`event`. Removing a user removes a vector of norm at most r from the
    sum, and replacing a user changes it by at most 2r, for any data, any n and any public centre.
    Sums are integer sums. The numbers of users on either side of a radius change by at most one,
    and decrease for all radii if a user is removed; the choice minimizes the larger excess of the
    two. Source: docs/theory, "Means of users"; with one round the clipped mean.

    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SystemSource
    >>> mean = Recentred(10.0, 2.0, n_users=1000, rounds=2, choice_scale=10.0)
    >>> run, users = mean.start(SystemSource()), Vectors(np.full((1000, 3), 5.0))
    >>> [run.estimate(users).shape for _ in range(2)]
    [(3,), (3,)]
    """

    radius: float | tuple[float, ...]
    noise_multiplier: float
    n_users: int
    rounds: int = 1
    shares: tuple[float, ...] | None = None
    weight: float = 1.0
    choice_scale: float = 0.0
    beyond: float = 0.5
    bound: float | None = None
    check: float = 0.0
    centre: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        for radius in self._radii:
            _validate.scale(radius=radius)
        _validate.noise(noise_multiplier=self.noise_multiplier)
        _validate.integer(minimum=1, n_users=self.n_users)
        _validate.integer(minimum=1, rounds=self.rounds)
        _validate.probability(weight=self.weight)
        _validate.non_negative(choice_scale=self.choice_scale)
        if self.bound is not None:
            _validate.scale(bound=self.bound)
        if _validate.non_negative(check=self.check) and self.bound is None:
            raise ParameterError(
                f"bound must be a number, not None, because check = {self.check!r} is above 0; "
                "pass the largest norm of a vector."
            )
        if not 0 < _validate.positive(beyond=self.beyond) <= 0.5:
            raise ParameterError(f"beyond must be a share in (0, 0.5], not {self.beyond!r}.")
        for each in self.centre if isinstance(self.centre, tuple) else (self.centre,):
            if not math.isfinite(_validate.real(centre=each)):
                raise ParameterError(
                    f"centre must be finite, not {_validate.describe(self.centre)}."
                )
        if len(self._radii) not in (1, self.rounds):
            raise ParameterError(
                f"radius must be one number, or one per round ({self.rounds}), not {self.radius!r}."
            )
        if self.shares is None:
            return
        for share in _validate.sequence(shares=self.shares):
            _validate.positive(shares=share)
        if len(self.shares) != self.rounds or not math.isclose(sum(self.shares), 1):
            raise ParameterError(
                f"shares must be {self.rounds} numbers, one per round, with the sum 1, not "
                f"{self.shares!r}."
            )

    @staticmethod
    def calibrate(
        *,
        epsilon: float,
        delta: float,
        n_users: int,
        rounds: int,
        radius: float | tuple[float, ...],
        relation: Relation = "zero_out",
        shares: tuple[float, ...] | None = None,
        weight: float = 1.0,
        choose: bool = False,
        beyond: float = 0.5,
        bound: float | None = None,
        check: float = 0.0,
        beside: Event | None = None,
    ) -> Recentred:
        """Calibrate the recentred mean with the least noise for a guarantee over all rounds.

        Args:
            epsilon: the ε of the guarantee.
            delta: the δ of the guarantee.
            n_users: the public number of users in the known population.
            rounds: the number of published means.
            radius: the clipping bound; the largest one with ``choose``.
            relation: the neighbouring relation.
            shares: (T,) the budget shares of rounds, with sum 1; None for equal shares.
            weight: the fraction of the way from the centre to the published mean, from 0 to 1.
            choose: True lets each round choose its radius, for a total of 3% of the budget.
            beyond: the share of the users outside the last round's radius, in (0, ½].
            bound: a public bound on the norm of vectors, required for the check.
            check: the share of the budget of sums, in [0, 1), for checking in the last round what
                clipping removes; 0 for no check.
            beside: the event of other results published under the same guarantee; none by default.

        Raises:
            ParameterError: if a value is out of range, or no noise satisfies the guarantee.

        >>> Recentred.calibrate(
        ...     epsilon=1.0, delta=1e-6, n_users=1000, rounds=9, radius=2.0, choose=True
        ... ).event.epsilon(1e-6) <= 1.0
        True
        """
        rounds = _validate.integer(minimum=1, rounds=rounds)

        choice = 0.0
        if choose:
            whole = calibrate(
                lambda noise: Gaussian(noise, ONE_EACH).beside(beside),
                epsilon,
                delta,
                relation=relation,
            )
            choice = _choice_scale(_mu(whole.parameter, relation), rounds, relation)

        def mean(noise: float) -> Recentred:
            return Recentred(
                radius,
                noise,
                n_users,
                rounds,
                shares,
                weight,
                choice,
                beyond,
                bound,
                noise * math.sqrt((1 / check - 1) / rounds) if check else 0.0,
            )

        result = calibrate(
            lambda noise: mean(noise).event.beside(beside),
            epsilon,
            delta,
            relation=relation,
            low=2.0**-10,
        )
        return mean(result.parameter)

    @property
    def _radii(self) -> tuple[float, ...]:
        return self.radius if isinstance(self.radius, tuple) else (self.radius,)

    def round_radius(self, done: int) -> float:
        """Return the (largest) radius of the round after ``done`` rounds."""
        return self._radii[done if len(self._radii) > 1 else 0]

    @property
    def level(self) -> Level:
        """Protected level: users."""
        return "user"

    @property
    def event(self) -> Event:
        """Accounting event of all rounds together."""
        # The cost of Gaussians depends only on Σμ², so rounds with unequal shares cost the same as
        # rounds with equal shares.
        sums: Event = Gaussian(self.noise_multiplier, ONE_EACH, self.rounds)
        if self.check:
            sums += Gaussian(self.check, ONE_EACH)
        if not self.choice_scale:
            return sums
        return sums + ExponentialMechanism(self.choice_scale, one_way=True, count=self.rounds)

    @property
    def noise_sd(self) -> float:
        """Largest standard deviation of the noise of each coordinate of the last mean."""
        last = self.rounds - 1
        return self.multiplier(last) * self.round_radius(last) / self.n_users

    @property
    def reach(self) -> float:
        """(Largest) radius of the first round."""
        return self.round_radius(0)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts behind the mean."""
        kind = "radius-at-most" if self.choice_scale else "radius-around"
        last = self.round_radius(self.rounds - 1)
        return Fact("full-rounds", (self.rounds,)), Fact(kind, (last,))

    def multiplier(self, done: int) -> float:
        """Return the noise multiplier of the round after ``done`` rounds."""
        if self.shares is None:
            return self.noise_multiplier
        return self.noise_multiplier / math.sqrt(self.rounds * self.shares[done])

    def expected(self, radius: float, beyond: float, dimension: int) -> float:
        """Return the expected RMS error of the last mean.

        Args:
            radius: its radius.
            beyond: the share of users outside the radius, at distances with an exponential tail, in
                one of √d directions.
            dimension: the number of coordinates.
        """
        noise = self.multiplier(self.rounds - 1) * math.sqrt(dimension) / self.n_users
        tail = beyond / math.log(1 / beyond) / math.sqrt(dimension) if beyond else 0.0
        return radius * math.hypot(noise, tail)

    def choices(self, done: int = 0) -> FloatArray:
        """Return the candidate radii in the round after ``done`` rounds, up to the largest."""
        steps = np.arange(-_RADII_PER_OCTAVE * _OCTAVES, 1)
        result: FloatArray = self.round_radius(done) * 2.0 ** (steps / _RADII_PER_OCTAVE)
        return result

    def start(
        self,
        source: RandomSource,
        owners: NDArray[Any] | None = None,  # noqa: ARG002 - a block is a user's
    ) -> RecentredRounds:
        """Start a run."""
        return RecentredRounds(self, source)


def _mu(noise_multiplier: float, relation: Relation) -> float:
    return Gaussian(noise_multiplier, ONE_EACH).loss(relation=relation).mu


def _choice_scale(mu: float, rounds: int, relation: Relation) -> float:
    """Return the noise scale of choices for their share of a budget of μ²/2-zCDP."""
    # Each choice costs ε²/8, with twice the ε if users are replaced.
    moved = 1 if relation == "zero_out" else 2
    return moved / math.sqrt(8 * _CHOICES_SHARE * mu**2 / 2 / rounds)


class RecentredRounds(CountedRounds):
    """One run of a :class:`Recentred` mean; ``stated`` is the number of users, or None."""

    def __init__(self, mean: Recentred, source: RandomSource, stated: int | None = None) -> None:
        super().__init__(mean)
        self.mean, self.source, self.stated = mean, counted(source, mean.event), stated
        self._next: FloatArray | None = None
        #: Published radii of the rounds so far.
        self.radii: list[float] = []
        #: Centre of the last round.
        self.centre: FloatArray = np.zeros(0)
        #: Published sum of what the last round removes, and of the centre for each user.
        self.rest: FloatArray = np.zeros(0)
        #: Mean of vectors clipped to the bound, if the last round used it instead.
        self.clipped: MeanEstimate | None = None

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of the last round's mean."""
        return self.mean.multiplier(len(self.radii) - 1) * self.radius / self.mean.n_users

    @property
    def radius(self) -> float:
        """Radius of the last round."""
        return self.radii[-1]

    def _round(self, contributions: Contributions) -> FloatArray:
        mean = self.mean
        if self._next is None:
            first = np.asarray(mean.centre, dtype=np.float64)
            self._next = np.broadcast_to(first, (self._dimension(contributions),))
        self.centre = centre = self._next
        radius = mean.round_radius(len(self.radii))
        last = len(self.radii) + 1 == mean.rounds
        if mean.choice_scale:
            radius = self._choose_radius(contributions, centre, mean.beyond if last else 0.5)
        self.radii.append(radius)
        if last and mean.bound is not None and mean.check:
            # The check cannot represent a centre outside the bound.
            self.centre = centre = clipped(centre[None, :], mean.bound)[0]
            if not self._clips_few(contributions, mean.bound):
                return self._clip_to_bound(contributions, mean.bound)
        part = Gaussian(mean.multiplier(len(self.radii) - 1), ONE_EACH)
        result = self._around(contributions, centre, radius, part)
        self._next = centre + mean.weight * (result - centre)
        return result

    def _dimension(self, contributions: Contributions) -> int:
        """Return the number of coordinates of a mean."""
        return contributions.dimension

    def _around(
        self, contributions: Contributions, centre: FloatArray, radius: float, part: Gaussian
    ) -> FloatArray:
        """Return the mean of vectors clipped around a centre, with the noise of a part."""
        noisy = exactly_noised(contributions, radius, part, self.source, centre=centre)
        result: FloatArray = centre + noisy / self.mean.n_users
        return result

    def _clips_few(self, contributions: Contributions, bound: float) -> bool:
        """Return True if the chosen radius has a smaller estimated error than the bound."""
        mean, d, plain = self.mean, len(self.centre), weights(bound, len(self.centre))
        sums = self._sum(contributions, self._excess(plain), plain.norm, mean.check)
        self.rest, sd = sums[:-1], mean.check * plain.norm
        inside, all_ = (
            mean.expected(radius, beyond, d)
            for radius, beyond in ((self.radius, mean.beyond), (plain.norm, 0.0))
        )
        n = UserCount(float(sums[-1]) / plain.weight, sd / plain.weight, self.stated).divisor
        removed = float(np.linalg.norm(self.rest - n * self.centre))
        return inside < all_ and removed < (math.sqrt(d - 0.5) + _ALARM_SDS) * sd

    def _excess(self, plain: WeightedClip) -> Rule:
        """Return the rule for what the last round removes from vectors."""
        return ExcessVector(self.centre, self.radius, plain.bound, plain.weight)

    def _clip_to_bound(self, contributions: Contributions, bound: float) -> FloatArray:
        """Return the mean of vectors clipped to the bound, with the noise of the last round."""
        plain, noise = weights(bound, len(self.centre)), self.mean.multiplier(self.mean.rounds - 1)
        sums = self._sum(contributions, plain, plain.norm, noise)
        self.radii[-1] = bound
        self.clipped = ratio(sums, noise * plain.norm, bound, self.stated)
        return self.clipped.value

    def _sum(
        self, contributions: Contributions, rule: Rule, norm: float, noise: float
    ) -> FloatArray:
        """Return the noisy sum of vectors mapped by a rule, each with norm at most ``norm``."""
        vectors, part = _map_vectors(contributions, rule), Gaussian(noise, ONE_EACH)
        return exactly_noised(vectors, norm, part, self.source)

    def _choose_radius(
        self, contributions: Contributions, centre: FloatArray, beyond: float
    ) -> float:
        """Choose a radius that leaves about a share ``beyond`` of the users outside."""
        mean, radii = self.mean, self.mean.choices(len(self.radii))
        first = (
            contributions.count_by_radius(centre, radii)
            if isinstance(contributions, DistributedVectors)
            else count_by_radius(contributions, centre, radii)
        )
        scores = radius_scores(first, mean.n_users, beyond)
        part = ExponentialMechanism(mean.choice_scale, one_way=True)
        return float(radii[int(self.source.order(part, scores, _PARTS_PER_USER)[0])])


def _map_vectors(contributions: Contributions, rule: Rule) -> Contributions:
    """Apply a rule to vectors in their place, in bounded batches."""
    if isinstance(contributions, DistributedVectors):
        return contributions.mapped(rule)
    none = rule(np.zeros((0, contributions.dimension)))
    return Vectors(np.concatenate([none, *map(rule, tiles(contributions))]))


def radius_scores(first: NDArray[np.int64], n_users: int, beyond: float) -> NDArray[np.int64]:
    """Score radii by numbers of users by first radius, (radii + 1,), in 1/1024 of a user.

    Removing a user raises each score by 0 to 1024.
    """
    radii = len(first) - 1
    steps = np.arange(-_REACH_RADII, _REACH_RADII + 1)
    # Share of a user that is inside, by the number of radii after the first that contains the user.
    share = np.where(steps < 0, 2.0 ** (steps / 2 - 1), 1 - 2.0 ** (-steps / 2 - 1))
    parts = np.floor(_PARTS_PER_USER * share).astype(np.int64)
    parts[-1] = _PARTS_PER_USER
    grown = np.convolve(first, np.diff(parts, prepend=0))
    inside = np.cumsum(grown)[_REACH_RADII : _REACH_RADII + radii]
    roster = _PARTS_PER_USER * n_users
    left = math.floor(beyond * roster)
    scores: NDArray[np.int64] = -np.maximum(
        _PARTS_PER_USER * int(first.sum()) - inside - left, inside - (roster - left)
    )
    return scores

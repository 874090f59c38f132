"""Clipped mean: noisy sum of Poisson-sampled clipped blocks ÷ public divisor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.accounting import BandedGaussian, Event, SampledGaussian, calibrate
from dpgrain.errors import ParameterError
from dpgrain.means.grid import exactly_noised
from dpgrain.means.mean_protocol import Central, Contributions, CountedRounds, Drawn, Vectors
from dpgrain.means.problem import Candidate, MeanEstimate, Method, Problem
from dpgrain.means.rules import WeightedClip
from dpgrain.means.total_error import UserCount
from dpgrain.noise import RandomSource
from dpgrain.publishing.draws import counted, one_draw
from dpgrain.publishing.facts import Fact
from dpgrain.units import Element, Level, Relation, Unit, User

if TYPE_CHECKING:
    from dpgrain.means import bands as banded
    from dpgrain.means import weighted
else:
    weighted = lazy_import("dpgrain.means.weighted")
    # Loaded only for correlated noise, because it imports a solver.
    banded = lazy_import("dpgrain.means.bands")


@dataclass(frozen=True)
class ClippedMean(Central):
    """Mean over users of the sums of their clipped blocks, with Gaussian noise.

    Args:
        clip: the clipping bound ρ, in the l2 norm of one block's vector.
        noise_multiplier: noise sd of the sum ÷ clip.
        n_users: the public number of users in the known population.
        rounds: the number of published means.
        sampling_rate: the public probability q that a round includes a block, or a user.
        sampling: ``"pairs"`` samples each block (a cell of the users × partition grid)
            independently; ``"users"`` samples users with all their blocks.
        blocks_per_user: the public number k̄ of blocks per user; sums are divided by q·n·k̄.
        level: the level of the privacy unit of a block.
        max_elements: the number of elements that the caller retains of each user, if enforced.
        exact: True truncates blocks to a grid and adds them as integers; False sums in floating
            point, and the guarantee ignores the rounding. The noise has an exact distribution in
            both cases.
        bands: with more than 1, the noise of a round partially cancels the noise of earlier rounds
            (:class:`~dpgrain.means.bands.Bands`), and users are randomly assigned to the same
            number of parts, which participate in turn. Sums over rounds then have less noise, and
            single rounds have more.

    Raises:
        ParameterError: if a value is out of range, or ``exact`` is combined with bands.

    Formal guarantee: :attr:`event`, computed from the numbers that the sampler uses. The divisor is
    q·n·k̄, for any sample and any number of blocks. Source: element-level paper, Algorithm 1 and
    (15), with sampled pairs instead of users, because amplification for users is false;
    docs/theory.

    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SystemSource
    >>> mean = ClippedMean(1.0, 2.0, n_users=1000, rounds=5)
    >>> mean.start(SystemSource()).estimate(Vectors(np.ones((9, 2)))).shape
    (2,)
    >>> round(mean.event.epsilon(1e-6), 2)
    5.55
    """

    clip: float
    noise_multiplier: float
    n_users: int
    rounds: int
    sampling_rate: float = 1.0
    sampling: Literal["pairs", "users"] = "pairs"
    blocks_per_user: float = 1.0
    level: Level = "element"
    max_elements: int | None = None
    exact: bool = False
    bands: int = 1

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        # Building the event validates the other values.
        _ = self.event
        if _validate.boolean(exact=self.exact) and self.bands != 1:
            raise ParameterError(
                f"exact must be False with bands = {self.bands}, because banded noise is not an "
                "integer."
            )
        _validate.scale(clip=self.clip)
        _validate.integer(minimum=1, n_users=self.n_users)
        _validate.positive(blocks_per_user=self.blocks_per_user)
        _validate.noise(noise_multiplier=self.noise_multiplier)
        if not self.divisor >= 1e-100:
            raise ParameterError(
                "sampling_rate, n_users and blocks_per_user must be larger, because sums are "
                f"divided by their product, {self.divisor:g}."
            )

    @staticmethod
    def calibrate(
        *,
        epsilon: float,
        delta: float,
        n_users: int,
        rounds: int,
        clip: float = 1.0,
        unit: Unit | None = None,
        relation: Relation = "zero_out",
        sampling_rate: float = 1.0,
        sampling: Literal["pairs", "users"] = "pairs",
        blocks_per_user: float = 1.0,
        exact: bool = False,
        bands: int = 1,
        beside: Event | None = None,
    ) -> ClippedMean:
        """Return the clipped mean with the least noise for a guarantee over all rounds.

        Args:
            epsilon: the ε of the guarantee.
            delta: the δ of the guarantee.
            n_users: the public number of users in the known population.
            rounds: the number of published means.
            clip: the clipping bound.
            unit: the protected unit: ``Element()`` (the default), ``Record()`` and ``User()`` are
                one block each; the blocks of ``User(max_elements=M)`` are elements, of which M are
                retained.
            relation: the neighbouring relation.
            sampling_rate: the public probability that a round includes a block, or a user.
            sampling: ``"pairs"`` samples each block independently; ``"users"`` samples a user with
                all their blocks.
            blocks_per_user: the public number of blocks per user, by which sums are divided in
                addition to q·n.
            exact: True adds blocks as integers, False in floating point.
            bands: the number of bands of the noise, 1 for independent noise.
            beside: the event of other results published under the same guarantee; none by default.

        Raises:
            ParameterError: if a value is out of range, or no noise satisfies the guarantee.

        >>> ClippedMean.calibrate(
        ...     epsilon=1.0, delta=1e-6, n_users=1000, rounds=100, unit=User()
        ... ).event.epsilon(1e-6) <= 1.0
        True
        """
        unit = Element() if unit is None else unit
        limit = unit.max_elements if isinstance(unit, User) else None
        level: Level = "element" if limit is not None else unit.level

        def event(noise: float) -> Event:
            own = _event(noise, sampling_rate, rounds, bands, sampling, level, limit)
            return own.beside(beside)

        result = calibrate(event, epsilon, delta, unit=unit, relation=relation, low=2.0**-10)
        return ClippedMean(
            clip,
            result.parameter,
            n_users,
            rounds,
            sampling_rate,
            sampling,
            blocks_per_user,
            level,
            limit,
            exact,
            bands,
        )

    def scaled(self, *, clip: float, blocks_per_user: float) -> ClippedMean:
        """Return the mean for another bound and divisor, at the same privacy cost."""
        return replace(self, clip=clip, blocks_per_user=blocks_per_user)

    @property
    def event(self) -> SampledGaussian | BandedGaussian:
        """Accounting event of all rounds together."""
        return _event(
            self.noise_multiplier,
            self.sampling_rate,
            self.rounds,
            self.bands,
            self.sampling,
            self.level,
            self.max_elements,
        )

    @property
    def matrix(self) -> banded.Bands:
        """Matrix that correlates the noise of rounds."""
        return banded.Bands.best(self.bands, self.rounds)

    @property
    def divisor(self) -> float:
        """Divisor of the noisy sum: q·n·k̄."""
        return self.sampling_rate * self.n_users * self.blocks_per_user

    @property
    def noise_sd(self) -> float:
        """Standard deviation of each coordinate's noise; with bands, in the last mean."""
        alone = self.noise_multiplier * self.clip / self.divisor
        return alone if self.bands == 1 else alone * float(self.matrix.sds(self.rounds)[-1])

    @property
    def prefix_noise(self) -> float:
        """RMS noise of the sums of the first 1, 2, … rounds, in clipping bounds.

        The number of bands with the least noise suits descent with a constant step size.

        >>> round(ClippedMean(1.0, 2.0, n_users=10, rounds=7).prefix_noise, 9)
        4.0
        """
        if self.bands == 1:
            return self.noise_multiplier * math.sqrt((self.rounds + 1) / 2)
        return self.noise_multiplier * self.matrix.prefix_error(self.rounds)

    @property
    def reach(self) -> float:
        """Clipping bound of a block."""
        return self.clip

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts behind the mean."""
        drawn = (
            Fact("full-rounds", (self.rounds,))
            if self.sampling_rate == 1
            else Fact("sampled-rounds", (self.rounds, self.sampling_rate))
        )
        facts: tuple[Fact, ...] = (drawn, Fact("gradient-bound", (self.clip,)))
        if self.bands > 1:
            facts += (Fact("turns", (self.bands,)),)
        return facts if self.exact else (*facts, Fact("floating-sums"))

    def start(self, source: RandomSource, owners: NDArray[Any] | None = None) -> ClippedRounds:
        """Start a run.

        Args:
            source: the source of samples and noise; its draws are counted.
            owners: (blocks,) the user of each block, 0 to n−1; required if users are sampled.

        Raises:
            ParameterError: if users are sampled or assigned to parts, but owners are missing.
        """
        drawn = self.sampling == "users" and self.sampling_rate < 1
        if (drawn or self.bands > 1) and owners is None:
            raise ParameterError(
                "owners is required when rounds use only some of the users; pass the user of "
                "each block."
            )
        return ClippedRounds(self, source, owners)


class ClippedRounds(CountedRounds):
    """One run of a :class:`ClippedMean`."""

    def __init__(
        self, mean: ClippedMean, source: RandomSource, owners: NDArray[Any] | None = None
    ) -> None:
        super().__init__(mean)
        self.mean, self.owners = mean, owners
        self.source, self._part = counted(source, mean.event), one_draw(mean.event)
        self.draws = 0
        self._parts: NDArray[np.intp] | None = None
        self._noise = None if mean.bands == 1 else banded.Correlated(mean.matrix)

    @property
    def parts(self) -> NDArray[np.intp] | None:
        """Part of each user, drawn on first use; None if there is a single part."""
        if self._parts is None and self.owners is not None and self.mean.bands > 1:
            self._parts = self._parted(self.owners)
        return self._parts

    def _parted(self, owners: NDArray[Any]) -> NDArray[np.intp]:
        """Return the part of each user, drawn independently of the data and of other users."""
        users = int(owners.max(initial=-1)) + 1
        return (self.source.bits("parts", users) % np.uint64(self.mean.bands)).astype(np.intp)

    def state(self) -> dict[str, Any]:
        """Return the secret state of sampling except the source; parts reveal users."""
        parts = None if self._parts is None else self._parts.tolist()
        return {"draws": self.draws, "parts": parts}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the sampling of an earlier run, so that no round is repeated."""
        self.draws, parts = state["draws"], state["parts"]
        self._parts = None if parts is None else np.asarray(parts, dtype=np.intp)

    def _round(self, contributions: Contributions) -> FloatArray:
        drawn = self.draw(contributions.blocks)
        noisy = (self._exact if self.mean.exact else self._rounded)(contributions, drawn)
        return noisy / self.mean.divisor

    def draw(self, blocks: int) -> Drawn | None:
        """Draw the sorted indices of the next round's blocks; None for all."""
        # With several parts, one participates per round, and is sampled at b times the rate.
        parts, chosen = self.parts, self._chosen(blocks)
        self.draws += 1
        if parts is None or self.owners is None:
            return None if chosen is None else np.flatnonzero(chosen)
        turn = parts[self.owners] == (self.draws - 1) % self.mean.bands
        return np.flatnonzero(turn if chosen is None else turn & chosen)

    def _chosen(self, blocks: int) -> NDArray[np.bool_] | None:
        """Return a mask of the sampled blocks in the current part; None for all."""
        event = self.mean.event
        rate = event.part_rate if isinstance(event, BandedGaussian) else event.sampling_rate
        if rate == 1:
            return None
        owners = self.owners if self.mean.sampling == "users" else None
        owner_count = blocks if owners is None else int(owners.max(initial=-1)) + 1
        chosen = self.source.bits("sampling", owner_count) < np.uint64(math.floor(rate * 2.0**64))
        return chosen if owners is None else chosen[owners]

    def _rounded(self, contributions: Contributions, drawn: Drawn | None) -> FloatArray:
        """Add clipped blocks in floating point, plus noise."""
        clip, total = self.mean.clip, contributions.clipped_sum(self.mean.clip, drawn)
        if self._noise is None:
            return self.source.floating(self._part, total, clip)
        fresh = self.source.floating(self._part, np.zeros_like(total), clip)
        return total + self._noise.next(fresh)

    def _exact(self, contributions: Contributions, drawn: Drawn | None) -> FloatArray:
        """Add blocks truncated to a grid as integers, plus integer noise."""
        return exactly_noised(contributions, self.mean.clip, self._part, self.source, drawn=drawn)


def _event(
    noise_multiplier: float,
    rate: float,
    rounds: int,
    bands: int,
    sampling: Literal["pairs", "users"],
    level: Level,
    limit: int | None,
) -> SampledGaussian | BandedGaussian:
    if _validate.integer(minimum=1, bands=bands) == 1:
        return SampledGaussian(
            noise_multiplier, rate, rounds, sampling, "shared", level, max_elements=limit
        )
    return BandedGaussian(noise_multiplier, rate, rounds, bands, sampling, level, limit)


# Each user also counts as one. This is its contribution to the squared norm, in bounds and times
# √d; optimal for a mean with half the norm of the bound.
_ONE_SQUARED = 0.5


def around_zero(problem: Problem, mean: ClippedMean) -> Candidate:
    """Offer a mean of users with records: noisy sum (population 1) ÷ noisy number."""
    # Assumes a mean of half the bound, and records of the whole stated population.
    weight = weights(problem.bound, problem.d).weight
    number_sd = 0.0 if problem.stated else mean.noise_sd / weight
    off = math.hypot(mean.noise_sd * math.sqrt(problem.d), number_sd * problem.bound / 2)
    return Candidate(
        "clip",
        mean,
        off / problem.n,
        (Fact("counted-with-sum"),),
        publish=lambda vectors, source, _: _publish(problem, mean, vectors, source),
    )


def weights(bound: float, dimension: int) -> WeightedClip:
    """Return the rule that clips vectors and adds a coordinate that counts users.

    Formal guarantee: a user adds a vector of norm at most ``norm``. Source: docs/theory, "The
    number beside the sum".
    """
    return WeightedClip(bound, bound * math.sqrt(_ONE_SQUARED / math.sqrt(dimension)))


def _publish(
    problem: Problem, mean: ClippedMean, vectors: Vectors, source: RandomSource
) -> MeanEstimate:
    """Publish the noisy sum of vectors and weights, and the mean as their ratio."""
    sums = mean.start(source).estimate(vectors.mapped(weights(problem.bound, problem.d)))
    return ratio(sums, mean.noise_sd, problem.bound, problem.n if problem.stated else None)


def ratio(sums: FloatArray, sd: float, bound: float, stated: int | None) -> MeanEstimate:
    """Return the mean of users from the noisy sums of vectors and weights, (d + 1,)."""
    d = len(sums) - 1
    weight = weights(bound, d).weight
    number = UserCount(float(sums[-1]) / weight, sd / weight, stated)
    value, n = sums[:-1] / number.divisor, number.divisor
    length = float(np.linalg.norm(value))
    noise = math.hypot(sd, number.divisor_sd * length / math.sqrt(d)) / n
    return MeanEstimate(value, noise, bound, n, number.error(length, sd, d), "number")


def _for_users(problem: Problem) -> Candidate:
    # The sum does not depend on the number of users, which is part of the sums.
    mean = ClippedMean.calibrate(
        **{**problem.calibration, "n_users": 1},
        clip=weights(problem.bound, problem.d).norm,
        rounds=1,
        unit=User(),
        exact=True,
    )
    return around_zero(problem, mean)


METHOD = Method(
    "clip",
    _for_users,
    weighted=lambda problem: weighted.clip_candidate(problem),
    distributed=True,
    make_without_n=_for_users,
)

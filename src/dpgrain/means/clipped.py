"""The clipped mean: blocks clipped, added up over a Poisson sample, plus Gaussian noise, divided."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._later import later
from dpgrain._types import FloatArray
from dpgrain._wording import FLOATING_SUMS
from dpgrain.accounting import BandedGaussian, Event, SampledGaussian, calibrate
from dpgrain.errors import ParameterError
from dpgrain.means.grid import exactly_noised
from dpgrain.means.problem import Candidate, Found, Method, Problem
from dpgrain.means.protocol import Central, Contributions, CountedRounds, Drawn, Vectors
from dpgrain.means.rules import Weighted
from dpgrain.means.total_error import Number
from dpgrain.noise import Source
from dpgrain.noise.sums import noised
from dpgrain.units import Element, Level, Relation, Unit, User

if TYPE_CHECKING:
    from dpgrain.means import bands as banded
else:
    # It brings a solver, and is loaded where noise is correlated.
    banded = later("dpgrain.means.bands")


@dataclass(frozen=True)
class ClippedMean(Central):
    """The mean over users of what their blocks add up to, each block clipped, with Gaussian noise.

    Args:
        clip: the clipping bound ρ, l2 norm of one block's vector.
        noise_multiplier: noise sd of the sum ÷ clip.
        n_users: the public size of the roster.
        rounds: how many means are published.
        sampling_rate: the public probability q that a block, or a user, is in a round.
        sampling: ``"pairs"``: each block (a cell of the roster × partition grid) is drawn on its own;
            ``"users"``: users are drawn, with all their blocks.
        blocks_per_user: the public k̄ that sums are divided by, besides q·n.
        level: the level of the unit whose data a block is.
        max_elements: the number of elements that the caller keeps of each user, if that is enforced.
        exact: True truncates blocks to a grid and adds them as integers; False makes sums in floating
            point, whose rounding the guarantee leaves out. Noise has an exact law in both cases.
        bands: with more than 1, noise of a round cancels in part that of the rounds before
            (:class:`~dpgrain.means.bands.Bands`), and users are put into as many parts at random, which
            have their turns one by one. Sums over rounds then have less noise, and each round more.

    Raises:
        ParameterError: if a value is out of range, or ``exact`` goes with bands.

    Formal guarantee: :attr:`event`, which is made of the numbers that the sampler uses. The divisor is
    q·n·k̄, whatever is drawn and however many blocks there are. Source: element-level paper, Algorithm
    1 and (15), with pairs drawn instead of users, whose amplification is false; docs/theory.

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
        _validate.plain(self)
        # Making the event checks the rest.
        _ = self.event
        if _validate.truth(exact=self.exact) and self.bands != 1:
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
        """The clipped mean with the least noise that keeps a promise over all rounds.

        Args:
            epsilon: the promised ε.
            delta: the promised δ.
            n_users: the public size of the roster.
            rounds: how many means are published.
            clip: the clipping bound.
            unit: what is protected: ``Element()`` (the default) and ``Record()``, each a block;
                ``User()``, a block; ``User(max_elements=M)``, whose elements are blocks of which M are
                kept.
            relation: the neighbouring relation.
            sampling_rate: the public probability that a block, or a user, is in a round.
            sampling: ``"pairs"`` draws each block on its own, ``"users"`` a user with all their blocks.
            blocks_per_user: the public number that sums are divided by, besides q·n.
            exact: True adds blocks as integers, False in floating point.
            bands: the number of bands of the noise, 1 for independent noise.
            beside: the event of what else is published under the same promise; nothing by default.

        Raises:
            ParameterError: if a value is out of range, or no noise keeps the promise.

        >>> ClippedMean.calibrate(
        ...     epsilon=1.0, delta=1e-6, n_users=1000, rounds=100, unit=User()
        ... ).event.epsilon(1e-6) <= 1.0
        True
        """
        unit = Element() if unit is None else unit
        kept = unit.max_elements if isinstance(unit, User) else None
        level: Level = "element" if kept is not None else unit.level

        def event(noise: float) -> Event:
            own = _event(noise, sampling_rate, rounds, bands, sampling, level, kept)
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
            kept,
            exact,
            bands,
        )

    def scaled(self, *, clip: float, blocks_per_user: float) -> ClippedMean:
        """The same mean for another clipping bound and divisor; its cost does not depend on them."""
        return replace(self, clip=clip, blocks_per_user=blocks_per_user)

    @property
    def event(self) -> SampledGaussian | BandedGaussian:
        """The accountant's event for all rounds together."""
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
        """The matrix that correlates the noise of rounds."""
        return banded.Bands.best(self.bands, self.rounds)

    @property
    def divisor(self) -> float:
        """The divisor of the noisy sum: q·n·k̄."""
        return self.sampling_rate * self.n_users * self.blocks_per_user

    @property
    def noise_sd(self) -> float:
        """The standard deviation of the noise of each coordinate of a mean, of the last with bands."""
        alone = self.noise_multiplier * self.clip / self.divisor
        return alone if self.bands == 1 else alone * float(self.matrix.sds(self.rounds)[-1])

    @property
    def reach(self) -> float:
        """The clipping bound of a block."""
        return self.clip

    @property
    def facts(self) -> tuple[str, ...]:
        """The public facts behind the mean, in words."""
        drawn = (
            "with all users"
            if self.sampling_rate == 1
            else f"of samples, each with probability {self.sampling_rate:g}"
        )
        facts: tuple[str, ...] = (
            f"{self.rounds:,} rounds {drawn}",
            f"a clipping bound of {self.clip:g}",
        )
        if self.bands > 1:
            facts += (
                f"{self.bands} random parts of the users in turn, with noise of as many bands",
            )
        return facts if self.exact else (*facts, FLOATING_SUMS)

    def start(self, source: Source, owners: NDArray[Any] | None = None) -> ClippedRounds:
        """Begin a run.

        Args:
            source: where draws and noise come from.
            owners: (blocks,): the user of each block, 0 to n−1; needed where users are drawn.

        Raises:
            ParameterError: if users are drawn, or have turns, and nothing says whose the blocks are.
        """
        drawn = self.sampling == "users" and self.sampling_rate < 1
        if (drawn or self.bands > 1) and owners is None:
            raise ParameterError(
                "owners is required when rounds use only some of the users; pass the user of "
                "each block."
            )
        return ClippedRounds(self, source, owners)


class ClippedRounds(CountedRounds):
    """One run of a :class:`ClippedMean`.

    Args:
        mean: its public numbers.
        source: where draws and noise come from.
        owners: (blocks,): the user whose data each block is.

    >>> from dpgrain.means import Vectors
    >>> from dpgrain.noise import SeededSource
    >>> users = Vectors(np.full((1000, 2), 0.5))
    >>> run = ClippedMean(1.0, 2.0, n_users=1000, rounds=2, sampling_rate=0.5).start(SeededSource(1))
    >>> [run.estimate(users).round(1).tolist() for _ in range(2)]
    [[0.5, 0.5], [0.5, 0.5]]
    >>> drawn = run.draw(1000)
    >>> bool(400 < len(drawn) < 600)
    True
    """

    def __init__(
        self, mean: ClippedMean, source: Source, owners: NDArray[Any] | None = None
    ) -> None:
        super().__init__(mean)
        self.mean, self.source, self.owners = mean, source, owners
        self.draws = 0
        self._parts: NDArray[np.intp] | None = None
        self._noise = None if mean.bands == 1 else banded.Correlated(mean.matrix)

    @property
    def parts(self) -> NDArray[np.intp] | None:
        """The part of each user; None where there are no parts.

        It is drawn when it is first asked for: a run that goes on has its own.
        """
        if self._parts is None and self.owners is not None and self.mean.bands > 1:
            self._parts = self._parted(self.owners)
        return self._parts

    def _parted(self, owners: NDArray[Any]) -> NDArray[np.intp]:
        """Return the part of each user, which is drawn without a look at data or at other users."""
        users = int(owners.max(initial=-1)) + 1
        return (self.source.words(users) % np.uint64(self.mean.bands)).astype(np.intp)

    def state(self) -> dict[str, Any]:
        """Return what draws follow from besides the source, which is secret: parts reveal users."""
        parts = None if self._parts is None else self._parts.tolist()
        return {"draws": self.draws, "parts": parts}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up the draws of an earlier run, of which no round may be made twice."""
        self.draws, parts = state["draws"], state["parts"]
        self._parts = None if parts is None else np.asarray(parts, dtype=np.intp)

    def _round(self, contributions: Contributions) -> FloatArray:
        drawn = self.draw(contributions.blocks)
        noisy = (self._exact if self.mean.exact else self._rounded)(contributions, drawn)
        return noisy / self.mean.divisor

    def draw(self, blocks: int) -> Drawn | None:
        """Draw the blocks of a round: each block, or user, with probability q, rounded down.

        Args:
            blocks: the number of blocks.

        Returns:
            the sorted indices of those that are drawn, or None for all. Of several parts, one has its
            turn in each round, of which b times as many are drawn.
        """
        parts, chosen = self.parts, self._chosen(blocks)
        self.draws += 1
        if parts is None or self.owners is None:
            return None if chosen is None else np.flatnonzero(chosen)
        turn = parts[self.owners] == (self.draws - 1) % self.mean.bands
        return np.flatnonzero(turn if chosen is None else turn & chosen)

    def _chosen(self, blocks: int) -> NDArray[np.bool_] | None:
        """Return which blocks are drawn among those whose turn it is; None for all."""
        event = self.mean.event
        rate = event.part_rate if isinstance(event, BandedGaussian) else event.sampling_rate
        if rate == 1:
            return None
        owners = self.owners if self.mean.sampling == "users" else None
        there = blocks if owners is None else int(owners.max(initial=-1)) + 1
        chosen = self.source.words(there) < np.uint64(math.floor(rate * 2.0**64))
        return chosen if owners is None else chosen[owners]

    def _rounded(self, contributions: Contributions, drawn: Drawn | None) -> FloatArray:
        """Add clipped blocks in floating point, plus noise."""
        mean, total = self.mean, contributions.clipped_sum(self.mean.clip, drawn)
        if self._noise is None:
            return noised(total, mean.clip, mean.noise_multiplier, self.source)
        fresh = noised(np.zeros_like(total), mean.clip, mean.noise_multiplier, self.source)
        return total + self._noise.next(fresh)

    def _exact(self, contributions: Contributions, drawn: Drawn | None) -> FloatArray:
        """Add blocks that are truncated to a grid, as integers, plus integer noise."""
        mean = self.mean
        return exactly_noised(
            contributions, mean.clip, mean.noise_multiplier, self.source, drawn=drawn
        )


def _event(
    noise_multiplier: float,
    rate: float,
    rounds: int,
    bands: int,
    sampling: Literal["pairs", "users"],
    level: Level,
    kept: int | None,
) -> SampledGaussian | BandedGaussian:
    """Return the event of all rounds of a clipped mean."""
    if _validate.integer(minimum=1, bands=bands) == 1:
        return SampledGaussian(
            noise_multiplier, rate, rounds, sampling, "shared", level, max_elements=kept
        )
    return BandedGaussian(noise_multiplier, rate, rounds, bands, sampling, level, kept)


# A user also counts as one, which adds this to the length of what the user adds, in bounds, squared and
# times √d: the best for a mean whose norm is half of the bound.
_ONE_SQUARED = 0.5


def around_zero(problem: Problem, mean: ClippedMean) -> Candidate:
    """Offer a mean of those who have records: a noisy sum, divided by their noisy number.

    Args:
        problem: the problem.
        mean: the clipped mean of a roster of one, whose sums are published. Its bound is the length of
            a vector and of the weight with which each user counts.
    """
    # A mean of half of the bound is expected, and that all of a stated roster have records.
    weight = weights(problem.bound, problem.d).weight
    number_sd = 0.0 if problem.stated else mean.noise_sd / weight
    off = math.hypot(mean.noise_sd * math.sqrt(problem.d), number_sd * problem.bound / 2)
    return Candidate(
        "clip",
        mean,
        off / problem.n,
        ("their number, which is released with the sum",),
        publish=lambda vectors, source, _: _publish(problem, mean, vectors, source),
    )


def weights(bound: float, dimension: int) -> Weighted:
    """Return the rule that clips users' vectors and counts users, in one coordinate more.

    Args:
        bound: the bound on the norm of vectors.
        dimension: the number of coordinates.

    Formal guarantee: a user adds a vector of norm at most ``norm``. Source: docs/theory, "The number
    beside the sum".
    """
    return Weighted(bound, bound * math.sqrt(_ONE_SQUARED / math.sqrt(dimension)))


def _publish(problem: Problem, mean: ClippedMean, vectors: Vectors, source: Source) -> Found:
    """Publish the noisy sum of vectors and of weights, and the mean as their ratio."""
    sums = mean.start(source).estimate(vectors.mapped(weights(problem.bound, problem.d)))
    return ratio(sums, mean.noise_sd, problem.bound, problem.n if problem.stated else None)


def ratio(sums: FloatArray, sd: float, bound: float, stated: int | None) -> Found:
    """Return the mean of users from the noisy sum of their vectors and of their weights.

    Args:
        sums: (d + 1,) the sums.
        sd: the standard deviation of the noise of each.
        bound: the bound on the norm of vectors.
        stated: the stated size of the roster; None if it is not stated.
    """
    d = len(sums) - 1
    weight = weights(bound, d).weight
    number = Number(float(sums[-1]) / weight, sd / weight, stated)
    value, n = sums[:-1] / number.divisor, number.divisor
    length = float(np.linalg.norm(value))
    noise = math.hypot(sd, number.divisor_sd * length / math.sqrt(d)) / n
    covers = "noise, and the number of users with records"
    return Found(value, noise, bound, n, number.error(length, sd, d), covers)


def _for_users(problem: Problem) -> Candidate:
    # The sum does not depend on the number of users, which it gives by itself.
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
    distributed=True,
    unstated=_for_users,
    why="{people} are few for this promise in {space}: who is far from the others could not be told, "
    "so that all count in full",
)

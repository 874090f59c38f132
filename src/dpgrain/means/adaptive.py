"""Means with an adaptive clipping bound, with or without a curator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting import Event
from dpgrain.means.mean_protocol import Contributions, Drawn, Mean, Rounds
from dpgrain.noise import RandomSource
from dpgrain.numerics.row_clipping import clipped, zero_nonfinite_rows
from dpgrain.numerics.row_products import squares
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import warn_unreliable_result
from dpgrain.units import Level, Trust

# Lower edges of the classes of norms, in half octaves above the clipping bound; 0 is the bound.
_EDGES = np.array([-2, -1, 0, 2])
_AT_BOUND = 2
#: Number of coordinates that count norms, in addition to the coordinates of the vectors.
COUNTS = len(_EDGES)
# Share of the squared norm, and thus of μ², for counting norms; equal to a curator's histograms.
_COUNTS_SHARE = 0.1
_VECTOR, _COUNT = math.sqrt(1 - _COUNTS_SHARE), math.sqrt(_COUNTS_SHARE)
# Standard deviations of noise above which a share is significant: before the bound falls, and
# before it rises. Many rounds test one bound, so a smaller second number would raise the bound by
# chance.
_LIKELY, _CERTAIN = 2.0, 4.0
# Share of the clipped norm that biases the mean; the rest cancels. Measured, see the theory.
_ALIGNED = 0.1
# Rise of the bound in half octaves, if few, some or most users are beyond twice the bound.
_STEPS = 1, 2, 4
# Share of the rounds after which the bound can only rise, so that it settles.
_FALLING = 0.5
# Share of the rounds with counts that choose a falling bound; later, all rounds with the same
# bound.
_RECENT = 0.1
# Largest distance between the bound and the first bound, in half octaves; sums stay precise up to
# 2^20.
_FARTHEST = 40


@dataclass(frozen=True)
class AdaptiveClip:
    """Mean of clipped vectors with a clipping bound that follows their norms.

    Formal guarantee: :attr:`event`: a round's bound depends only on published results, and a user
    adds one vector of norm at most 1 for each. Source: docs/theory, "Shuffled gradients".
    """

    mean: Mean
    first: float

    def __post_init__(self) -> None:
        _validate.scale(first=self.first)

    @property
    def event(self) -> Event:
        """Accounting event of all rounds together."""
        return self.mean.event

    @property
    def rounds(self) -> int:
        """Maximum number of published means."""
        return self.mean.rounds

    @property
    def n_users(self) -> int:
        """Public number of users in the population."""
        return self.mean.n_users

    @property
    def level(self) -> Level:
        """Level of the privacy unit of a block."""
        return self.mean.level

    @property
    def reach(self) -> float:
        """Clipping bound of the first round."""
        return self.first

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of the first round's mean."""
        return self.mean.noise_sd / _VECTOR * self.first

    @property
    def trust(self) -> Trust:
        """Party with access to data."""
        return self.mean.trust

    @property
    def fresh(self) -> bool:
        """True if each round uses different users, by their index in the population."""
        return self.mean.fresh

    @property
    def compares(self) -> bool:
        """True if users are compared, so that the population must include all users."""
        return self.mean.compares

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts behind the mean."""
        return *self.mean.facts, Fact("followed-norms", (self.first, COUNTS))

    def start(self, source: RandomSource, owners: NDArray[Any] | None = None) -> AdaptiveRounds:
        """Start a run; ``owners`` are as in the inner mean, (blocks,)."""
        return AdaptiveRounds(self, self.mean.start(source, owners))


class AdaptiveRounds:
    """One run of an :class:`AdaptiveClip`."""

    def __init__(self, mean: AdaptiveClip, rounds: Rounds) -> None:
        self._mean, self._rounds = mean, rounds
        self._done, self._height = 0, 0
        self._shares: list[FloatArray] = []

    @property
    def radius(self) -> float:
        """Clipping bound of the next round; after the last round, the bound of that round."""
        return float(self._mean.first * 2.0 ** (self._height / 2))

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of a mean with that bound."""
        return self._rounds.noise_sd / _VECTOR * self.radius

    def estimate(self, contributions: Contributions) -> FloatArray:
        """Return the noisy mean of one round, (dimension,)."""
        noisy = self._rounds.estimate(_Counted(contributions, self.radius))
        vector = noisy[: contributions.dimension] * (self.radius / _VECTOR)
        self._done += 1
        self._shares.append(noisy[contributions.dimension :] / _COUNT)
        if self._done < self._mean.rounds:
            self._follow(contributions.dimension)
        elif self._beyond[_AT_BOUND] - _LIKELY * self._errors[_AT_BOUND] > 0.5:
            # The noisy counts of the last round are published, so this warning reveals nothing
            # more.
            warn_unreliable_result([("half-clipped", self.radius)])
        return vector

    @property
    def _beyond(self) -> FloatArray:
        """Noisy share of users with norms beyond each edge, (COUNTS,)."""
        shares: FloatArray = np.cumsum(np.mean(self._shares, axis=0)[::-1])[::-1]
        return shares

    @property
    def _errors(self) -> FloatArray:
        """Standard deviations of the noise of these shares, (COUNTS,)."""
        classes = np.arange(COUNTS, 0, -1) / len(self._shares)
        errors: FloatArray = self._rounds.noise_sd / _COUNT * np.sqrt(classes)
        return errors

    def _follow(self, dimension: int) -> None:
        """Choose the next bound from the noisy shares of rounds with this bound."""
        rounds = self._mean.rounds
        falls = self._done <= _FALLING * rounds
        if falls:
            # Norms change while the solution is still inaccurate.
            self._shares = self._shares[-math.ceil(_RECENT * rounds) :]
        noise = self._rounds.noise_sd * math.sqrt(dimension / rounds)
        beyond = self._beyond
        few, seldom = (
            beyond <= np.minimum(np.maximum(noise / _ALIGNED, sds * self._errors), 0.5)
            for sds in (_LIKELY, _CERTAIN)
        )
        step = 0
        if not seldom[_AT_BOUND]:
            step = _STEPS[int(not seldom[_AT_BOUND + 1]) + int(beyond[_AT_BOUND + 1] > 0.5)]
        elif few[_AT_BOUND] and falls:
            step = int(_EDGES[np.argmax(few)])
        height = min(max(self._height + step, -_FARTHEST), _FARTHEST)
        if height != self._height:
            self._height, self._shares = height, []


@dataclass(frozen=True)
class _Counted:
    """Vectors in clipping bounds, with the class of each norm in additional coordinates."""

    contributions: Contributions
    clip: float

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.contributions.blocks

    @property
    def dimension(self) -> int:
        """Length of a vector including its counts."""
        return self.contributions.dimension + COUNTS

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """Return the vectors, each with norm at most 1 up to rounding."""
        vectors = zero_nonfinite_rows(
            np.array(self.contributions.vectors(drawn), dtype=np.float64, order="C")
        )
        with np.errstate(all="ignore"):
            # A norm that overflows is in the last class; a warning would reveal it.
            norms = np.sqrt(squares(vectors))
            scaled = clipped(vectors, self.clip) * (_VECTOR / self.clip)
        counts = np.zeros((len(vectors), COUNTS + 1))
        counts[np.arange(len(vectors)), np.searchsorted(self.clip * 2.0 ** (_EDGES / 2), norms)] = (
            _COUNT
        )
        return np.concatenate([scaled, counts[:, 1:]], axis=1)

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """Add the clipped vectors."""
        total: FloatArray = clipped(self.vectors(drawn), clip).sum(axis=0)
        return total

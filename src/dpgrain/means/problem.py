"""What a mean of users is asked for, and what a private mean offers for it: public numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain._types import FloatArray
from dpgrain._wording import counted
from dpgrain.accounting import Event
from dpgrain.errors import RunEnded
from dpgrain.means.protocol import Mean, Vectors
from dpgrain.means.radius import Radius
from dpgrain.noise import Source
from dpgrain.publishing.promise import Promise

#: The smallest radius that is looked for where none is stated, as a share of the bound.
SMALLEST = 2.0**-14
# The share of ε that finds a radius that is not stated.
_FINDING = 0.2
# A radius at which most users agree is widened, for the others.
_WIDER = 2.0**0.5


@dataclass(frozen=True)
class Problem:
    """What is known beforehand: how many users, coordinates, and how much may be told.

    Args:
        n: the number of users; where it is not stated, 1 before it is released, and what was released
            after.
        d: how many coordinates their vectors have.
        promise: what is promised of users.
        bound: the public bound on the norm of vectors.
        radius: the concentration radius; None if it is not known.
        beside: the release of the number of users, where it is not stated.
    """

    n: int
    d: int
    promise: Promise
    bound: float
    radius: float | None
    beside: Event | None = None

    @property
    def calibration(self) -> dict[str, Any]:
        """The arguments that calibrations of all means take."""
        return {
            "epsilon": self.promise.epsilon,
            "delta": self.promise.delta,
            "n_users": self.n,
            "relation": self.promise.relation,
            "beside": self.beside,
        }

    @property
    def people(self) -> str:
        """How many users there are, or about how many, in words."""
        return ("" if self.beside is None else "about ") + counted(self.n, "user")

    @property
    def space(self) -> str:
        """How many dimensions there are, in words."""
        return counted(self.d, "dimension")

    def finder(self) -> tuple[Radius | None, dict[str, Any]]:
        """What finds a radius where none is stated, and what calibrations of means take beside it."""
        if self.radius is not None:
            return None, self.calibration
        finder = Radius.calibrate(
            epsilon=_FINDING * self.promise.epsilon,
            n_users=self.n,
            smallest=self.bound * SMALLEST,
            largest=self.bound,
            relation=self.promise.relation,
        )
        return finder, {**self.calibration, "beside": finder.event.beside(self.beside)}

    def near(self, finder: Radius | None) -> str:
        """Where the concentration radius comes from, in words."""
        if finder is None:
            return f"a concentration radius of {self.radius:g}, which only accuracy rests on"
        return (
            f"a concentration radius found with {_FINDING:.0%} of ε, from {finder.smallest:.3g} to "
            f"{finder.largest:g}"
        )


@dataclass(frozen=True)
class Candidate:
    """A private mean, calibrated for a problem.

    Args:
        method: the name of the method that has made it.
        mean: the private mean, which asks all users in each round.
        expected: the rms error to expect of the noise, if users lie within the radius that is stated.
        facts: what it takes as public, in words.
        finder: what finds a radius first.
        within: from the radius that was found to the mean; needed with a finder.
        outside: about the share of the users that the last round leaves outside of its radius.
        tells: whether enough users are there for a mean, rather than a middle of most of them.
        reason: why this one.
        then: from the problem with the number of users that was released to the mean for it, at no
            more than this one costs.
    """

    method: str
    mean: Mean
    expected: float
    facts: tuple[str, ...] = ()
    finder: Radius | None = None
    within: Callable[[float], Mean] | None = None
    outside: float = 0.0
    tells: bool = True
    reason: str = "as asked for"
    then: Callable[[Problem], Candidate] | None = None

    @property
    def event(self) -> Event:
        """What all of it is to the accountant."""
        return self.mean.event if self.finder is None else self.finder.event + self.mean.event

    @property
    def compares(self) -> bool:
        """Whether users are compared, so that the roster must hold all who are there."""
        return self.mean.compares or self.finder is not None

    def run(self, vectors: Vectors, source: Source) -> tuple[FloatArray, float, float]:
        """Publish the mean.

        Args:
            vectors: one for each user who has one.
            source: where randomness comes from.

        Returns:
            the value, (d,); the standard deviation of its noise; and the radius. What there is not is
            not a number.
        """
        mean, nothing = self.mean, np.full(vectors.dimension, np.nan)
        if self.finder is not None and self.within is not None:
            found = self.finder.find(vectors, source)
            if found is None:
                return nothing, math.nan, math.nan
            # So close lie most; almost all do a little farther away.
            mean = self.within(min(found * _WIDER, 1e90))
        run = mean.start(source)
        try:
            for _ in range(mean.rounds):
                value = run.estimate(vectors)
        except RunEnded:
            return nothing, math.nan, run.radius
        return value, run.noise_sd, run.radius


@dataclass(frozen=True)
class Method:
    """A way to the mean of users.

    Args:
        name: what ``method=`` calls it.
        make: the private mean for a problem.
        centre: from where its radius is measured, in words; None for 0, around which a sum is off by
            as many shares of the mean as the number of users is.
        alone: whether it finds the place of the users by itself, without a radius.
        unstated: the private mean, with ``then``, where the number of users is released first; None if
            its cost follows from that number.
        why: why it is expected to err least where no radius is known, as a text with ``{people}`` and
            ``{space}``.
    """

    name: str
    make: Callable[[Problem], Candidate]
    centre: str | None = None
    alone: bool = False
    unstated: Callable[[Problem], Candidate] | None = None
    why: str = ""

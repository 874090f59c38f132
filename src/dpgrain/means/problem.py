"""A mean of users in public numbers: the request, and the offer of each private mean."""

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
from dpgrain.means.total_error import Number
from dpgrain.noise import Source
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.promise import Promise

#: The smallest radius that is looked for where none is stated, as a share of the bound.
SMALLEST = 2.0**-14
# The share of ε that finds a radius that is not stated.
_FINDING = 0.2
# A radius at which most users agree is widened, for the others.
_WIDER = 2.0**0.5


@dataclass(frozen=True)
class Problem:
    """Public numbers of a mean: users, coordinates, and the promise.

    Args:
        n: the size of the roster; where it is not stated, 1 before the number of users is released, and
            what was released after.
        d: how many coordinates their vectors have.
        promise: what is promised of users.
        bound: the public bound on the norm of vectors.
        radius: the concentration radius; None if it is not known.
        number: the release of the number of users with records, for methods that make it first.
        stated: whether the roster is stated.

    >>> from dpgrain.units import User
    >>> problem = Problem(9000, 3, Promise(User(), 1.0, 1e-6, "zero_out"), bound=10.0, radius=None)
    >>> problem.people, problem.space
    ('9,000 users', '3 dimensions')
    >>> finder, rest = problem.finder()
    >>> round(finder.event.epsilon(0.0), 6), rest["beside"] == finder.event
    (0.2, True)
    """

    n: int
    d: int
    promise: Promise
    bound: float
    radius: float | None
    number: Event | None = None
    stated: bool = True

    @property
    def calibration(self) -> dict[str, Any]:
        """The arguments that calibrations of all means take."""
        return {
            "epsilon": self.promise.epsilon,
            "delta": self.promise.delta,
            "n_users": self.n,
            "relation": self.promise.relation,
        }

    @property
    def people(self) -> str:
        """The number of users, or about that number, in words."""
        return ("" if self.stated else "about ") + counted(self.n, "user")

    @property
    def space(self) -> str:
        """The number of dimensions, in words."""
        return counted(self.d, "dimension")

    def finder(self) -> tuple[Radius | None, dict[str, Any]]:
        """The mean that finds a radius where none is stated, and options of calibrations beside it."""
        if self.radius is not None:
            return None, self.calibration
        finder = Radius.calibrate(
            epsilon=_FINDING * self.promise.epsilon,
            n_users=self.n,
            smallest=self.bound * SMALLEST,
            largest=self.bound,
            relation=self.promise.relation,
        )
        return finder, {**self.calibration, "beside": finder.event}

    def near(self, finder: Radius | None) -> Fact:
        """The source of the concentration radius."""
        if finder is None:
            assert self.radius is not None  # noqa: S101 - without one, a finder chooses it
            return Fact("stated-concentration", (self.radius,))
        return Fact("chosen-concentration", (_FINDING, finder.smallest, finder.largest))


@dataclass(frozen=True)
class Found:
    """A mean, and how far it may be off.

    Args:
        value: (d,) the mean; not a number where there is none.
        noise_sd: the standard deviation of the noise of each coordinate.
        radius: the distance from the centre up to which users count in full.
        n_users: the number that sums were divided by.
        error: how far the mean is off at most, as :data:`~dpgrain.means.total_error.CONFIDENCE` says;
            infinite where nothing published bounds it.
        covers: what the error covers, in words.
        outside: about the share of users who are drawn in to the radius.
    """

    value: FloatArray
    noise_sd: float
    radius: float
    n_users: int
    error: float = math.inf
    covers: str = ""
    outside: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """A private mean, calibrated for a problem.

    Args:
        method: the name of the method that has made it.
        mean: the private mean, which asks all users in each round.
        expected: the rms error to expect, if users lie within the radius that is stated.
        facts: the facts that it assumes to be public.
        finder: what finds a radius first.
        within: from the radius that was found to the mean; needed with a finder.
        counts: whether the number of users with records is released first.
        tells: whether there are enough users for ``auto`` to choose it.
        reason: why this one.
        then: from the number of users that was released to the mean for it, at no more than this one
            costs; needed with ``counts`` where no roster is stated.
        publish: what makes the mean of vectors, with the number of users where that was released; by
            default rounds of ``mean``, of which nothing says how many users are left out.

    >>> from dpgrain.means import ClippedMean
    >>> from dpgrain.noise import SeededSource
    >>> from dpgrain.units import User
    >>> problem = Problem(1000, 2, Promise(User(), 1.0, 1e-6, "zero_out"), bound=1.0, radius=None)
    >>> mean = ClippedMean.calibrate(**problem.calibration, rounds=1, unit=User())
    >>> candidate = Candidate("plain", mean, expected=mean.noise_sd * math.sqrt(problem.d))
    >>> found = candidate.run(Vectors(np.full((1000, 2), 0.5)), SeededSource(1))
    >>> found.value.round(1).tolist(), candidate.event.epsilon(1e-6) <= 1.0
    ([0.5, 0.5], True)
    """

    method: str
    mean: Mean
    expected: float
    facts: tuple[Fact, ...] = ()
    finder: Radius | None = None
    within: Callable[[float], Mean] | None = None
    counts: bool = False
    tells: bool = True
    reason: str = "as asked for"
    then: Callable[[Number], Candidate] | None = None
    publish: Callable[[Vectors, Source, Number | None], Found] | None = None

    @property
    def event(self) -> Event:
        """The event of all of it, for the accountant."""
        return self.mean.event if self.finder is None else self.finder.event + self.mean.event

    @property
    def compares(self) -> bool:
        """True if users are compared, so that the roster must hold all who are there."""
        return self.mean.compares or self.finder is not None

    def run(self, vectors: Vectors, source: Source, number: Number | None = None) -> Found:
        """Publish the mean.

        Args:
            vectors: one for each user who has one.
            source: where randomness comes from.
            number: the number of users with records, where it was released.
        """
        if self.publish is not None:
            return self.publish(vectors, source, number)
        mean, nothing = self.mean, np.full(vectors.dimension, np.nan)
        if self.finder is not None and self.within is not None:
            result = self.finder.find(vectors, source)
            if result is None:
                return Found(nothing, math.nan, math.nan, mean.n_users, math.nan)
            # So close lie most; almost all do a little farther away.
            mean = self.within(min(result * _WIDER, 1e90))
        run = mean.start(source)
        try:
            for _ in range(mean.rounds):
                value = run.estimate(vectors)
        except RunEnded:
            return Found(nothing, math.nan, run.radius, mean.n_users, math.nan)
        return Found(value, run.noise_sd, run.radius, mean.n_users)


@dataclass(frozen=True)
class Method:
    """A way to the mean of users.

    Args:
        name: what ``method=`` calls it.
        make: the private mean for a problem.
        centre: from where its radius is measured, in words; None for 0.
        unstated: the private mean, with ``then``, where the number of users is released first; None if
            its cost follows from that number.
        why: the reason for which ``auto`` chooses it, as a text with ``{people}`` and ``{space}``.
        distributed: whether it takes vectors that lie on a cluster, of which it asks sums and counts
            alone, as :class:`~dpgrain.means.protocol.DistributedVectors` gives them.

    >>> from dpgrain.means import ClippedMean, mean_of_users
    >>> from dpgrain.units import User
    >>> def plain(problem):
    ...     asked = {**problem.calibration, "clip": problem.bound}
    ...     mean = ClippedMean.calibrate(**asked, rounds=1, unit=User())
    ...     return Candidate("plain", mean, expected=mean.noise_sd * math.sqrt(problem.d))
    >>> mean = mean_of_users(
    ...     np.full((1000, 2), 0.5), bound=1.0, epsilon=1.0, delta=1e-6, n_users=1000,
    ...     method=Method("plain", plain), random_state=1)
    >>> mean.method, mean.value.round(1).tolist()
    ('plain', [0.5, 0.5])
    """

    name: str
    make: Callable[[Problem], Candidate]
    centre: str | None = None
    unstated: Callable[[Problem], Candidate] | None = None
    why: str = ""
    distributed: bool = False

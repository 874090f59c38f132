"""Problem of a mean of users, in public numbers, and the candidates of each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain._formatting import quantity
from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.accounting import Event
from dpgrain.errors import RunEnded
from dpgrain.means.mean_protocol import Mean, Vectors
from dpgrain.means.radius import Radius
from dpgrain.means.total_error import UserCount
from dpgrain.noise import RandomSource
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.promise import Promise
from dpgrain.publishing.release_plan import compose, present
from dpgrain.words.mean_text import Choice, Coverage

#: Smallest radius in a search, as a share of the bound.
SMALLEST = 2.0**-14
#: Share of ε for choosing a radius.
FINDING = 0.2
#: Factor on a radius at which most users agree, to include almost all users.
WIDER = 2.0**0.5


@dataclass(frozen=True)
class Problem:
    """Public numbers of a mean of users, with the requested guarantee.

    Args:
        n: the number of users in the population; if it is not stated, 1 before the number of users
            is released, and the released number afterwards.
        d: the number of coordinates of users' vectors.
        promise: the requested guarantee for users.
        bound: the public bound on the norm of vectors.
        radius: the concentration radius; None if it is not known.
        number: the release of the number of users with records, for methods that release it first.
        stated: True if the number of users is stated.
        limit: the release of the largest number of records that counts, for weights by records.

    >>> from dpgrain.units import User
    >>> problem = Problem(9000, 3, Promise(User(), 1.0, 1e-6, "zero_out"), bound=10.0, radius=None)
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
    limit: Event | None = None

    @property
    def calibration(self) -> dict[str, Any]:
        """Arguments of the calibration of every mean."""
        return {
            "epsilon": self.promise.epsilon,
            "delta": self.promise.delta,
            "n_users": self.n,
            "relation": self.promise.relation,
        }

    @property
    def space(self) -> str:
        """Description of the number of dimensions."""
        return quantity(self.d, "dimension")

    def finder(self) -> tuple[Radius | None, dict[str, Any]]:
        """Return the choice of a radius, if none is stated, and calibration options."""
        if self.radius is not None:
            return None, self.calibration
        finder = Radius.calibrate(
            epsilon=FINDING * self.promise.epsilon,
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
        return Fact("chosen-concentration", (FINDING, finder.smallest, finder.largest))


@dataclass(frozen=True)
class MeanEstimate:
    """Computed mean with its error; ``value`` is NaN if there is no mean."""

    value: FloatArray
    noise_sd: float
    radius: float
    n_users: int
    error: float = math.inf
    covers: Coverage = "bound"
    outside: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """Private mean, calibrated for a problem.

    Args:
        method: the name of the method that created it.
        mean: the private mean, which uses all users in each round.
        expected: the expected RMS error, if users are within the stated radius.
        facts: its public facts.
        finder: the choice of a radius before the mean.
        within: a function from the chosen radius to the mean; required with a finder.
        counts: True if the number of users with records is released first.
        is_recommended: True if there are enough users for ``auto`` to choose it.
        choice: the number of users for which ``auto`` chose it; empty if it was requested.
        then: a function from the released number of users to the mean for it, at no more than the
            cost of this one; required with ``counts`` if the number of users is not stated.
        publish: a function that publishes the mean of vectors, given the released number of users
            if there is one; by default rounds of ``mean``, without an estimate of the share of
            users outside.
        named: the parts of the event by name; by default, the radius and the mean.

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
    is_recommended: bool = True
    choice: Choice = ()
    then: Callable[[UserCount], Candidate] | None = None
    publish: Callable[[Vectors, RandomSource, UserCount | None], MeanEstimate] | None = None
    named: Mapping[str, Event] | None = None

    @property
    def event(self) -> Event:
        """Accounting event of all parts."""
        return compose(self.parts)

    @property
    def parts(self) -> dict[str, Event]:
        """Parts of the event by name."""
        if self.named is not None:
            return dict(self.named)
        radius = None if self.finder is None else self.finder.event
        return present({"radius": radius, "mean": self.mean.event})

    @property
    def compares(self) -> bool:
        """True if users are compared, so that the population must include all users."""
        return self.mean.compares or self.finder is not None

    def run(
        self, vectors: Vectors, source: RandomSource, number: UserCount | None = None
    ) -> MeanEstimate:
        """Publish the mean.

        Args:
            vectors: one for each user who has one.
            source: the source of randomness.
            number: the number of users with records, if it was released.
        """
        if self.publish is not None:
            return self.publish(vectors, source, number)
        mean, nothing = self.mean, np.full(vectors.dimension, np.nan)
        if self.finder is not None and self.within is not None:
            result = self.finder.find(vectors, source)
            if result is None:
                return MeanEstimate(nothing, math.nan, math.nan, mean.n_users, math.nan)
            # Most users are within this radius; almost all within a slightly larger one.
            mean = self.within(min(result * WIDER, 1e90))
        run = mean.start(source)
        try:
            for _ in range(mean.rounds):
                value = run.estimate(vectors)
        except RunEnded:
            return MeanEstimate(nothing, math.nan, run.radius, mean.n_users, math.nan)
        return MeanEstimate(value, run.noise_sd, run.radius, mean.n_users)


@dataclass(frozen=True)
class Method:
    """Method for a private mean of users.

    Args:
        name: its name in ``method=``.
        make: a function from a problem to the private mean.
        centre: a description of the centre of its radius; None for 0.
        make_without_n: a function to the private mean, with ``then``, if the number of users is
            released first; None if its cost depends on that number.
        distributed: True if it supports vectors on a cluster, using only sums and counts as in
            :class:`~dpgrain.means.mean_protocol.DistributedVectors`.
        pure: True if it supports δ = 0.
        weighted: a function from a problem to the mean of users weighted by records, of vectors
            with the share of the largest number of records in a last coordinate; None if it does
            not support weights.

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
    make_without_n: Callable[[Problem], Candidate] | None = None
    distributed: bool = False
    pure: bool = False
    weighted: Callable[[Problem], Candidate] | None = None


#: Module of each name's ``METHOD``. The search for the best method tries all of them.
METHODS = {
    "clip": "dpgrain.means.clipped",
    "recentred": "dpgrain.means.recentring_budget",
    "softcore": "dpgrain.papers.softcore",
    "winsorized": "dpgrain.papers.winsorized.winsorized",
}


def get_method(name: str) -> Method:
    """Return the method with a name in :data:`METHODS`."""
    result: Method = lazy_import(METHODS[name]).METHOD
    return result

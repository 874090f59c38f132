"""What a recipe is: from what is public of a problem to a program of means, solvers and phases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from dpgrain import _validate
from dpgrain._wording import counted
from dpgrain.accounting import Event, Parallel
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean, Mean
from dpgrain.optimize import Ball, Localisation, RandomizedBall, Restarts, Solver
from dpgrain.publishing import Promise
from dpgrain.units import Relation, Trust, User

#: How kinks are smoothed: by looking around at random, or by the Moreau envelope of this curvature.
Smoothing: TypeAlias = RandomizedBall | float

# The probability that some user's mean gradient is farther away than the radius.
_FAILURE = 0.01
#: Rounds at most, unless more are asked for.
MOST = 1000


@dataclass(frozen=True)
class Task:
    """What a program is for: the promise, and the size of the problem.

    Args:
        n_users: n, the public size of the roster.
        start: (d,) where it begins, a public point.
        promise: what the whole program promises of users.
        beside: what else is published under the same promise.
        lot: a public random number, for recipes that return a random iterate; None to draw it.
    """

    n_users: int
    start: tuple[float, ...]
    promise: Promise
    beside: Event | None = None
    lot: int | None = None

    @staticmethod
    def of(
        n_users: int,
        start: Sequence[float],
        epsilon: float,
        delta: float,
        relation: Relation = "zero_out",
        *,
        beside: Event | None = None,
        lot: int | None = None,
    ) -> Task:
        """Make the task of a program that promises an ε and a δ for users.

        Args:
            n_users: n, the public size of the roster.
            start: (d,) where it begins, a public point.
            epsilon: the promised ε.
            delta: the promised δ.
            relation: the neighbouring relation.
            beside: what else is published under the same promise.
            lot: a public random number, for recipes that return a random iterate; None to draw it.

        Raises:
            ParameterError: if ε, δ or the relation is out of range.

        >>> Task.of(1000, (0.0, 0.0), 1.0, 1e-6).dimension
        2
        """
        promise = Promise(User(), epsilon, delta, relation)
        return Task(n_users, tuple(start), promise, beside, lot)

    @property
    def dimension(self) -> int:
        """The number of parameters, d."""
        return len(self.start)

    def noise(self, n_users: int | None = None) -> float:
        """The rms error of a private mean of vectors of norm 1, all of the promise spent on it."""
        mean = ClippedMean.calibrate(
            **{**self.calibration(n_users), "beside": None}, rounds=1, unit=User()
        )
        return mean.noise_sd * math.sqrt(self.dimension)

    def calibration(self, n_users: int | None = None) -> dict[str, Any]:
        """The arguments that calibrations of all means take.

        Args:
            n_users: how many users are asked, of whom the mean is taken; None for the roster.
        """
        return {
            "epsilon": self.promise.epsilon,
            "delta": self.promise.delta,
            "relation": self.promise.relation,
            "n_users": n_users or self.n_users,
            "beside": self.beside,
        }


@dataclass(frozen=True)
class Known:
    """What is publicly known of a problem, and a radius in which users' mean gradients lie.

    Args:
        distance: R: the solution lies within it of the start.
        lipschitz: G: the largest norm of a record's gradient.
        smoothness: H: the largest curvature; infinite where there are kinks.
        strength: μ: the least curvature; 0 where none is known.
        records: m, a typical number of records of a user.
        radius: τ, how far from a common point users' mean gradients lie; None for
            (G/√m)·(1 + √(2·ln(nT/0.01))), which holds for m independent records of every user in T
            rounds but for a probability of 1%, and for at most G, which holds around 0 for all data.

    Raises:
        ParameterError: if a value is out of range.

    Source of the radius: McDiarmid's inequality; the papers' G·log(nd/γ)/√m is about ten times larger.
    """

    distance: float = 10.0
    lipschitz: float = 1.0
    smoothness: float = math.inf
    strength: float = 0.0
    records: int = 1
    radius: float | None = None

    def __post_init__(self) -> None:
        _validate.positive(distance=self.distance)
        _validate.positive(lipschitz=self.lipschitz)
        _validate.non_negative(strength=self.strength)
        _validate.integer(minimum=1, records=self.records)
        if self.smoothness != math.inf:
            _validate.positive(smoothness=self.smoothness)
        if self.radius is not None:
            _validate.positive(radius=self.radius)
        if self.strength > self.smoothness:
            raise ParameterError(
                f"strength must be at most smoothness, not {self.strength!r} above "
                f"{self.smoothness!r}: no loss has a least curvature above its largest."
            )

    @property
    def facts(self) -> tuple[str, ...]:
        """What of it steps are made of, in words."""
        curved = (
            "" if math.isinf(self.smoothness) else f", curvatures of at most {self.smoothness:g}"
        )
        least = f", and of at least {self.strength:g}" if self.strength else ""
        return (
            f"a solution within {self.distance:g} of the start, gradients of norm at most "
            f"{self.lipschitz:g}{curved}{least}, and {counted(self.records, 'record')} of a typical "
            "user, which only accuracy rests on",
        )

    def radius_for(self, n_users: int, rounds: int) -> float:
        """The radius for so many users and rounds; no larger than G, which holds for all data."""
        if self.radius is not None:
            return self.radius
        spread = 1 + math.sqrt(2 * math.log(n_users * rounds / _FAILURE))
        return min(self.lipschitz / math.sqrt(self.records) * spread, self.lipschitz)


#: What recipes take as known unless told otherwise.
ANY, SMOOTH, STRONG = Known(), Known(smoothness=1.0), Known(strength=1.0)


def check_known(known: object) -> None:
    """Refuse what is no :class:`Known`."""
    if not isinstance(known, Known):
        raise ParameterError(
            f"known must be what is publicly known, such as Known(distance=10.0), not {known!r}."
        )


@dataclass(frozen=True)
class Stage:
    """One run of a solver on one private mean.

    Args:
        mean: of the users' mean gradients.
        solver: what steps against it, as often as the mean has rounds.
        smoothing: of each record's loss: none, at random points of a ball, each record at its own, or
            the Moreau envelope with so much curvature.
    """

    mean: Mean
    solver: Solver[Any]
    smoothing: Smoothing | None = None


@dataclass(frozen=True)
class Program:
    """A recipe for a task: public numbers only.

    Args:
        stages: one for each phase.
        localisation: who is in which phase; with one phase everybody.
        known: what it was made of.

    Formal guarantee: :attr:`event`. Phases have disjoint users, told apart by roster index alone, and
    compose in parallel.
    """

    stages: tuple[Stage, ...]
    localisation: Localisation
    known: Known | None = None

    @property
    def event(self) -> Event:
        """What all of it is to the accountant."""
        events = tuple(stage.mean.event for stage in self.stages)
        return events[0] if len(events) == 1 else Parallel(events)

    @property
    def facts(self) -> tuple[str, ...]:
        """What it takes as public, in words."""
        phases = self.localisation.phases()
        facts = [fact for stage in self.stages for fact in stage.mean.facts]
        if len(phases) > 1:
            sizes = ", ".join(f"{len(phase.users):,}" for phase in phases)
            facts.insert(0, f"phases of {sizes} users, told apart by their numbers")
        if self.known is not None:
            facts += self.known.facts
        facts.append("gradients are computed in floating point, whose rounding is left out")
        return tuple(dict.fromkeys(facts))

    @property
    def by_place(self) -> bool:
        """Whether users' places in the roster say what they take part in."""
        return len(self.stages) > 1 or self.stages[0].mean.fresh

    @property
    def trust(self) -> Trust:
        """Who sees data: a curator, unless all phases do without."""
        kinds = {stage.mean.trust for stage in self.stages}
        return kinds.pop() if len(kinds) == 1 else "central"

    @property
    def rounds(self) -> int:
        """How many noisy gradients there are, all phases together."""
        return sum(stage.mean.rounds for stage in self.stages)


@runtime_checkable
class Recipe(Protocol):
    """What makes a program of a task."""

    def plan(self, task: Task) -> Program:
        """Rounds, noise, radii and steps, from public numbers.

        Raises:
            ParameterError: if there are too few users for it.
        """


def alone(stage: Stage, task: Task, known: Known) -> Program:
    """One phase with everybody."""
    return Program((stage,), Restarts(task.n_users, 1), known)


def ball_of(known: Known, task: Task) -> Ball:
    """The ball around the start in which the solution lies."""
    return Ball(known.distance, tuple(task.start))


def rounds_between(rounds: float) -> int:
    """A number of rounds, rounded up, from 1 to :data:`MOST`."""
    return int(min(max(math.ceil(rounds), 1), MOST))


def check_smooth(known: Known, name: str, other: str) -> None:
    """Refuse a problem with kinks, by the names of a recipe and of one that takes it."""
    if math.isinf(known.smoothness):
        raise ParameterError(
            f"smoothness must be finite for {name}, not inf: smooth the loss (Moreau), or use {other}."
        )

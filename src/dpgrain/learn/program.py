"""Recipes and programs: a recipe makes a program of means, solvers and phases from public numbers."""

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
from dpgrain.optimize import Ball, Solver
from dpgrain.optimize.localisation import Localisation, Restarts
from dpgrain.optimize.smoothing import RandomizedBall
from dpgrain.publishing import Promise
from dpgrain.units import Relation, Trust, User

#: Kinks are smoothed by looking around at random, or by the Moreau envelope of this curvature.
Smoothing: TypeAlias = RandomizedBall | float

# Probability that some user's mean gradient is farther away than the radius.
_FAILURE_CHANCE = 0.01
#: Rounds of a program, at most, unless more are asked for.
MOST = 1000


@dataclass(frozen=True)
class Task:
    """The promise of a program, and the size of its problem.

    Args:
        n_users: n, the public size of the roster.
        start: (d,) the public point at which the program begins.
        promise: what the whole program promises of users.
        beside: what else is published under the same promise.
        lot: a public random number, for recipes that return a random iterate; None to draw it.

    >>> task = Task.of(1000, (0.0, 0.0), 1.0, 1e-6)
    >>> task.dimension, task.promise.epsilon, round(task.noise(), 4)
    (2, 1.0, 0.006)
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
        """Make the task of a program with an ε and a δ for users.

        Args:
            n_users: n, the public size of the roster.
            start: (d,) the public point at which the program begins.
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
        """Return the rms error of a private mean of vectors of norm 1 that has all of the promise."""
        mean = ClippedMean.calibrate(
            **{**self.calibration(n_users), "beside": None}, rounds=1, unit=User()
        )
        return mean.noise_sd * math.sqrt(self.dimension)

    def calibration(self, n_users: int | None = None) -> dict[str, Any]:
        """Return the arguments that the calibration of a mean takes.

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
    """Public knowledge of a problem, and a radius for users' mean gradients.

    Args:
        distance: R, the largest distance of the solution from the start.
        lipschitz: G, the largest norm of a record's gradient.
        smoothness: H, the largest curvature; infinite where there are kinks.
        strength: μ, the least curvature; 0 where none is known.
        records: m, a typical number of records of a user.
        radius: τ, the largest distance of users' mean gradients from a common point. None stands for
            (G/√m)·(1 + √(2·ln(nT/0.01))), which holds for m independent records of every user in T
            rounds but for a probability of 1%, or for G if that is less, which holds around 0 for all
            data.

    Raises:
        ParameterError: if a value is out of range.

    Source of the radius: McDiarmid's inequality; the papers' G·log(nd/γ)/√m is about ten times larger.

    >>> known = Known(distance=2.0, records=400)
    >>> round(known.radius_for(n_users=1000, rounds=50), 3), Known().radius_for(n_users=1000, rounds=50)
    (0.328, 1.0)
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
        if _validate.real(smoothness=self.smoothness) != math.inf:
            _validate.positive(smoothness=self.smoothness)
        if self.radius is not None:
            _validate.positive(radius=self.radius)
        if self.strength > self.smoothness:
            raise ParameterError(
                f"strength must be at most smoothness, {self.smoothness!r}, not "
                f"{self.strength!r}, because they are the smallest and the largest curvature."
            )

    @property
    def facts(self) -> tuple[str, ...]:
        """The public knowledge that steps are computed from, in words."""
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
        """Return the radius for some users and rounds, at most G, which holds for all data."""
        if self.radius is not None:
            return self.radius
        spread = 1 + math.sqrt(2 * math.log(n_users * rounds / _FAILURE_CHANCE))
        return min(self.lipschitz / math.sqrt(self.records) * spread, self.lipschitz)


#: Known properties of a loss: a recipe assumes one of these unless others are stated.
ANY, SMOOTH, STRONG = Known(), Known(smoothness=1.0), Known(strength=1.0)


def check_known(known: object) -> None:
    """Refuse a value that is not a :class:`Known`."""
    if not isinstance(known, Known):
        raise ParameterError(
            "known must be public bounds, such as Known(distance=10.0), not "
            f"{_validate.said(known)}."
        )


@dataclass(frozen=True)
class Stage:
    """One run of a solver on one private mean.

    Args:
        mean: the private mean of the users' mean gradients.
        solver: the solver that steps against it, once for each round of the mean.
        smoothing: the way in which each record's loss is smoothed: not at all, by a random point of a
            ball for each record, or by the Moreau envelope with the curvature given.

    >>> from dpgrain.optimize import CoinBetting
    >>> task = Task.of(1000, (0.0, 0.0), 1.0, 1e-6)
    >>> mean = ClippedMean.calibrate(**task.calibration(), rounds=20, unit=User())
    >>> program = Program((Stage(mean, CoinBetting()),), Restarts(task.n_users, 1))
    >>> program.rounds, program.event.epsilon(1e-6) <= 1.0
    (20, True)
    """

    mean: Mean
    solver: Solver[Any]
    smoothing: Smoothing | None = None


@dataclass(frozen=True)
class Program:
    """The program of a recipe for a task, in public numbers only.

    Args:
        stages: one stage for each phase.
        localisation: the division of users into phases; with one phase all users are in it.
        known: the public knowledge that the program was made from.

    Formal guarantee: that of :attr:`event`. Phases have disjoint users, distinguished by roster index
    alone, and compose in parallel.

    >>> from dpgrain.papers import ShuffleRestarts
    >>> program = ShuffleRestarts(count=2).plan(Task.of(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.rounds == sum(stage.mean.rounds for stage in program.stages), program.trust
    (True, 'shuffle')
    >>> [len(phase.users) for phase in program.localisation.phases()], program.facts[0]
    ([1000, 1000], 'phases of 1,000, 1,000 users, told apart by their numbers')
    """

    stages: tuple[Stage, ...]
    localisation: Localisation
    known: Known | None = None

    @property
    def event(self) -> Event:
        """The event of the whole program."""
        events = tuple(stage.mean.event for stage in self.stages)
        return events[0] if len(events) == 1 else Parallel(events)

    @property
    def facts(self) -> tuple[str, ...]:
        """All that the program takes as public, in words."""
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
        """True if a user's place in the roster decides in which rounds the user takes part."""
        return len(self.stages) > 1 or self.stages[0].mean.fresh

    @property
    def trust(self) -> Trust:
        """The party trusted with data: a curator, unless all phases do without one."""
        kinds = {stage.mean.trust for stage in self.stages}
        return kinds.pop() if len(kinds) == 1 else "central"

    @property
    def rounds(self) -> int:
        """The number of noisy gradients of all phases together."""
        return sum(stage.mean.rounds for stage in self.stages)


@runtime_checkable
class Recipe(Protocol):
    """A rule from tasks to programs."""

    def plan(self, task: Task) -> Program:
        """Make a program of rounds, noise, radii and steps, from public numbers.

        Args:
            task: the promise and the size of the problem.

        Raises:
            ParameterError: if there are too few users for the recipe.
        """


def alone(stage: Stage, task: Task, known: Known) -> Program:
    """Return a program of one phase with all users."""
    return Program((stage,), Restarts(task.n_users, 1), known)


def ball_of(known: Known, task: Task) -> Ball:
    """Return the ball around the start in which the solution lies."""
    return Ball(known.distance, tuple(task.start))


def rounds_between(rounds: float) -> int:
    """Round up a number of rounds and keep it from 1 to :data:`MOST`."""
    return int(min(max(math.ceil(rounds), 1), MOST))


def gradient_length(known: Known, n_users: int, rounds: int, noise: float) -> float:
    """Return the length of gradients that steps are set by, with noise and overfitting added.

    Args:
        known: what is publicly known.
        n_users: how many users are asked in every round.
        rounds: T.
        noise: the rms error of a round's mean.
    """
    share = 2 * rounds / (n_users * known.records)
    return math.hypot(known.lipschitz * math.sqrt(1 + share), noise)


def check_smooth(known: Known, name: str, other: str) -> None:
    """Refuse a problem with kinks, naming the recipe and another one that takes it."""
    if math.isinf(known.smoothness):
        raise ParameterError(
            f"smoothness must be finite for {name}, not inf; smooth the loss (Moreau), or use "
            f"{other}."
        )

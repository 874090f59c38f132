"""Recipes, which map public numbers to programs of means and solvers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from dpgrain import _validate
from dpgrain.accounting import Event, Parallel
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean, Mean
from dpgrain.optimize import Ball, Solver
from dpgrain.optimize.localisation import Localisation, Restarts
from dpgrain.optimize.schedules import check_curvatures
from dpgrain.optimize.smoothing import RandomizedBall
from dpgrain.publishing import Promise
from dpgrain.publishing.facts import Fact
from dpgrain.units import Relation, Trust, User
from dpgrain.words.notes import Note

#: Smoothing of kinks by random perturbation, or by the Moreau envelope with this curvature.
Smoothing: TypeAlias = RandomizedBall | float

# Probability that a user's mean gradient is outside the radius.
_FAILURE_PROBABILITY = 0.01
# Noise of all rounds, in mean gradients of isotropic records, beyond which fits by a recipe were
# mostly worse than their start (docs/papers/which-recipe.md).
_RECIPE_NOISE = 0.4
#: Default maximum number of rounds of a program.
MAX_ROUNDS = 1000


@dataclass(frozen=True)
class Task:
    """Requested guarantee of a program, and the size of its problem.

    Args:
        n_users: n, the public number of users in the known population.
        start: (d,) the public starting point of the program.
        promise: the requested guarantee of the whole program for users.
        beside: the event of other results published under the same guarantee.
        lot: a public random number, for recipes that return a random iterate; None to draw it.

    Raises:
        ParameterError: if the promise is not for whole users.

    >>> task = Task.of(1000, (0.0, 0.0), 1.0, 1e-6)
    >>> task.dimension, task.promise.epsilon, round(task.noise(), 4)
    (2, 1.0, 0.006)
    """

    n_users: int
    start: tuple[float, ...]
    promise: Promise
    beside: Event | None = None
    lot: int | None = None

    def __post_init__(self) -> None:
        if self.promise.unit != User():
            raise ParameterError(
                f"unit must be User() with a recipe, not {_validate.describe(self.promise.unit)}, "
                "because recipes protect whole users.",
                name="unit",
            )

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
        """Return the task of a program with an ε and a δ for users.

        Args:
            n_users: n, the public number of users in the known population.
            start: (d,) the public starting point of the program.
            epsilon: the ε of the guarantee.
            delta: the δ of the guarantee.
            relation: the neighbouring relation.
            beside: the event of other results published under the same guarantee.
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
        """Number of parameters, d."""
        return len(self.start)

    def noise(self, n_users: int | None = None) -> float:
        """Return the RMS error of a private mean of unit vectors with the whole budget."""
        mean = ClippedMean.calibrate(
            **{**self.calibration(n_users), "beside": None}, rounds=1, unit=User()
        )
        return mean.noise_sd * math.sqrt(self.dimension)

    def calibration(self, n_users: int | None = None) -> dict[str, Any]:
        """Return the arguments for calibrating a mean.

        Args:
            n_users: the number of users in the mean; None for the whole population.
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
    """Public knowledge about a problem, and a radius for users' mean gradients.

    Args:
        distance: R, the largest distance of the solution from the start.
        lipschitz: G, the largest norm of a record's gradient.
        smoothness: H, the largest curvature; infinite for a loss with kinks.
        strength: μ, the smallest curvature; 0 if none is known.
        records: m, a typical number of records per user.
        radius: τ, the largest distance of users' mean gradients from a common point. None is
            (G/√m)·(1 + √(2·ln(nT/0.01))), which is valid for m independent records of every user in
            T rounds except with probability 1%; or G if it is smaller, which is valid around 0 for
            all data.

    Raises:
        ParameterError: if a value is out of range.

    Source of the radius: McDiarmid's inequality; the papers' G·log(nd/γ)/√m is about ten times
    larger.

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
        check_curvatures(self.strength, self.smoothness)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public knowledge that steps are computed from."""
        curvatures = [] if math.isinf(self.smoothness) else [self.smoothness]
        kind = "known-smooth" if curvatures else "known"
        if self.strength:
            kind = "known-both" if curvatures else "known-strong"
            curvatures.append(self.strength)
        return (Fact(kind, (self.distance, self.lipschitz, *curvatures, self.records)),)

    def radius_for(self, n_users: int, rounds: int) -> float:
        """Return the radius for some users and rounds; at most G, valid for all data."""
        if self.radius is not None:
            return self.radius
        spread = 1 + math.sqrt(2 * math.log(n_users * rounds / _FAILURE_PROBABILITY))
        return min(self.lipschitz / math.sqrt(self.records) * spread, self.lipschitz)


#: Known properties of a loss: a recipe assumes one of these by default.
ANY, SMOOTH, STRONG = Known(), Known(smoothness=1.0), Known(strength=1.0)


def check_known(known: object, rounds: int | None = None) -> None:
    """Reject a value that is not a :class:`Known`, or an invalid number of rounds."""
    if not isinstance(known, Known):
        raise ParameterError(
            "known must be public bounds, such as Known(distance=10.0), not "
            f"{_validate.describe(known)}."
        )
    if rounds is not None:
        _validate.integer(minimum=1, rounds=rounds)


@dataclass(frozen=True)
class Stage:
    """One run of a solver on one private mean.

    Args:
        mean: the private mean of the users' mean gradients.
        solver: the solver that uses it, with one step per round of the mean.
        smoothing: the smoothing of each record's loss: none, by a random point in a ball for each
            record, or by the Moreau envelope with the given curvature.

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
    """Program of a recipe for a task, in public numbers only.

    Args:
        stages: one stage for each phase.
        localisation: the division of users into phases; a single phase contains all users.
        known: the public knowledge behind the program.

    Formal guarantee: :attr:`event`. Phases have disjoint users, distinguished only by their index
    in the population, and compose in parallel.

    >>> from dpgrain.papers import ShuffleRestarts
    >>> program = ShuffleRestarts(count=2).plan(Task.of(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.rounds == sum(stage.mean.rounds for stage in program.stages), program.trust
    (True, 'shuffle')
    >>> [len(phase.users) for phase in program.localisation.phases()], str(program.facts[0])
    ([1000, 1000], 'phases of 1,000, 1,000 users, who are identified by their numbers')
    """

    stages: tuple[Stage, ...]
    localisation: Localisation
    known: Known | None = None

    @property
    def event(self) -> Event:
        """Accounting event of the whole program."""
        events = tuple(stage.mean.event for stage in self.stages)
        return events[0] if len(events) == 1 else Parallel(events)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """All facts that the program assumes to be public."""
        phases = self.localisation.phases()
        facts = [fact for stage in self.stages for fact in stage.mean.facts]
        if len(phases) > 1:
            sizes = ", ".join(f"{len(phase.users):,}" for phase in phases)
            facts.insert(0, Fact("phases", (sizes,)))
        if self.known is not None:
            facts += self.known.facts
        facts.append(Fact("floating-gradients"))
        return tuple(dict.fromkeys(facts))

    @property
    def uses_index(self) -> bool:
        """True if a user's index in the population determines the user's rounds."""
        return len(self.stages) > 1 or self.stages[0].mean.fresh

    @property
    def trust(self) -> Trust:
        """Party trusted with data: a curator, unless all phases work without one."""
        kinds = {stage.mean.trust for stage in self.stages}
        return kinds.pop() if len(kinds) == 1 else "central"

    @property
    def rounds(self) -> int:
        """Number of noisy gradients in all phases."""
        return sum(stage.mean.rounds for stage in self.stages)

    def care(self, dimension: int) -> tuple[Note, ...]:
        """Warn if the plan will probably not improve on its start.

        Args:
            dimension: the number of parameters.
        """
        mean = self.stages[0].mean
        largest = mean.reach if self.known is None else self.known.lipschitz
        noise = mean.noise_sd / math.sqrt(mean.rounds)
        return start_warning("start-of-recipe", noise, dimension, largest, _RECIPE_NOISE)


def start_warning(
    kind: str, noise: float, dimension: int, largest: float, ratio: float
) -> tuple[Note, ...]:
    """Warn if noise exceeds ``ratio`` times the mean gradient of isotropic records.

    ``noise`` is the standard deviation of a coordinate of the mean of all gradients, and
    ``largest`` the largest norm of a gradient. Records of isotropic features have a mean gradient
    of norm at most ``largest``/√d, because E|⟨x, v⟩| ≤ ‖x‖/√d.
    """
    total, signal = noise * math.sqrt(dimension), largest / math.sqrt(dimension)
    return ((kind, total, dimension, signal),) if total > ratio * signal else ()


@runtime_checkable
class Recipe(Protocol):
    """Rule from tasks to programs."""

    def plan(self, task: Task) -> Program:
        """Return a program of rounds, noise, radii and steps, from public numbers.

        Args:
            task: the requested guarantee and the size of the problem.

        Raises:
            ParameterError: if there are too few users for the recipe.
        """


def single_phase(stage: Stage, task: Task, known: Known) -> Program:
    """Return a program of one phase with all users."""
    return Program((stage,), Restarts(task.n_users, 1), known)


def solution_ball(known: Known, task: Task) -> Ball:
    """Return the ball around the start that contains the solution."""
    return Ball(known.distance, tuple(task.start))


def clamp_rounds(rounds: float) -> int:
    """Round up a number of rounds, and clamp it between 1 and :data:`MAX_ROUNDS`."""
    return int(min(max(math.ceil(rounds), 1), MAX_ROUNDS))


def gradient_norm(known: Known, n_users: int, rounds: int, noise: float) -> float:
    """Return the gradient norm for step sizes, including noise and overfitting."""
    share = 2 * rounds / (n_users * known.records)
    return math.hypot(known.lipschitz * math.sqrt(1 + share), noise)


def check_smooth(known: Known, name: str, other: str) -> None:
    """Reject a problem with kinks, with a hint at a recipe that supports it."""
    if math.isinf(known.smoothness):
        raise ParameterError(
            f"smoothness must be finite for {name}, not inf; smooth the loss (Moreau), or use "
            f"{other}."
        )

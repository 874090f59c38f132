"""The papers' algorithms at user level, each a combination of a private mean, a solver and phases.

A recipe holds what is publicly known of a problem; :meth:`Recipe.plan` makes of it a program: rounds,
radii, step sizes and noise, all public numbers. A program runs on any convex loss through
:func:`dpgrain.learn.minimise`, and as ``algorithm=`` of the estimators. What a theorem leaves as O(…)
is replaced by the noise that exact accounting asks for.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.accounting import (
    Event,
    ExponentialMechanism,
    Parallel,
)
from dpgrain.aggregators import ClippedMean, Recentred, SoftCore, Winsorized
from dpgrain.budgets import charge
from dpgrain.errors import ParameterError
from dpgrain.guarantee import Guarantee
from dpgrain.noise import RandomState, gumbel_order, source_of
from dpgrain.optimize import (
    Ball,
    CoinBetting,
    Constant,
    DecreasingRestart,
    Localisation,
    Phases,
    RandomIterate,
    RandomizedBall,
    RegularisedPhases,
    Restarts,
    Sgd,
    Solver,
    Uniform,
)
from dpgrain.units import RELATIONS, Relation, User
from dpgrain.wording import FLOATING_SUMS, counted

#: How kinks are smoothed: by looking around at random, or by the Moreau envelope of this curvature.
Smoothing: TypeAlias = RandomizedBall | float
Mean: TypeAlias = ClippedMean | Recentred | SoftCore | Winsorized
Kind: TypeAlias = Literal["convex", "strongly_convex", "nonconvex"]

# The probability that some user's mean gradient is farther away than the radius.
_FAILURE = 0.01
# Rounds at most, unless more are asked for.
_MOST = 1000
# Rounds of coin betting: with more the noise of each only grows, with far fewer it is not there yet.
_LEAST_ROUNDS, _ROUNDS = 50, 100


@dataclass(frozen=True)
class Task:
    """What a program is for: the promise, and the size of the problem.

    Args:
        n_users: n, the public size of the roster.
        start: (d,) where it begins, a public point.
        epsilon: the promised ε.
        delta: the promised δ.
        relation: the neighbouring relation.
        beside: what else is published under the same promise.
        lot: a public random number, for recipes that return a random iterate; None to draw it.
    """

    n_users: int
    start: tuple[float, ...]
    epsilon: float
    delta: float
    relation: Relation = "zero_out"
    beside: Event | None = None
    lot: int | None = None

    @property
    def dimension(self) -> int:
        """The number of parameters, d."""
        return len(self.start)

    def noise(self, n_users: int | None = None) -> float:
        """The rms error of a private mean of vectors of norm 1, all of the promise spent on it."""
        mean = ClippedMean.calibrate(
            **{**self.promise(n_users), "beside": None}, rounds=1, unit=User()
        )
        return mean.noise_sd * math.sqrt(self.dimension)

    def promise(self, n_users: int | None = None) -> dict[str, Any]:
        """What calibrations of means take."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation,
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
        facts = [fact for stage in self.stages for fact in _facts(stage.mean)]
        if len(phases) > 1:
            sizes = ", ".join(f"{len(phase.users):,}" for phase in phases)
            facts.insert(0, f"phases of {sizes} users, told apart by their numbers")
        if self.known is not None:
            facts += self.known.facts
        facts.append("gradients are computed in floating point, whose rounding is left out")
        return tuple(dict.fromkeys(facts))

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


@dataclass(frozen=True)
class WinsorizedErm:
    """Winsorized first-order optimisation of the empirical risk (Levy et al., Algorithm 3).

    Args:
        known: what is publicly known; its smoothness must be finite.
        kind: ``"convex"``: averaged steps of one length; ``"strongly_convex"``: one restart with
            falling steps; ``"nonconvex"``: a random iterate.
        rounds: T; None for H·R/ν rounds, ν the noise of one round that had all of the promise, beyond
            which only noise is left (or H/μ·ln of the ratio of the start's error to the noise), as far
            as users suffice.
        iterate: which iterate ``"nonconvex"`` returns; None to draw it.

    Source: Theorem 4 and Proposition 3, with the constants of exact accounting.

    >>> program = WinsorizedErm(Known(smoothness=1.0, records=100)).plan(
    ...     Task(10_000, (0.0, 0.0), 4.0, 1e-6)
    ... )
    >>> program.event.epsilon(1e-6) <= 4.0
    True
    """

    known: Known = Known(smoothness=1.0)
    kind: Kind = "convex"
    rounds: int | None = None
    iterate: int | None = None

    def __post_init__(self) -> None:
        _validate.one_of(("convex", "strongly_convex", "nonconvex"), kind=self.kind)
        _check_smooth(self.known, "WinsorizedErm")
        if self.kind == "strongly_convex" and self.known.strength == 0:
            raise ParameterError("strength must be above 0 with kind='strongly_convex', not 0.")

    def plan(self, task: Task) -> Program:
        """One phase with all users."""
        mean = _winsorized(self.known, task, task.n_users, self._rounds(task), self.rounds is None)
        return _alone(Stage(mean, self._solver(task, mean)), task, self.known)

    def _rounds(self, task: Task) -> int:
        if self.rounds is not None:
            return self.rounds
        known, noise = self.known, self.known.radius_for(task.n_users, 1) * task.noise()
        if self.kind == "strongly_convex":
            return _localising_rounds(known, known.strength, known.smoothness, noise)
        return _between(known.smoothness * known.distance / noise)

    def _solver(self, task: Task, mean: Winsorized) -> Solver[Any]:
        known, domain = self.known, _ball(self.known, task)
        if self.kind == "strongly_convex":
            steps = DecreasingRestart(known.smoothness, known.strength, mean.rounds)
            return Sgd(steps, domain, steps)
        noise = mean.noise_sd * math.sqrt(task.dimension)
        size = min(1 / known.smoothness, known.distance / (noise * math.sqrt(mean.rounds)))
        if self.kind == "convex":
            return Sgd(Constant(size), domain, Uniform())
        lot = secrets.randbits(64) if task.lot is None else task.lot
        chosen = self.iterate or 1 + lot % mean.rounds
        return Sgd(Constant(size), domain, RandomIterate(min(chosen, mean.rounds)))


@dataclass(frozen=True)
class PhasedErmSco:
    """Phases over fresh users, with a growing pull to the last solution (Levy et al., Algorithm 4).

    Args:
        known: what is publicly known; its smoothness must be finite.
        count: the number of phases; None for as many as users suffice for, at most log₂ of the ratio
            of G√(nm) to the noise.

    Phase t has n/2^t users and the pull λ·4^t, λ = √(G²/(nm) + ν²)/R, ν the noise of one mean. Source:
    Theorem 5, with the constants of exact accounting.

    >>> program = PhasedErmSco(Known(smoothness=1.0, records=100)).plan(
    ...     Task(100_000, (0.0, 0.0), 4.0, 1e-6)
    ... )
    >>> len(program.stages) > 1, program.event.epsilon(1e-6) <= 4.0
    (True, True)
    """

    known: Known = Known(smoothness=1.0)
    count: int | None = None

    def __post_init__(self) -> None:
        _check_smooth(self.known, "PhasedErmSco")

    def plan(self, task: Task) -> Program:
        """As many phases as asked for, or as users suffice for."""
        if self.count is not None:
            return self._of(task, self.count)
        known, noise = self.known, self._noise(task)
        most = math.log2(max(known.lipschitz * math.sqrt(task.n_users * known.records) / noise, 2))
        for count in range(max(1, min(math.ceil(most), 8)), 1, -1):
            try:
                return self._of(task, count)
            except ParameterError:
                # The last phase has too few users.
                continue
        return self._of(task, 1)

    def _noise(self, task: Task) -> float:
        return self.known.radius_for(task.n_users, 1) * task.noise()

    def _of(self, task: Task, count: int) -> Program:
        known, noise = self.known, self._noise(task)
        sampling = known.lipschitz**2 / (task.n_users * known.records)
        pull = math.sqrt(sampling + noise**2) / known.distance
        phases = RegularisedPhases(task.n_users, count, pull)
        stages, domain = [], _ball(known, task)
        for phase in phases.phases():
            strength, smooth = phase.strength + known.strength, known.smoothness + phase.strength
            of_phase = known.radius_for(len(phase.users), 1) * task.noise(len(phase.users))
            rounds = _localising_rounds(known, strength, smooth, of_phase)
            mean = _winsorized(known, task, len(phase.users), rounds, True)
            steps = DecreasingRestart(smooth, strength, mean.rounds)
            stages.append(Stage(mean, Sgd(steps, domain, steps)))
        return Program(tuple(stages), phases, known)


@dataclass(frozen=True)
class UserLevelSgd:
    """Multi-pass gradient descent on soft-core means, smoothed at random (Asi & Liu, Algorithm 2).

    Args:
        known: what is publicly known; kinks are welcome.
        rounds: T; None for m²n² + mn√d, but at most 1000.
        smoothing: ``"ball"``: at random points within r = d^(1/4)·R/√T (Lemma 2.5); ``"moreau"``: the
            Moreau envelope of curvature G√d/r, which asks only within the domain (Remark 4.3);
            ``"none"``.

    Steps are of length (R/G)·min(G/(ν√T), T^(-3/4), √(nm)/T), ν the noise of a round; the iterates are
    averaged. A start known to be near shrinks R (Remark 4.2): state it as the distance. Source: Theorem
    4.1, whose noise is not private; the constants here are those of the soft core.

    >>> program = UserLevelSgd(Known(records=100), rounds=50).plan(Task(2000, (0.0,), 1.0, 1e-6))
    >>> program.event.epsilon(1e-6) <= 1.0
    True
    """

    known: Known = Known()
    rounds: int | None = None
    smoothing: Literal["ball", "moreau", "none"] = "ball"

    def __post_init__(self) -> None:
        _validate.one_of(("ball", "moreau", "none"), smoothing=self.smoothing)
        if self.rounds is not None:
            _validate.integer(minimum=1, rounds=self.rounds)

    def plan(self, task: Task) -> Program:
        """One phase with all users."""
        return _alone(self.stage(task, task.n_users), task, self.known)

    def stage(self, task: Task, n_users: int) -> Stage:
        """The same for some of the users."""
        known, d = self.known, task.dimension
        many = (known.records * n_users) ** 2 + known.records * n_users * math.sqrt(d)
        rounds = self.rounds or int(min(many, _MOST))
        radius = known.radius_for(n_users, rounds)
        mean = SoftCore.calibrate(**task.promise(n_users), rounds=rounds, radius=radius)
        noise = mean.noise_sd * math.sqrt(d)
        size = known.distance * min(
            1 / (noise * math.sqrt(rounds)),
            rounds**-0.75 / known.lipschitz,
            math.sqrt(n_users * known.records) / rounds / known.lipschitz,
        )
        around = d**0.25 * known.distance / math.sqrt(rounds)
        smoothing: Smoothing | None = {
            "ball": RandomizedBall(around),
            "moreau": known.lipschitz * math.sqrt(d) / around,
            "none": None,
        }[self.smoothing]
        return Stage(mean, Sgd(Constant(size), _ball(known, task), Uniform()), smoothing)


@dataclass(frozen=True)
class UserLevelSgdStronglyConvex:
    """:class:`UserLevelSgd` in growing phases, each nearer to the solution (Asi & Liu, Algorithm 3).

    Args:
        known: what is publicly known; the strength must be above 0.
        rounds: T of each phase; None for its theorem's, but at most 1000.
        count: the number of phases; None for ⌈log log(mn)⌉, as far as users suffice.

    Phase i of k has n/2^(k+1−i) users and begins where the last one ended, within √(2·excess/μ) of the
    solution. Source: Theorem 4.11.

    >>> known = Known(strength=0.5, records=100)
    >>> program = UserLevelSgdStronglyConvex(known, rounds=50).plan(Task(9000, (0.0,), 1.0, 1e-6))
    >>> len(program.stages), program.event.epsilon(1e-6) <= 1.0
    (3, True)
    """

    known: Known = Known(strength=1.0)
    rounds: int | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if self.known.strength == 0:
            raise ParameterError("strength must be above 0 for UserLevelSgdStronglyConvex, not 0.")

    def plan(self, task: Task) -> Program:
        """As many phases as asked for, or as users suffice for."""
        if self.count is not None:
            return self._of(task, self.count)
        all_records = max(task.n_users * self.known.records, 3)
        for count in range(max(1, math.ceil(math.log(math.log(all_records)))), 1, -1):
            try:
                return self._of(task, count)
            except ParameterError:
                # The first phase has too few users.
                continue
        return self._of(task, 1)

    def _of(self, task: Task, count: int) -> Program:
        known, phases = self.known, Phases(task.n_users, count, growing=True)
        distance, stages = min(known.distance, 2 * known.lipschitz / known.strength), []
        for phase in phases.phases():
            n = len(phase.users)
            near = UserLevelSgd(replace(known, distance=distance), self.rounds)
            stages.append(near.stage(task, n))
            noise = known.radius_for(n, 1) * task.noise(n)
            excess = distance * (known.lipschitz / math.sqrt(n * known.records) + noise)
            distance = min(distance, math.sqrt(2 * excess / known.strength))
        # The ball of a phase is around its own start, which the program does not know.
        wide = _ball(known, task)
        free = tuple(
            replace(stage, solver=replace(stage.solver, domain=wide))  # type: ignore[type-var]
            for stage in stages
        )
        return Program(free, phases, known)


@dataclass(frozen=True)
class Concentrated:
    """Ours: gradients clipped to the radius in which users agree, and steps that need no length.

    Where the loss is least users' mean gradients lie around 0, which is a public centre: clipped there,
    to a radius as small as they lie close, they cost as little noise as any mean of concentrated
    vectors does, without a test, an interval or a minimum of users. Far from the solution they are
    shortened, but still point there.

    Args:
        known: what is publicly known.
        rounds: T; None for (H·R/G)·√(nm), but from 50 to 100: the noise of all rounds together is the
            same however many there are.
        share: the clipping bound ÷ the radius at which a user's mean gradient concentrates. Small ones
            shorten nearly all gradients: the less noise, the more the solution is a median of users.
        solver: what steps; None for coin betting, which does not know the scale of gradients.

    Source: the recentred mean with the centre 0; docs/theory.md, "User-level recipes".

    >>> program = Concentrated(Known(records=100)).plan(Task(1000, (0.0, 0.0), 1.0, 1e-6))
    >>> program.rounds, program.event.epsilon(1e-6) <= 1.0
    (100, True)
    """

    known: Known = Known()
    rounds: int | None = None
    share: float = 0.5
    solver: Solver[Any] | None = None

    def __post_init__(self) -> None:
        _validate.positive(share=self.share)

    def plan(self, task: Task) -> Program:
        """One phase with all users."""
        known = self.known
        rounds = self.rounds
        if rounds is None:
            ideal = known.smoothness * known.distance / known.lipschitz
            ideal *= math.sqrt(task.n_users * known.records)
            rounds = int(min(max(ideal, _LEAST_ROUNDS), _ROUNDS))
        radius = known.radius or known.lipschitz / math.sqrt(known.records)
        mean = ClippedMean.calibrate(
            **task.promise(), rounds=rounds, clip=self.share * radius, unit=User()
        )
        solver = self.solver or CoinBetting(wealth=known.distance / math.sqrt(task.dimension))
        return _alone(Stage(mean, solver), task, known)


@dataclass(frozen=True)
class TypicalRecords:
    """About how many records a user has.

    Args:
        records: about the median over users with records.
        guarantee: what is promised; it composes with a fit's on the same users: ``a + b``.
    """

    records: int
    guarantee: Guarantee


def typical_records(
    users: Any,
    *,
    epsilon: float,
    n_users: int | None = None,
    relation: Relation = "zero_out",
    random_state: RandomState = None,
    largest: int = 2**20,
) -> TypicalRecords:
    """Publish about the median number of records of a user, for ``Known(records=…)``.

    Each user's number is rounded to the nearest of the whole numbers next to 1, 2^(1/4), 2^(1/2), …;
    the exponential mechanism chooses one of them. Of n users with records at most the share 1/2 +
    ln(80/p)/(nε) lie below it, and above it, but for a probability of p (under ``replace`` twice as
    much beyond the half).

    Args:
        users: (m,) whose each record is; a record without user is left out.
        epsilon: the promised ε; there is no δ.
        n_users: the public size of the roster; by default the number of ids passed.
        relation: the neighbouring relation.
        random_state: a seed, which makes the release not private.
        largest: the largest number that it may be.

    Raises:
        ParameterError: if a parameter is out of range.

    Formal guarantee: ε-DP for users. Of the numbers of users below and above a candidate the larger
    one is to be small; a removed user lowers it by 0 or 1 for each candidate, an exchanged one changes
    it by at most 1. Source: McSherry & Talwar 2007; docs/theory.md, "User-level recipes".

    >>> found = typical_records(np.repeat(np.arange(2000), 16), epsilon=0.5)
    >>> found.records, found.guarantee.epsilon()
    (16, 0.5)
    """
    from dpgrain.learn.labels import column
    from dpgrain.learn.promise import promised
    from dpgrain.learn.rows import arrange, roster

    epsilon = _validate.positive(epsilon=epsilon)
    if not 2.0**-20 <= epsilon <= 2.0**10:
        raise ParameterError(
            f"epsilon must lie between 2^-20 and 2^10, not {epsilon!r}: beyond that nothing is left, "
            "or nothing is private."
        )
    _validate.one_of(RELATIONS, relation=relation)
    if _validate.integer(minimum=1, largest=largest) > 2**40:
        raise ParameterError(f"largest must be at most 2^40, not {largest!r}.")
    rows = arrange(len(column(users)), users, None, User())
    _, enrolled = roster(n_users, rows.users)
    event = _choice(epsilon, relation)
    source = source_of(random_state)
    candidates = _grid(largest)
    promise = promised(
        User(),
        relation,
        0.0,
        event,
        (enrolled, f"a number of records of at most {largest:,}"),
        private=source.private,
        users=users,
        elements=None,
    )
    charge(promise)
    scores = middle_scores(np.bincount(rows.blocks, minlength=len(rows.owners)), candidates)
    best = int(gumbel_order(scores, event.scale, 1, source=source)[0])
    return TypicalRecords(int(candidates[best]), promise)


def middle_scores(held: NDArray[Any], candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """How near to the middle each candidate is: minus the users on its larger side.

    Args:
        held: (users,) how many records each has; who has none is not there.
        candidates: (c,) rising numbers of records.

    >>> middle_scores(np.array([1, 4, 5]), np.array([1, 2, 4])).tolist()
    [-2, -2, -1]
    """
    edges = np.sqrt(candidates[:-1] * candidates[1:].astype(np.float64))
    counts = np.bincount(np.searchsorted(edges, held[held > 0]), minlength=len(candidates))
    below = np.cumsum(counts) - counts
    scores: NDArray[np.int64] = -np.maximum(below, counts.sum() - counts - below).astype(np.int64)
    return scores


def _grid(largest: int) -> NDArray[np.int64]:
    """Whole numbers a quarter of an octave apart, from 1."""
    steps = 2.0 ** (np.arange(4 * largest.bit_length() + 1) / 4)
    numbers = np.unique(np.round(steps).astype(np.int64))
    return numbers[numbers <= largest]


def _choice(epsilon: float, relation: Relation) -> ExponentialMechanism:
    """The choice with the least noise that keeps the promise."""
    # A removed user moves all scores the same way; an exchanged one is removed and added.
    event = ExponentialMechanism((1 if relation == "zero_out" else 2) / epsilon, one_way=True)
    while event.epsilon(0.0, relation=relation) > epsilon:
        event = replace(event, scale=math.nextafter(event.scale, math.inf))
    return event


#: The recipes of this library, by name.
RECIPES = (
    "Concentrated",
    "PhasedErmSco",
    "UserLevelSgd",
    "UserLevelSgdStronglyConvex",
    "WinsorizedErm",
)
# Names as in the papers' titles: `recipes.winsorized_erm(…)` reads like the others of the field.
winsorized_erm = WinsorizedErm
phased_erm_sco = PhasedErmSco
user_level_sgd = UserLevelSgd
user_level_sgd_strongly_convex = UserLevelSgdStronglyConvex
concentrated = Concentrated


def _alone(stage: Stage, task: Task, known: Known) -> Program:
    """One phase with everybody."""
    return Program((stage,), Restarts(task.n_users, 1), known)


def _facts(mean: Mean) -> tuple[str, ...]:
    if isinstance(mean, ClippedMean):
        facts = (f"{mean.rounds:,} rounds with all users", f"a clipping bound of {mean.clip:g}")
        return facts if mean.exact else (*facts, FLOATING_SUMS)
    return mean.facts


def _check_smooth(known: Known, name: str) -> None:
    if math.isinf(known.smoothness):
        raise ParameterError(
            f"smoothness must be finite for {name}, not inf: smooth the loss (Moreau), or use "
            "UserLevelSgd."
        )


def _ball(known: Known, task: Task) -> Ball:
    return Ball(known.distance, tuple(task.start))


def _between(rounds: float) -> int:
    return int(min(max(math.ceil(rounds), 1), _MOST))


def _localising_rounds(known: Known, strength: float, smooth: float, noise: float) -> int:
    """H/μ·ln of how much smaller the error gets than that of the start (Corollary 2)."""
    left = max((known.lipschitz / max(noise, 1e-300)) ** 2, math.e)
    return _between(4 * smooth / strength * math.log(left))


def _winsorized(known: Known, task: Task, n_users: int, rounds: int, fewer: bool) -> Winsorized:
    """The winsorized mean for so many rounds, or for fewer where users do not suffice."""
    while True:
        try:
            return Winsorized.calibrate(
                **task.promise(n_users),
                rounds=rounds,
                radius=known.radius_for(n_users, rounds),
                bound=known.lipschitz,
                dimension=task.dimension,
            )
        except ParameterError:
            if not fewer or rounds <= 2:
                raise
            rounds = max(2, rounds // 2)

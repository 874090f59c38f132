"""The shuffle paper's algorithms: users' noisy messages are shuffled, or a stream is pan-private.

Where each round asks fresh users, it has all of the promise to itself, but the more rounds there are
the smaller is each batch: acceleration makes do with few. Where everybody is asked in every round, the
noise is nearly that of a trusted curator. What theorems leave as O(…) is replaced by the bounds of the
solvers, with the noise that exact accounting asks for; rounds are chosen to make them least.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.means import Mean
from dpgrain.means.pan_private import PanPrivate
from dpgrain.means.shuffled import Interaction, Protocol, Shuffled
from dpgrain.optimize import (
    AcSa,
    Constant,
    Localisation,
    Phases,
    Restarts,
    Sgd,
    Uniform,
)
from dpgrain.recipes.curator import Concentrated
from dpgrain.recipes.program import (
    ANY,
    SMOOTH,
    STRONG,
    Known,
    Program,
    Stage,
    Task,
    alone,
    ball_of,
    check_known,
    check_smooth,
    rounds_between,
)

# Batches at most, unless more are asked for; and phases.
_MOST_BATCHES, _MOST_PHASES = 10_000, 8
# Numbers of rounds that are compared: all up to some hundred, then a percent or two apart.
_CANDIDATES = 500
# Rounds of coin betting where each has fresh users: with few more the noise is what is left.
_FEW = 10


@dataclass(frozen=True)
class ShuffleSgd:
    """Gradient steps on batches of fresh users through a shuffler (Cheu et al., Algorithm 3).

    Args:
        known: what is publicly known; kinks are welcome.
        rounds: T; None for batches of as many users as make the noise of a batch's mean as long as one
            user's gradient may be, but at most 10,000 of them.
        honest_fraction: the share of each batch's users who follow the protocol, at least.
        protocol: what users add: ``"binomial"`` coins, or ``"poisson"`` ones, which are fewer.

    Steps against the gradient (the paper prints + η) are of length R/(L_G·√T), L_G² = G² + dν², ν the
    noise of a batch; the iterates are averaged. Source: Theorem 4.1, whose b is √d·log(d/δ)/ε.

    >>> program = ShuffleSgd(rounds=4).plan(Task(1000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.trust, program.stages[0].mean.batch, program.event.epsilon(1e-6) <= 2.0
    ('shuffle', 250, True)
    """

    known: Known = ANY
    rounds: int | None = None
    honest_fraction: float = 1.0
    protocol: Protocol = "binomial"

    def __post_init__(self) -> None:
        check_known(self.known)
        _check(self.rounds, self.honest_fraction, self.protocol)

    def plan(self, task: Task) -> Program:
        """One phase, in which everybody is asked once."""
        known, rounds = self.known, self.rounds
        if rounds is None:
            batch = math.ceil(task.noise(1) / math.sqrt(self.honest_fraction))
            rounds = min(max(task.n_users // batch, 1), _MOST_BATCHES)
        mean = _shuffled(self, task, task.n_users, rounds)
        length = math.hypot(known.lipschitz, mean.noise_sd * math.sqrt(task.dimension))
        steps = Constant(known.distance / (length * math.sqrt(rounds)))
        return alone(Stage(mean, Sgd(steps, ball_of(known, task), Uniform())), task, known)


@dataclass(frozen=True)
class ShuffleAgd:
    """Accelerated steps on batches of fresh users through a shuffler (Cheu et al., Algorithm 4).

    Args:
        known: what is publicly known; its smoothness must be finite.
        rounds: T; None for as many as make the solver's bound least.
        honest_fraction: as for :class:`ShuffleSgd`.
        protocol: as for :class:`ShuffleSgd`.

    The solver is :class:`~dpgrain.optimize.AcSa`, with shorter steps than the printed ones: L_t has 2β
    for β. A batch of b users with m records errs by σ² = G²/(mb) + dν². Source: Theorem 4.3, whose
    batches are the same powers of n, d and ε where noise outweighs sampling.

    >>> program = ShuffleAgd().plan(Task(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.trust, program.rounds < 200, program.event.epsilon(1e-6) <= 2.0
    ('shuffle', True, True)
    """

    known: Known = SMOOTH
    rounds: int | None = None
    honest_fraction: float = 1.0
    protocol: Protocol = "binomial"

    def __post_init__(self) -> None:
        check_known(self.known)
        check_smooth(self.known, "ShuffleAgd", "ShuffleAgdSmoothed")
        _check(self.rounds, self.honest_fraction, self.protocol)

    def plan(self, task: Task) -> Program:
        """One phase, in which everybody is asked once."""
        return _fresh(self, task, smoothed=False).alone()


@dataclass(frozen=True)
class ShuffleAgdSmoothed:
    """:class:`ShuffleAgd` on the Moreau envelope of a loss with kinks (Cheu et al., Theorem 4.7).

    Args:
        known: what is publicly known; kinks are welcome.
        rounds: T; None for as many as make the bound least.
        honest_fraction: as for :class:`ShuffleSgd`.
        protocol: as for :class:`ShuffleSgd`.

    The envelope's curvature β = G√(T(T + 1))/(2R) makes what it changes, G²/(2β), as large as what is
    left after T steps without noise. Its gradients are no longer than the loss's own, G: they are not
    doubled, as minimisers are looked for everywhere. The loss must have a proximal step.

    >>> program = ShuffleAgdSmoothed().plan(Task(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.stages[0].smoothing > 0, program.event.epsilon(1e-6) <= 2.0
    (True, True)
    """

    known: Known = ANY
    rounds: int | None = None
    honest_fraction: float = 1.0
    protocol: Protocol = "binomial"

    def __post_init__(self) -> None:
        check_known(self.known)
        _check(self.rounds, self.honest_fraction, self.protocol)

    def plan(self, task: Task) -> Program:
        """One phase, in which everybody is asked once."""
        return _fresh(self, task, smoothed=True).alone()


@dataclass(frozen=True)
class ShuffleRestarts:
    """Accelerated steps, begun again where they ended, for strongly convex losses (Theorem 4.8).

    Args:
        known: what is publicly known; the strength must be above 0. With a finite smoothness phases are
            those of :class:`ShuffleAgd`, otherwise of :class:`ShuffleAgdSmoothed`.
        count: the number of phases, each with an equal share of the users; None for as many as make the
            bound after the last one least, which are about log log n.
        rounds: T of each phase; None for as many as make its bound least.
        honest_fraction: as for :class:`ShuffleSgd`.
        protocol: as for :class:`ShuffleSgd`.

    A phase begins within √(2·excess/λ) of the solution, by the bound on the one before it. Source: Cheu
    et al., Theorem 4.8.

    >>> program = ShuffleRestarts(count=2).plan(Task(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> len(program.stages), program.event.epsilon(1e-6) <= 2.0
    (2, True)
    """

    known: Known = STRONG
    count: int | None = None
    rounds: int | None = None
    honest_fraction: float = 1.0
    protocol: Protocol = "binomial"

    def __post_init__(self) -> None:
        check_known(self.known)
        if self.known.strength == 0:
            raise ParameterError("strength must be above 0 for ShuffleRestarts, not 0.")
        _check_count(self.count)
        _check(self.rounds, self.honest_fraction, self.protocol)

    def plan(self, task: Task) -> Program:
        """As many phases as asked for, or as help."""
        smoothed = math.isinf(self.known.smoothness)
        return _fresh(self, task, smoothed=smoothed).restarts(self.count)


@dataclass(frozen=True)
class ShuffleGd:
    """Gradient steps on everybody's gradients, through a shuffler (Cheu et al., Algorithm 5).

    Args:
        known: what is publicly known. A loss with kinks is smoothed by its Moreau envelope, of the
            curvature G√T/R.
        count: the number of phases with disjoint groups of users that double, for strongly convex
            losses; None for as many as make the bound after the last one least.
        rounds: T of each phase; None for min(nm, 1/ν²), ν the noise of one mean of vectors of norm 1
            that had all of the promise, but at most 1000.
        honest_fraction: as for :class:`ShuffleSgd`, of a phase's users.
        protocol: as for :class:`ShuffleSgd`.

    Steps against the gradient (the paper prints + η) are of length R/√(T·(G² + dν² + 2G²T/(nm))), which
    balances what is left of the start against noise and overfitting; the iterates are averaged. Source:
    Theorem 4.9 and Lemmas B.4 to B.7.

    >>> program = ShuffleGd(rounds=10).plan(Task(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.trust, program.stages[0].mean.batch, program.event.epsilon(1e-6) <= 2.0
    ('shuffle', 2000, True)
    """

    known: Known = ANY
    count: int | None = None
    rounds: int | None = None
    honest_fraction: float = 1.0
    protocol: Protocol = "binomial"

    def __post_init__(self) -> None:
        check_known(self.known)
        _check_count(self.count)
        if self.known.strength == 0 and self.count not in (None, 1):
            raise ParameterError(
                f"strength must be above 0 for {self.count} phases, not 0: leave count out."
            )
        _check(self.rounds, self.honest_fraction, self.protocol)

    def plan(self, task: Task) -> Program:
        """As many phases as asked for, or as help; in each its users are in every round."""
        known = self.known
        if known.strength == 0:
            return alone(self._stage(task, task.n_users, known.distance), task, known)
        phases, distances = _phased(
            lambda count: Phases(task.n_users, count, growing=True),
            lambda users, distance: self._excess(task, users, distance),
            self.count,
            task.n_users.bit_length() - 1,
            known,
        )
        stages = tuple(
            self._stage(task, len(phase.users), distance)
            for phase, distance in zip(phases.phases(), distances, strict=True)
        )
        return Program(stages, phases, known)

    def _noise(self, task: Task, users: int) -> float:
        """The rms error of one mean of vectors of norm 1 that has all of the promise."""
        return task.noise(1) / users / math.sqrt(self.honest_fraction)

    def _rounds(self, task: Task, users: int) -> int:
        if self.rounds is not None:
            return self.rounds
        return rounds_between(min(users * self.known.records, self._noise(task, users) ** -2))

    def _length(self, users: int, rounds: int, noise: float) -> float:
        """How long gradients count to be, with noise and what steps overfit."""
        known = self.known
        share = 2 * rounds / (users * known.records)
        return math.hypot(known.lipschitz * math.sqrt(1 + share), noise)

    def _smoothing(self, rounds: int, distance: float) -> float | None:
        """The curvature of the envelope, if the loss has kinks."""
        known = self.known
        if not math.isinf(known.smoothness):
            return None
        return known.lipschitz * math.sqrt(rounds) / distance

    def _excess(self, task: Task, users: int, distance: float) -> float:
        """About the bound on the excess after a phase."""
        known, rounds = self.known, self._rounds(task, users)
        noise = self._noise(task, users) * math.sqrt(rounds) * known.lipschitz
        found = distance * self._length(users, rounds, noise) / math.sqrt(rounds)
        smoothing = self._smoothing(rounds, distance)
        return found if smoothing is None else found + known.lipschitz**2 / (2 * smoothing)

    def _stage(self, task: Task, users: int, distance: float) -> Stage:
        known, rounds = self.known, self._rounds(task, users)
        mean = _shuffled(self, task, users, rounds, "full")
        length = self._length(users, rounds, mean.noise_sd * math.sqrt(task.dimension))
        # Longer steps than 2/H do not agree for two samples that differ in a record.
        size = distance / (length * math.sqrt(rounds))
        if not math.isinf(known.smoothness):
            size = min(size, 2 / known.smoothness)
        solver = Sgd(Constant(size), ball_of(known, task), Uniform())
        return Stage(mean, solver, self._smoothing(rounds, distance))


@dataclass(frozen=True)
class PanPrivateAgd:
    """Accelerated steps on a stream of users, whose state may be seen (Cheu et al., Algorithm 6).

    Args:
        known: what is publicly known. Its smoothness and strength choose among the four cases of
            Theorem C.3: a loss with kinks is smoothed as by :class:`ShuffleAgdSmoothed`, and a strongly
            convex one begins again as by :class:`ShuffleRestarts`.
        count: the number of phases, for strongly convex losses; None for as many as make the bound
            after the last one least.
        rounds: T of each phase; None for as many as make its bound least.

    Users come in the order of the roster, each once. Source: Theorem C.3; as there, steps against the
    gradient, with 2β for β, and a Moreau envelope whose gradients are not doubled.

    >>> program = PanPrivateAgd().plan(Task(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.trust, program.event.epsilon(1e-6) <= 2.0
    ('pan', True)
    """

    known: Known = ANY
    count: int | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        check_known(self.known)
        _check_count(self.count)
        if self.known.strength == 0 and self.count not in (None, 1):
            raise ParameterError(
                f"strength must be above 0 for {self.count} phases, not 0: leave count out."
            )
        if self.rounds is not None:
            _validate.integer(minimum=1, rounds=self.rounds)

    def plan(self, task: Task) -> Program:
        """One phase, or several for strongly convex losses; everybody comes once."""
        known = self.known

        def make(users: int, rounds: int) -> Mean:
            return PanPrivate.calibrate(**task.promise(users), rounds=rounds, clip=known.lipschitz)

        # The noise before the first user of a batch, and that after the last.
        noise = math.sqrt(2) * task.noise(1) * known.lipschitz
        fresh = _Fresh(known, task, noise, make, math.isinf(known.smoothness), self.rounds)
        return fresh.restarts(self.count) if known.strength else fresh.alone()


@dataclass(frozen=True)
class ShuffleConcentrated(Concentrated):
    """Ours, through a shuffler: :class:`Concentrated` with the sums of noisy messages.

    Args:
        known: what is publicly known.
        rounds: as for :class:`Concentrated`; None for 10 where each has users of its own.
        share: as for :class:`Concentrated`.
        solver: as for :class:`Concentrated`.
        interaction: ``"full"``: everybody is in every round; ``"sequential"``: nobody in two, which
            costs nothing more, but the noise of all rounds together grows with their number.
        honest_fraction: the share of a round's users who follow the protocol, at least.
        protocol: as for :class:`ShuffleSgd`.

    What ``trust="shuffle"`` does by default. Source: docs/theory.md, "Shuffled gradients".

    >>> program = ShuffleConcentrated(rounds=10).plan(Task(1000, (0.0, 0.0), 1.0, 1e-6))
    >>> program.trust, program.event.epsilon(1e-6) <= 1.0
    ('shuffle', True)
    """

    interaction: Interaction = "full"
    honest_fraction: float = 1.0
    protocol: Protocol = "binomial"

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.one_of(("sequential", "full"), interaction=self.interaction)
        _check(self.rounds, self.honest_fraction, self.protocol)

    def _rounds(self, task: Task) -> int:
        if self.interaction == "full":
            return super()._rounds(task)
        return min(_FEW, task.n_users)

    def _mean(self, task: Task, rounds: int, clip: float) -> Mean:
        return _shuffled(self, task, task.n_users, rounds, self.interaction, clip)


@dataclass(frozen=True)
class PanPrivateConcentrated(Concentrated):
    """Ours, on a stream of users: :class:`Concentrated` with pan-private means.

    Args:
        known: what is publicly known.
        rounds: T; None for 10: each has users of its own, and the noise of all of them together grows
            with their number.
        share: as for :class:`Concentrated`.
        solver: as for :class:`Concentrated`.

    What ``trust="pan"`` does by default. Source: docs/theory.md, "Shuffled gradients".

    >>> program = PanPrivateConcentrated().plan(Task(1000, (0.0, 0.0), 1.0, 1e-6))
    >>> program.trust, program.rounds, program.event.epsilon(1e-6) <= 1.0
    ('pan', 10, True)
    """

    def _rounds(self, task: Task) -> int:
        return min(_FEW, task.n_users)

    def _mean(self, task: Task, rounds: int, clip: float) -> Mean:
        return PanPrivate.calibrate(**task.promise(), rounds=rounds, clip=clip)


# -- what they share --


@dataclass(frozen=True)
class _Choice:
    """Rounds that make a bound least, the curvature of what is minimised, and the bound."""

    rounds: int
    smoothness: float
    excess: float


@dataclass(frozen=True)
class _Fresh:
    """Accelerated steps on batches of fresh users, whoever adds them up.

    Args:
        known: what is publicly known.
        task: what they are for.
        noise: about the rms error of the noisy sum of a batch, however large.
        make: from numbers of users and of rounds to the mean.
        smoothed: whether the Moreau envelope is minimised.
        rounds: T of each phase, if asked for.
    """

    known: Known
    task: Task
    noise: float
    make: Callable[[int, int], Mean]
    smoothed: bool
    rounds: int | None

    def alone(self) -> Program:
        """One phase with everybody."""
        users, distance = self.task.n_users, self.known.distance
        return alone(self._stage(users, distance), self.task, self.known)

    def restarts(self, count: int | None) -> Program:
        """Phases that begin where the last one ended."""
        phases, distances = _phased(
            lambda count: Restarts(self.task.n_users, count),
            lambda users, distance: self._choose(users, distance).excess,
            count,
            self.task.n_users // (self.rounds or 1),
            self.known,
        )
        stages = tuple(
            self._stage(len(phase.users), distance)
            for phase, distance in zip(phases.phases(), distances, strict=True)
        )
        return Program(stages, phases, self.known)

    def _choose(self, users: int, distance: float) -> _Choice:
        """The number of rounds with the least bound."""
        if self.rounds is not None:
            return self._at(self.rounds, users, distance)
        most = min(users, _MOST_BATCHES)
        some = np.unique(np.geomspace(1, most, _CANDIDATES).round().astype(int)).tolist()
        return min(
            (self._at(rounds, users, distance) for rounds in some), key=lambda found: found.excess
        )

    def _at(self, rounds: int, users: int, distance: float) -> _Choice:
        """What so many rounds come to."""
        known, batch = self.known, max(users // rounds, 1)
        smoothness, changed = known.smoothness, 0.0
        if self.smoothed:
            smoothness = known.lipschitz * math.sqrt(rounds * (rounds + 1)) / (2 * distance)
            changed = known.lipschitz**2 / (2 * smoothness)
        error = self._error(batch, self.noise / batch)
        excess = AcSa(smoothness, rounds, error, distance).excess() + changed
        return _Choice(rounds, smoothness, excess)

    def _error(self, batch: int, noise: float) -> float:
        """The rms error of a batch's gradient: of its noise, and of who is in it."""
        known = self.known
        return math.hypot(known.lipschitz / math.sqrt(batch * known.records), noise)

    def _stage(self, users: int, distance: float) -> Stage:
        known, choice = self.known, self._choose(users, distance)
        mean = self.make(users, choice.rounds)
        noise = mean.noise_sd * math.sqrt(self.task.dimension)
        error = self._error(users // choice.rounds, noise)
        # The ball is around the first start; that of a later phase the program does not know.
        domain = ball_of(known, self.task)
        solver = AcSa(choice.smoothness, choice.rounds, error, distance, domain)
        return Stage(mean, solver, choice.smoothness if self.smoothed else None)


def _phased(
    plan: Callable[[int], Localisation],
    excess: Callable[[int, float], float],
    count: int | None,
    most: int,
    known: Known,
) -> tuple[Localisation, list[float]]:
    """The phases asked for, or with the least bound after the last, and how far each has to go.

    Args:
        plan: from a number of phases to who is in which.
        excess: a bound on the excess of the loss after a phase, from its users and its distance.
        count: how many phases; None to choose.
        most: how many there can be.
        known: what is publicly known, with a strength.
    """

    def followed(count: int) -> tuple[float, Localisation, list[float]]:
        phases, distances, left = plan(count), [], math.inf
        # λ/2·‖θ − θ*‖² is at most the excess of the start, which is at most G·‖θ − θ*‖.
        distance = min(known.distance, 2 * known.lipschitz / known.strength)
        for phase in phases.phases():
            distances.append(distance)
            left = excess(len(phase.users), distance)
            distance = min(distance, math.sqrt(2 * left / known.strength))
        return left, phases, distances

    if count is not None:
        _, phases, distances = followed(count)
        return phases, distances
    tried = [followed(count) for count in range(1, max(min(most, _MOST_PHASES), 1) + 1)]
    _, phases, distances = min(tried, key=lambda found: found[0])
    return phases, distances


def _shuffled(
    recipe: Any,
    task: Task,
    users: int,
    rounds: int,
    interaction: Interaction = "sequential",
    clip: float | None = None,
) -> Shuffled:
    """The mean of a recipe that goes through a shuffler."""
    return Shuffled.calibrate(
        **task.promise(users),
        rounds=rounds,
        dimension=task.dimension,
        clip=recipe.known.lipschitz if clip is None else clip,
        interaction=interaction,
        honest_fraction=recipe.honest_fraction,
        protocol=recipe.protocol,
    )


def _fresh(recipe: Any, task: Task, *, smoothed: bool) -> _Fresh:
    """Accelerated steps through a shuffler."""
    noise = task.noise(1) * recipe.known.lipschitz / math.sqrt(recipe.honest_fraction)

    def make(users: int, rounds: int) -> Mean:
        return _shuffled(recipe, task, users, rounds)

    return _Fresh(recipe.known, task, noise, make, smoothed, recipe.rounds)


def _check(rounds: int | None, honest_fraction: float, protocol: str) -> None:
    if rounds is not None:
        _validate.integer(minimum=1, rounds=rounds)
    if _validate.probability(honest_fraction=honest_fraction) == 0:
        raise ParameterError(
            "honest_fraction must be above 0, not 0: somebody must add the noise that hides others."
        )
    _validate.one_of(("binomial", "poisson"), protocol=protocol)


def _check_count(count: int | None) -> None:
    if count is not None:
        _validate.integer(minimum=1, count=count)

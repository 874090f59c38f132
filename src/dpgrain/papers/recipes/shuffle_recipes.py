"""Recipes of the shuffle paper: users send noisy messages through a shuffler.

With fresh users, each round has the whole promise, but more rounds mean smaller batches:
acceleration needs only a few. With all users in every round, the noise is nearly as small as with a
trusted curator. The O(…) of theorems is replaced by the bounds of the solvers, with the noise from
exact accounting; numbers of rounds minimise these bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.learn.program import (
    ANY,
    SMOOTH,
    STRONG,
    Known,
    Program,
    Stage,
    Task,
    check_known,
    check_smooth,
    clamp_rounds,
    gradient_norm,
    single_phase,
    solution_ball,
)
from dpgrain.means import Mean
from dpgrain.means.shuffled import Interaction, Messages, Shuffled
from dpgrain.optimize import Constant, Sgd, Uniform
from dpgrain.optimize.localisation import Phases
from dpgrain.papers.recipes.curator_recipes import Concentrated
from dpgrain.papers.recipes.fresh import FEW_ROUNDS, MOST_BATCHES, FreshSteps, check_count, phased


@dataclass(frozen=True)
class _OnePhase:
    """Base of recipes with one phase, in which every user is in one round."""

    known: Known = ANY
    rounds: int | None = None
    honest_fraction: float = 1.0
    protocol: Messages = "binomial"

    def __post_init__(self) -> None:
        check_known(self.known, self.rounds)
        _check(self.honest_fraction, self.protocol)


@dataclass(frozen=True)
class ShuffleSgd(_OnePhase):
    """Gradient steps on shuffled batches of fresh users (Cheu et al., Algorithm 3).

    Args:
        known: the public facts; the loss may have kinks.
        rounds: T; None for batches large enough that the noise of a batch's mean is at most the
            largest norm of one user's gradient, but at most 10,000 of them.
        honest_fraction: the minimum share of each batch's users who follow the protocol.
        protocol: the noise that users add: ``"binomial"``, or ``"poisson"`` with fewer bits.

    Steps go against the gradient (the paper prints + η). They have size R/(L_G·√T), where L_G² = G²
    + dν² and ν is the noise of a batch; the iterates are averaged. Source: Theorem 4.1, with b =
    √d·log(d/δ)/ε.

    >>> program = ShuffleSgd(rounds=4).plan(Task.of(1000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.trust, program.stages[0].mean.batch, program.event.epsilon(1e-6) <= 2.0
    ('shuffle', 250, True)
    """

    def plan(self, task: Task) -> Program:
        """Plan one phase with every user in one round."""
        known, rounds = self.known, self.rounds
        if rounds is None:
            batch = math.ceil(task.noise(1) / math.sqrt(self.honest_fraction))
            rounds = min(max(task.n_users // batch, 1), MOST_BATCHES)
        mean = _shuffled(self, task, task.n_users, rounds)
        length = math.hypot(known.lipschitz, mean.noise_sd * math.sqrt(task.dimension))
        steps = Constant(known.distance / (length * math.sqrt(rounds)))
        return single_phase(
            Stage(mean, Sgd(steps, solution_ball(known, task), Uniform())), task, known
        )


@dataclass(frozen=True)
class ShuffleAgd(_OnePhase):
    """Accelerated steps on shuffled batches of fresh users (Cheu et al., Algorithm 4).

    Args:
        known: the public facts; its smoothness must be finite.
        rounds: T; None for the number with the smallest bound of the solver.
        honest_fraction: the minimum share of each batch's users who follow the protocol.
        protocol: the noise that users add, ``"binomial"`` or ``"poisson"``.

    The solver is :class:`~dpgrain.papers.AcSa`. Its steps are shorter than the printed ones: L_t
    has 2β for β. A batch of b users with m records has the error σ² = G²/(mb) + dν². Source:
    Theorem 4.3, with batches of the same powers of n, d and ε if noise dominates sampling.

    >>> program = ShuffleAgd().plan(Task.of(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.trust, program.rounds < 200, program.event.epsilon(1e-6) <= 2.0
    ('shuffle', True, True)
    """

    known: Known = SMOOTH

    def __post_init__(self) -> None:
        super().__post_init__()
        check_smooth(self.known, "ShuffleAgd", "ShuffleAgdSmoothed")

    def plan(self, task: Task) -> Program:
        """Plan one phase with every user in one round."""
        return _fresh(self, task, smoothed=False).alone()


@dataclass(frozen=True)
class ShuffleAgdSmoothed(_OnePhase):
    """:class:`ShuffleAgd` on the Moreau envelope of a loss (Cheu et al., Theorem 4.7).

    Args:
        known: the public facts; the loss may have kinks.
        rounds: T; None for the number with the smallest bound.
        honest_fraction: the minimum share of each batch's users who follow the protocol.
        protocol: the noise that users add, ``"binomial"`` or ``"poisson"``.

    The envelope has the curvature β = G√(T(T + 1))/(2R). It changes the loss by at most G²/(2β),
    which then equals the error left after T steps without noise. Its gradients are bounded by G
    like the loss's: they are not doubled, because minimisers are not constrained to the domain. The
    loss must have a proximal step.

    >>> program = ShuffleAgdSmoothed().plan(Task.of(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.stages[0].smoothing > 0, program.event.epsilon(1e-6) <= 2.0
    (True, True)
    """

    def plan(self, task: Task) -> Program:
        """Plan one phase with every user in one round."""
        return _fresh(self, task, smoothed=True).alone()


@dataclass(frozen=True)
class ShuffleRestarts:
    """Accelerated steps with restarts, if strongly convex (Cheu et al., Theorem 4.8).

    Args:
        known: the public facts; the strength must be above 0. With a finite smoothness phases are
            those of :class:`ShuffleAgd`, otherwise those of :class:`ShuffleAgdSmoothed`.
        count: the number of phases, each with an equal share of the users; None for the number with
            the smallest bound after the last one, about log log n.
        rounds: T of each phase; None for the number with the smallest bound.
        honest_fraction: the minimum share of each batch's users who follow the protocol.
        protocol: the noise that users add, ``"binomial"`` or ``"poisson"``.

    Raises:
        ParameterError: if a value is out of range, or the strength is 0.

    A phase starts within √(2·excess/λ) of the solution, by the bound of the previous phase. Source:
    Cheu et al., Theorem 4.8.

    >>> program = ShuffleRestarts(count=2).plan(Task.of(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> len(program.stages), program.event.epsilon(1e-6) <= 2.0
    (2, True)
    """

    known: Known = STRONG
    count: int | None = None
    rounds: int | None = None
    honest_fraction: float = 1.0
    protocol: Messages = "binomial"

    def __post_init__(self) -> None:
        check_known(self.known, self.rounds)
        if self.known.strength == 0:
            raise ParameterError("strength must be above 0 for ShuffleRestarts, not 0.")
        check_count(self.count, self.known)
        _check(self.honest_fraction, self.protocol)

    def plan(self, task: Task) -> Program:
        """Plan the requested number of phases, or the number with the smallest bound."""
        smoothed = math.isinf(self.known.smoothness)
        return _fresh(self, task, smoothed=smoothed).restarts(self.count)


@dataclass(frozen=True)
class ShuffleGd:
    """Gradient steps on all users' shuffled gradients (Cheu et al., Algorithm 5).

    Args:
        known: the public facts. A loss with kinks is smoothed by its Moreau envelope, of the
            curvature G√T/R.
        count: the number of phases, for strongly convex losses; their groups of users are disjoint
            and double in size. None for the number with the smallest bound after the last one.
        rounds: T of each phase; None for min(nm, 1/ν²), but at most 1000, where ν is the noise of
            one mean of vectors of norm 1 with the whole promise.
        honest_fraction: the minimum share of a phase's users who follow the protocol.
        protocol: the noise that users add, ``"binomial"`` or ``"poisson"``.

    Raises:
        ParameterError: if a value is out of range, or there are several phases and the strength is
            0.

    Steps go against the gradient (the paper prints + η). Their size R/√(T·(G² + dν² + 2G²T/(nm)))
    balances the start's error with noise and overfitting; the iterates are averaged. Source:
    Theorem 4.9 and Lemmas B.4 to B.7.

    >>> program = ShuffleGd(rounds=10).plan(Task.of(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.trust, program.stages[0].mean.batch, program.event.epsilon(1e-6) <= 2.0
    ('shuffle', 2000, True)
    """

    known: Known = ANY
    count: int | None = None
    rounds: int | None = None
    honest_fraction: float = 1.0
    protocol: Messages = "binomial"

    def __post_init__(self) -> None:
        check_known(self.known, self.rounds)
        check_count(self.count, self.known)
        _check(self.honest_fraction, self.protocol)

    def plan(self, task: Task) -> Program:
        """Plan the phases; all users of a phase participate in each of its rounds."""
        known = self.known
        if known.strength == 0:
            return single_phase(self._stage(task, task.n_users, known.distance), task, known)
        phases, distances = phased(
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
        """Return the rms error of one mean of vectors of norm 1 with the whole promise."""
        return task.noise(1) / users / math.sqrt(self.honest_fraction)

    def _rounds(self, task: Task, users: int) -> int:
        if self.rounds is not None:
            return self.rounds
        return clamp_rounds(min(users * self.known.records, self._noise(task, users) ** -2))

    def _smoothing(self, rounds: int, distance: float) -> float | None:
        """Return the curvature of the envelope, or None if the loss has no kinks."""
        known = self.known
        if not math.isinf(known.smoothness):
            return None
        return known.lipschitz * math.sqrt(rounds) / distance

    def _excess(self, task: Task, users: int, distance: float) -> float:
        """Return the approximate bound on the excess of the loss after a phase."""
        known, rounds = self.known, self._rounds(task, users)
        noise = self._noise(task, users) * math.sqrt(rounds) * known.lipschitz
        excess = distance * gradient_norm(known, users, rounds, noise) / math.sqrt(rounds)
        smoothing = self._smoothing(rounds, distance)
        return excess if smoothing is None else excess + known.lipschitz**2 / (2 * smoothing)

    def _stage(self, task: Task, users: int, distance: float) -> Stage:
        known, rounds = self.known, self._rounds(task, users)
        mean = _shuffled(self, task, users, rounds, "full")
        length = gradient_norm(known, users, rounds, mean.noise_sd * math.sqrt(task.dimension))
        # With steps longer than 2/H, two samples that differ in one record may diverge.
        size = distance / (length * math.sqrt(rounds))
        if not math.isinf(known.smoothness):
            size = min(size, 2 / known.smoothness)
        solver = Sgd(Constant(size), solution_ball(known, task), Uniform())
        return Stage(mean, solver, self._smoothing(rounds, distance))


@dataclass(frozen=True)
class ShuffleConcentrated(Concentrated):
    """Our recipe through a shuffler: :class:`Concentrated` with noisy messages.

    Args:
        known: the public facts.
        rounds: T; None for (H·R/G)·√(nm), but from 50 to 100, and for 10 if each round has its own
            users.
        share: the clipping bound ÷ the radius in which a user's mean gradient concentrates. With
            None the bound starts at the radius and then follows the norms of users' gradients.
        solver: the solver; None for coin betting.
        interaction: with ``"full"`` all users are in every round; with ``"sequential"`` each is in
            at most one, so that rounds cost nothing more, but the noise of all of them grows with
            their number.
        honest_fraction: the minimum share of a round's users who follow the protocol.
        protocol: the noise that users add, ``"binomial"`` or ``"poisson"``.

    Raises:
        ParameterError: if a value is out of range.

    It is the default recipe of ``trust="shuffle"``, with ``share=None``. Source: docs/theory,
    "Shuffled gradients".

    >>> program = ShuffleConcentrated(rounds=10).plan(Task.of(1000, (0.0, 0.0), 1.0, 1e-6))
    >>> program.trust, program.event.epsilon(1e-6) <= 1.0
    ('shuffle', True)
    """

    interaction: Interaction = "full"
    honest_fraction: float = 1.0
    protocol: Messages = "binomial"

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.one_of(("sequential", "full"), interaction=self.interaction)
        _check(self.honest_fraction, self.protocol)

    def _rounds(self, task: Task) -> int:
        if self.interaction == "full":
            return super()._rounds(task)
        return min(FEW_ROUNDS, task.n_users)

    def _mean(self, task: Task, rounds: int, clip: float) -> Mean:
        return _shuffled(self, task, task.n_users, rounds, self.interaction, clip)


def _shuffled(
    recipe: Any,
    task: Task,
    users: int,
    rounds: int,
    interaction: Interaction = "sequential",
    clip: float | None = None,
) -> Shuffled:
    """Calibrate the mean of a recipe that uses a shuffler."""
    return Shuffled.calibrate(
        **task.calibration(users),
        rounds=rounds,
        dimension=task.dimension,
        clip=recipe.known.lipschitz if clip is None else clip,
        interaction=interaction,
        honest_fraction=recipe.honest_fraction,
        protocol=recipe.protocol,
    )


def _fresh(recipe: Any, task: Task, *, smoothed: bool) -> FreshSteps:
    """Return accelerated steps with shuffled gradients."""
    noise = task.noise(1) * recipe.known.lipschitz / math.sqrt(recipe.honest_fraction)

    def make(users: int, rounds: int) -> Mean:
        return _shuffled(recipe, task, users, rounds)

    return FreshSteps(recipe.known, task, noise, make, smoothed, recipe.rounds)


def _check(honest_fraction: float, protocol: str) -> None:
    if _validate.probability(honest_fraction=honest_fraction) == 0:
        raise ParameterError(
            "honest_fraction must be above 0, not 0, because honest users must add the noise "
            "that protects others."
        )
    _validate.one_of(("binomial", "poisson"), protocol=protocol)

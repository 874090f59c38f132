"""Recipes with a curator: the user-level papers' algorithms, and ours."""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.learn.program import (
    ANY,
    SMOOTH,
    STRONG,
    Known,
    Program,
    Smoothing,
    Stage,
    Task,
    check_known,
    check_smooth,
    clamp_rounds,
    gradient_norm,
    single_phase,
    solution_ball,
)
from dpgrain.means import ClippedMean, Mean
from dpgrain.means.adaptive import COUNTS, AdaptiveClip
from dpgrain.optimize import CoinBetting, Constant, RandomIterate, Sgd, Solver, Uniform
from dpgrain.optimize.localisation import Phases, RegularisedPhases
from dpgrain.optimize.schedules import DecreasingRestart
from dpgrain.optimize.smoothing import RandomizedBall
from dpgrain.papers import AcSa, SoftCoreMean, Winsorized
from dpgrain.papers.recipes.fresh import phased
from dpgrain.units import User

Kind: TypeAlias = Literal["convex", "strongly_convex", "nonconvex"]

# Limits on the rounds of coin betting: far fewer do not reach the solution, and more only increase
# the noise of each.
_LEAST_ROUNDS, _MOST_ROUNDS = 50, 100


@dataclass(frozen=True)
class WinsorizedErm:
    """Winsorized first-order optimisation of the empirical risk (Levy et al., Alg. 3).

    The default fit was more accurate on all compared data; see docs/papers/which-recipe.md.

    Args:
        known: the public facts; its smoothness must be finite.
        kind: ``"convex"`` averages steps of constant size; ``"strongly_convex"`` does one restart
            with decreasing steps; ``"nonconvex"`` returns a random iterate.
        rounds: T; None for H·R/ν rounds, limited by the number of users, where ν is the noise of
            one round with the whole promise; beyond them only noise is left. With
            ``"strongly_convex"`` None means H/μ·ln of the ratio of the start's error to the noise.
        iterate: the iterate that ``"nonconvex"`` returns, from 1, or the last if there are fewer;
            None to draw it.

    Raises:
        ParameterError: if a value is out of range, the smoothness is infinite, the strength is 0
            with ``"strongly_convex"``, or ``iterate`` is set for another kind.

    Source: Theorem 4 and Proposition 3, with the constants of exact accounting.

    >>> program = WinsorizedErm(Known(smoothness=1.0, records=100)).plan(
    ...     Task.of(10_000, (0.0, 0.0), 4.0, 1e-6)
    ... )
    >>> program.event.epsilon(1e-6) <= 4.0
    True
    """

    known: Known = SMOOTH
    kind: Kind = "convex"
    rounds: int | None = None
    iterate: int | None = None

    def __post_init__(self) -> None:
        check_known(self.known, self.rounds)
        _validate.one_of(("convex", "strongly_convex", "nonconvex"), kind=self.kind)
        check_smooth(self.known, "WinsorizedErm", "UserLevelSgd")
        if self.kind == "strongly_convex" and self.known.strength == 0:
            raise ParameterError("strength must be above 0 with kind='strongly_convex', not 0.")
        if self.iterate is not None:
            _validate.integer(minimum=1, iterate=self.iterate)
            if self.kind != "nonconvex":
                raise ParameterError(
                    f"iterate must be omitted with kind={self.kind!r}, which does not return a "
                    "single iterate."
                )

    def plan(self, task: Task) -> Program:
        """Plan one phase with all users."""
        mean = _winsorized(self.known, task, task.n_users, self._rounds(task), self.rounds is None)
        return single_phase(Stage(mean, self._solver(task, mean)), task, self.known)

    def _rounds(self, task: Task) -> int:
        if self.rounds is not None:
            return self.rounds
        known, noise = self.known, self.known.radius_for(task.n_users, 1) * task.noise()
        if self.kind == "strongly_convex":
            return _localising_rounds(known, known.strength, known.smoothness, noise)
        return clamp_rounds(known.smoothness * known.distance / noise)

    def _solver(self, task: Task, mean: Winsorized) -> Solver[Any]:
        known, domain = self.known, solution_ball(self.known, task)
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
    """Phases over fresh users, with a growing pull (Levy et al., Algorithm 4).

    The default fit was more accurate on all compared data; see docs/papers/which-recipe.md.

    Args:
        known: the public facts; its smoothness must be finite.
        count: the number of phases; None for the maximum that the users allow, at most log₂ of the
            ratio of G√(nm) to the noise.

    Phase t has n/2^t users and the pull λ·4^t, where λ = √(G²/(nm) + ν²)/R and ν is the noise of
    one mean. Source: Theorem 5, with the constants of exact accounting.

    >>> program = PhasedErmSco(Known(smoothness=1.0, records=100)).plan(
    ...     Task.of(100_000, (0.0, 0.0), 4.0, 1e-6)
    ... )
    >>> len(program.stages) > 1, program.event.epsilon(1e-6) <= 4.0
    (True, True)
    """

    known: Known = SMOOTH
    count: int | None = None

    def __post_init__(self) -> None:
        check_known(self.known)
        check_smooth(self.known, "PhasedErmSco", "UserLevelSgd")

    def plan(self, task: Task) -> Program:
        """Plan the requested number of phases, or the maximum that the users allow."""
        if self.count is not None:
            return self._of(task, self.count)
        known, noise = self.known, self._noise(task)
        most = math.log2(max(known.lipschitz * math.sqrt(task.n_users * known.records) / noise, 2))
        return _as_many_as_fit(lambda count: self._of(task, count), min(math.ceil(most), 8))

    def _noise(self, task: Task) -> float:
        return self.known.radius_for(task.n_users, 1) * task.noise()

    def _of(self, task: Task, count: int) -> Program:
        known, noise = self.known, self._noise(task)
        sampling = known.lipschitz**2 / (task.n_users * known.records)
        pull = math.sqrt(sampling + noise**2) / known.distance
        phases = RegularisedPhases(task.n_users, count, pull)
        stages, domain = [], solution_ball(known, task)
        for phase in phases.phases():
            strength, smooth = phase.strength + known.strength, known.smoothness + phase.strength
            of_phase = known.radius_for(len(phase.users), 1) * task.noise(len(phase.users))
            rounds = _localising_rounds(known, strength, smooth, of_phase)
            mean = _winsorized(known, task, len(phase.users), rounds, True)
            steps = DecreasingRestart(smooth, strength, mean.rounds)
            stages.append(Stage(mean, Sgd(steps, domain, steps)))
        return Program(tuple(stages), phases, known)


@dataclass(frozen=True)
class _OnePhase(ABC):
    """Recipes of one phase, which :class:`UserLevelSgdStronglyConvex` repeats."""

    known: Known = ANY
    rounds: int | None = None

    def __post_init__(self) -> None:
        check_known(self.known, self.rounds)

    def plan(self, task: Task) -> Program:
        """Plan one phase with all users."""
        return single_phase(self.stage(task, task.n_users), task, self.known)

    @abstractmethod
    def stage(self, task: Task, n_users: int) -> Stage:
        """Plan the only stage of a phase that has some of the users."""


@dataclass(frozen=True)
class UserLevelSgd(_OnePhase):
    """Multi-pass gradient descent on soft-core means (Asi & Liu, Algorithm 2).

    The default fit was more accurate on all compared data; see docs/papers/which-recipe.md.

    Args:
        known: the public facts; the loss may have kinks.
        rounds: T; None for min(nm, (G/ν₁)²), but at most 1000, where ν₁ is the approximate noise of
            one mean with the whole promise.
        smoothing: ``"none"`` does not smooth; ``"ball"`` uses gradients at random points within r =
            d^(1/4)·R/√T (Lemma 2.5); ``"moreau"`` uses gradients of the Moreau envelope of curvature
            G√T/R, evaluated only within the domain (Remark 4.3).

    Raises:
        ParameterError: if a value is out of range.

    Steps have size R/√(T(G² + ν² + 2G²T/(nm))), where ν is the noise of a round, and at most 2/β,
    where β is the curvature of the smoothed loss; the iterates are averaged. If the start is known
    to be near the solution, R shrinks (Remark 4.2): pass that distance as the distance.

    In simulations of 1,000 to 10,000 users the excess without smoothing was 0.4 to 1.1 times that
    with the ball, which the paper uses.

    The theorem has T = m²n² and steps that decrease as T^(-3/4), to avoid overfitting kinks. With T
    ≤ 1000 such steps end about 0.07·GR above the minimum, for any number of users. With the
    envelope and steps of at most 2/β, T = nm rounds are sufficient for its rate. A thousand rounds
    leave up to 1.5·GR/√1000 = 0.05·GR of the start in addition to the noise, so the rate is only
    visible up to about a thousand records in total; :class:`UserLevelAgd` leaves 2·GR/T.

    Formal guarantee (of accuracy): with ``"moreau"`` the expected excess is at most :meth:`excess`,
    if no run halts. Source: Theorem 4.1, with noise that is not private there; steps, T and bound
    as in Cheu et al., Lemmas B.4 to B.6 and 4.6; the constants here are those of the soft core.

    >>> program = UserLevelSgd(Known(records=100), rounds=50).plan(Task.of(2000, (0.0,), 1.0, 1e-6))
    >>> program.event.epsilon(1e-6) <= 1.0
    True
    """

    smoothing: Literal["ball", "moreau", "none"] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.one_of(("ball", "moreau", "none"), smoothing=self.smoothing)

    def stage(self, task: Task, n_users: int) -> Stage:
        """Plan the only stage of a phase that has some of the users."""
        known, rounds = self.known, self._rounds(task, n_users)
        mean = _soft_core(known, task, n_users, rounds)
        noise = mean.noise_sd * math.sqrt(task.dimension)
        length = gradient_norm(known, n_users, rounds, noise)
        around = task.dimension**0.25 * known.distance / math.sqrt(rounds)
        envelope = known.lipschitz * math.sqrt(rounds) / known.distance
        ways: dict[str, tuple[Smoothing | None, float]] = {
            "ball": (RandomizedBall(around), known.lipschitz * math.sqrt(task.dimension) / around),
            "moreau": (envelope, envelope),
            "none": (None, known.smoothness),
        }
        smoothing, curvature = ways[self.smoothing]
        curvature = min(curvature, known.smoothness)
        size = known.distance / (length * math.sqrt(rounds))
        if not math.isinf(curvature):
            size = min(size, 2 / curvature)
        return Stage(mean, Sgd(Constant(size), solution_ball(known, task), Uniform()), smoothing)

    def excess(self, task: Task, n_users: int) -> float:
        """Bound the expected excess with the Moreau envelope, from public numbers.

        Args:
            task: the promise and the size of the problem.
            n_users: the number of users.
        """
        known, rounds = self.known, self._rounds(task, n_users)
        noise = _core_noise(known, task, n_users) * math.sqrt(rounds)
        steps = known.distance * gradient_norm(known, n_users, rounds, noise) / math.sqrt(rounds)
        return steps + known.lipschitz * known.distance / (2 * math.sqrt(rounds))

    def _rounds(self, task: Task, n_users: int) -> int:
        if self.rounds is not None:
            return self.rounds
        helpful = (self.known.lipschitz / _core_noise(self.known, task, n_users)) ** 2
        return clamp_rounds(min(n_users * self.known.records, helpful))


@dataclass(frozen=True)
class UserLevelAgd(_OnePhase):
    """Our recipe: accelerated descent on soft-core means of the Moreau envelope.

    Args:
        known: the public facts; the loss may have kinks.
        rounds: T; None for 2G/max(ν₁, G/√(nm)), after which the start's error is at most that of
            noise and sampling, or √(2HR/max(…)) if that is less, but at most 1000; ν₁ is the
            approximate noise of one mean with the whole promise.

    Raises:
        ParameterError: if a value is out of range.

    The envelope has the curvature β = G√(T(T + 1))/(2R), and the solver is
    :class:`~dpgrain.papers.AcSa`: T rounds leave 2GR/T of the start, while gradient steps leave
    GR/√T, and all rounds together have the noise of one. The rate of Asi & Liu, Theorem 4.1, then
    takes about √(nm) rounds instead of m²n²; with 1000 rounds it is visible down to 0.002·GR.

    Formal guarantee (of accuracy): :meth:`excess` bounds the expected excess on the users' records,
    if no run halts; the sampling error is included as √(1/(nm))·GR, its order for one direction.
    Source: Cheu et al., Theorem 4.7, on the soft core; docs/theory, "User-level recipes".

    >>> program = UserLevelAgd(Known(records=100), rounds=50).plan(Task.of(2000, (0.0,), 1.0, 1e-6))
    >>> program.event.epsilon(1e-6) <= 1.0, program.stages[0].smoothing > 0
    (True, True)
    """

    def stage(self, task: Task, n_users: int) -> Stage:
        """Plan the only stage of a phase that has some of the users."""
        known, rounds = self.known, self._rounds(task, n_users)
        mean = _soft_core(known, task, n_users, rounds)
        envelope, noise = self._envelope(rounds), mean.noise_sd * math.sqrt(task.dimension)
        curvature = min(known.smoothness, envelope)
        solver = AcSa(curvature, rounds, noise, known.distance, solution_ball(known, task))
        return Stage(mean, solver, envelope if envelope < known.smoothness else None)

    def excess(self, task: Task, n_users: int) -> float:
        """Bound the expected excess plus the sampling error, from public numbers.

        Args:
            task: the promise and the size of the problem.
            n_users: the number of users.
        """
        known, rounds = self.known, self._rounds(task, n_users)
        envelope = self._envelope(rounds)
        curvature = min(known.smoothness, envelope)
        noise = _core_noise(known, task, n_users) * math.sqrt(rounds)
        changed = known.lipschitz**2 / (2 * envelope) if envelope < known.smoothness else 0.0
        sampled = known.lipschitz * known.distance / math.sqrt(n_users * known.records)
        return AcSa(curvature, rounds, noise, known.distance).excess() + changed + sampled

    def _envelope(self, rounds: int) -> float:
        """Return the envelope's curvature that balances its error with the start's."""
        known = self.known
        return known.lipschitz * math.sqrt(rounds * (rounds + 1)) / (2 * known.distance)

    def _rounds(self, task: Task, n_users: int) -> int:
        if self.rounds is not None:
            return self.rounds
        known = self.known
        sampled = known.lipschitz / math.sqrt(n_users * known.records)
        left = max(_core_noise(known, task, n_users), sampled)
        smooth = math.sqrt(2 * known.smoothness * known.distance / left)
        return clamp_rounds(min(2 * known.lipschitz / left, smooth))


@dataclass(frozen=True)
class UserLevelSgdStronglyConvex:
    """User-level descent in growing phases (Asi & Liu, Algorithm 3).

    Args:
        known: the public facts; the strength must be above 0.
        rounds: T of each phase; None for the default of its steps.
        count: the number of phases; None for the number up to ⌈log log(mn)⌉ with the smallest
            bound, limited by the number of users.
        steps: the steps of a phase, ``"accelerated"`` as in :class:`UserLevelAgd`, or ``"plain"``
            as in :class:`UserLevelSgd`, which the paper has.

    Raises:
        ParameterError: if ``known`` is invalid, its strength is 0, or ``steps`` is unknown.

    Phase i of k has n/2^(k+1−i) users and starts where the last one ended, within √(2·excess/μ) of
    the solution. Source: Theorem 4.11.

    >>> known = Known(strength=0.5, records=100)
    >>> program = UserLevelSgdStronglyConvex(known, rounds=50).plan(Task.of(9000, (0.0,), 1.0, 1e-6))
    >>> len(program.stages), program.event.epsilon(1e-6) <= 1.0
    (3, True)
    """

    known: Known = STRONG
    rounds: int | None = None
    count: int | None = None
    steps: Literal["accelerated", "plain"] = "accelerated"

    def __post_init__(self) -> None:
        check_known(self.known)
        _validate.one_of(("accelerated", "plain"), steps=self.steps)
        if self.known.strength == 0:
            raise ParameterError("strength must be above 0 for UserLevelSgdStronglyConvex, not 0.")

    def plan(self, task: Task) -> Program:
        """Plan the requested number of phases, or the number with the smallest bound."""
        if self.count is not None:
            return self._of(task, self.count)
        all_records = max(task.n_users * self.known.records, 3)
        return _as_many_as_fit(
            lambda most: self._of(task, None, most), math.ceil(math.log(math.log(all_records)))
        )

    def _near(self, distance: float) -> UserLevelSgd | UserLevelAgd:
        """Return the recipe of a phase that starts within a distance of the solution."""
        known = replace(self.known, distance=distance)
        if self.steps == "accelerated":
            return UserLevelAgd(known, self.rounds)
        return UserLevelSgd(known, self.rounds, "ball")

    def _of(self, task: Task, count: int | None, most: int = 1) -> Program:
        phases, distances = phased(
            lambda some: Phases(task.n_users, some, growing=True),
            lambda users, distance: self._near(distance).excess(task, users),
            count,
            most,
            self.known,
        )
        # The ball of a phase would be around its own start, which the program does not know.
        wide, stages = solution_ball(self.known, task), []
        for phase, distance in zip(phases.phases(), distances, strict=True):
            stage = self._near(distance).stage(task, len(phase.users))
            free = replace(stage.solver, domain=wide)  # type: ignore[type-var]
            stages.append(replace(stage, solver=free))
        return Program(tuple(stages), phases, self.known)


@dataclass(frozen=True)
class Concentrated:
    """Our recipe: gradients clipped to the radius of agreement, without a step size.

    At the minimum of the loss, users' mean gradients are around 0, which is a public centre.
    Clipped around it, to the radius in which they concentrate, they need as little noise as any
    mean of concentrated vectors, without a test, an interval or a minimum number of users. Far from
    the solution gradients are clipped, but still point towards it.

    Args:
        known: the public facts.
        rounds: T; None for (H·R/G)·√(nm), but from 50 to 100, because the noise of all rounds
            together is the same for any number.
        share: the clipping bound ÷ the radius in which a user's mean gradient concentrates. A small
            share clips nearly all gradients: the noise is smaller, and the solution is more like a
            median of users. With None the bound starts at the radius and then follows the norms of
            users' gradients.
        solver: the solver; None for coin betting, which does not depend on the scale of gradients.

    Raises:
        ParameterError: if a value is out of range.

    Source: the recentred mean with the centre 0; docs/theory, "User-level recipes".

    >>> program = Concentrated(Known(records=100)).plan(Task.of(1000, (0.0, 0.0), 1.0, 1e-6))
    >>> program.rounds, program.event.epsilon(1e-6) <= 1.0
    (100, True)
    """

    known: Known = ANY
    rounds: int | None = None
    share: float | None = 0.5
    solver: Solver[Any] | None = None

    def __post_init__(self) -> None:
        check_known(self.known, self.rounds)
        if self.share is not None:
            _validate.positive(share=self.share)

    def plan(self, task: Task) -> Program:
        """Plan one phase with all users."""
        known, rounds = self.known, self.rounds or self._rounds(task)
        radius = known.radius or known.lipschitz / math.sqrt(known.records)
        if self.share is None:
            # The counts of norms are additional coordinates of the mean.
            wider = replace(task, start=(*task.start, *[0.0] * COUNTS))
            mean: Mean = AdaptiveClip(self._mean(wider, rounds, 1.0), radius)
        else:
            mean = self._mean(task, rounds, self.share * radius)
        solver = self.solver or CoinBetting(wealth=known.distance / math.sqrt(task.dimension))
        return single_phase(Stage(mean, solver), task, known)

    def _rounds(self, task: Task) -> int:
        """Return a useful number of rounds; their total noise does not depend on it."""
        known = self.known
        ideal = known.smoothness * known.distance / known.lipschitz
        ideal *= math.sqrt(task.n_users * known.records)
        return int(min(max(ideal, _LEAST_ROUNDS), _MOST_ROUNDS))

    def _mean(self, task: Task, rounds: int, clip: float) -> Mean:
        """Calibrate the mean of users."""
        return ClippedMean.calibrate(**task.calibration(), rounds=rounds, clip=clip, unit=User())


def _as_many_as_fit(plan: Callable[[int], Program], most: int) -> Program:
    """Return the plan with the most phases that the users allow, up to a maximum."""
    for count in range(most, 1, -1):
        try:
            return plan(count)
        except ParameterError:
            # A phase has too few users, so try one phase fewer.
            continue
    return plan(1)


def _core_noise(known: Known, task: Task, n_users: int) -> float:
    """Return the approximate rms error of one soft-core mean with the whole promise."""
    # The sensitivity of a soft core is at least 4τ/n, of a clipped mean τ/n.
    return 4 * known.radius_for(n_users, 1) * task.noise(n_users)


def _soft_core(known: Known, task: Task, n_users: int, rounds: int) -> SoftCoreMean:
    """Calibrate the soft core for some rounds."""
    radius = known.radius_for(n_users, rounds)
    return SoftCoreMean.calibrate(**task.calibration(n_users), rounds=rounds, radius=radius)


def _localising_rounds(known: Known, strength: float, smooth: float, noise: float) -> int:
    """Return 4·H/μ·ln((G/ν)²) rounds, which leave mostly the noise ν (Corollary 2)."""
    left = max((known.lipschitz / max(noise, 1e-300)) ** 2, math.e)
    return clamp_rounds(4 * smooth / strength * math.log(left))


def _winsorized(known: Known, task: Task, n_users: int, rounds: int, fewer: bool) -> Winsorized:
    """Calibrate the winsorized mean for some rounds, or fewer for too few users."""
    while True:
        try:
            return Winsorized.calibrate(
                **task.calibration(n_users),
                rounds=rounds,
                radius=known.radius_for(n_users, rounds),
                bound=known.lipschitz,
                dimension=task.dimension,
            )
        except ParameterError:
            if not fewer or rounds <= 2:
                raise
            rounds = max(2, rounds // 2)

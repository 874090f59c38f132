"""Accelerated steps where each round asks fresh users: the more rounds, the smaller each batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain.optimize import (
    AcSa,
    Localisation,
    Restarts,
)
from dpgrain.recipes.program import (
    Known,
    Mean,
    Program,
    Stage,
    Task,
    alone,
    ball_of,
)

# Batches at most, unless more are asked for; and phases.
MOST_BATCHES, _MOST_PHASES = 10_000, 8
# Numbers of rounds that are compared: all up to some hundred, then a percent or two apart.
_CANDIDATES = 500
# Rounds of coin betting where each has fresh users: with few more the noise is what is left.
FEW_ROUNDS = 10


@dataclass(frozen=True)
class _Choice:
    """Rounds that make a bound least, the curvature of what is minimised, and the bound."""

    rounds: int
    smoothness: float
    excess: float


@dataclass(frozen=True)
class FreshSteps:
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
        phases, distances = phased(
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
        most = min(users, MOST_BATCHES)
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


def phased(
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


def check_count(count: int | None) -> None:
    """Refuse a number of phases that is none."""
    if count is not None:
        _validate.integer(minimum=1, count=count)

"""Accelerated steps with fresh users in each round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.learn.program import (
    Known,
    Program,
    Stage,
    Task,
    single_phase,
    solution_ball,
)
from dpgrain.means import Mean
from dpgrain.optimize.localisation import Localisation, Restarts
from dpgrain.papers import AcSa

# Default maximum numbers of batches and of phases.
MOST_BATCHES, _MOST_PHASES = 10_000, 8
# Approximate number of rounds to compare: all small ones, then some a percent or two apart.
_COMPARED_ROUNDS = 500
# Rounds of coin betting with fresh users; with a few more, noise dominates.
FEW_ROUNDS = 10


@dataclass(frozen=True)
class _Choice:
    """The best number of rounds, the curvature of the minimised loss, and the bound."""

    rounds: int
    smoothness: float
    excess: float


@dataclass(frozen=True)
class FreshSteps:
    """Accelerated steps on batches of fresh users, with any mean of users."""

    known: Known
    task: Task
    noise: float  # approximate rms error of a batch's noisy sum
    make: Callable[[int, int], Mean]  # mean for a number of users and of rounds
    smoothed: bool  # the Moreau envelope
    rounds: int | None

    def alone(self) -> Program:
        """Plan one phase with all users."""
        users, distance = self.task.n_users, self.known.distance
        return single_phase(self._stage(users, distance), self.task, self.known)

    def restarts(self, count: int | None) -> Program:
        """Plan phases that each start where the previous one ended."""
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
        """Choose the number of rounds with the smallest bound."""
        if self.rounds is not None:
            return self._at(self.rounds, users, distance)
        most = min(users, MOST_BATCHES)
        some = np.unique(np.geomspace(1, most, _COMPARED_ROUNDS).round().astype(int)).tolist()
        return min(
            (self._at(rounds, users, distance) for rounds in some), key=lambda choice: choice.excess
        )

    def _at(self, rounds: int, users: int, distance: float) -> _Choice:
        """Bound the excess of the loss after a number of rounds."""
        known, batch = self.known, max(users // rounds, 1)
        smoothness, changed = known.smoothness, 0.0
        if self.smoothed:
            smoothness = known.lipschitz * math.sqrt(rounds * (rounds + 1)) / (2 * distance)
            changed = known.lipschitz**2 / (2 * smoothness)
        error = self._error(batch, self.noise / batch)
        excess = AcSa(smoothness, rounds, error, distance).excess() + changed
        return _Choice(rounds, smoothness, excess)

    def _error(self, batch: int, noise: float) -> float:
        """Return the rms error of a batch's gradient, from noise and from sampling."""
        known = self.known
        return math.hypot(known.lipschitz / math.sqrt(batch * known.records), noise)

    def _stage(self, users: int, distance: float) -> Stage:
        known, choice = self.known, self._choose(users, distance)
        mean = self.make(users, choice.rounds)
        noise = mean.noise_sd * math.sqrt(self.task.dimension)
        error = self._error(users // choice.rounds, noise)
        # The ball is around the first start, because the program does not know the start of a later
        # phase.
        domain = solution_ball(known, self.task)
        solver = AcSa(choice.smoothness, choice.rounds, error, distance, domain)
        return Stage(mean, solver, choice.smoothness if self.smoothed else None)


def phased(
    plan: Callable[[int], Localisation],  # divides the users into phases
    excess: Callable[[int, float], float],  # bound after a phase, from its users and distance
    count: int | None,  # None for the smallest final bound
    most: int,  # phases, at most
    known: Known,
) -> tuple[Localisation, list[float]]:
    """Return the phases, and the distance that each has to cover."""

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
    _, phases, distances = min(tried, key=lambda candidate: candidate[0])
    return phases, distances


def check_count(count: int | None, known: Known) -> None:
    """Reject an invalid number of phases, or several for losses that are not strongly convex."""
    if count is not None and _validate.integer(minimum=1, count=count) > 1 and not known.strength:
        raise ParameterError(f"strength must be above 0 for {count} phases, not 0; omit count.")

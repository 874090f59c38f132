"""Recipes for a stream of users with a state that may be seen once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpgrain.learn.program import (
    ANY,
    Known,
    Program,
    Task,
    check_known,
)
from dpgrain.means import Mean
from dpgrain.papers.pan_private import PanPrivate
from dpgrain.papers.recipes.curator_recipes import Concentrated
from dpgrain.papers.recipes.fresh import FEW_ROUNDS, FreshSteps, check_count


@dataclass(frozen=True)
class PanPrivateAgd:
    """Accelerated steps on a stream with a visible state (Cheu et al., Algorithm 6).

    Args:
        known: the public facts. Its smoothness and strength select one of the four cases of Theorem
            C.3: a loss with kinks is smoothed as in :class:`ShuffleAgdSmoothed`, and for a strongly
            convex loss steps are restarted as in :class:`ShuffleRestarts`.
        count: the number of phases, for strongly convex losses; None for the number with the
            smallest bound after the last one.
        rounds: T of each phase; None for the number with the smallest bound.

    Raises:
        ParameterError: if a value is out of range, or there are several phases and the strength is
            0.

    Users arrive in the order of the known population, once each. Source: Theorem C.3; the steps go
    against the gradient, with 2β for β, and the gradients of the Moreau envelope are not doubled,
    as in :class:`ShuffleAgd` and :class:`ShuffleAgdSmoothed`.

    >>> program = PanPrivateAgd().plan(Task.of(2000, (0.0, 0.0), 2.0, 1e-6))
    >>> program.trust, program.event.epsilon(1e-6) <= 2.0
    ('pan', True)
    """

    known: Known = ANY
    count: int | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        check_known(self.known, self.rounds)
        check_count(self.count, self.known)

    def plan(self, task: Task) -> Program:
        """Plan one phase, or several if strongly convex; every user participates once."""
        known = self.known

        def make(users: int, rounds: int) -> Mean:
            return PanPrivate.calibrate(
                **task.calibration(users), rounds=rounds, clip=known.lipschitz
            )

        # Noise is added before the first user of a batch and again after the last one.
        noise = math.sqrt(2) * task.noise(1) * known.lipschitz
        fresh = FreshSteps(known, task, noise, make, math.isinf(known.smoothness), self.rounds)
        return fresh.restarts(self.count) if known.strength else fresh.alone()


@dataclass(frozen=True)
class PanPrivateConcentrated(Concentrated):
    """Our recipe on a stream of users: :class:`Concentrated` with pan-private means.

    Args:
        known: the public facts.
        rounds: T; None for 10, because each has its own users, and the noise of all of them
            together grows with their number.
        share: the clipping bound ÷ the radius in which a user's mean gradient concentrates. With
            None the bound starts at the radius and then follows the norms of users' gradients.
        solver: the solver; None for coin betting.

    It is the default recipe of ``trust="pan"``, with ``share=None``. Source: docs/theory, "Shuffled
    gradients".

    >>> program = PanPrivateConcentrated().plan(Task.of(1000, (0.0, 0.0), 1.0, 1e-6))
    >>> program.trust, program.rounds, program.event.epsilon(1e-6) <= 1.0
    ('pan', 10, True)
    """

    def _rounds(self, task: Task) -> int:
        return min(FEW_ROUNDS, task.n_users)

    def _mean(self, task: Task, rounds: int, clip: float) -> Mean:
        return PanPrivate.calibrate(**task.calibration(), rounds=rounds, clip=clip)

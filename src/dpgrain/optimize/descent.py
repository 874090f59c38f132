"""Solvers with steps against the gradient, of a public or an adaptive length."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.optimize.averages import Average, Uniform, Weighted
from dpgrain.optimize.domains import EVERYWHERE, Domain
from dpgrain.optimize.schedules import Schedule

_ALL_ALIKE = Uniform()
# Average that favours later points, because they are better.
_LATE_MORE = Weighted(3.0)


@dataclass(frozen=True)
class Steps:
    """State of a run of steps; arrays have shape (p,)."""

    theta: FloatArray
    average: FloatArray  # of the iterates after each step so far
    done: int = 0
    # Sum of squared gradients, for adaptive steps only.
    squares: FloatArray = field(default_factory=lambda: np.zeros(0))

    def moved(self, theta: FloatArray, average: Average, **changed: Any) -> Steps:
        """Return the state after a step to θ."""
        share = average.weight(self.done + 1)
        mean = self.average + share * (theta - self.average)
        return replace(self, theta=theta, average=mean, done=self.done + 1, **changed)


@dataclass(frozen=True)
class Sgd:
    """Projected (stochastic) gradient descent.

    Args:
        schedule: the step sizes.
        domain: the set onto which iterates are projected.
        average: the rule that combines the iterates into the solution.

    Source: element-level paper, (14) and Theorem 1; user-level papers, with their averages.

    >>> from dpgrain.optimize import Ball, Last, Power, run
    >>> solver = Sgd(Power(1.0), Ball(1.0), Last())
    >>> run(solver, lambda theta: theta - 3.0, np.zeros(1), 100).tolist()
    [1.0]
    """

    schedule: Schedule
    domain: Domain = EVERYWHERE
    average: Average = _ALL_ALIKE

    def init(self, theta: FloatArray) -> Steps:
        """Return the state before the first step."""
        start = self.domain.project(theta)
        return Steps(start, start)

    def point(self, state: Steps) -> FloatArray:
        """Return the iterate."""
        return state.theta

    def step(self, state: Steps, gradient: FloatArray) -> Steps:
        """Take one projected step."""
        target = state.theta - self.schedule(state.done + 1) * gradient
        return state.moved(self.domain.project(target), self.average)

    def finish(self, state: Steps) -> FloatArray:
        """Return the average of the iterates."""
        return state.average


@dataclass(frozen=True)
class Adagrad:
    """Steps of size scale/√(sum of squared gradients), separately by coordinate.

    Noisy gradients are already public, so adaptive steps cost no privacy. They do not depend on the
    scales of features.

    Args:
        scale: the approximate distance of the solution from the start in each coordinate, above 0.
        domain: the set onto which iterates are projected (in the l2 norm).
        average: the rule that combines the iterates into the solution.
        floor: a lower bound on the sum of squares, for example the expected one of pure noise after
            one round.

    Raises:
        ParameterError: if a value is out of range.

    Source: Duchi, Hazan, Singer, *Adaptive subgradient methods*, JMLR 2011.

    >>> from dpgrain.optimize import run
    >>> solver = Adagrad(1.0)
    >>> run(solver, lambda theta: theta - 3.0, np.zeros(1), 2000).round(1).tolist()
    [3.0]
    """

    scale: float = 1.0
    domain: Domain = EVERYWHERE
    average: Average = _LATE_MORE
    floor: float = 1e-30

    def __post_init__(self) -> None:
        _validate.positive(scale=self.scale)
        _validate.positive(floor=self.floor)

    def init(self, theta: FloatArray) -> Steps:
        """Return the state before the first step."""
        start = self.domain.project(theta)
        return Steps(start, start, 0, np.full(start.shape, self.floor))

    def point(self, state: Steps) -> FloatArray:
        """Return the iterate."""
        return state.theta

    def step(self, state: Steps, gradient: FloatArray) -> Steps:
        """Take one step, shorter after larger gradients."""
        squares = state.squares + gradient**2
        target = state.theta - self.scale * gradient / np.sqrt(squares)
        return state.moved(self.domain.project(target), self.average, squares=squares)

    def finish(self, state: Steps) -> FloatArray:
        """Return the average of the iterates."""
        return state.average

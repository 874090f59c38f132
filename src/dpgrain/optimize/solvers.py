"""Solvers with init, point, step and finish over any gradient oracle.

A solver is frozen and contains public numbers only; its state changes. An oracle is any function
from θ to an estimate of the gradient there: exact, of a sample, or private. :func:`run` connects
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError, RunEnded
from dpgrain.optimize.averages import Average, Uniform, Weighted
from dpgrain.optimize.domains import EVERYWHERE, Domain
from dpgrain.optimize.schedules import Schedule

_ALL_ALIKE = Uniform()
# Averages that favour later points, because they are better.
_LATE_MORE, _LATE = Weighted(3.0), Weighted(2.0)
# Smallest ratio of gradients along an axis to the largest axis; axes below are rounding errors.
_ROUNDING = 1e-9
# Factor on the variance of the noise of all gradients, so that first steps along noisy axes are
# short.
_CAUTION = 3.0


Oracle: TypeAlias = Callable[[FloatArray], FloatArray]
State = TypeVar("State")


class Solver(Protocol[State]):
    """Protocol of a rule for steps against gradients, one at a time."""

    def init(self, theta: FloatArray) -> State:
        """Return the state before the first step, at θ, (p,)."""

    def point(self, state: State) -> FloatArray:
        """Return the point of the next gradient, (p,)."""

    def step(self, state: State, gradient: FloatArray) -> State:
        """Return the state after a step against the gradient at :meth:`point`."""

    def finish(self, state: State) -> FloatArray:
        """Return the solution, (p,)."""


def run(
    solver: Solver[State],
    oracle: Oracle,
    theta: FloatArray,
    rounds: int,
    callback: Callable[[State], None] | None = None,
) -> FloatArray:
    """Run a solver for a number of steps.

    Args:
        solver: the solver.
        oracle: a function from θ, (p,), to an estimate of the gradient there, (p,).
        theta: the starting point, (p,).
        rounds: the number of gradient evaluations.
        callback: a function to call with the state after each step.

    Returns:
        the solution after all rounds, or after the completed ones if the oracle raised
        :class:`~dpgrain.errors.RunEnded`.

    Raises:
        ParameterError: if rounds is not a positive integer, theta is not a point, or the solver or
            a function is invalid.

    >>> from dpgrain.optimize import Constant, Last, Sgd
    >>> solver = Sgd(Constant(0.5), average=Last())
    >>> run(solver, lambda theta: theta - 3.0, [0.0], 60).round(6).tolist()
    [3.0]
    """
    rounds = _validate.integer(minimum=1, rounds=rounds)
    if not callable(getattr(solver, "init", None)):
        raise ParameterError(
            f"solver must be a solver, not {_validate.describe(solver)}.", name="solver"
        )
    _validate.function(oracle=oracle)
    if callback is not None:
        _validate.function(callback=callback)
    begin = _validate.float_array(theta=theta)
    if not np.isfinite(begin).all():
        raise ParameterError("theta must contain finite numbers.", name="theta")
    state = solver.init(begin)
    for _ in range(rounds):
        try:
            gradient = _validate.float_array(oracle=oracle(solver.point(state)))
        except RunEnded:
            break
        state = solver.step(state, gradient)
        if callback is not None:
            callback(state)
    return solver.finish(state)


@dataclass(frozen=True)
class Iterates:
    """State of a run with an average; arrays have shape (p,)."""

    theta: FloatArray
    average: FloatArray  # of the iterates after each step so far
    done: int

    def averaged(self, theta: FloatArray, average: Average) -> FloatArray:
        """Return the average with one more iterate."""
        return self.average + average.weight(self.done + 1) * (theta - self.average)


class _AveragedSolver:
    """Base of solvers that return an average of their iterates."""

    def point(self, state: Iterates) -> FloatArray:
        """Return the iterate."""
        return state.theta

    def finish(self, state: Iterates) -> FloatArray:
        """Return the average of the iterates."""
        return state.average


@dataclass(frozen=True)
class Steps(Iterates):
    """State of a run of steps."""

    # Sum of squared gradients, for adaptive steps only.
    squares: FloatArray = field(default_factory=lambda: np.zeros(0))

    def moved(self, theta: FloatArray, average: Average, **changed: Any) -> Steps:
        """Return the state after a step to θ."""
        mean = self.averaged(theta, average)
        return replace(self, theta=theta, average=mean, done=self.done + 1, **changed)


@dataclass(frozen=True)
class Sgd(_AveragedSolver):
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
        return Steps(start, start, 0)

    def step(self, state: Steps, gradient: FloatArray) -> Steps:
        """Take one projected step."""
        target = state.theta - self.schedule(state.done + 1) * gradient
        return state.moved(self.domain.project(target), self.average)


@dataclass(frozen=True)
class Adagrad(_AveragedSolver):
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

    def step(self, state: Steps, gradient: FloatArray) -> Steps:
        """Take one step, shorter after larger gradients."""
        squares = state.squares + gradient**2
        target = state.theta - self.scale * gradient / np.sqrt(squares)
        return state.moved(self.domain.project(target), self.average, squares=squares)


@dataclass(frozen=True)
class Bets(Iterates):
    """State of a run of :class:`CoinBetting`."""

    largest: FloatArray  # absolute gradient
    sum: FloatArray  # of gradients
    absolute: FloatArray  # sum of absolute gradients
    reward: FloatArray  # winnings so far
    start: FloatArray


@dataclass(frozen=True)
class CoinBetting(_AveragedSolver):
    """Steps without a step size: each coordinate bets wealth on the gradient's sign.

    The scale of gradients is irrelevant: θ does not change if all are multiplied by a number.

    Args:
        wealth: the initial wealth of each coordinate, above 0; approximately the distance covered
            by the first steps.
        average: the rule that combines the iterates into the solution.

    Raises:
        ParameterError: if a value is out of range.

    Source: Orabona, Tommasi, *Training deep networks without learning rates through coin betting*,
    NeurIPS 2017, Algorithm 1 (COCOB), with a start at any θ.

    >>> from dpgrain.optimize import run
    >>> solver = CoinBetting()
    >>> run(solver, lambda theta: theta - 3.0, np.zeros(1), 3000).round(1).tolist()
    [3.0]
    """

    wealth: float = 1.0
    average: Average = _LATE_MORE

    def __post_init__(self) -> None:
        _validate.positive(wealth=self.wealth)

    def init(self, theta: FloatArray) -> Bets:
        """Return the state before the first step."""
        zero = np.zeros_like(theta)
        return Bets(theta, theta, 0, zero, zero, zero, zero, theta)

    def step(self, state: Bets, gradient: FloatArray) -> Bets:
        """Settle the last bet with the gradient, and place a new one."""
        start = state.start
        largest = np.maximum(state.largest, np.abs(gradient))
        absolute = state.absolute + np.abs(gradient)
        total = state.sum + gradient
        reward = np.maximum(state.reward - gradient * (state.theta - start), 0)
        odds = largest * (absolute + largest)
        away = -total / np.where(odds > 0, odds, 1.0) * (self.wealth * largest + reward)
        theta = start + away
        average = state.averaged(theta, self.average)
        return Bets(theta, average, state.done + 1, largest, total, absolute, reward, start)


@dataclass(frozen=True)
class Axes(Iterates):
    """State of a run of :class:`FullMatrixAdagrad`."""

    start: FloatArray
    axes: FloatArray  # (r, p) orthonormal principal axes of all gradients so far
    lengths: FloatArray  # (r,) norms of all gradients along each axis
    sum: FloatArray
    won: FloatArray  # (r, r) sum of gradient ⊗ (start − iterate) in these axes

    def turned(self, gradient: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the axes, lengths and winnings with one more gradient.

        Source: Brand, *Fast low-rank modifications of the thin singular value decomposition*, 2006.
        """
        along, rest = self.axes @ gradient, gradient
        # The second pass removes the rounding error of the first one.
        for _ in range(2):
            rest = rest - (self.axes @ rest) @ self.axes
        beyond = float(np.linalg.norm(rest))
        new = beyond > _ROUNDING * float(np.linalg.norm(gradient))
        basis = np.vstack([self.axes, rest / beyond]) if new else self.axes
        rows = np.zeros((len(self.lengths) + 1, len(basis)))
        np.fill_diagonal(rows, self.lengths)
        rows[-1] = np.append(along, beyond)[: len(basis)]
        _, lengths, turn = np.linalg.svd(rows, full_matrices=False)
        significant = lengths > _ROUNDING * lengths.max(initial=0.0)
        axes, lengths, turn = turn[significant] @ basis, lengths[significant], turn[significant]
        carried = turn[:, : len(self.lengths)]
        bet = np.outer(axes @ gradient, axes @ (self.start - self.theta))
        return axes, lengths, carried @ self.won @ carried.T + bet


@dataclass(frozen=True)
class FullMatrixAdagrad(_AveragedSolver):
    """Points at −reach·(sum of gradients)/√(sum of squares) along each principal axis.

    The axes are the principal axes of the sum of g ⊗ g, so correlated features, which make a
    problem long and narrow, need no additional rounds. The reach is the wealth plus the winnings of
    points by being opposite to the gradients that followed, along the axis or along all axes
    together, whichever is more. It grows until the solution is reached. The scale of gradients is
    irrelevant.

    Args:
        wealth: the initial reach, above 0: approximately the distance of the solution. Too small a
            value costs a few rounds, and far too large a value many.
        noise: the standard deviation of the noise of a coordinate of the sum of all gradients, such
            as σ√T if each of T has noise σ; 0 for exact gradients.
        average: the rule that combines the iterates into the solution.

    Raises:
        ParameterError: if wealth is not above 0, or noise is negative.

    Source: Duchi, Hazan, Singer, *Adaptive subgradient methods*, JMLR 2011, (3), with full
    matrices; the reach grows by the reward of Orabona, Tommasi, NeurIPS 2017, Algorithm 1.

    >>> from dpgrain.optimize import run
    >>> valley = np.array([[1.0, 0.99], [0.99, 1.0]])
    >>> solver = FullMatrixAdagrad()
    >>> run(solver, lambda theta: valley @ (theta - [3.0, -3.0]), np.zeros(2), 300).round(1).tolist()
    [3.0, -3.0]
    """

    wealth: float = 1.0
    noise: float = 0.0
    average: Average = _LATE

    def __post_init__(self) -> None:
        _validate.positive(wealth=self.wealth)
        _validate.non_negative(noise=self.noise)

    def init(self, theta: FloatArray) -> Axes:
        """Return the state before the first step."""
        none = np.zeros((0, len(theta)))
        return Axes(
            theta, theta, 0, theta, none, np.zeros(0), np.zeros_like(theta), np.zeros((0, 0))
        )

    def step(self, state: Axes, gradient: FloatArray) -> Axes:
        """Rotate the axes to include the gradient, and move against all gradients."""
        axes, lengths, won = state.turned(gradient)
        total = state.sum + gradient
        floor = math.sqrt(_CAUTION) * self.noise
        scales = np.hypot(lengths, floor)
        every = math.hypot(np.linalg.norm(lengths), math.sqrt(len(gradient)) * floor)
        together = np.trace(won) / every if every > 0 else 0.0
        reach = self.wealth + np.maximum(np.maximum(np.diag(won) / scales, together), 0)
        theta = state.start - (reach * (axes @ total) / scales) @ axes
        average = state.averaged(theta, self.average)
        return Axes(theta, average, state.done + 1, state.start, axes, lengths, total, won)

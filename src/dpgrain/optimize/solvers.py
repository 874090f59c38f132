"""Solvers with init, point, step and finish over any gradient oracle.

A solver is frozen and contains public numbers only; its state changes. An oracle is any function
from θ to an estimate of the gradient there: exact, of a sample, or private. :func:`run` connects
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError, RunEnded

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

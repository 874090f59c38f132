"""Coin-betting solver, which needs no step size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.optimize.averages import Average, Weighted

# Average that favours later points, because they are better.
_LATE_MORE = Weighted(3.0)


@dataclass(frozen=True)
class Bets:
    """State of a run of :class:`CoinBetting`; all arrays have shape (p,)."""

    theta: FloatArray
    average: FloatArray
    done: int
    largest: FloatArray  # absolute gradient
    sum: FloatArray  # of gradients
    absolute: FloatArray  # sum of absolute gradients
    reward: FloatArray  # winnings so far
    start: FloatArray


@dataclass(frozen=True)
class CoinBetting:
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

    def point(self, state: Bets) -> FloatArray:
        """Return the iterate."""
        return state.theta

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
        share = self.average.weight(state.done + 1)
        average = state.average + share * (theta - state.average)
        return Bets(theta, average, state.done + 1, largest, total, absolute, reward, start)

    def finish(self, state: Bets) -> FloatArray:
        """Return the average of the iterates."""
        return state.average

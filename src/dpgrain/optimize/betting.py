"""A solver with bets on the next gradient as steps, so that no length need be chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.optimize.averages import Average, Weighted

# Average in which later points, which are better, count for more.
_LATE_MORE = Weighted(3.0)


@dataclass(frozen=True)
class Bets:
    """The state of a run of :class:`CoinBetting`.

    Args:
        theta: the iterate, (p,).
        average: the average of the iterates at which gradients were asked for, (p,).
        done: the number of gradients so far.
        largest: the largest absolute gradient so far, (p,).
        sum: the sum of gradients, (p,).
        absolute: the sum of absolute gradients, (p,).
        reward: the winnings so far, (p,).
        start: the point at which the run began, (p,).
    """

    theta: FloatArray
    average: FloatArray
    done: int
    largest: FloatArray
    sum: FloatArray
    absolute: FloatArray
    reward: FloatArray
    start: FloatArray


@dataclass(frozen=True)
class CoinBetting:
    """Steps without a step size, as each coordinate bets a share of its wealth on the gradient's sign.

    The scale of gradients does not matter: θ stays the same if all are multiplied by a number.

    Args:
        wealth: the wealth of each coordinate at the start, above 0; it is about the distance that the
            first steps cover.
        average: the rule that makes the solution from the iterates.

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
        """Settle the last bet by the gradient, and make a new one."""
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

"""Steps without a length to choose: bets on the next gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.optimize.averages import Average, Weighted

# Later points, which are better, count for more.
_LATE_MORE = Weighted(3.0)


@dataclass(frozen=True)
class Bets:
    """Where coin betting stands: per coordinate what :class:`CoinBetting` keeps.

    Args:
        theta: the iterate, (p,).
        average: of the iterates at which gradients were asked for, (p,).
        done: how many gradients there were.
        largest: the largest gradient so far.
        sum: the sum of gradients.
        absolute: the sum of absolute gradients.
        reward: what betting has won so far.
        start: where it began, (p,).
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
    """Steps without a step size: each coordinate bets a share of its wealth on the gradient's sign.

    It does not matter on what scale gradients are: θ stays the same if all are multiplied by a number.

    Args:
        wealth: what each coordinate begins with, about how far it gets in the first steps, above 0.
        average: what the iterates become in the end.

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
        """The state before the first step."""
        zero = np.zeros_like(theta)
        return Bets(theta, theta, 0, zero, zero, zero, zero, theta)

    def point(self, state: Bets) -> FloatArray:
        """The iterate."""
        return state.theta

    def step(self, state: Bets, gradient: FloatArray) -> Bets:
        """A new bet."""
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
        """The average."""
        return state.average

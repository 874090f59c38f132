"""A solver with steps along the axes of a problem, learnt from its gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.optimize.averages import Average, Weighted

# Average in which later points, which are better, count for more.
_LATE_MORE = Weighted(2.0)
# Ratio of gradients along an axis to those along the longest, below which the axis is rounding.
_ROUNDING = 1e-9
# Factor on the variance of the noise of all gradients, so that the first steps along an axis that is
# noise are short.
_CAUTION = 3.0


@dataclass(frozen=True)
class Axes:
    """The state of a run of :class:`FullMatrixAdagrad`.

    Args:
        theta: the iterate, (p,).
        average: the average of the iterates that steps have led to, (p,).
        done: the number of gradients so far.
        start: the point at which the run began, (p,).
        axes: the principal axes of all gradients so far, (r, p) with orthonormal rows.
        lengths: the norm of all gradients along each axis, (r,).
        sum: the sum of gradients, (p,).
        won: the sum of gradient ⊗ (start − iterate) in these axes, (r, r).
    """

    theta: FloatArray
    average: FloatArray
    done: int
    start: FloatArray
    axes: FloatArray
    lengths: FloatArray
    sum: FloatArray
    won: FloatArray

    def turned(self, gradient: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the axes, lengths and winnings with one more gradient.

        Source: Brand, *Fast low-rank modifications of the thin singular value decomposition*, 2006.
        """
        along, rest = self.axes @ gradient, gradient
        # The second time takes off what rounding left of the axes.
        for _ in range(2):
            rest = rest - (self.axes @ rest) @ self.axes
        beyond = float(np.linalg.norm(rest))
        new = beyond > _ROUNDING * float(np.linalg.norm(gradient))
        basis = np.vstack([self.axes, rest / beyond]) if new else self.axes
        rows = np.zeros((len(self.lengths) + 1, len(basis)))
        np.fill_diagonal(rows, self.lengths)
        rows[-1] = np.append(along, beyond)[: len(basis)]
        _, lengths, turn = np.linalg.svd(rows, full_matrices=False)
        kept = lengths > _ROUNDING * lengths.max(initial=0.0)
        axes, lengths, turn = turn[kept] @ basis, lengths[kept], turn[kept]
        carried = turn[:, : len(self.lengths)]
        bet = np.outer(axes @ gradient, axes @ (self.start - self.theta))
        return axes, lengths, carried @ self.won @ carried.T + bet


@dataclass(frozen=True)
class FullMatrixAdagrad:
    """Points at −reach·(sum of gradients)/√(sum of squares) along each principal axis of gradients.

    The axes are those of the sum of g ⊗ g, so that correlated features, which make a problem long and
    narrow, need no more rounds than others. The reach is the wealth and what points have won by lying
    against the gradients that followed, along the axis or along all together, whichever is more:
    it grows until the solution is reached. The scale of gradients does not matter.

    Args:
        wealth: the reach at the start, above 0: about the distance of the solution, of which too little
            costs a few rounds, and far too much many.
        noise: the standard deviation of the noise of a coordinate of the sum of all gradients, such as
            σ√T where each of T has noise σ; 0 where they are exact.
        average: the rule that makes the solution from the iterates.

    Raises:
        ParameterError: if wealth is not above 0, or noise is below 0.

    Source: Duchi, Hazan, Singer, *Adaptive subgradient methods*, JMLR 2011, (3), with full matrices;
    the reach grows by the reward of Orabona, Tommasi, NeurIPS 2017, Algorithm 1.

    >>> from dpgrain.optimize import run
    >>> valley = np.array([[1.0, 0.99], [0.99, 1.0]])
    >>> solver = FullMatrixAdagrad()
    >>> run(solver, lambda theta: valley @ (theta - [3.0, -3.0]), np.zeros(2), 300).round(1).tolist()
    [3.0, -3.0]
    """

    wealth: float = 1.0
    noise: float = 0.0
    average: Average = _LATE_MORE

    def __post_init__(self) -> None:
        _validate.positive(wealth=self.wealth)
        _validate.non_negative(noise=self.noise)

    def init(self, theta: FloatArray) -> Axes:
        """Return the state before the first step."""
        none = np.zeros((0, len(theta)))
        return Axes(
            theta, theta, 0, theta, none, np.zeros(0), np.zeros_like(theta), np.zeros((0, 0))
        )

    def point(self, state: Axes) -> FloatArray:
        """Return the iterate."""
        return state.theta

    def step(self, state: Axes, gradient: FloatArray) -> Axes:
        """Turn the axes to the gradient, and go against the sum of all."""
        axes, lengths, won = state.turned(gradient)
        total = state.sum + gradient
        floor = math.sqrt(_CAUTION) * self.noise
        scales = np.hypot(lengths, floor)
        every = math.hypot(np.linalg.norm(lengths), math.sqrt(len(gradient)) * floor)
        together = np.trace(won) / every if every > 0 else 0.0
        reach = self.wealth + np.maximum(np.maximum(np.diag(won) / scales, together), 0)
        theta = state.start - (reach * (axes @ total) / scales) @ axes
        share = self.average.weight(state.done + 1)
        average = state.average + share * (theta - state.average)
        return Axes(theta, average, state.done + 1, state.start, axes, lengths, total, won)

    def finish(self, state: Axes) -> FloatArray:
        """Return the average of the iterates."""
        return state.average

"""Solver with steps along the principal axes of its gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.optimize.averages import Average, Weighted

# Average that favours later points, because they are better.
_LATE_MORE = Weighted(2.0)
# Smallest ratio of gradients along an axis to the largest axis; axes below are rounding errors.
_ROUNDING = 1e-9
# Factor on the variance of the noise of all gradients, so that first steps along noisy axes are
# short.
_CAUTION = 3.0


@dataclass(frozen=True)
class Axes:
    """State of a run of :class:`FullMatrixAdagrad`; vectors have shape (p,)."""

    theta: FloatArray
    average: FloatArray
    done: int
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
class FullMatrixAdagrad:
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
        """Rotate the axes to include the gradient, and move against all gradients."""
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

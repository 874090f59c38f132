"""Steps on losses that are not convex, back to the point with the smallest gradient mapping."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.optimize.domains import EVERYWHERE, Domain


def gradient_mapping(
    theta: FloatArray, gradient: FloatArray, size: float, domain: Domain = EVERYWHERE
) -> FloatArray:
    """How far from stationary a point is: (θ − Π(θ − size·gradient))/size; the gradient, everywhere.

    Args:
        theta: (p,), in the domain.
        gradient: there, (p,).
        size: the length of a step, above 0.
        domain: what Π projects to.

    Raises:
        ParameterError: if size is not above 0.

    Source: Levy et al., Theorem 4 (iii).

    >>> from dpgrain.optimize import Box
    >>> gradient_mapping(np.array([1.0, 0.0]), np.array([-3.0, 2.0]), 0.5, Box(-1.0, 1.0)).tolist()
    [0.0, 2.0]
    """
    size = _validate.positive(size=size)
    return (theta - domain.project(theta - size * gradient)) / size


@dataclass(frozen=True)
class Mapped:
    """Where a search for a stationary point stands.

    Args:
        theta: the iterate, (p,).
        kept: the chosen iterate, or the last one before it, (p,).
        norm: the l2 norm of the last gradient mapping, as noisy as the gradient it is of.
        done: how many steps there were.
    """

    theta: FloatArray
    kept: FloatArray
    norm: float = np.inf
    done: int = 0


@dataclass(frozen=True)
class GradientMapping:
    """Projected steps of one length to where the gradient mapping is small; losses need not be convex.

    The solution is one of the points at which gradients were asked for, uniformly at random: on average
    over them the squared mapping is bounded, for the last one it need not be.

    Args:
        size: the length of steps, 1/smoothness for the source's bound, above 0.
        chosen: the number, from 1, of the point that will be the solution: see :meth:`draw`.
        domain: what iterates are projected to.

    Raises:
        ParameterError: if a value is out of range.

    Source: Levy et al., Algorithm 3 (iii), Theorem 4 (iii) and (21).

    >>> from dpgrain.optimize import run
    >>> solver = GradientMapping.draw(0.1, 400, np.random.default_rng(0))
    >>> run(solver, lambda theta: np.sin(theta), np.ones(1), 400).round(2).tolist()
    [0.0]
    """

    size: float
    chosen: int
    domain: Domain = EVERYWHERE

    def __post_init__(self) -> None:
        _validate.positive(size=self.size)
        _validate.integer(minimum=1, chosen=self.chosen)

    @staticmethod
    def draw(
        size: float, rounds: int, generator: np.random.Generator, domain: Domain = EVERYWHERE
    ) -> GradientMapping:
        """A run of so many rounds, with the solution chosen beforehand."""
        rounds = _validate.integer(minimum=1, rounds=rounds)
        return GradientMapping(size, int(generator.integers(1, rounds + 1)), domain)

    def init(self, theta: FloatArray) -> Mapped:
        """The state before the first step."""
        start = self.domain.project(theta)
        return Mapped(start, start)

    def point(self, state: Mapped) -> FloatArray:
        """The iterate."""
        return state.theta

    def step(self, state: Mapped, gradient: FloatArray) -> Mapped:
        """One projected step, along the gradient mapping."""
        mapping = gradient_mapping(state.theta, gradient, self.size, self.domain)
        done = state.done + 1
        # Projected again: a difference of close numbers, divided and multiplied, may leave the domain.
        moved = self.domain.project(state.theta - self.size * mapping)
        kept = state.theta if done <= self.chosen else state.kept
        return Mapped(moved, kept, float(np.linalg.norm(mapping)), done)

    def finish(self, state: Mapped) -> FloatArray:
        """The chosen iterate."""
        return state.kept

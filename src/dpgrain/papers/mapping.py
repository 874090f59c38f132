"""Solver for a small gradient mapping, for non-convex losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.optimize.domains import EVERYWHERE, Domain


def gradient_mapping(
    theta: FloatArray, gradient: FloatArray, size: float, domain: Domain = EVERYWHERE
) -> FloatArray:
    """Return the gradient mapping (θ − Π(θ − size·gradient))/size, 0 if stationary.

    Without a domain it is the gradient.

    Args:
        theta: the point θ, (p,), in the domain.
        gradient: the gradient at θ, (p,).
        size: the step size, above 0.
        domain: the set for the projection Π.

    Raises:
        ParameterError: if size is not above 0, theta and gradient differ in length, or domain is
            invalid.

    Source: Levy et al., Theorem 4 (iii).

    >>> from dpgrain.optimize import Box
    >>> gradient_mapping(np.array([1.0, 0.0]), np.array([-3.0, 2.0]), 0.5, Box(-1.0, 1.0)).tolist()
    [0.0, 2.0]
    """
    size = _validate.scale(size=size)
    theta, gradient = _validate.float_array(theta=theta), _validate.float_array(gradient=gradient)
    if not all((np.abs(part) <= 1e100).all() for part in (theta, gradient)):
        raise ParameterError("theta and gradient must be between -1e100 and 1e100.")
    if theta.shape != gradient.shape or not callable(getattr(domain, "project", None)):
        raise ParameterError(
            "theta and gradient must have the same shape, and domain must be one of "
            "dpgrain.optimize."
        )
    return (theta - domain.project(theta - size * gradient)) / size


@dataclass(frozen=True)
class Mapped:
    """State of a search for a stationary point."""

    theta: FloatArray
    iterate: FloatArray  # (p,) the chosen iterate, or the last one before it
    norm: float = np.inf  # l2 norm of the last gradient mapping, as noisy as the gradient
    done: int = 0


@dataclass(frozen=True)
class GradientMapping:
    """Projected steps of constant size towards a small gradient mapping.

    The solution is one of the iterates, chosen uniformly at random: the squared mapping is bounded
    on average over them, but not necessarily at the last one.

    Args:
        size: the step size, 1/smoothness for the source's bound, above 0.
        chosen: the number, from 1, of the iterate to return; :meth:`draw` draws it.
        domain: the set onto which iterates are projected.

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
        """Return a solver for some rounds, with the solution's index drawn in advance.

        Raises:
            ParameterError: if ``rounds`` is not a positive integer.
        """
        rounds = _validate.integer(minimum=1, rounds=rounds)
        return GradientMapping(size, int(generator.integers(1, rounds + 1)), domain)

    def init(self, theta: FloatArray) -> Mapped:
        """Return the state before the first step."""
        start = self.domain.project(theta)
        return Mapped(start, start)

    def point(self, state: Mapped) -> FloatArray:
        """Return the iterate."""
        return state.theta

    def step(self, state: Mapped, gradient: FloatArray) -> Mapped:
        """Take one projected step along the gradient mapping."""
        mapping = gradient_mapping(state.theta, gradient, self.size, self.domain)
        done = state.done + 1
        # Project again, because rounding in a difference of close numbers may leave the domain.
        target = self.domain.project(state.theta - self.size * mapping)
        solution = state.theta if done <= self.chosen else state.iterate
        return Mapped(target, solution, float(np.linalg.norm(mapping)), done)

    def finish(self, state: Mapped) -> FloatArray:
        """Return the chosen iterate."""
        return state.iterate

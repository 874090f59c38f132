"""Accelerated stochastic approximation (AC-SA), with optimal rates.

The steps printed in the shuffle paper are longer than its proof allows: L_t has β where Lan's
theorem requires at least 2(t + 1)/(t + 2)·β. In experiments with 1,200 quadratics in the paper's
bounded domain none violated the claimed rate, though 2β had a far smaller error; without a domain
they diverge. L_t has 2β here. The paper counts rounds from 1. They start from 0 here, so that α_0 =
1: otherwise a share of the start remains in the solution, which costs more than βD² if the minimum
is on the border of the domain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.optimize.domains import EVERYWHERE, Domain
from dpgrain.optimize.schedules import check_curvatures


@dataclass(frozen=True)
class Accelerated:
    """State of a run of accelerated steps.

    Args:
        theta: (p,) the point moved by gradients.
        average: (p,) the current solution.
        done: the number of steps so far.

    >>> import numpy as np
    >>> solver = AcSa(1.0, rounds=10)
    >>> state = solver.step(solver.init(np.zeros(1)), np.array([-3.0]))
    >>> state.done, state.theta.round(2).tolist(), solver.point(state).round(2).tolist()
    (1, [1.5], [1.5])
    """

    theta: FloatArray
    average: FloatArray
    done: int = 0


class _AveragedSolver:
    """Base of solvers that return the average."""

    domain: Domain

    def init(self, theta: FloatArray) -> Accelerated:
        """Return the state before the first step."""
        start = self.domain.project(theta)
        return Accelerated(start, start)

    def finish(self, state: Accelerated) -> FloatArray:
        """Return the average."""
        return state.average


@dataclass(frozen=True)
class AcSa(_AveragedSolver):
    """Lan's accelerated stochastic approximation for smooth convex losses.

    Round t = 0, 1, … evaluates the gradient at α_t·θ_t + (1 − α_t)·θᵃ_t, α_t = 2/(t + 2), and takes
    a step of 1/L_t against it, L_t = ((T + 2)^(3/2)·noise/distance + 2·smoothness)/(t + 1).

    Args:
        smoothness: β, the largest curvature of the loss, above 0.
        rounds: T, the total number of steps, which determines their sizes; at least 1.
        noise: the l2 root mean square error σ of a gradient, √E‖g − ∇‖², at least 0.
        distance: D, a bound on the distance of the solution from the start, above 0; unused without
            noise.
        domain: the set that contains the iterates.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee (of accuracy): for a start within D of the solution the loss after T steps
    exceeds the minimum by at most 2βD²/(T(T + 1)) + (4/3)·σD·(T + 2)^(3/2)/(T(T + 1)) in
    expectation. Source: shuffle paper, Algorithm 4 and Theorem 4.3, after Lan (2012), Theorem 2;
    with 2β for β.

    >>> import numpy as np
    >>> from dpgrain.optimize import run
    >>> run(AcSa(1.0, rounds=100), lambda theta: theta - 3.0, np.zeros(1), 100).round(2).tolist()
    [3.0]
    """

    smoothness: float
    rounds: int
    noise: float = 0.0
    distance: float = 1.0
    domain: Domain = EVERYWHERE

    def __post_init__(self) -> None:
        _validate.positive(smoothness=self.smoothness)
        _validate.integer(minimum=1, rounds=self.rounds)
        _validate.non_negative(noise=self.noise)
        _validate.positive(distance=self.distance)

    def excess(self) -> float:
        """Return the bound on the expected excess of the loss after all rounds."""
        rounds, distance = self.rounds, self.distance
        bias, noise = self.smoothness * distance**2, self.noise * distance * (rounds + 2) ** 1.5
        return float((2 * bias + 4 / 3 * noise) / (rounds * (rounds + 1)))

    def point(self, state: Accelerated) -> FloatArray:
        """Return a point between the iterate and the current solution."""
        share = self._share(state)
        return share * state.theta + (1 - share) * state.average

    def step(self, state: Accelerated, gradient: FloatArray) -> Accelerated:
        """Take one projected step, and add it to the average."""
        steep = (self.rounds + 2) ** 1.5 * self.noise / self.distance + 2 * self.smoothness
        end = self.domain.project(state.theta - (state.done + 1) / steep * gradient)
        share = self._share(state)
        average = share * end + (1 - share) * state.average
        return replace(state, theta=end, average=average, done=state.done + 1)

    def _share(self, state: Accelerated) -> float:
        """Return α_t for the next round, t = done."""
        return 2 / (state.done + 2)


@dataclass(frozen=True)
class StronglyConvexAcSa(_AveragedSolver):
    """Accelerated stochastic approximation for smooth, strongly convex losses.

    Args:
        smoothness: β, the largest curvature of the loss.
        strength: μ, the smallest curvature of the loss, above 0 and at most β.
        domain: the set that contains the iterates.

    Raises:
        ParameterError: unless 0 < μ ≤ β.

    Formal guarantee (of accuracy): for a start at distance D from the solution and gradients with
    error σ the expected loss after T steps exceeds the minimum by at most 2βD²/(T(T + 1)) +
    2σ²/(μ(T + 1)). Source: Ghadimi, Lan, *Optimal stochastic approximation algorithms for strongly
    convex stochastic composite optimization I*, SIAM J. Optim. 2012, Proposition 9: α_t = 2/(t +
    1), γ_t = 4β/(t(t + 1)).

    >>> import numpy as np
    >>> from dpgrain.optimize import run
    >>> solver = StronglyConvexAcSa(1.0, 1.0)
    >>> run(solver, lambda theta: theta - 3.0, np.zeros(1), 100).round(1).tolist()
    [3.0]
    """

    smoothness: float
    strength: float
    domain: Domain = EVERYWHERE

    def __post_init__(self) -> None:
        _validate.positive(smoothness=self.smoothness)
        _validate.positive(strength=self.strength)
        check_curvatures(self.strength, self.smoothness)

    def point(self, state: Accelerated) -> FloatArray:
        """Return a point between the iterate and the current solution."""
        share, near = self._numbers(state)
        weight = share * ((1 - share) * self.strength + near)
        weight /= near + (1 - share**2) * self.strength
        return weight * state.theta + (1 - weight) * state.average

    def step(self, state: Accelerated, gradient: FloatArray) -> Accelerated:
        """Take one projected step, and add it to the average."""
        share, near = self._numbers(state)
        pull, rest = share * self.strength, (1 - share) * self.strength + near
        centre = pull * self.point(state) + rest * state.theta - share * gradient
        end = self.domain.project(centre / (pull + rest))
        average = share * end + (1 - share) * state.average
        return replace(state, theta=end, average=average, done=state.done + 1)

    def _numbers(self, state: Accelerated) -> tuple[float, float]:
        """Return α_t and γ_t for the next round."""
        t = state.done + 1
        return 2 / (t + 1), 4 * self.smoothness / (t * (t + 1))

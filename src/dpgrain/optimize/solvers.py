"""Solvers, as init, point, step and finish over any gradient oracle.

A solver is frozen and holds public numbers only; what changes is its state. An oracle is any function
from θ to an estimate of the gradient there: exact, of a sample, or private. :func:`run` drives them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError, RunEnded
from dpgrain.optimize.domains import EVERYWHERE, Domain

Oracle: TypeAlias = Callable[[FloatArray], FloatArray]
State = TypeVar("State")


class Solver(Protocol[State]):
    """Steps against gradients, one at a time."""

    def init(self, theta: FloatArray) -> State:
        """The state before the first step, at θ, (p,)."""

    def point(self, state: State) -> FloatArray:
        """Where the next gradient is wanted, (p,)."""

    def step(self, state: State, gradient: FloatArray) -> State:
        """The state after a step against the gradient at :meth:`point`."""

    def finish(self, state: State) -> FloatArray:
        """The solution, (p,)."""


def run(
    solver: Solver[State],
    oracle: Oracle,
    theta: FloatArray,
    rounds: int,
    callback: Callable[[State], None] | None = None,
) -> FloatArray:
    """Let a solver take so many steps.

    Args:
        solver: the solver.
        oracle: from θ to an estimate of the gradient there, (p,) to (p,).
        theta: where to begin, (p,).
        rounds: how many gradients are asked for.
        callback: called with the state after each step.

    Returns:
        the solution after all rounds, or after those before the one in which the oracle raised
        :class:`~dpgrain.errors.RunEnded`.

    Raises:
        ParameterError: if rounds is not a whole number of at least 1.

    >>> solver = Sgd(Constant(0.5), average=Last())
    >>> run(solver, lambda theta: theta - 3.0, np.zeros(1), 60).round(6).tolist()
    [3.0]
    """
    rounds = _validate.integer(minimum=1, rounds=rounds)
    state = solver.init(np.asarray(theta, dtype=np.float64))
    for _ in range(rounds):
        try:
            gradient = oracle(solver.point(state))
        except RunEnded:
            break
        state = solver.step(state, gradient)
        if callback is not None:
            callback(state)
    return solver.finish(state)


# -- step sizes --


class Schedule(Protocol):
    """The length of each step."""

    def __call__(self, k: int) -> float:
        """The length of step k = 1, 2, …"""


@dataclass(frozen=True)
class Constant:
    """Steps of one length.

    Args:
        size: α, above 0.
    """

    size: float

    def __post_init__(self) -> None:
        _validate.positive(size=self.size)

    def __call__(self, k: int) -> float:
        """The length of step k."""
        return self.size


@dataclass(frozen=True)
class Power:
    """Steps of length α₀·k^(−β).

    Args:
        first: α₀, above 0.
        power: β in [0, 1]. Source: element-level paper, Theorem 1, with β in (½, 1).
    """

    first: float
    power: float = 0.5

    def __post_init__(self) -> None:
        _validate.positive(first=self.first)
        _validate.probability(power=self.power)

    def __call__(self, k: int) -> float:
        """The length of step k."""
        return float(self.first * k**-self.power)


@dataclass(frozen=True)
class StronglyConvex:
    """Steps of length 2/(μ(k + 1 + shift)), for μ-strongly convex losses.

    Args:
        strength: μ, above 0.
        shift: delays the decrease, so that the first steps are no longer than 2/(μ·shift).
    """

    strength: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        _validate.positive(strength=self.strength)
        _validate.non_negative(shift=self.shift)

    def __call__(self, k: int) -> float:
        """The length of step k."""
        return 2 / (self.strength * (k + 1 + self.shift))


# -- averages --


class Average(Protocol):
    """Which point the iterates become: each is weighed against all before it."""

    def weight(self, k: int) -> float:
        """The share of iterate k = 1, 2, … in the average of the first k."""


@dataclass(frozen=True)
class Uniform:
    """The mean of all iterates."""

    def weight(self, k: int) -> float:
        """1/k."""
        return 1 / k


@dataclass(frozen=True)
class Weighted:
    """The mean with weights that grow like k^power.

    Args:
        power: at least 0; 0 is :class:`Uniform`, 1 forgets the start as needed by steps 2/(μk).
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        _validate.non_negative(power=self.power)

    def weight(self, k: int) -> float:
        """(power + 1)/(power + k): the weights are those of k(k+1)…(k+power−1)."""
        return (self.power + 1) / (self.power + k)


@dataclass(frozen=True)
class Last:
    """The last iterate."""

    def weight(self, k: int) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class Tail:
    """The mean of the iterates after the first ones.

    Args:
        begin: how many are left out, at least 0.
    """

    begin: int

    def __post_init__(self) -> None:
        _validate.integer(minimum=0, begin=self.begin)

    def weight(self, k: int) -> float:
        """1 up to the first that counts, then as of a mean."""
        return 1 / max(k - self.begin, 1)


@dataclass(frozen=True)
class RandomIterate:
    """One iterate, chosen uniformly at random.

    Args:
        chosen: its number, from 1, drawn beforehand: see :meth:`draw`.
    """

    chosen: int

    def __post_init__(self) -> None:
        _validate.integer(minimum=1, chosen=self.chosen)

    @staticmethod
    def draw(rounds: int, generator: np.random.Generator) -> RandomIterate:
        """One of so many iterates."""
        return RandomIterate(int(generator.integers(1, rounds + 1)))

    def weight(self, k: int) -> float:
        """1 up to the chosen one, 0 after it."""
        return float(k <= self.chosen)


@dataclass(frozen=True)
class DecreasingRestart:
    """One restart with falling steps, for smooth, strongly convex losses: both lengths and weights.

    First steps of 1/(2·smoothness), which forget the start exponentially fast, and count for nothing;
    from the middle of the run on 2/(μ·(κ + j)), j = 0, 1, …, weighed with (κ + j)², κ = 4·smoothness/μ.
    Runs of at most 2·smoothness/μ rounds have the first kind of steps only, with growing weights.
    Use it twice: ``Sgd(restart, domain, restart)``.

    Args:
        smoothness: H, the largest curvature.
        strength: μ, the least curvature, above 0 and at most H.
        rounds: T, how many steps there will be.

    Raises:
        ParameterError: if a value is out of range.

    Source: Levy et al., Algorithm 3 (ii) and Proposition 3; Stich, *Unified optimal analysis of the
    (stochastic) gradient method*, 2019, Lemma 3: excess O(H·D²·exp(−μT/4H) + σ²/(μT)).

    >>> restart = DecreasingRestart(1.0, 0.5, 10)
    >>> [round(restart(k), 2) for k in (1, 5, 6, 10)]
    [0.5, 0.5, 0.5, 0.33]
    """

    smoothness: float
    strength: float
    rounds: int

    def __post_init__(self) -> None:
        _validate.positive(smoothness=self.smoothness)
        _validate.positive(strength=self.strength)
        _validate.integer(minimum=1, rounds=self.rounds)
        if self.strength > self.smoothness:
            raise ParameterError(
                f"strength must be at most smoothness, not {self.strength!r} above "
                f"{self.smoothness!r}: no loss has a least curvature above its largest."
            )

    @property
    def _first(self) -> int:
        """The number of steps before the restart."""
        short = self.rounds <= 2 * self.smoothness / self.strength
        return self.rounds if short else self.rounds // 2

    def __call__(self, k: int) -> float:
        """The length of step k."""
        if k <= self._first:
            return 1 / (2 * self.smoothness)
        return 2 / (4 * self.smoothness + self.strength * (k - self._first - 1))

    def weight(self, k: int) -> float:
        """The share of iterate k in the average of those so far."""
        if self._first == self.rounds:
            kept = 1 - self.strength / (2 * self.smoothness)
            return (1 - kept) / (1 - kept**k)
        if k <= self._first:
            return 1.0
        condition, j = 4 * self.smoothness / self.strength, k - self._first - 1
        total = (j + 1) * condition**2 + condition * j * (j + 1) + j * (j + 1) * (2 * j + 1) / 6
        return (condition + j) ** 2 / total


# -- solvers --


@dataclass(frozen=True)
class Steps:
    """Where a run of steps stands.

    Args:
        theta: the iterate, (p,).
        average: of the iterates after each step so far, (p,).
        done: how many steps there were.
        squares: the sum of squared gradients, (p,), where steps need it.
    """

    theta: FloatArray
    average: FloatArray
    done: int = 0
    squares: FloatArray = field(default_factory=lambda: np.zeros(0))

    def moved(self, theta: FloatArray, average: Average, **changed: Any) -> Steps:
        """After a step to θ."""
        share = average.weight(self.done + 1)
        mean = self.average + share * (theta - self.average)
        return replace(self, theta=theta, average=mean, done=self.done + 1, **changed)


@dataclass(frozen=True)
class Sgd:
    """Projected (stochastic) gradient descent.

    Args:
        schedule: the lengths of steps.
        domain: what iterates are projected to.
        average: what the iterates become in the end.

    Source: element-level paper, (14) and Theorem 1; user-level papers, with their averages.

    >>> from dpgrain.optimize import Ball
    >>> solver = Sgd(Power(1.0), Ball(1.0), Last())
    >>> run(solver, lambda theta: theta - 3.0, np.zeros(1), 100).tolist()
    [1.0]
    """

    schedule: Schedule
    domain: Domain = EVERYWHERE
    average: Average = Uniform()

    def init(self, theta: FloatArray) -> Steps:
        """The state before the first step."""
        start = self.domain.project(theta)
        return Steps(start, start)

    def point(self, state: Steps) -> FloatArray:
        """The iterate."""
        return state.theta

    def step(self, state: Steps, gradient: FloatArray) -> Steps:
        """One projected step."""
        moved = state.theta - self.schedule(state.done + 1) * gradient
        return state.moved(self.domain.project(moved), self.average)

    def finish(self, state: Steps) -> FloatArray:
        """The average."""
        return state.average


@dataclass(frozen=True)
class Adagrad:
    """Steps of a length of its own for each coordinate: scale/√(sum of its squared gradients).

    What is computed from noisy gradients is public already, so adaptive steps cost no privacy, and they
    need not know the scale of any feature.

    Args:
        scale: about how far the solution is from the start in each coordinate, above 0.
        domain: what iterates are projected to (in the l2 norm).
        average: what the iterates become in the end.
        floor: the least sum of squares: what the noise alone would leave after one round, say.

    Source: Duchi, Hazan, Singer, *Adaptive subgradient methods*, JMLR 2011.

    >>> solver = Adagrad(1.0)
    >>> run(solver, lambda theta: theta - 3.0, np.zeros(1), 2000).round(1).tolist()
    [3.0]
    """

    scale: float = 1.0
    domain: Domain = EVERYWHERE
    average: Average = Weighted(3.0)
    floor: float = 1e-30

    def __post_init__(self) -> None:
        _validate.positive(scale=self.scale)
        _validate.positive(floor=self.floor)

    def init(self, theta: FloatArray) -> Steps:
        """The state before the first step."""
        start = self.domain.project(theta)
        return Steps(start, start, 0, np.full(start.shape, self.floor))

    def point(self, state: Steps) -> FloatArray:
        """The iterate."""
        return state.theta

    def step(self, state: Steps, gradient: FloatArray) -> Steps:
        """One step, shorter where gradients were larger."""
        squares = state.squares + gradient**2
        moved = state.theta - self.scale * gradient / np.sqrt(squares)
        return state.moved(self.domain.project(moved), self.average, squares=squares)

    def finish(self, state: Steps) -> FloatArray:
        """The average."""
        return state.average


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

    >>> solver = CoinBetting()
    >>> run(solver, lambda theta: theta - 3.0, np.zeros(1), 3000).round(1).tolist()
    [3.0]
    """

    wealth: float = 1.0
    average: Average = Weighted(3.0)

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


# -- losses that are not convex --


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

"""Schedules: rules for the step sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpgrain import _validate
from dpgrain.errors import ParameterError


class Schedule(Protocol):
    """Protocol of a function from steps to their sizes."""

    def __call__(self, k: int) -> float:
        """Return the size of step k = 1, 2, …"""


@dataclass(frozen=True)
class Constant:
    """Steps of constant size.

    Args:
        size: the step size α, above 0.

    Raises:
        ParameterError: if the size is not above 0.

    >>> [Constant(0.5)(k) for k in (1, 2, 100)]
    [0.5, 0.5, 0.5]
    """

    size: float

    def __post_init__(self) -> None:
        _validate.positive(size=self.size)

    def __call__(self, k: int) -> float:
        """Return the size of step k."""
        return self.size


@dataclass(frozen=True)
class Power:
    """Steps of size α₀·k^(−β).

    Args:
        first: the size α₀ of the first step, above 0.
        power: the power β, in [0, 1]. Source: element-level paper, Theorem 1, with β in (½, 1).

    Raises:
        ParameterError: if a value is out of range.

    >>> [Power(1.0, 0.5)(k) for k in (1, 4, 100)]
    [1.0, 0.5, 0.1]
    """

    first: float
    power: float = 0.5

    def __post_init__(self) -> None:
        _validate.positive(first=self.first)
        _validate.probability(power=self.power)

    def __call__(self, k: int) -> float:
        """Return the size of step k."""
        return float(self.first * k**-self.power)


@dataclass(frozen=True)
class StronglyConvex:
    """Steps of size 2/(μ(k + 1 + shift)), for μ-strongly convex losses.

    Args:
        strength: the smallest curvature μ, above 0.
        shift: a delay of the decrease, so that the first steps are at most 2/(μ·shift).

    Raises:
        ParameterError: if a value is out of range.

    >>> [round(StronglyConvex(0.5)(k), 2) for k in (1, 3, 9)]
    [2.0, 1.0, 0.4]
    """

    strength: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        _validate.positive(strength=self.strength)
        _validate.non_negative(shift=self.shift)

    def __call__(self, k: int) -> float:
        """Return the size of step k."""
        return 2 / (self.strength * (k + 1 + self.shift))


@dataclass(frozen=True)
class DecreasingRestart:
    """Sizes and weights of a restart with decreasing steps; strongly convex losses.

    The first steps have size 1/(2·smoothness); they forget the start exponentially fast, and their
    iterates have weight 0. From the middle of the run, steps have size 2/(μ·(κ + j)), j = 0, 1, …,
    and weights (κ + j)², where κ = 4·smoothness/μ. Runs of at most 2·smoothness/μ rounds only have
    steps of the first type, with growing weights. The object is both a schedule and an average:
    ``Sgd(restart, domain, restart)``.

    Args:
        smoothness: H, the largest curvature.
        strength: μ, the smallest curvature, above 0 and at most H.
        rounds: T, the total number of steps.

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
        check_curvatures(self.strength, self.smoothness)

    @property
    def _first(self) -> int:
        """Number of steps before the restart."""
        short = self.rounds <= 2 * self.smoothness / self.strength
        return self.rounds if short else self.rounds // 2

    def __call__(self, k: int) -> float:
        """Return the size of step k."""
        if k <= self._first:
            return 1 / (2 * self.smoothness)
        return 2 / (4 * self.smoothness + self.strength * (k - self._first - 1))

    def weight(self, k: int) -> float:
        """Return the share of iterate k in the average of the first k."""
        if self._first == self.rounds:
            remaining = 1 - self.strength / (2 * self.smoothness)
            return (1 - remaining) / (1 - remaining**k)
        if k <= self._first:
            return 1.0
        condition, j = 4 * self.smoothness / self.strength, k - self._first - 1
        total = (j + 1) * condition**2 + condition * j * (j + 1) + j * (j + 1) * (2 * j + 1) / 6
        return (condition + j) ** 2 / total


def check_curvatures(strength: float, smoothness: float) -> None:
    """Reject a smallest curvature above the largest one."""
    if strength > smoothness:
        raise ParameterError(
            f"strength must be at most smoothness, {smoothness!r}, not {strength!r}, because they are "
            "the smallest and the largest curvature."
        )

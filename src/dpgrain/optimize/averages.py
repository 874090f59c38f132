"""Averages: rules that combine iterates into the solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpgrain import _validate


class Average(Protocol):
    """Protocol of the weight of each iterate relative to all before it."""

    def weight(self, k: int) -> float:
        """Return the share of iterate k = 1, 2, … in the average of the first k."""


@dataclass(frozen=True)
class Uniform:
    """The mean of all iterates.

    >>> [Uniform().weight(k) for k in (1, 2, 4)]
    [1.0, 0.5, 0.25]
    """

    def weight(self, k: int) -> float:
        """Return 1/k."""
        return 1 / k


@dataclass(frozen=True)
class Weighted:
    """Weighted mean with weights that grow like k^power.

    Args:
        power: the power, at least 0; 0 is :class:`Uniform`, and 1 forgets the start fast enough for
            steps 2/(μk).

    Raises:
        ParameterError: if the power is below 0.

    >>> [round(Weighted().weight(k), 2) for k in (1, 2, 4)]
    [1.0, 0.67, 0.4]
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        _validate.non_negative(power=self.power)

    def weight(self, k: int) -> float:
        """Return (power + 1)/(power + k), for weights ∝ k(k+1)…(k+power−1)."""
        return (self.power + 1) / (self.power + k)


@dataclass(frozen=True)
class Last:
    """The last iterate.

    >>> from dpgrain.optimize import Constant, Sgd, run
    >>> steps = Sgd(Constant(0.5), average=Last()), Sgd(Constant(0.5), average=Uniform())
    >>> [run(each, lambda theta: theta - 3.0, np.zeros(1), 20).round(1).tolist() for each in steps]
    [[3.0], [2.9]]
    """

    def weight(self, k: int) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class Tail:
    """Mean of the iterates after the first ones.

    Args:
        begin: the number of excluded iterates, at least 0.

    Raises:
        ParameterError: if ``begin`` is not an integer of at least 0.

    >>> [Tail(2).weight(k) for k in (1, 2, 3, 4)]
    [1.0, 1.0, 1.0, 0.5]
    """

    begin: int

    def __post_init__(self) -> None:
        _validate.integer(minimum=0, begin=self.begin)

    def weight(self, k: int) -> float:
        """Return 1 up to the first included iterate, then the share in their mean."""
        return 1 / max(k - self.begin, 1)


@dataclass(frozen=True)
class RandomIterate:
    """One iterate, chosen uniformly at random.

    Args:
        chosen: the number of the iterate, from 1, drawn in advance, for example by :meth:`draw`.

    Raises:
        ParameterError: if ``chosen`` is not a positive integer.

    >>> [RandomIterate(2).weight(k) for k in (1, 2, 3)]
    [1.0, 1.0, 0.0]
    >>> RandomIterate.draw(10, np.random.default_rng(0)).chosen
    9
    """

    chosen: int

    def __post_init__(self) -> None:
        _validate.integer(minimum=1, chosen=self.chosen)

    @staticmethod
    def draw(rounds: int, generator: np.random.Generator) -> RandomIterate:
        """Draw one of ``rounds`` iterates.

        Raises:
            ParameterError: if ``rounds`` is not a positive integer.
        """
        rounds = _validate.integer(minimum=1, rounds=rounds)
        return RandomIterate(int(generator.integers(1, rounds + 1)))

    def weight(self, k: int) -> float:
        """Return 1 up to the chosen iterate, and 0 after it."""
        return float(k <= self.chosen)

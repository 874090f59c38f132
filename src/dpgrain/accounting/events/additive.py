"""Events of Gaussian, Laplace or two-sided geometric noise on a clipped sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from dpgrain import _validate
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.events.base import Event, Neighbours
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.rounding import product_up
from dpgrain.errors import ParameterError
from dpgrain.noise.additive_noise import GAUSSIAN, LAPLACE, AdditiveNoise
from dpgrain.units import Level


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise on each of ``count`` clipped sums.

    Args:
        noise_multiplier: noise sd ÷ clipping bound, the same for every coordinate; if bounds differ
            by cell, each cell's noise is scaled by its own bound.
        contribution: the effect of one person's units on the sum.
        count: the number of such sums published.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: μ-GDP with μ = √count · sensitivity / noise_multiplier, exact for every ε.
    Source: element-level paper, eq. (9), with the exact curve instead of its eq. (1); docs/theory,
    "The Gaussian curve".

    >>> round(Gaussian(3.7306).epsilon(1e-5), 3)
    1.0
    >>> round(Gaussian(3.7306).epsilon(1e-5, units=4), 3)
    2.155
    """

    law: ClassVar[AdditiveNoise] = GAUSSIAN

    noise_multiplier: float
    contribution: Contribution = field(default_factory=Contribution)
    count: int = 1

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.integer(minimum=1, count=self.count)

    @property
    def level(self) -> Level:
        return self.contribution.block

    def cost(self, neighbours: Neighbours) -> Loss:
        distance = neighbours.move(self.contribution)
        return Loss(mu=math.sqrt(self.count) * distance / self.noise_multiplier)


@dataclass(frozen=True)
class Laplace(Event):
    """Two-sided geometric (or Laplace) noise on each of ``count`` l1-clipped sums.

    Args:
        noise_multiplier: noise scale ÷ clipping bound.
        contribution: the effect of one person's units on the sum, with ``norm="l1"``.
        count: the number of such sums published.

    Raises:
        ParameterError: if a value is out of range, or the norm of the contribution is not l1.

    Formal guarantee: ε-DP with ε = count · l1 sensitivity / noise_multiplier. Source: element-level
    paper, eq. (6); docs/theory, "Noise".

    >>> Laplace(2.0).epsilon(units=3)
    1.5
    """

    law: ClassVar[AdditiveNoise] = LAPLACE

    noise_multiplier: float
    contribution: Contribution = field(default_factory=lambda: Contribution(norm="l1"))
    count: int = 1

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.integer(minimum=1, count=self.count)
        if self.contribution.norm != "l1":
            raise ParameterError("contribution must have norm='l1' with Laplace noise.")

    @property
    def level(self) -> Level:
        return self.contribution.block

    def cost(self, neighbours: Neighbours) -> Loss:
        distance = neighbours.move(self.contribution)
        one = distance / self.noise_multiplier
        pure = product_up(self.count, distance, over=self.noise_multiplier)
        return Loss(pure=pure, rho=self.count * one * one / 2)


#: An event of additive noise.
Additive: TypeAlias = Gaussian | Laplace
#: The event of each additive noise distribution, by name.
ADDITIVE: dict[str, type[Additive]] = {kind.law.name: kind for kind in (Gaussian, Laplace)}

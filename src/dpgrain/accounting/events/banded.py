"""Sums over samples of parts of the people in turn, under Gaussian noise with bands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpgrain import _validate
from dpgrain.accounting.events.base import Asked, Event, Parallel
from dpgrain.accounting.events.sampled import SampledGaussian
from dpgrain.accounting.losses.loss import Loss
from dpgrain.errors import ParameterError
from dpgrain.units import Level

# A share of all people is at most 1, but for the rounding of a product.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class BandedGaussian(Event):
    """Clipped sums under banded Gaussian noise, each over a sample of the part in its turn.

    Args:
        noise_multiplier: sd of the noise before it is correlated ÷ clipping bound.
        sampling_rate: the public probability q to be in the sample of a round, whose part is not known.
        rounds: how many rounds there are.
        bands: the number b of bands, and of parts of the people, which have their turns one by one.
        sampling: ``"pairs"``: every block of the part is drawn on its own; ``"users"``: every user.
        level: the unit whose data makes one clipped block.
        max_elements: the number of elements that a user keeps, where the run enforces it.

    Raises:
        ParameterError: if a value is out of range, or b·q is above 1.

    Formal guarantee: that of ``SampledGaussian`` with ⌈rounds/b⌉ rounds at the rate b·q, for all units
    of one person; for k whole users k steps of one. It holds where people are put into parts whatever
    their data are, and each column of the lower triangular matrix that correlates noise has norm at
    most 1 and at most b entries. Source: Choquette-Choo et al. 2023, "(Amplified) Banded Matrix
    Factorization", Theorem 4; docs/theory, "Banded noise".

    >>> one = BandedGaussian(1.0, 0.001, 10_000, bands=8)
    >>> one.epsilon(1e-6) == SampledGaussian(1.0, 0.008, 1250).epsilon(1e-6)
    True
    """

    noise_multiplier: float
    sampling_rate: float
    rounds: int
    bands: int
    sampling: Literal["pairs", "users"] = "pairs"
    level: Level = "element"
    max_elements: int | None = None

    def __post_init__(self) -> None:
        _validate.integer(minimum=1, bands=self.bands)
        rate = _validate.probability(sampling_rate=self.sampling_rate)
        if self.bands * rate > 1 + _ROUNDING:
            raise ParameterError(
                f"bands = {self.bands} must be at most 1/sampling_rate = {1 / rate:g}, because "
                "each part is sampled at bands times the rate when its turn comes.",
                name="bands",
            )
        _validate.integer(minimum=1, rounds=self.rounds)
        # Making the event of one part checks the rest.
        _ = self.of_a_part

    @property
    def part_rate(self) -> float:
        """The probability that a block, or a user, of the part whose turn it is, is in the sample."""
        return min(1.0, self.bands * self.sampling_rate)

    @property
    def of_a_part(self) -> SampledGaussian:
        """The event of the people of one part, the one with the most turns."""
        return SampledGaussian(
            self.noise_multiplier,
            self.part_rate,
            math.ceil(self.rounds / self.bands),
            self.sampling,
            "shared",
            self.level,
            max_elements=self.max_elements,
        )

    def cost(self, asked: Asked) -> Loss:
        # Several users may be in several parts, whose columns overlap.
        return Parallel((self.of_a_part,)).cost(asked)

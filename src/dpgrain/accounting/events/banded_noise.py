"""Sums with banded Gaussian noise, over samples of one part of the people each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpgrain import _validate
from dpgrain.accounting.events.base import Asked, Event, Parallel
from dpgrain.accounting.events.subsampling import SampledGaussian
from dpgrain.accounting.losses.loss import Loss
from dpgrain.errors import ParameterError
from dpgrain.units import Level

# Allowed excess of a share over 1, for the rounding of a product.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class BandedGaussian(Event):
    """Clipped sums with banded Gaussian noise, over samples of one part of the people.

    Args:
        noise_multiplier: sd of the noise before it is correlated ÷ clipping bound.
        sampling_rate: the public probability q to be in the sample of a round, over all parts.
        rounds: the number of rounds.
        bands: the number b of bands, and of parts of the people, used in rotation.
        sampling: ``"pairs"``: every block of the part is sampled independently; ``"users"``: every
            user.
        level: the unit that contributes one clipped block.
        max_elements: the maximum number of elements per user, if the run enforces one.

    Raises:
        ParameterError: if a value is out of range, or b·q is above 1.

    Formal guarantee: that of ``SampledGaussian`` with ⌈rounds/b⌉ rounds at the rate b·q, for all
    units of one person; for k whole users k steps of one. It requires that people are assigned to
    parts independently of their data, and that each column of the lower triangular matrix that
    correlates noise has norm at most 1 and at most b entries. Source: Choquette-Choo et al. 2023,
    "(Amplified) Banded Matrix Factorization", Theorem 4; docs/theory, "Banded noise".

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
        # The event of one part validates the other fields.
        _ = self.of_a_part

    @property
    def part_rate(self) -> float:
        """The probability that a block, or a user, of the active part is sampled."""
        return min(1.0, self.bands * self.sampling_rate)

    @property
    def of_a_part(self) -> SampledGaussian:
        """The event of the people of one part, the one with the most rounds."""
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
        # Several users may be in several parts with overlapping columns.
        return Parallel((self.of_a_part,)).cost(asked)

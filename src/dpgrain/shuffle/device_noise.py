"""The share of the noise that each device adds, and the law of all shares together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from dpgrain.accounting import Binomial, Event, Poisson
from dpgrain.noise import BinomialLaw, PoissonLaw


@dataclass(frozen=True)
class Coins:
    """Binomial noise: each device sends the outcomes of so many coins.

    Args:
        count: b, the coins of a device and coordinate.
        probability: p of a one.
    """

    count: int
    probability: float = 0.5

    def law(self, devices: int) -> BinomialLaw:
        """The law of the sum of some devices' noise, in one coordinate."""
        return BinomialLaw(devices * self.count, self.probability)

    def largest(self, grid: int) -> int:
        """The largest count that a device can send for a coordinate: g + b."""
        return grid + self.count

    def messages(self, grid: int) -> float:
        """The one-bit messages of a device for a coordinate: g + b."""
        return grid + self.count

    def event(self, devices: int, **public: Any) -> Event:
        """What the noise of some devices is to the accountant."""
        return Binomial(devices * self.count, self.probability, **public)

    @staticmethod
    def for_variance(variance: float) -> Coins:
        """Fair coins with at least this variance."""
        return Coins(max(1, math.ceil(4 * variance)))


@dataclass(frozen=True)
class Arrivals:
    """Poisson noise: each device sends a Poisson number of ones besides its own, and nothing else.

    Args:
        mean: of a device and coordinate.
    """

    mean: float

    def law(self, devices: int) -> PoissonLaw:
        """The law of the sum of some devices' noise, in one coordinate."""
        return PoissonLaw(devices * self.mean)

    def largest(self, grid: int) -> int:
        """A count that no device exceeds but for a probability below 2^−1000 (Bennett)."""
        return grid + math.ceil(4 * self.mean) + 4096

    def messages(self, grid: int) -> float:
        """The messages of a device for a coordinate, on average: about g/2 of its own, and noise."""
        return grid / 2 + self.mean

    def event(self, devices: int, **public: Any) -> Event:
        """What the noise of some devices is to the accountant."""
        return Poisson(devices * self.mean, **public)

    @staticmethod
    def for_variance(variance: float) -> Arrivals:
        """Noise of this variance."""
        return Arrivals(variance)


DeviceNoise: TypeAlias = Coins | Arrivals

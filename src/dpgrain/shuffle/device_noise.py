"""Each device's share of the noise, and the distribution of all shares together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from dpgrain.accounting import Binomial, Poisson
from dpgrain.noise.counts import BinomialDistribution, PoissonDistribution


@dataclass(frozen=True)
class BinomialNoise:
    """Binomial noise: each device sends ``count`` random bits for each coordinate."""

    count: int
    probability: float = 0.5

    def law(self, devices: int) -> BinomialDistribution:
        """Return the distribution of the summed noise of some devices, in one coordinate."""
        return BinomialDistribution(devices * self.count, self.probability)

    def largest(self, grid: int) -> int:
        """Return g + b, the largest count of a device for a coordinate."""
        return grid + self.count

    def messages(self, grid: int) -> float:
        """Return g + b, the number of one-bit messages of a device for a coordinate."""
        return grid + self.count

    def event(self, devices: int, **public: Any) -> Binomial:
        """Return the event of the noise of some devices."""
        return Binomial(devices * self.count, self.probability, **public)

    @staticmethod
    def for_variance(variance: float) -> BinomialNoise:
        """Return the fewest fair bits with at least this variance."""
        return BinomialNoise(max(1, math.ceil(4 * variance)))


@dataclass(frozen=True)
class PoissonNoise:
    """Poisson noise: each device sends a Poisson number of ones, plus its data.

    Args:
        mean: the mean number of these ones of a device for a coordinate.

    >>> noise = PoissonNoise(2.0)
    >>> noise.law(devices=1000).variance, noise.messages(grid=10)
    (2000.0, 7.0)
    >>> BinomialNoise(8).messages(grid=10)
    18
    """

    mean: float

    def law(self, devices: int) -> PoissonDistribution:
        """Return the distribution of the summed noise of some devices, in one coordinate."""
        return PoissonDistribution(devices * self.mean)

    def largest(self, grid: int) -> int:
        """Return a count that a device exceeds with a probability below 2^−1000 (Bennett)."""
        return grid + math.ceil(4 * self.mean) + 4096

    def messages(self, grid: int) -> float:
        """Return a device's mean number of messages per coordinate: about g/2, and noise."""
        return grid / 2 + self.mean

    def event(self, devices: int, **public: Any) -> Poisson:
        """Return the event of the noise of some devices."""
        return Poisson(devices * self.mean, **public)

    @staticmethod
    def for_variance(variance: float) -> PoissonNoise:
        """Return noise of this variance."""
        return PoissonNoise(variance)


DeviceNoise: TypeAlias = BinomialNoise | PoissonNoise

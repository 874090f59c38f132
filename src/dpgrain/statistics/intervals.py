"""Intervals of a noisy number, of the unclipped total and of the share of clipped units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dpgrain._types import BoolArray, FloatArray
from dpgrain.noise.additive_noise import noise_by_name
from dpgrain.units import Law


def quantile_of(noise: str, level: float) -> float:
    """Return the quantile of a noise distribution, in standard deviations."""
    return noise_by_name(noise).quantile(level)


def tail_of(noise: Law, deviations: Any, terms: int = 1) -> FloatArray:
    """Return the probability that a sum of ``terms`` draws exceeds some of its sds."""
    return noise_by_name(noise).tail(np.asarray(deviations, dtype=np.float64), terms)


def half_width(noise: str) -> float:
    """Return the half-width of a 95% interval, in standard deviations of the noise."""
    return quantile_of(noise, 0.975)


def radius(noise: str, std_error: FloatArray) -> FloatArray:
    """Return the half-widths of 95% intervals, (V,)."""
    if noise != "geometric":
        return half_width(noise) * std_error
    # The variance is 2d/(1−d)², and more than t has probability 2dᵗ⁺¹/(1+d).
    inverse = 1 / np.maximum(std_error, np.finfo(np.float64).tiny ** 0.25) ** 2
    fall = 1 / (1 + inverse + np.sqrt(inverse * (inverse + 2)))
    passed = np.log(0.025 * (1 + fall)) / np.log(fall)
    return np.asarray(np.maximum(np.ceil(passed) - 1, 0.0))


def at_least(estimate: FloatArray, std_error: FloatArray, noise: str) -> FloatArray:
    """Return 95% lower bounds on unclipped totals of non-negative numbers, (V,).

    Proof: docs/theory/sums.md, "What clipping leaves".
    """
    return np.maximum(estimate - quantile_of(noise, 0.95) * std_error, 0.0)


def ratio_interval(
    upper: FloatArray,
    lower: FloatArray,
    radius: FloatArray,
    upper_terms: Any = 1.0,
    lower_terms: Any = 1.0,
) -> tuple[FloatArray, FloatArray]:
    """Return Fieller's interval for A/(A+B) in [0, 1], from independent noisy A and B.

    u is in the interval if |(1−u)A − uB| ≤ radius·√(a(1−u)² + bu²), for a and b noisy terms.
    """
    total, spread = upper + lower, radius**2
    first = total**2 - (upper_terms + lower_terms) * spread
    middle, last = total * upper - upper_terms * spread, upper**2 - upper_terms * spread
    root = np.sqrt(np.maximum(middle**2 - first * last, 0.0))
    known = (first > 0) & (total > 0)
    divisor = np.where(known, first, 1.0)
    low = np.where(known, (middle - root) / divisor, 0.0)
    high = np.where(known, (middle + root) / divisor, 1.0)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def root_interval(
    upper: FloatArray,
    lower: FloatArray,
    upper_moves: FloatArray,
    lower_moves: FloatArray,
    radius: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return Fieller's interval for A/G in [−1, 1], where A and G share noise, (V,).

    r is in the interval if |A − rG| ≤ radius·‖∂A − r∂G‖, for derivatives (V, C) by C noisy numbers.
    """
    spread = radius**2
    first = lower**2 - spread * (lower_moves**2).sum(axis=1)
    middle = upper * lower - spread * (upper_moves * lower_moves).sum(axis=1)
    last = upper**2 - spread * (upper_moves**2).sum(axis=1)
    root = np.sqrt(np.maximum(middle**2 - first * last, 0.0))
    divisor = np.where(first > 0, first, 1.0)
    low = np.where(first > 0, (middle - root) / divisor, -1.0)
    high = np.where(first > 0, (middle + root) / divisor, 1.0)
    return np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0)


def blank(size: int) -> FloatArray:
    """Return unknown numbers, (V,)."""
    return np.full(size, np.nan)


def as_column(values: FloatArray) -> Any:
    """Return an Arrow column with nulls for unknown and infinite numbers."""
    import pyarrow as pa

    return pa.array(np.where(np.isinf(values), np.nan, values), from_pandas=True)


# Largest upper limit on the share of clipped units that needs no warning.
_SMALL = 0.05
# Probability that each limit is valid, and that a number above the noise is not noise: the
# best bound leaves about as many clipped units as the noise of this number hides.
_LEVEL, _PROBABLE = 0.95, 0.9


@dataclass(frozen=True, eq=False)
class ClippedUnits:
    """Noisy numbers of the units with data in each group, of weight 1/√k for k groups."""

    complete: FloatArray  # (V,) unclipped units
    clipped: FloatArray  # (V,)
    std_error: float
    noise: Law = "gaussian"  # with Laplace noise, the weight is 1/k

    @property
    def _limits(self) -> tuple[FloatArray, FloatArray]:
        # Sums of two Laplace variables have the wider Gaussian quantile at most.
        quantile = max(quantile_of(law, _LEVEL) for law in ("gaussian", self.noise))
        radius = np.full(self.clipped.size, quantile * self.std_error)
        return ratio_interval(self.clipped, self.complete, radius)

    @property
    def low(self) -> FloatArray:
        """95% lower limits on the shares of clipped units, (V,)."""
        return self._limits[0]

    @property
    def high(self) -> FloatArray:
        """95% upper limits on the shares of clipped units, (V,)."""
        return self._limits[1]

    @property
    def is_small(self) -> BoolArray:
        """True for shares of at most 5% with a noisy number that is probably noise, (V,)."""
        noisy = self.clipped <= quantile_of(self.noise, _PROBABLE) * self.std_error
        return np.asarray((self.high <= _SMALL) & noisy)

    def take(self, places: Any) -> Self:
        """Return the numbers of the groups at these indices."""
        return replace(self, complete=self.complete[places], clipped=self.clipped[places])

"""Limits on the share of clipped units, from noisy numbers of complete and of clipped units.

Both numbers are one part of a release and are charged with it (docs/theory, section 3).
Everything here is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dpgrain._types import BoolArray, FloatArray
from dpgrain.statistics.intervals import quantile_of, ratio_interval
from dpgrain.units import Law

# Largest upper limit on the share of clipped units that needs no warning.
_SMALL = 0.05
# Probability that each limit is valid, and that a number above the noise is not noise: the
# best bound leaves about as many clipped units as the noise of this number hides.
_LEVEL, _PROBABLE = 0.95, 0.9


@dataclass(frozen=True, eq=False)
class ClippedUnits:
    """Noisy numbers of the units with data in each group, of weight 1/√k for k groups.

    Args:
        complete: (V,) noisy numbers of unclipped units.
        clipped: (V,) noisy numbers of clipped units.
        noise: the noise distribution; the weight is 1/k with Laplace noise.

    >>> units = ClippedUnits(np.array([990.0, 0.0]), np.array([5.0, 160.0]), 4.0)
    >>> units.low.round(3), units.high.round(3), units.is_small
    (array([0.  , 0.96]), array([0.012, 1.   ]), array([ True, False]))
    """

    complete: FloatArray
    clipped: FloatArray
    std_error: float
    noise: Law = "gaussian"

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

"""Total error of a published mean: from noise, clipped users, and their number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain._types import FloatArray

#: Minimum probability that a published error covers the true error.
CONFIDENCE = 0.95
# Normal quantiles: above the first with probability 2.5%, and outside ± the second with 0.833%. Two
# numbers of users, one bound on the removed sum and one norm of noise fail together with at most
# 5%.
_ONE_SIDED, _TWO_SIDED = 1.9600, 2.6383
# Standard deviations of noise by which the noisy number of users may differ from a stated number,
# which is then used as the number of users with records.
_CLEAR_SDS = 2.0


@dataclass(frozen=True)
class UserCount:
    """Number of users with records, or the sum of their weights, from a noisy count."""

    noisy: float
    sd: float  # 0 for an exact number
    stated: int | None = None  # no error depends on it
    least: float = 1.0  # lower bound on a sum of weights

    @property
    def divisor(self) -> int:
        """Divisor of sums: the stated number, unless the noisy number clearly differs."""
        if self.stated is not None and abs(self.noisy - self.stated) <= _CLEAR_SDS * self.sd:
            return self.stated
        return max(round(self.noisy), 1)

    @property
    def divisor_sd(self) -> float:
        """Standard deviation of the divisor; 0 for the stated number."""
        return 0.0 if self.divisor == self.stated else self.sd

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest plausible numbers of users."""
        # A released number is an integer.
        within = _TWO_SIDED * self.sd + (0.5 if self.sd else 0.0)
        return max(self.noisy - within, self.least), max(self.noisy + within, self.least)

    def clipped_norm(self, rest: FloatArray, centre: FloatArray, sd: float) -> float:
        """Bound the norm of the clipped-off part of a sum by the noisy sum ``rest``, (d,).

        Formal guarantee: if the true number of users is in :attr:`range`, the bound fails with
        probability at most 0.833%. Source: docs/theory, "The error of a mean of users".
        """
        farthest = max(float(np.linalg.norm(rest - n * centre)) for n in self.range)
        # The norm of the noise orthogonal to the true sum has a median of at least √(d − 5/3) sds.
        across = max(math.sqrt(max(len(rest) - 5 / 3, 0.0)) - _TWO_SIDED, 0.0) * sd
        return math.sqrt(max(farthest**2 - across**2, 0.0)) + _TWO_SIDED * sd

    def error(
        self,
        moved: float,  # l2 distance of the mean from the centre of sums
        noise: float,  # sd of a coordinate of the noisy sum
        dimension: int,
        clipped_norm: float = 0.0,  # bound on the norm of the removed sum
        divisor: float | None = None,  # of the sum; by default :attr:`divisor`
    ) -> float:
        """Return the largest error of a mean, with probability :data:`CONFIDENCE`.

        Formal guarantee: for any data and any stated number of users. Source: docs/theory, "The
        error of a mean of users".
        """
        least, most = self.range
        by = self.divisor if divisor is None else divisor
        off = max(abs(1 - by / least), abs(1 - by / most))
        return (
            moved * off + (noise * (math.sqrt(dimension - 0.5) + _ONE_SIDED) + clipped_norm) / least
        )

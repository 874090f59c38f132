"""The total error of a published mean: from noise, from users drawn in, and from their number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpgrain._types import FloatArray

#: The probability, at least, that an error that is published covers the true one.
CONFIDENCE = 0.95
# Quantiles of a normal number: above the first with probability 2.5%, and outside of ± the second with
# 0.833%. Two numbers of users, one bound on what is left out and one norm of noise fail together with
# at most 5%.
_ONE_SIDED, _TWO_SIDED = 1.9600, 2.6383
# Standard deviations of the noise by which the users seen may differ from a stated roster, which is
# taken for the number of users who have records up to there.
_CLEAR_SDS = 2.0


@dataclass(frozen=True)
class Number:
    """The number of users with records, as known from a noisy one.

    Args:
        found: the number with noise.
        sd: the standard deviation of the noise; 0 where the number is exact.
        stated: the stated size of the roster; None if it is not stated. No error rests on it.

    >>> [Number(found, 25.0, stated=1000).divisor for found in (700.0, 960.0, 1040.0, 1300.0)]
    [700, 1000, 1000, 1300]
    """

    found: float
    sd: float
    stated: int | None = None

    @property
    def divisor(self) -> int:
        """The number that sums are divided by: the roster, unless clearly fewer or more are there."""
        if self.stated is not None and abs(self.found - self.stated) <= _CLEAR_SDS * self.sd:
            return self.stated
        return max(round(self.found), 1)

    @property
    def divisor_sd(self) -> float:
        """The standard deviation of the divisor; 0 where it is the stated roster."""
        return 0.0 if self.divisor == self.stated else self.sd

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest number of users that are plausible."""
        # A number that is released is a whole one.
        within = _TWO_SIDED * self.sd + (0.5 if self.sd else 0.0)
        return max(self.found - within, 1.0), max(self.found + within, 1.0)

    def left_out(self, rest: FloatArray, centre: FloatArray, sd: float) -> float:
        """Return an upper bound on the norm of what clipping around a centre removed from a sum.

        Args:
            rest: (d,) the noisy sum of what it removed, and of the centre for each user.
            centre: (d,) the public centre.
            sd: the standard deviation of the noise of each coordinate.

        Formal guarantee: if the true number of users is in :attr:`range`, the bound fails with
        probability at most 0.833%. Source: docs/theory, "The error of a mean of users".
        """
        farthest = max(float(np.linalg.norm(rest - n * centre)) for n in self.range)
        # The norm of the noise across the true sum has a median of at least √(d − 5/3) sds.
        across = max(math.sqrt(max(len(rest) - 5 / 3, 0.0)) - _TWO_SIDED, 0.0) * sd
        return math.sqrt(max(farthest**2 - across**2, 0.0)) + _TWO_SIDED * sd

    def error(self, moved: float, noise: float, dimension: int, left_out: float = 0.0) -> float:
        """Return how far a mean is off at most, with the probability :data:`CONFIDENCE`.

        Args:
            moved: how far the published mean is from the centre that sums are around, l2.
            noise: the standard deviation of each coordinate of the noisy sum.
            dimension: the number of coordinates.
            left_out: an upper bound on the norm of what is left out of the sum.

        Formal guarantee: for any data, and any roster that is stated. With n users, the noise Z of
        the sum and what is left out R the mean is off by (1 − m/n)·moved + (Z − R)/n, m being the
        divisor. ‖Z‖ exceeds its median, of at most √(d − ½) sds, by no more than a normal number
        does. Source: docs/theory, "The error of a mean of users".

        >>> round(Number(1000.0, 0.0).error(5.0, 4.0, dimension=1), 4)
        0.0107
        """
        least, most = self.range
        off = max(abs(1 - self.divisor / least), abs(1 - self.divisor / most))
        return moved * off + (noise * (math.sqrt(dimension - 0.5) + _ONE_SIDED) + left_out) / least

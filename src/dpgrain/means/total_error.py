"""The total error of a published mean: from noise, from users drawn in, and from their number."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: The probability, at least, that an error that is published covers the true one.
CONFIDENCE = 0.95
# Noise, the excess and the number of users may each fail with a third of what is left of it: a normal
# number is below the first, and within the second of 0, but for that.
_ONE_SIDED, _TWO_SIDED = 2.1281, 2.3940
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

    def error(self, moved: float, noise: float, dimension: int, excess: float = 0.0) -> float:
        """Return how far a mean is off at most, with the probability :data:`CONFIDENCE`.

        Args:
            moved: how far the published mean is from the centre that sums are around, l2.
            noise: the standard deviation of each coordinate of the noisy sum.
            dimension: the number of coordinates.
            excess: how much, in all, is left out of the sum at most.

        Formal guarantee: for any data, and any roster that is stated. With n users, the noise Z of
        the sum and what is left out R the mean is off by (1 − m/n)·moved + (Z − R)/n, m being the
        divisor. ‖Z‖ exceeds its median, of at most √(d − ½) sds, by no more than a normal number
        does. Source: docs/theory, "The error of a mean of users".

        >>> round(Number(1000.0, 0.0).error(5.0, 4.0, dimension=1), 4)
        0.0113
        """
        # A number that is released is a whole one.
        within = _TWO_SIDED * self.sd + (0.5 if self.sd else 0.0)
        least, most = max(self.found - within, 1.0), max(self.found + within, 1.0)
        off = max(abs(1 - self.divisor / least), abs(1 - self.divisor / most))
        return moved * off + (noise * (math.sqrt(dimension - 0.5) + _ONE_SIDED) + excess) / least


def upper(noisy: float, sd: float) -> float:
    """Return what a number that is not negative is at most, given it with normal noise.

    Args:
        noisy: the number with noise.
        sd: the standard deviation of the noise.
    """
    return max(noisy + _ONE_SIDED * sd, 0.0)

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
    """Number of users with records, estimated from a noisy count.

    ``sd`` is 0 for an exact number. No error depends on ``stated``, the stated number of users or
    None. With weights, the number is their sum, which is ``least`` or more.

    >>> [UserCount(noisy, 25.0, stated=1000).divisor for noisy in (700.0, 960.0, 1040.0, 1300.0)]
    [700, 1000, 1000, 1300]
    """

    noisy: float
    sd: float
    stated: int | None = None
    least: float = 1.0

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
        """Return an upper bound on the norm of the clipped-off part of a sum.

        ``rest`` is the noisy sum, (d,), of the removed vectors and of the public centre per user.

        Formal guarantee: if the true number of users is in :attr:`range`, the bound fails with
        probability at most 0.833%. Source: docs/theory, "The error of a mean of users".
        """
        farthest = max(float(np.linalg.norm(rest - n * centre)) for n in self.range)
        # The norm of the noise orthogonal to the true sum has a median of at least √(d − 5/3) sds.
        across = max(math.sqrt(max(len(rest) - 5 / 3, 0.0)) - _TWO_SIDED, 0.0) * sd
        return math.sqrt(max(farthest**2 - across**2, 0.0)) + _TWO_SIDED * sd

    def error(
        self,
        moved: float,
        noise: float,
        dimension: int,
        clipped_norm: float = 0.0,
        divisor: float | None = None,
    ) -> float:
        """Return the largest error of a mean, with probability :data:`CONFIDENCE`.

        ``moved`` is the l2 distance of the published mean from the centre of sums, ``noise`` the sd
        of each coordinate of the noisy sum, and ``clipped_norm`` a bound on the norm of the removed
        sum. ``divisor`` is the divisor of the sum if it is another one.

        Formal guarantee: for any data and any stated number of users. With n users, noise Z of the
        sum, and removed sum R, the error of the mean is (1 − m/n)·moved + (Z − R)/n, where m is the
        divisor. ‖Z‖ exceeds its median, at most √(d − ½) sds, by no more than a normal number does.
        Source: docs/theory, "The error of a mean of users".

        >>> round(UserCount(1000.0, 0.0).error(5.0, 4.0, dimension=1), 4)
        0.0107
        """
        least, most = self.range
        by = self.divisor if divisor is None else divisor
        off = max(abs(1 - by / least), abs(1 - by / most))
        return (
            moved * off + (noise * (math.sqrt(dimension - 0.5) + _ONE_SIDED) + clipped_norm) / least
        )

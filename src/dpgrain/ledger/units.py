"""Prices as whole numbers, whose sums are exact in every order and in every database."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.publishing.prices import Price

# Units of a cap.
WHOLE = 1 << 60
# Units by which sums may exceed a cap, less than 10^-9 of it: caps are lower than what the promise
# allows by more than that, so that shares of 1/365 fit 365 times.
_SPARE = 1 << 30
# Largest count; what does not fit is not counted farther.
_TOO_MUCH = 1 << 61


@dataclass(frozen=True)
class Units:
    """Units of the caps of a promise: of pure ε, of the square of μ, and of the delta mass.

    Args:
        pure: the units of E, the cap on pure ε.
        mu: the units of M², the cap on the square of μ.
        leak: the units of D, the cap on delta mass.
    """

    pure: int = 0
    mu: int = 0
    leak: int = 0

    @staticmethod
    def of(price: Price, caps: Price) -> Units:
        """Return a price in units of the caps, rounded up.

        Raises:
            ParameterError: if a part of the price is negative, NaN or subnormal.

        >>> Units.of(Price(mu=0.1), Price(mu=0.2)).mu == WHOLE // 4
        True
        """
        check_price(price)
        return Units(
            _units(price.pure, caps.pure, 1),
            _units(price.mu, caps.mu, 2),
            _units(price.leak, caps.leak, 1),
        )

    def __add__(self, other: Units) -> Units:
        return Units(self.pure + other.pure, self.mu + other.mu, self.leak + other.leak)

    @property
    def fits(self) -> bool:
        """True if no part is more than its cap."""
        return max(self.pure, self.mu, self.leak) <= WHOLE + _SPARE

    @property
    def share(self) -> float:
        """The largest part, as a share of its cap."""
        return max(self.pure, self.mu, self.leak) / WHOLE

    def rest_of(self, caps: Price) -> Price:
        """Return what these units leave of the caps, as a note."""
        pure, mu, leak = (max(1 - part / WHOLE, 0.0) for part in (self.pure, self.mu, self.leak))
        return Price(caps.pure * pure, caps.mu * math.sqrt(mu), caps.leak * leak)


def check_price(price: Price) -> None:
    """Refuse a price that is no price: negative, NaN, or so small that sums would lose it.

    Raises:
        ParameterError: if a part is none of 0, a normal number, and infinity.
    """
    for name, part in (("pure", price.pure), ("mu", price.mu), ("leak", price.leak)):
        if not (part == 0 or part >= sys.float_info.min):
            raise ParameterError(
                f"the {name} of a price must be 0 or a positive number, not "
                f"{_validate.describe(part)}: a ledger cannot charge anything else; report it "
                "with the release that was requested."
            )


def _units(part: float, cap: float, power: int) -> int:
    """Return a part of a price, to a power, as units of a cap to that power, rounded up."""
    if part == 0:
        return 0
    if cap == 0 or not part <= cap * 2:
        return _TOO_MUCH
    units = Fraction(part) ** power / Fraction(cap) ** power * WHOLE
    return min(math.ceil(units), _TOO_MUCH)

"""Prices as integers, with sums that are exact in every order and in every database."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.publishing.prices import Price

# Integer units in a cap.
WHOLE = 1 << 60
# Tolerance of caps, less than 10^-9 of them, so that 365 shares of 1/365 fit. Caps are below the
# limit of the promise by more than this.
_SPARE = 1 << 30
# Sentinel for prices that exceed a cap many times.
_TOO_MUCH = 1 << 61


@dataclass(frozen=True)
class Units:
    """Integer units of the caps of a promise: pure ε, the square of μ, and delta mass."""

    pure: int = 0
    mu: int = 0
    leak: int = 0

    @staticmethod
    def create(price: Price, caps: Price) -> Units:
        """Return a price in units of the caps, rounded up."""
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
        """True if no part exceeds its cap."""
        return max(self.pure, self.mu, self.leak) <= WHOLE + _SPARE

    @property
    def share(self) -> float:
        """Largest part as a share of its cap."""
        return max(self.pure, self.mu, self.leak) / WHOLE

    def spent(self, caps: Price) -> Price:
        """Return the spent price below the caps, for information only."""
        pure, mu, leak = (part / WHOLE for part in (self.pure, self.mu, self.leak))
        return Price(caps.pure * pure, caps.mu * math.sqrt(mu), caps.leak * leak)

    def remaining(self, caps: Price) -> Price:
        """Return the remaining price below the caps, for information only."""
        pure, mu, leak = (max(1 - part / WHOLE, 0.0) for part in (self.pure, self.mu, self.leak))
        return Price(caps.pure * pure, caps.mu * math.sqrt(mu), caps.leak * leak)


def check_price(price: Price) -> None:
    """Reject prices that are negative, NaN, or so small that sums would lose them."""
    for name, part in (("pure", price.pure), ("mu", price.mu), ("leak", price.leak)):
        if not (part == 0 or part >= sys.float_info.min):
            raise ParameterError(
                f"the {name} of a price must be 0 or a positive number, not "
                f"{_validate.describe(part)}: a ledger cannot charge anything else; report it "
                "with the release that was requested."
            )


def _units(part: float, cap: float, power: int) -> int:
    """Return a part of a price, raised to a power, in units of a cap to that power, rounded up."""
    if part == 0:
        return 0
    if cap == 0 or not part <= cap * 2:
        return _TOO_MUCH
    units = Fraction(part) ** power / Fraction(cap) ** power * WHOLE
    return min(math.ceil(units), _TOO_MUCH)

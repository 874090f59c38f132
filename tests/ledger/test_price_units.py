"""Prices in whole numbers: rounded up, and no less."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgrain.errors import ParameterError
from dpgrain.ledger.price_units import WHOLE, Units
from dpgrain.publishing import Price

CAPS = Price(0.1, 0.2355, 1e-7)
PARTS = st.floats(0, 1, allow_subnormal=False)


@given(PARTS, PARTS, PARTS)
def test_units_are_no_less_than_the_price(pure: float, mu: float, leak: float) -> None:
    price = Price(pure * CAPS.pure, mu * CAPS.mu, leak * CAPS.leak)
    if any(0 < part < 1e-300 for part in (price.pure, price.mu, price.leak)):
        return
    units = Units.create(price, CAPS)
    assert Fraction(units.pure, WHOLE) >= Fraction(price.pure) / Fraction(CAPS.pure)
    assert Fraction(units.mu, WHOLE) >= (Fraction(price.mu) / Fraction(CAPS.mu)) ** 2
    assert Fraction(units.leak, WHOLE) >= Fraction(price.leak) / Fraction(CAPS.leak)
    assert max(units.pure, units.mu, units.leak) <= WHOLE
    assert units.fits


@pytest.mark.parametrize("price", [Price(mu=0.3), Price(pure=0.11), Price(leak=2e-7)])
def test_price_above_a_cap_does_not_fit(price: Price) -> None:
    assert not Units.create(price, CAPS).fits
    assert not Units.create(price, Price()).fits
    assert not Units.create(Price(math.inf, math.inf, math.inf), CAPS).fits


def test_the_smallest_price_is_one_unit() -> None:
    assert Units.create(Price(1e-300, 1e-300, 1e-300), CAPS) == Units(1, 1, 1)
    assert Units.create(Price(), CAPS) == Units()


@pytest.mark.parametrize("part", [math.nan, -1e-300, 5e-324, 1e-310])
def test_invalid_price_is_rejected(part: float) -> None:
    for price in (Price(pure=part), Price(mu=part), Price(leak=part)):
        with pytest.raises(ParameterError, match="of a price must be 0 or a positive number"):
            Units.create(price, CAPS)


def test_remaining_budget_is_a_price() -> None:
    half = Units(WHOLE // 2, WHOLE // 2, WHOLE)
    rest = half.remaining(CAPS)
    assert (rest.pure, rest.leak) == (0.05, 0.0)
    assert rest.mu == pytest.approx(CAPS.mu * math.sqrt(0.5))
    assert (half + half).share == 2.0

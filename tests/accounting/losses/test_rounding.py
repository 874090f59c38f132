"""Sums, products and roots are rounded up, and undefined arithmetic gives the worst value."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgrain.accounting.losses.rounding import (
    fails_closed,
    hypot_up,
    product_up,
    round_up,
    sum_up,
)

numbers = st.floats(1e-100, 1e100)


@given(numbers, numbers)
def test_results_are_at_least_exact_and_within_one_digit(one: float, two: float) -> None:
    for exact, found in (
        (Fraction(one) + Fraction(two), sum_up(one, two)),
        (Fraction(one) * Fraction(two), product_up(one, two)),
        (Fraction(one) / Fraction(two), product_up(one, over=two)),
    ):
        assert math.nextafter(found, 0) < exact <= found
    root = hypot_up(one, two)
    assert Fraction(root) ** 2 >= Fraction(one) ** 2 + Fraction(two) ** 2
    assert root <= math.hypot(one, two) * (1 + 1e-15)


def test_extremes_are_rounded_up_as_well() -> None:
    assert round_up(Fraction(10) ** 400) == math.inf
    assert round_up(-(Fraction(10) ** 400)) == -math.inf
    assert product_up(1e-300, over=math.inf) == 5e-324
    assert product_up(0.0, over=math.inf) == 0
    assert sum_up(math.inf, -math.inf) == math.inf


@pytest.mark.parametrize("worst", [1.0, math.inf])
def test_undefined_results_are_the_worst(worst: float) -> None:
    closed = fails_closed(worst)
    assert closed(lambda: math.nan)() == worst
    assert closed(lambda: math.exp(1e9))() == worst
    assert closed(lambda: 0.25)() == 0.25
    with pytest.raises(TypeError):
        closed(lambda: int(None))()  # type: ignore[call-overload]

"""Rounding towards privacy: upwards, or to infinity if arithmetic fails.

Comparisons with NaN are false, so a maximum or minimum would silently ignore it. Every function
that computes a loss therefore uses :func:`fails_closed`, which turns NaN, overflow and division by
zero into the worst possible value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from typing import ParamSpec

import numpy as np

Params = ParamSpec("Params")


def or_worst(value: float, worst: float = math.inf) -> float:
    """Return the value, or the worst one for NaN."""
    return worst if math.isnan(value) else value


def fails_closed(worst: float) -> Callable[[Callable[Params, float]], Callable[Params, float]]:
    """Return the worst value, ∞ for ε and 1 for δ, if the arithmetic fails."""

    def closed(function: Callable[Params, float]) -> Callable[Params, float]:
        @wraps(function)
        def answer(*args: Params.args, **kwargs: Params.kwargs) -> float:
            try:
                # Overflow needs no warning, because its result is handled below.
                with np.errstate(all="ignore"):
                    return or_worst(function(*args, **kwargs), worst)
            except ArithmeticError:
                return worst

        return answer

    return closed


def round_up(exact: Fraction) -> float:
    """Return the smallest float at or above a fraction."""
    try:
        near = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    return near if near >= exact else math.nextafter(near, math.inf)


def sum_up(one: float, two: float) -> float:
    """Return one + two, rounded up."""
    total = one + two
    if not math.isfinite(total):
        return or_worst(total)
    # The exact rounding error of the sum (Knuth's two-sum).
    shift = total - one
    error = (one - (total - shift)) + (two - shift)
    return math.nextafter(total, math.inf) if error > 0 else total


def product_up(*factors: float, over: float = 1.0) -> float:
    """Return the product of numbers ≥ 0, divided by a number > 0, rounded up once."""
    if not all(map(math.isfinite, factors)):
        return math.inf
    if math.isinf(over):
        # A quotient above 0 is rounded up to the smallest float, not down to 0.
        return 5e-324 if all(factors) else 0.0
    exact = Fraction(1)
    for factor in factors:
        exact *= Fraction(factor)
    return round_up(exact / Fraction(over))


def hypot_up(one: float, two: float) -> float:
    """Return √(one² + two²), rounded up."""
    root = math.hypot(one, two)
    if not math.isfinite(root):
        return or_worst(root)
    least = Fraction(one) ** 2 + Fraction(two) ** 2
    while Fraction(root) ** 2 < least:
        root = math.nextafter(root, math.inf)
    return root

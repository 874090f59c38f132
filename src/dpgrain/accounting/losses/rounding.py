"""Numbers with errors on the side of privacy: rounded up, or infinite where arithmetic fails.

Every comparison with NaN is false, so that a largest or a smallest value would pass over it in
silence. Every function that computes a loss therefore goes through :func:`fails_closed`, which turns
NaN, overflow and a division by zero into the worst there can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from typing import ParamSpec

import numpy as np

Asked = ParamSpec("Asked")


def or_worst(value: float, worst: float = math.inf) -> float:
    """Return the value, or the worst where it is NaN.

    >>> or_worst(0.5), or_worst(math.nan), or_worst(math.nan, 1.0)
    (0.5, inf, 1.0)
    """
    return worst if math.isnan(value) else value


def fails_closed(worst: float) -> Callable[[Callable[Asked, float]], Callable[Asked, float]]:
    """Make a function answer with the worst possible value where arithmetic has no answer.

    Args:
        worst: the worst answer: infinity for an ε, 1 for a δ.

    >>> @fails_closed(math.inf)
    ... def ratio(one: float, two: float) -> float:
    ...     return one / two
    >>> ratio(1.0, 2.0), ratio(1.0, 0.0), ratio(math.inf, math.inf)
    (0.5, inf, inf)
    """

    def closed(function: Callable[Asked, float]) -> Callable[Asked, float]:
        @wraps(function)
        def answer(*args: Asked.args, **kwargs: Asked.kwargs) -> float:
            try:
                # Nobody need be warned of overflow, because what it leads to is handled below.
                with np.errstate(all="ignore"):
                    return or_worst(function(*args, **kwargs), worst)
            except ArithmeticError:
                return worst

        return answer

    return closed


def raised(exact: Fraction) -> float:
    """Return the smallest float at or above a fraction.

    >>> raised(Fraction(1, 2)), raised(Fraction(1, 3)) > Fraction(1, 3)
    (0.5, True)
    """
    try:
        near = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    return near if near >= exact else math.nextafter(near, math.inf)


def sum_up(one: float, two: float) -> float:
    """Return one + two, rounded up.

    >>> sum_up(0.5, 0.25), sum_up(0.1, 0.2) >= Fraction(0.1) + Fraction(0.2)
    (0.75, True)
    """
    total = one + two
    if not math.isfinite(total):
        return or_worst(total)
    # This is the exact rounding error of the sum (Knuth's two-sum).
    shift = total - one
    error = (one - (total - shift)) + (two - shift)
    return math.nextafter(total, math.inf) if error > 0 else total


def product_up(*factors: float, over: float = 1.0) -> float:
    """Return the product of numbers ≥ 0, divided by another number > 0, rounded up once.

    >>> product_up(3, 0.5), product_up(1.0, over=4.0), product_up(3, 0.1) >= 3 * Fraction(0.1)
    (1.5, 0.25, True)
    """
    if not all(map(math.isfinite, factors)):
        return math.inf
    if math.isinf(over):
        # A quotient above 0 is rounded up to the smallest float, not down to 0.
        return 5e-324 if all(factors) else 0.0
    exact = Fraction(1)
    for factor in factors:
        exact *= Fraction(factor)
    return raised(exact / Fraction(over))


def hypot_up(one: float, two: float) -> float:
    """Return √(one² + two²), rounded up.

    >>> hypot_up(3.0, 4.0)
    5.0
    """
    root = math.hypot(one, two)
    if not math.isfinite(root):
        return or_worst(root)
    least = Fraction(one) ** 2 + Fraction(two) ** 2
    while Fraction(root) ** 2 < least:
        root = math.nextafter(root, math.inf)
    return root

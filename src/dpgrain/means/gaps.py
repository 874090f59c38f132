"""The gap of two geometric noises together, reached only with a small probability."""

from __future__ import annotations

import math

from dpgrain.accounting.events.choices import reached


def least_gap(chance: float, one: float, two: float) -> int:
    """Find the least whole gap, from 1 on, that two geometric noises reach with at most a chance.

    Args:
        chance: the largest probability P(Z + ν ≥ gap).
        one: the scale of Z.
        two: the scale of ν.

    >>> least_gap(1e-6, 6.0, 6.0)
    93
    """
    # The search begins at the gap of the wider law alone, which is smaller, and then bisects.
    wide = max(one, two)
    low, step = max(0, math.floor(wide * math.log(0.25 / chance))), max(1, math.ceil(wide / 2))
    while low > 0 and reached(low, one, two) <= chance:
        low = max(0, low - step)
    high = low + step
    while reached(high, one, two) > chance:
        low, high = high, high + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached(middle, one, two) > chance else (low, middle)
    return high

"""Gap that the sum of two geometric noises reaches only with a small probability."""

from __future__ import annotations

import math

from dpgrain.accounting.events.choices import threshold_probability


def least_gap(chance: float, one: float, two: float) -> int:
    """Find the least gap g ≥ 1 with P(Z + ν ≥ g) ≤ ``chance``, for scales of Z and ν.

    >>> least_gap(1e-6, 6.0, 6.0)
    93
    """
    # Start from the smaller gap of the wider noise alone, then bisect.
    wide = max(one, two)
    low, step = max(0, math.floor(wide * math.log(0.25 / chance))), max(1, math.ceil(wide / 2))
    while low > 0 and threshold_probability(low, one, two) <= chance:
        low = max(0, low - step)
    high = low + step
    while threshold_probability(high, one, two) > chance:
        low, high = high, high + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if threshold_probability(middle, one, two) > chance else (low, middle)
        )
    return high

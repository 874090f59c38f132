"""Differences and ratios of two groups of one release, with the error of both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpgrain._formatting import format_number, useful_decimals


@dataclass(frozen=True)
class Comparison:
    """Difference or ratio of two groups, with a 95% interval for the noise-free quantity.

    Args:
        operation: ``"difference"`` or ``"ratio"``.
        groups: the names of both groups.
        covers: the compared quantity, such as "clipped total".
        estimate: the estimate; NaN for a ratio if the second number is within the noise.
        std_error: its standard error due to noise.
        low: the lower end of the interval.
        high: the upper end of the interval.

    >>> print(Comparison("ratio", ("2025", "2024"), "clipped total", 1.12, 0.03, 1.06, 1.18))
    Ratio of clipped totals, 2025 ÷ 2024: 1.120 ± 0.030 (95% interval 1.060 to 1.180)
    """

    operation: Literal["difference", "ratio"]
    groups: tuple[str, str]
    covers: str
    estimate: float
    std_error: float
    low: float
    high: float

    def __str__(self) -> str:
        sign = "−" if self.operation == "difference" else "÷"
        compared = f" {sign} ".join(self.groups)
        title = f"{self.operation.capitalize()} of {self.covers}s, {compared}"
        if math.isnan(self.estimate):
            return f"{title}: no estimate, because {self.groups[1]} is within the noise"
        decimals = useful_decimals(self.std_error)
        estimate, error, low, high = (
            format_number(number, decimals)
            for number in (self.estimate, self.std_error, self.low, self.high)
        )
        return f"{title}: {estimate} ± {error} (95% interval {low} to {high})"


def difference(
    numbers: tuple[float, float], errors: tuple[float, float], quantile: float
) -> tuple[float, float, float, float]:
    """Return the difference of independent noisy numbers, its standard error and its interval.

    >>> difference((120.0, 100.0), (3.0, 4.0), 2.0)
    (20.0, 5.0, 10.0, 30.0)
    """
    estimate, error = numbers[0] - numbers[1], math.hypot(*errors)
    return estimate, error, estimate - quantile * error, estimate + quantile * error


def ratio(
    numbers: tuple[float, float], errors: tuple[float, float], quantile: float
) -> tuple[float, float, float, float]:
    """Return the ratio A/B of independent noisy numbers, its standard error and Fieller's interval.

    r is in the interval if |A − rB| ≤ quantile·√(a² + r²b²), for the errors a and b. All are NaN
    unless B is above the noise, because the interval is then unbounded.

    >>> [round(number, 3) for number in ratio((50.0, 100.0), (3.0, 4.0), 2.0)]
    [0.5, 0.036, 0.431, 0.576]
    >>> ratio((50.0, 7.0), (3.0, 4.0), 2.0)
    (nan, nan, nan, nan)
    """
    (above, below), (one, two) = numbers, errors
    first = below**2 - (quantile * two) ** 2
    if not (below > 0 and first > 0):
        return (math.nan,) * 4
    last = above**2 - (quantile * one) ** 2
    root = math.sqrt(max((above * below) ** 2 - first * last, 0.0))
    estimate = above / below
    error = math.hypot(one, estimate * two) / below
    return estimate, error, (above * below - root) / first, (above * below + root) / first

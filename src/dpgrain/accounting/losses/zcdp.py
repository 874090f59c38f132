"""Conversion of concentrated privacy, D_α ≤ αρ for all Rényi orders, to (ε, δ).

δ(ε) = inf over α > 1 of e^{(α−1)(αρ−ε)}·(1−1/α)^{α−1}/α (Canonne, Kamath & Steinke 2020, Cor. 13).
Every α gives a valid bound, so the search for the best one need not be exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpgrain.accounting.losses.gaussian import bisect

# Bounds on the rounding of the exponents, relative to the sum of their terms. At the same α the
# bound for ε exceeds the bound for δ, so that δ(ε(δ)) ≤ δ.
_DELTA_ROUNDING, _EPSILON_ROUNDING = 2.0**-48, 2.0**-44


def zcdp_delta(epsilon: float, rho: float) -> float:
    """Return the δ of ρ-zCDP at ε ≥ 0, rounded up; 1 for negative ε."""
    if rho == math.inf or epsilon < 0:
        return 1.0
    if rho == 0 or epsilon == math.inf:
        return 0.0

    def rises(t: float) -> bool:
        # The derivative of the exponent in t = α − 1; it increases with t.
        return (2 * t + 1) * rho - epsilon - math.log1p(1 / t) >= 0

    t = bisect(rises, 1e-300, _doubled(rises))[1]
    terms = (t * (1 + t) * rho, -t * epsilon, -t * math.log1p(1 / t), -math.log1p(t))
    exponent = sum(terms) + _DELTA_ROUNDING * sum(map(abs, terms))
    return _up(exponent)


def _up(exponent: float) -> float:
    return min(math.exp(min(exponent, 0.0)) * (1 + _DELTA_ROUNDING) + 5e-324, 1.0)


def zcdp_epsilon(delta: float, rho: float) -> float:
    """Return the smallest ε ≥ 0 of ρ-zCDP at δ, rounded up."""
    if rho == 0:
        return 0.0
    if rho == math.inf or delta <= 0:
        return math.inf
    target = -math.log(delta)

    def enough(t: float) -> bool:
        # At the best α = 1 + t the exponent is −t²ρ − ln(1 + t).
        return t * t * rho + math.log1p(t) >= target

    t = bisect(enough, 0.0, _doubled(enough))[1]
    terms = ((1 + t) * rho, -math.log1p(1 / t), target / t, -math.log1p(t) / t)
    return max(sum(terms) + _EPSILON_ROUNDING * sum(map(abs, terms)), 0.0)


@dataclass(frozen=True)
class ConcentratedCurve:
    """The curve of a mechanism with only its zCDP known."""

    rho: float

    def delta(self, epsilon: float) -> float:
        return zcdp_delta(epsilon, self.rho)

    def epsilon(self, delta: float) -> float:
        return zcdp_epsilon(delta, self.rho)

    def bounds(self, delta: float) -> tuple[float, float]:
        return 0.0, self.epsilon(delta)


def renyi_delta(epsilon: float, orders: Sequence[tuple[float, float]]) -> float:
    """Return the δ of Rényi divergences ((order, value), …) at ε ≥ 0, rounded up."""
    smallest = 1.0
    for order, value in orders:
        if order > 1 and value < math.inf:
            t = order - 1
            terms = (t * value, -t * epsilon, -t * math.log1p(1 / t), -math.log1p(t))
            exponent = sum(terms) + _DELTA_ROUNDING * sum(map(abs, terms))
            smallest = min(smallest, _up(exponent))
    return smallest


def renyi_epsilon(delta: float, orders: Sequence[tuple[float, float]]) -> float:
    """Return the smallest ε ≥ 0 of divergences ((order, value), …) at δ, rounded up."""
    smallest = math.inf
    for order, value in orders:
        if order > 1 and value < math.inf and delta > 0:
            t = order - 1
            terms = (value, -math.log1p(1 / t), -math.log(delta) / t, -math.log1p(t) / t)
            smallest = min(smallest, sum(terms) + _EPSILON_ROUNDING * sum(map(abs, terms)))
    return max(smallest, 0.0)


def _doubled(holds: Callable[[float], bool]) -> float:
    """Return some t that satisfies a condition, if all large enough t satisfy it."""
    t = 1.0
    while not holds(t):
        t *= 2
    return t

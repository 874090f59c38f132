"""The exact privacy curve of the Gaussian mechanism, and its inverses.

μ is sensitivity ÷ noise sd. The curve is δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle & Wang
2018; Dong, Roth & Su 2022, Cor. 2.13), exact for every ε ≥ 0. It replaces the element-level paper's
eq. (1), which is valid but loose, and its Lemma 3.2(ii), which is false.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.numerics.special_functions import erfcx, log_ndtr, ndtr, ndtri_exp

# A bound on the relative rounding of the special functions; its effect is added to δ.
_RELATIVE_ROUNDING = 64 * 2.0**-53
# A bound on the rounding of ε/μ − μ/2, relative to ε/μ + μ/2.
_PLACE_ROUNDING = 4 * 2.0**-53
# μ is a sensitivity divided by a noise scale, and both are rounded; this factor covers the exact
# quotient.
_MU_ROUNDING = 1 + 2.0**-47
# Smallest float above 0, because a Gaussian's δ is never 0.
_LEAST_FLOAT = 5e-324
# Largest squared number: larger squares may overflow, and their e^{−x²/2} is 0.
_LARGEST_SQUARED = 1e100
_SQRT2 = math.sqrt(2.0)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest δ such that μ-GDP implies (ε, δ)-DP, rounded up.

    Args:
        epsilon: any real number.
        mu: at least 0; may be infinite.

    Raises:
        ParameterError: if an argument is out of range.

    >>> round(gaussian_delta(1.0, 1 / 3.7306), 7)
    1e-05
    >>> gaussian_delta(1.0, 0.0)
    0.0
    """
    mu, epsilon = _validate.real(mu=mu), _validate.real(epsilon=epsilon)
    if not mu >= 0 or math.isnan(epsilon):
        raise ParameterError(
            f"mu must be at least 0 and epsilon a number, not {mu!r}, {epsilon!r}."
        )
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu > _LARGEST_SQUARED:
        return _LEAST_FLOAT if epsilon > mu * mu else 1.0
    if epsilon / mu > _LARGEST_SQUARED:
        return _LEAST_FLOAT
    mu *= _MU_ROUNDING
    b = epsilon / mu + mu / 2
    # This difference between numbers as large as b is rounded down, because δ decreases with it.
    a = epsilon / mu - mu / 2 - _PLACE_ROUNDING * abs(b)
    if a > 0:
        # Φ̄(a) − e^ε Φ̄(b) with the common factor e^{−a²/2}/2 extracted, so that huge exponentials
        # do not cancel and δ is accurate down to the smallest double.
        first, second = float(erfcx(a / _SQRT2)), float(erfcx(b / _SQRT2))
        rounding = _RELATIVE_ROUNDING * first
        delta = 0.5 * math.exp(-a * a / 2) * (max(first - second, 0.0) + rounding)
        return min(max(delta * (1 + _RELATIVE_ROUNDING * a * a), _LEAST_FLOAT), 1.0)
    first = float(ndtr(-a))
    falls = float(log_ndtr(-b))
    # The exponent is also a sum of numbers that may nearly cancel, and is rounded down.
    exponent = min(epsilon + falls, 0.0) - _RELATIVE_ROUNDING * (1 + abs(epsilon) + abs(falls))
    return min(max(first - math.exp(exponent), 0.0) + _RELATIVE_ROUNDING * first, 1.0)


def gaussian_deltas(epsilon: float, mus: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (n,) :func:`gaussian_delta` at one ε ≥ 0 for n values of μ, rounded up."""
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        mus = mus * _MU_ROUNDING
        b = epsilon / mus + mus / 2
        a = epsilon / mus - mus / 2 - _PLACE_ROUNDING * b
        # For a > 0 (`right`) the factor e^{−a²/2}/2 is extracted; for a ≤ 0 (`left`) e^ε stays in
        # the exponent. Both avoid cancellation, like `gaussian_delta`.
        first = erfcx(np.maximum(a, 0.0) / _SQRT2)
        second = erfcx(b / _SQRT2)
        right = (
            0.5
            * np.exp(-a * a / 2)
            * (np.maximum(first - second, 0.0) + 2 * _RELATIVE_ROUNDING * first)
        )
        above = ndtr(-a)
        falls = log_ndtr(-b)
        exponent = np.minimum(epsilon + falls, 0.0) - 2 * _RELATIVE_ROUNDING * (
            1 + epsilon + np.abs(falls)
        )
        left = np.maximum(above - np.exp(exponent), 0.0) + 2 * _RELATIVE_ROUNDING * above
        deltas = np.where(a > 0, right * (1 + 2 * _RELATIVE_ROUNDING * a * a), left)
    return np.where(mus > 0, np.clip(deltas, _LEAST_FLOAT, 1.0), 0.0)


def bisect(
    holds: Callable[[float], bool], low: float, high: float, within: float = 0.0
) -> tuple[float, float]:
    """Narrow (low, high) to neighbours, with ``holds`` false at low and true at high.

    For a slow condition, ``within`` allows a final distance of this share of ``high``.
    """
    for _ in range(200):
        middle = math.sqrt(low * high) if low > 0 and high / low > 4 else (low + high) / 2
        if not low < middle < high or high - low <= within * high:
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return low, high


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the smallest ε ≥ 0 such that μ-GDP implies (ε, δ)-DP, rounded up.

    Args:
        delta: the δ of the guarantee.
        mu: the sensitivity ÷ the standard deviation of the noise.

    Raises:
        ParameterError: if δ is not a number, or μ is below 0.

    >>> round(gaussian_epsilon(1e-5, 1 / 3.7306), 4)
    1.0
    """
    # Comparisons with NaN are false, so the search would accept any ε, or any μ.
    delta, mu = _validate.number(delta=delta), _validate.real(mu=mu)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta <= 0 or mu == math.inf:
        return math.inf
    high = mu * mu / 2 + mu
    while gaussian_delta(high, mu) > delta:
        high *= 2
        if math.isinf(high):
            return math.inf
    return bisect(lambda epsilon: gaussian_delta(epsilon, mu) <= delta, 0.0, high)[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ such that μ-GDP implies (ε, δ)-DP, rounded down."""
    _require_size(epsilon)
    if _validate.number(delta=delta) <= 0:
        return 0.0
    low, high = 1e-300, 1.0
    while gaussian_delta(epsilon, high) <= delta:
        high *= 2
        if math.isinf(high):
            return math.inf
    return bisect(lambda mu: gaussian_delta(epsilon, mu) > delta, low, high)[0]


def pure_mu(epsilon: float) -> float:
    """Return the smallest μ such that ε-DP implies μ-GDP, rounded up.

    It also dominates mechanisms of 2ε-bounded range. Source: docs/theory, "Budgets".
    """
    _require_size(epsilon)
    # The function is concave with this slope at 0, where its closed form would cancel.
    tangent = math.sqrt(math.pi / 2) * epsilon
    if tangent <= 1e-4 or math.isinf(epsilon):
        return tangent * (1 + _RELATIVE_ROUNDING)
    return min(-2 * float(ndtri_exp(-float(np.logaddexp(0.0, epsilon)))) * (1 + 1e-9), tangent)


def _require_size(epsilon: float) -> None:
    if not epsilon >= 0:
        raise ParameterError(f"epsilon must be at least 0, not {epsilon!r}.", name="epsilon")

"""Mixtures of unit-variance normal distributions: masses and densities."""

from __future__ import annotations

import math

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.numerics.special_functions import log_ndtr, ndtr

# Standard deviations beyond which the normal mass is less than any δ.
_FAR_DEVIATIONS = 38.4
# Largest exponent with a finite exponential.
_LARGEST_EXPONENT = 700.0
#: A bound on the relative rounding of the special functions.
FUNCTION_ROUNDING = 16 * 2.0**-53


def mirrored_points(losses: FloatArray, rate: float, shift: float) -> FloatArray:
    """Return the (n,) points x where a mirrored mixture has given losses."""
    # The loss is ln of (1−q)+q·e^{sx−s²/2} over (1−q)+q·e^{−sx−s²/2}.
    # The loss is odd in x; for γ ≥ 1 u = e^{sx} solves u² − c·u − γ = 0, c ≥ 0.
    size = np.abs(losses)
    with np.errstate(divide="ignore"):
        # The first terms are ln(e^x − 1), without overflow.
        log_c = size + np.log(-np.expm1(-size))
    log_c += math.log1p(-rate) - math.log(rate) + shift * shift / 2
    # The solution is u = (c + √(c² + 4γ))/2, here in logarithms.
    half = log_c - math.log(2)
    root = np.logaddexp(2 * half, size) / 2
    return np.sign(losses) * np.logaddexp(half, root) / shift


def normal_quantile(tail: float) -> float:
    """Return an approximate z with Φ(−z) = tail, rounded up."""
    if tail >= 0.5:
        return 0.0
    return (
        _FAR_DEVIATIONS
        if tail < 1e-300
        else min(math.sqrt(-2 * math.log(2 * tail)), _FAR_DEVIATIONS)
    )


def log_ratio(
    mixture: tuple[tuple[float, float], ...], x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return (n,) ln of a mixture's density ratio to N(0, 1), and its derivative."""
    if mixture == ((1.0, 0.0),):
        return np.zeros_like(x), np.zeros_like(x)
    parts = [(w, m, m * x - m * m / 2) for w, m in mixture if w > 0]
    peak = parts[0][2]
    for _, _, exponent in parts[1:]:
        peak = np.maximum(peak, exponent)
    total, slope, small = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for w, m, exponent in parts:
        density = w * np.exp(exponent - peak)
        total += density
        slope += m * density
        # Near ratio 1 this retains digits that the logarithm of a sum loses.
        small += w * np.expm1(np.minimum(exponent, _LARGEST_EXPONENT))
    near = np.abs(small) < 0.5
    logs = peak + np.log(total)
    logs[near] = np.log1p(small[near])
    return logs, slope / total


def log_normal_masses(mixture: tuple[tuple[float, float], ...], places: FloatArray) -> FloatArray:
    """Return (n,) ln of the mass between neighbouring points, without underflow."""
    logs: FloatArray = np.full(places.size - 1, -np.inf)
    for weight, mean in mixture:
        if weight == 0:
            continue
        left, right = places[:-1] - mean, places[1:] - mean
        # The mass is a difference of two tails on the same side, and the nearer one is the larger.
        turned = left > 0
        near = np.where(turned, -left, right)
        far = np.where(turned, -right, left)
        larger, smaller = log_ndtr(near), log_ndtr(far)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.logaddexp(
                logs, math.log(weight) + larger + np.log(-np.expm1(smaller - larger))
            )
    return logs


def normal_masses(
    mixture: tuple[tuple[float, float], ...], places: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return (n,) masses between neighbouring points, and bounds on their rounding."""
    mass, error = np.zeros(places.size - 1), np.zeros(places.size - 1)
    for weight, mean in mixture:
        if weight == 0:
            continue
        z = places - mean
        tails = ndtr(-np.abs(z))
        left, right = z[:-1], z[1:]
        # Subtract the smaller tails, because differences of numbers near 1 are only rounding.
        apart = np.where(right <= 0, tails[1:] - tails[:-1], tails[:-1] - tails[1:])
        apart = np.where((left < 0) & (right > 0), 1 - tails[:-1] - tails[1:], apart)
        mass += weight * apart
        error += weight * (np.maximum(tails[:-1], tails[1:]) + ((left < 0) & (right > 0)))
    return np.maximum(mass, 0.0), FUNCTION_ROUNDING * error

"""Exact distributions of the number of runs of a private candidate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.sources import RandomSource, resolve_source

# Bits of the working precision in addition to the known bits of the uniform number.
_GUARD_BITS = 96


def negative_binomial(eta: float, gamma: float, *, source: RandomSource | None = None) -> int:
    """Draw from P(k) ∝ (1−γ)^k·η(η+1)…(η+k−1)/k!, k ≥ 1; at η = 0 ∝ (1−γ)^k/k.

    Source: Papernot & Steinke 2022, Definition 1.
    """
    gamma = _validate.fraction(gamma=gamma)
    if not -1 < eta < float("inf"):
        raise ParameterError(f"eta must be finite and above -1, not {_validate.describe(eta)}.")
    return _inverted(lambda mp: _negative_binomial(eta, gamma, mp), 1, resolve_source(source))


def poisson(mean: float, *, source: RandomSource | None = None) -> int:
    """Draw one number from the Poisson distribution, exactly."""
    mean = _validate.positive(mean=mean)
    return _inverted(lambda mp: _poisson(mean, mp), 0, resolve_source(source))


def _negative_binomial(eta: float, gamma: float, mp: Any) -> Iterator[Any]:
    """Yield P(1), P(2), … in the mpmath context ``mp``."""
    shape, stop = mp.mpf(eta), mp.mpf(gamma)
    log = -mp.log(stop)
    # The share is η/(γ^{−η} − 1), and its limit 1/ln(1/γ) at η = 0.
    share = 1 / log if shape == 0 else shape / mp.expm1(shape * log)
    chance, k = share * (1 - stop), 1
    while True:
        yield chance
        chance *= (1 - stop) * (k + shape) / (k + 1)
        k += 1


def _poisson(mean: float, mp: Any) -> Iterator[Any]:
    rate = mp.mpf(mean)
    chance, k = mp.exp(-rate), 0
    while True:
        yield chance
        k += 1
        chance *= rate / k


def _inverted(law: Any, first: int, source: RandomSource) -> int:
    """Invert the cumulative distribution at a uniform number with lazily drawn bits."""
    bits, known_bits = int(source.words(1)[0]), 64
    while True:
        mp = arithmetic(known_bits + _GUARD_BITS)
        number = _place(law(mp), first, bits, known_bits, mp)
        if number is not None:
            return number
        bits, known_bits = (bits << 64) | int(source.words(1)[0]), known_bits + 64


def _place(chances: Iterator[Any], first: int, bits: int, known_bits: int, mp: Any) -> int | None:
    """Return the number determined by the known bits, or None if they allow several."""
    low, high = (mp.ldexp(mp.mpf(v), -known_bits) for v in (bits, bits + 1))
    # A term has a relative rounding error of 2^-(known_bits + _GUARD_BITS): a million add far less
    # than this.
    slack = mp.ldexp(1, -known_bits - 32)
    mass = mp.mpf(0)
    for number, chance in enumerate(chances, first):
        mass += chance
        if mass >= high + slack:
            return number
        if mass > low - slack:
            return None
        if chance < slack * slack and 2 * mass > 1:
            # The uniform number is in a tail that is too thin for its known bits.
            return None
    return None

"""The distributions of additive noise, with their quantiles, tails and densities.

Noise is drawn exactly, on integers (``add_noise``). Later inferences from noisy numbers use the
continuous distribution of the same name, in standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.numerics.special_functions import ndtr, ndtri

if TYPE_CHECKING:
    from dpgrain.noise import noisy_sums as drawing
    from dpgrain.noise.sources import RandomSource
else:
    # Loaded on first draw, because accounting needs only the numbers of a distribution.
    drawing = lazy_import("dpgrain.noise.noisy_sums")

Integrals = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True)
class AdditiveNoise:
    """Symmetric noise distribution; quantiles and densities in standard deviations."""

    name: str
    norm: Literal["l1", "l2"]  # of the sensitivity that the scale is fitted to
    pure: bool  # gives δ = 0
    sd: float  # at scale 1
    add_noise: Callable[..., NDArray[Any]]
    # In floating point, for simulation only.
    draw: Callable[[np.random.Generator, tuple[int, ...]], FloatArray]
    quantile: Callable[[float], float]
    tail: Callable[[FloatArray, int], FloatArray]  # of the sum of several draws
    density: Callable[[FloatArray], FloatArray]
    partial: Callable[[FloatArray], Integrals]  # integrals of f, vf and v²f over v < u


def noise_by_name(noise: str) -> AdditiveNoise:
    """Return the distribution with a given name, ``"gaussian"`` or ``"laplace"``."""
    return LAWS[_validate.one_of(tuple(LAWS), noise=noise)]


def _add_gaussian(sums: NDArray[Any], scale: ArrayLike, *, source: RandomSource) -> NDArray[Any]:
    return drawing.with_gaussian(sums, scale, source=source)


def _add_laplace(sums: NDArray[Any], scale: ArrayLike, *, source: RandomSource) -> NDArray[Any]:
    return drawing.with_laplace(sums, scale, source=source)


def _normal_quantile(level: float) -> float:
    return float(ndtri(level))


def _normal_tail(deviations: FloatArray, _terms: int) -> FloatArray:
    return np.asarray(ndtr(-deviations))


def _normal_density(u: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi))


def _normal_partial(u: FloatArray) -> Integrals:
    below, density = ndtr(u), _normal_density(u)
    return below, -density, below - u * density


def _laplace_quantile(level: float) -> float:
    tail = 2 * min(level, 1 - level)
    return math.copysign(-math.log(tail) / math.sqrt(2), level - 0.5)


def _laplace_tail(deviations: FloatArray, terms: int) -> FloatArray:
    # The sum of w draws is the difference of two Gamma variables of shape w. For u > 0, in scales,
    # its density is a mixture of Gamma densities of shapes 1 to w.
    u = np.abs(deviations) * math.sqrt(2 * terms)
    tail = np.zeros_like(u)
    for shape in range(1, terms + 1):
        weight = math.comb(2 * terms - shape - 1, terms - 1) * 2.0 ** (shape - 2 * terms)
        tail += weight * sum(u**i / math.factorial(i) for i in range(shape))
    tail *= np.exp(-u)
    return np.asarray(np.where(deviations > 0, tail, 1 - tail), dtype=np.float64)


def _laplace_density(u: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-math.sqrt(2) * np.abs(u)) / math.sqrt(2))


def _laplace_partial(u: FloatArray) -> Integrals:
    b, size = 1 / math.sqrt(2), np.abs(u)
    tail = 0.5 * np.exp(-size / b)
    second = tail * (size**2 + 2 * b * size + 2 * b**2)
    return np.where(u < 0, tail, 1 - tail), -tail * (size + b), np.where(u < 0, second, 1 - second)


GAUSSIAN = AdditiveNoise(
    "gaussian",
    "l2",
    pure=False,
    sd=1.0,
    add_noise=_add_gaussian,
    draw=lambda rng, shape: rng.normal(0.0, 1.0, shape),
    quantile=_normal_quantile,
    tail=_normal_tail,
    density=_normal_density,
    partial=_normal_partial,
)
LAPLACE = AdditiveNoise(
    "laplace",
    "l1",
    pure=True,
    sd=math.sqrt(2.0),
    add_noise=_add_laplace,
    draw=lambda rng, shape: rng.laplace(0.0, 1.0, shape),
    quantile=_laplace_quantile,
    tail=_laplace_tail,
    density=_laplace_density,
    partial=_laplace_partial,
)
#: Distributions that releases can use.
LAWS = {law.name: law for law in (GAUSSIAN, LAPLACE)}

"""Gaussian noise for the sum of one step, in floating point or on a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.means.bands import Correlated
from dpgrain.means.grid import noised_steps
from dpgrain.noise import RandomSource
from dpgrain.torch.clipping import ExactSum, FloatSum
from dpgrain.torch.library import torch

# 64-bit words of the seed of each step's generator.
_SEED_WORDS = 4


def in_floating_point(
    found: FloatSum,
    parameters: Sequence[Any],
    sd: float,
    source: RandomSource,
    correlated: Sequence[Correlated] | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and its noisy sum, in double precision.

    In single precision, PyTorch's noise is bounded by 5.8 standard deviations, and its generator
    has only 2^32 seeds, few enough to try them all.
    """
    generator = _generator(source)
    for place, parameter in enumerate(parameters):
        drawn = generator.standard_normal(parameter.numel())
        noise = torch.from_numpy(sd * (correlated[place].next(drawn) if correlated else drawn))
        total = found.sums[parameter].double()
        yield parameter, total + noise.reshape(parameter.shape).to(total.device)


def noisy_count(count: float, sd: float, source: RandomSource) -> float:
    """Add independent noise to a count, in double precision."""
    return count + sd * float(_generator(source).standard_normal())


def _generator(source: RandomSource) -> np.random.Generator:
    seed = [int(word) for word in source.words(_SEED_WORDS)]
    return np.random.Generator(np.random.PCG64DXSM(seed))


def on_the_grid(found: ExactSum, noise_multiplier: float, source: RandomSource) -> FloatArray:
    """Return the noisy sum of integers as one vector."""
    return noised_steps(found.total, found.largest_norm, noise_multiplier, found.step, source)


def split(vector: FloatArray, parameters: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and its part of a vector; later entries are ignored."""
    ends = np.cumsum([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, np.split(vector, ends), strict=False):
        yield parameter, torch.from_numpy(part).reshape(parameter.shape).to(parameter.device)

"""Gaussian noise on the sum of one step: in floating point, or whole steps of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.means.grid import noised_steps
from dpgrain.noise import Source
from dpgrain.torch.clipping import ExactSum, FloatSum
from dpgrain.torch.library import torch

# Each step's generator is seeded with this many words of 64 bits.
_SEED_WORDS = 4


def in_floating_point(
    found: FloatSum, parameters: Sequence[Any], sd: float, source: Source
) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and the noisy sum, in double precision.

    Args:
        found: the sum.
        parameters: the parameters, in the order in which noise is drawn.
        sd: the standard deviation of the noise of each coordinate.
        source: where the seed of a generator comes from, which is made for this step alone.

    Noise is drawn in double precision: PyTorch's in single precision has no values beyond 5.8 standard
    deviations, and its generator knows no more than 2^32 seeds, all of which can be tried.
    """
    seed = [int(word) for word in source.words(_SEED_WORDS)]
    generator = np.random.Generator(np.random.PCG64DXSM(seed))
    for parameter in parameters:
        noise = torch.from_numpy(sd * generator.standard_normal(parameter.numel()))
        total = found.sums[parameter].double()
        yield parameter, total + noise.reshape(parameter.shape).to(total.device)


def on_the_grid(
    found: ExactSum, parameters: Sequence[Any], noise_multiplier: float, source: Source
) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and the noisy sum, made of whole numbers.

    Args:
        found: the sum.
        parameters: the parameters, in the order of the sum.
        noise_multiplier: noise sd ÷ clipping bound.
        source: where noise comes from.
    """
    noisy: FloatArray = noised_steps(found.total, found.bound, noise_multiplier, found.step, source)
    parts = np.split(noisy, np.cumsum([p.numel() for p in parameters])[:-1])
    for parameter, part in zip(parameters, parts, strict=True):
        yield parameter, torch.from_numpy(part).reshape(parameter.shape).to(parameter.device)

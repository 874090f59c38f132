"""Gaussian noise on the sum of one step: in floating point, or whole steps of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.means.bands import Correlated
from dpgrain.means.grid import noised_steps
from dpgrain.noise import Source
from dpgrain.torch.clipping import ExactSum, FloatSum
from dpgrain.torch.library import torch

# Words of 64 bits with which each step's generator is seeded.
_SEED_WORDS = 4


def in_floating_point(
    found: FloatSum,
    parameters: Sequence[Any],
    sd: float,
    source: Source,
    correlated: Sequence[Correlated] | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and the noisy sum, in double precision.

    Args:
        found: the sum.
        parameters: the parameters, in the order in which noise is drawn.
        sd: the standard deviation of the noise of each coordinate.
        source: where the seed of a generator comes from, which is made for this step alone.
        correlated: for each parameter what makes noise of independent noise of deviation 1; None for
            noise that is independent from step to step.

    Noise is drawn in double precision: PyTorch's in single precision has no values beyond 5.8 standard
    deviations, and its generator knows no more than 2^32 seeds, all of which can be tried.
    """
    generator = _generator(source)
    for place, parameter in enumerate(parameters):
        drawn = generator.standard_normal(parameter.numel())
        noise = torch.from_numpy(sd * (correlated[place].next(drawn) if correlated else drawn))
        total = found.sums[parameter].double()
        yield parameter, total + noise.reshape(parameter.shape).to(total.device)


def noisy_count(count: float, sd: float, source: Source) -> float:
    """Return a count with noise of its own, in double precision.

    Args:
        count: the sum of what blocks count.
        sd: the standard deviation of the noise.
        source: where the seed of a generator comes from.
    """
    return count + sd * float(_generator(source).standard_normal())


def _generator(source: Source) -> np.random.Generator:
    seed = [int(word) for word in source.words(_SEED_WORDS)]
    return np.random.Generator(np.random.PCG64DXSM(seed))


def on_the_grid(found: ExactSum, noise_multiplier: float, source: Source) -> FloatArray:
    """Return the noisy sum, made of whole numbers, as one vector.

    Args:
        found: the sum.
        noise_multiplier: noise sd ÷ the norm that a block's vector has at most.
        source: where noise comes from.
    """
    return noised_steps(found.total, found.reach, noise_multiplier, found.step, source)


def split(vector: FloatArray, parameters: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and its part of a vector.

    Args:
        vector: the parts of all parameters, in their order; what follows them is left out.
        parameters: the parameters.
    """
    ends = np.cumsum([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, np.split(vector, ends), strict=False):
        yield parameter, torch.from_numpy(part).reshape(parameter.shape).to(parameter.device)

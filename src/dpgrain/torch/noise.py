"""Noisy sums of one step, parameter by parameter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.means.bands import Correlated
from dpgrain.publishing.draws import Normals
from dpgrain.torch.clipping import FloatSum
from dpgrain.torch.library import torch


def in_floating_point(
    sums: FloatSum,
    parameters: Sequence[Any],
    noise: Normals,
    correlated: Sequence[Correlated] | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and its noisy sum, in double precision.

    In single precision, PyTorch's noise is bounded by 5.8 standard deviations, and its generator
    has only 2^32 seeds, few enough to try them all.
    """
    for place, parameter in enumerate(parameters):
        drawn = noise.draw(parameter.numel(), correlated[place].next if correlated else None)
        total = sums.sums[parameter].double()
        yield parameter, total + torch.from_numpy(drawn).reshape(parameter.shape).to(total.device)


def split(vector: FloatArray, parameters: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter and its part of a vector; later entries are ignored."""
    ends = np.cumsum([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, np.split(vector, ends), strict=False):
        yield parameter, torch.from_numpy(part).reshape(parameter.shape).to(parameter.device)

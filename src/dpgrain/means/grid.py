"""Sums of integers on a grid, with integer noise of an exact law."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpgrain._clipping import clipped, finite
from dpgrain._types import FloatArray, IntArray
from dpgrain.means.protocol import Contributions, Distributed, Drawn
from dpgrain.noise import Source
from dpgrain.noise.laws import MAX_SCALE, raised
from dpgrain.noise.sums import with_gaussian

# Steps of the grid of exact sums to the clipping bound, so that squares of blocks, in steps, fit in
# 2^53.
_STEPS_PER_CLIP = 2.0**24
# Steps of noise beyond which the grid is made coarser; rounding the step down to a power of two at
# most doubles them, which the sampler can still draw.
_LARGEST_NOISE_STEPS = MAX_SCALE / 4
# Entries of blocks that an exact sum holds at a time, which stay in the cache.
_BATCH_ENTRIES = 1 << 17
# Size below which whole numbers, and their sums, are exact in floating point.
_EXACT_BELOW = 2**53


def exactly_noised(
    contributions: Contributions,
    clip: float,
    noise_multiplier: float,
    source: Source,
    *,
    drawn: Drawn | None = None,
    centre: FloatArray | None = None,
) -> FloatArray:
    """Add clipped blocks and Gaussian noise, without floating point in between.

    Args:
        contributions: the vectors that the blocks add.
        clip: the clipping bound, l2, of a block's distance to the centre.
        noise_multiplier: noise sd ÷ clip.
        source: where noise comes from.
        drawn: the sorted indices of the blocks that count; all by default.
        centre: (d,) a public point; 0 by default.

    Formal guarantee: a Gaussian mechanism with the stated multiplier, for any blocks and in any order:
    each is truncated to a grid, on which its norm is at most the bound, and integers are added.

    >>> from dpgrain.means.protocol import Vectors
    >>> from dpgrain.noise import SeededSource
    >>> exactly_noised(Vectors([[3.0, 4.0]], dimension=2), 1.0, 1e-3, SeededSource(1)).round(1).tolist()
    [0.6, 0.8]
    """
    step = grid_step(clip, noise_multiplier)
    if isinstance(contributions, Distributed):
        total = contributions.in_steps(clip, step, centre)
    else:
        total = added_in_steps(contributions, clip, step, drawn=drawn, centre=centre)
    return noised_steps(total, clip, noise_multiplier, step, source)


def added_in_steps(
    contributions: Contributions,
    clip: float,
    step: float,
    *,
    drawn: Drawn | None = None,
    centre: FloatArray | None = None,
) -> IntArray:
    """Return (d,) the sum of clipped blocks, each truncated to a grid, in whole steps.

    Args:
        contributions: the vectors that the blocks add.
        clip: the clipping bound, l2, of a block's distance to the centre.
        step: the step of the grid.
        drawn: the sorted indices of the blocks that count; all by default.
        centre: (d,) a public point; 0 by default.
    """
    total = np.zeros(contributions.dimension, dtype=np.int64)
    for vectors in tiles(contributions, drawn):
        with np.errstate(over="ignore"):
            # A value that overflows is somebody's: no warning may reveal it.
            away = vectors if centre is None else finite(vectors - centre)
        whole = _steps(clipped(away, clip), clip, step)
        # Whole numbers of at most 2^24 steps: any order of adding up a batch gives the same sum.
        total += (np.ones(len(whole)) @ whole).astype(np.int64)
    return total


def grid_step(clip: float, noise_multiplier: float) -> float:
    """Return the step of the grid on which blocks with this clipping bound are added.

    Args:
        clip: the clipping bound, l2.
        noise_multiplier: noise sd ÷ clip.

    >>> grid_step(1.0, 2.0) == 2.0**-24
    True
    """
    finest = min(_STEPS_PER_CLIP, _LARGEST_NOISE_STEPS / noise_multiplier)
    return 2.0 ** math.floor(math.log2(clip / finest))


def noised_steps(
    total: NDArray[np.int64], clip: float, noise_multiplier: float, step: float, source: Source
) -> FloatArray:
    """Return a sum of blocks on the grid with Gaussian noise, in the units of the clipping bound.

    Args:
        total: (d,) the sum of :func:`on_grid`, in steps.
        clip: the clipping bound, l2.
        noise_multiplier: noise sd ÷ clip.
        step: the step of the grid.
        source: where noise comes from.
    """
    scale = raised(raised(noise_multiplier * (clip / step)))
    noisy = with_gaussian(total, scale, source=source)
    return noisy.astype(np.float64) * step


def tiles(contributions: Contributions, drawn: Drawn | None = None) -> Iterator[FloatArray]:
    """Yield blocks' vectors, a bounded number of entries at a time; rows that are not finite are 0."""
    which = np.arange(contributions.blocks) if drawn is None else drawn
    most = max(1, _BATCH_ENTRIES // max(contributions.dimension, 1))
    for first in range(0, len(which), most):
        vectors = contributions.vectors(which[first : first + most])
        yield finite(vectors.astype(np.float64, copy=False))


def on_grid(vectors: FloatArray, clip: float, step: float) -> NDArray[np.int64]:
    """Return clipped vectors in whole steps, truncated toward zero, of norm at most ``clip/step``."""
    return _steps(vectors, clip, step).astype(np.int64)


def _steps(vectors: FloatArray, clip: float, step: float) -> FloatArray:
    """Return clipped vectors in whole steps, as floats that hold them exactly."""
    largest = math.floor((clip / step) ** 2)
    steps = vectors / step
    np.trunc(steps, out=steps)
    long = _longer(steps, largest)
    # Rounding may have left a norm a hair above the bound: such a vector gives up one step.
    while len(long):
        columns = np.abs(steps[long]).argmax(axis=1)
        steps[long, columns] -= np.sign(steps[long, columns])
        long = long[_longer(steps[long], largest)]
    return steps


def _longer(steps: FloatArray, largest: int) -> NDArray[np.intp]:
    """Return the rows of whole numbers whose squares add up to more than ``largest``, exactly."""
    squares = np.einsum("ij,ij->i", steps, steps)
    if largest >= _EXACT_BELOW / 2:
        whole = steps.astype(np.int64)
        squares = (whole * whole).sum(axis=1)
    # A sum of squares that is not exact is above 2^53, and then above the largest, too.
    return np.flatnonzero(squares > largest)

"""Integer sums on a grid, with integer noise of an exact distribution."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray, IntArray
from dpgrain.means.mean_protocol import Contributions, Distributed, Drawn
from dpgrain.noise import RandomSource
from dpgrain.noise.distributions import MAX_SCALE
from dpgrain.numerics.row_clipping import clipped, zero_nonfinite_rows
from dpgrain.publishing.draws import GaussianNoise, counted

# Grid steps per clipping bound in exact sums, so that squared norms in steps fit in 2^53.
_STEPS_PER_CLIP = 2.0**24
# Max noise scale in grid steps; larger ones coarsen the grid. Rounding the step down to a power of two
# at most doubles the scale, which the sampler still supports.
_LARGEST_NOISE_STEPS = MAX_SCALE / 4
# Maximum entries of blocks in memory during an exact sum; they fit in the cache.
_BATCH_ENTRIES = 1 << 17
# Integers and sums below this limit are exact in floating point.
_EXACT_BELOW = 2**53


def exactly_noised(
    contributions: Contributions,
    clip: float,  # bounds the l2 distance to the centre
    part: GaussianNoise,
    source: RandomSource,
    *,
    drawn: Drawn | None = None,
    centre: FloatArray | None = None,  # (d,), public
) -> FloatArray:
    """Add clipped blocks and Gaussian noise, without floating-point rounding between.

    Formal guarantee: a Gaussian mechanism with the multiplier of the part, for any blocks: they are
    truncated to a grid, where their norm is at most the bound, and integers are added.
    """
    step = grid_step(clip, part.noise_multiplier)
    if isinstance(contributions, Distributed):
        total = contributions.in_steps(clip, step, centre)
    else:
        total = added_in_steps(contributions, clip, step, drawn=drawn, centre=centre)
    return noised_steps(total, clip, part, step, source)


def added_in_steps(
    contributions: Contributions,
    clip: float,
    step: float,
    *,
    drawn: Drawn | None = None,
    centre: FloatArray | None = None,
) -> IntArray:
    """Return the sum of clipped blocks, truncated to a grid, in integer steps, (d,)."""
    total = np.zeros(contributions.dimension, dtype=np.int64)
    for vectors in tiles(contributions, drawn):
        with np.errstate(over="ignore"):
            # Overflow depends on a user's value, which a warning would reveal.
            away = vectors if centre is None else zero_nonfinite_rows(vectors - centre)
        whole = _steps(clipped(away, clip), clip, step)
        # Integers of at most 2^24 steps: any order of summation gives the same sum.
        total += (np.ones(len(whole)) @ whole).astype(np.int64)
    return total


def grid_step(clip: float, noise_multiplier: float) -> float:
    """Return the step of the grid for a clipping bound and a noise multiplier."""
    finest = min(_STEPS_PER_CLIP, _LARGEST_NOISE_STEPS / noise_multiplier)
    return 2.0 ** math.floor(math.log2(clip / finest))


def noised_steps(
    total: NDArray[np.int64], clip: float, part: GaussianNoise, step: float, source: RandomSource
) -> FloatArray:
    """Add Gaussian noise to a sum of :func:`on_grid`, (d,); return units of ``clip``."""
    noisy = counted(source, part).noisy(part, total, clip / step)
    return noisy.astype(np.float64) * step


def tiles(contributions: Contributions, drawn: Drawn | None = None) -> Iterator[FloatArray]:
    """Yield blocks' vectors in bounded batches, with 0 instead of non-finite rows."""
    which = np.arange(contributions.blocks) if drawn is None else drawn
    most = max(1, _BATCH_ENTRIES // max(contributions.dimension, 1))
    for first in range(0, len(which), most):
        vectors = contributions.vectors(which[first : first + most])
        yield zero_nonfinite_rows(vectors.astype(np.float64, copy=False))


def on_grid(vectors: FloatArray, clip: float, step: float) -> NDArray[np.int64]:
    """Return clipped vectors in integer steps, truncated; norms at most ``clip/step``."""
    return _steps(vectors, clip, step).astype(np.int64)


def _steps(vectors: FloatArray, clip: float, step: float) -> FloatArray:
    """Return clipped vectors in integer steps, exactly represented as floats."""
    largest = math.floor((clip / step) ** 2)
    steps = vectors / step
    np.trunc(steps, out=steps)
    long = _longer(steps, largest)
    # Rounding can leave a norm slightly above the bound: such a vector loses one step.
    while len(long):
        columns = np.abs(steps[long]).argmax(axis=1)
        steps[long, columns] -= np.sign(steps[long, columns])
        long = long[_longer(steps[long], largest)]
    return steps


def _longer(steps: FloatArray, largest: int) -> NDArray[np.intp]:
    """Return the rows of integers with a sum of squares above ``largest``, exactly."""
    squares = np.einsum("ij,ij->i", steps, steps)
    if largest >= _EXACT_BELOW / 2:
        whole = steps.astype(np.int64)
        squares = (whole * whole).sum(axis=1)
    # An inexact sum of squares is above 2^53, and therefore above ``largest``.
    return np.flatnonzero(squares > largest)

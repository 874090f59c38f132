"""Sums of integers on a grid, with integer noise of an exact law."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpgrain._clipping import clipped, finite
from dpgrain._types import FloatArray
from dpgrain.means.protocol import Contributions, Drawn
from dpgrain.noise import MAX_SCALE, Source, raised, rounded_gaussian

# The grid of exact sums has this many steps to the clipping bound; squares of blocks fit in 2^53.
_EXACT_STEPS = 2.0**24
# The noise has at most twice as many steps, which is the most that is drawn.
_LARGEST_SCALE = MAX_SCALE / 4
# Entries of blocks that an exact sum holds at a time.
_ENTRIES = 1 << 21


def exactly_noised(
    contributions: Contributions,
    clip: float,
    noise_multiplier: float,
    source: Source,
    *,
    drawn: Drawn | None = None,
    centre: FloatArray | None = None,
) -> FloatArray:
    """The sum of clipped blocks with Gaussian noise, without floating point in between.

    Args:
        contributions: what the blocks add.
        clip: the clipping bound, l2, of a block's distance to the centre.
        noise_multiplier: noise sd ÷ clip.
        source: where noise comes from.
        drawn: the sorted indices of the blocks that count; all by default.
        centre: (d,) a public point; 0 by default.

    Formal guarantee: a Gaussian mechanism with the stated multiplier, for any blocks and in any order:
    each is truncated to a grid, on which its norm is at most the bound, and integers are added.

    >>> from dpgrain.means.protocol import Vectors
    >>> from dpgrain.noise import SeededSource
    >>> exactly_noised(Vectors([[3.0, 4.0]]), 1.0, 1e-3, SeededSource(1)).round(1).tolist()
    [0.6, 0.8]
    """
    finest = min(_EXACT_STEPS, _LARGEST_SCALE / noise_multiplier)
    d, step = contributions.dimension, 2.0 ** math.floor(math.log2(clip / finest))
    total = np.zeros(d, dtype=np.int64)
    for vectors in tiles(contributions, drawn):
        with np.errstate(over="ignore"):
            # What overflows is somebody's value: no warning may tell of it.
            away = vectors if centre is None else finite(vectors - centre)
        total += on_grid(clipped(away, clip), clip, step).sum(axis=0)
    scale = raised(raised(noise_multiplier * (clip / step)))
    noisy = total + rounded_gaussian(scale, d, source=source)
    return noisy.astype(np.float64) * step


def tiles(contributions: Contributions, drawn: Drawn | None = None) -> Iterator[FloatArray]:
    """The blocks' vectors, a bounded number of entries at a time; a row that is not finite is 0."""
    which = np.arange(contributions.blocks) if drawn is None else drawn
    most = max(1, _ENTRIES // max(contributions.dimension, 1))
    for first in range(0, len(which), most):
        yield finite(contributions.vectors(which[first : first + most]).astype(np.float64))


def on_grid(vectors: FloatArray, clip: float, step: float) -> NDArray[np.int64]:
    """Clipped vectors in whole steps, truncated toward zero, of norm at most ``clip/step``."""
    largest = math.floor((clip / step) ** 2)
    steps = np.trunc(vectors / step).astype(np.int64)
    # Rounding may have left a norm a hair above the bound: such a vector gives up one step.
    while True:
        long = (steps * steps).sum(axis=1) > largest
        if not long.any():
            return steps
        rows = np.flatnonzero(long)
        columns = np.abs(steps[rows]).argmax(axis=1)
        steps[rows, columns] -= np.sign(steps[rows, columns])

"""Blocks on the grid are never longer than the clip."""

from __future__ import annotations

import numpy as np

from dpgrain.means import Vectors, clipped, grid


def test_exact_blocks_are_never_longer_than_the_clip() -> None:
    # Each vector separately: the sum is the block, and its integer norm must not exceed the bound.
    rng = np.random.default_rng(6)
    step = 2.0**-24
    for d in (1, 2, 3, 50):
        vectors = clipped(rng.normal(size=(4000, d)) * 100, 1.0)
        steps = grid.on_grid(vectors, 1.0, step)
        assert (steps.astype(object) ** 2).sum(axis=1).max() <= 2**48
        assert np.abs(steps * step - vectors).max() <= 2 * step
    # A vector a hair too long, as rounding may leave it, gives up a step.
    assert (grid.on_grid(np.array([[1.0 + 1e-7, 0.0]]), 1.0, step)[0] == [2**24, 0]).all()


def test_added_blocks_are_clipped_to_the_bound() -> None:
    rng, step = np.random.default_rng(7), 2.0**-24
    for block in rng.normal(size=(20, 1, 3)) * 100:
        total = grid.added_in_steps(Vectors(block), 1.0, step)
        assert (1 - 1e-6) * 2**48 <= (total.astype(object) ** 2).sum() <= 2**48

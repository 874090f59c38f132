"""Counts of leaves from noisy counts of nodes: none where only noise is seen, and never negative."""

from __future__ import annotations

import numpy as np

from dpgrain.statistics.trees import MOSTLY_FULL, believed_leaves, consistent_leaves
from dpgrain.statistics.values import Tree

TREE = Tree(0.0, 1.0, 2)


def noisy(counts: np.ndarray, sd: float, rows: int) -> np.ndarray:
    every = np.concatenate([counts.reshape(16, 16).sum(axis=1), counts])
    return every + np.random.default_rng(0).normal(0, sd, (rows, every.size))


def test_leaves_with_only_noise_are_mostly_empty() -> None:
    leaves = believed_leaves(noisy(np.zeros(256), 10.0, 500), TREE, np.full(500, 10.0))
    assert np.mean(leaves.any(axis=1)) < 0.05
    # Without that, noise of empty leaves adds up to a rank.
    assert np.mean(consistent_leaves(noisy(np.zeros(256), 10.0, 500), TREE) > 0) > 0.4


def test_leaves_with_numbers_keep_them_and_none_is_negative() -> None:
    counts = np.zeros(256)
    counts[[3, 4, 5, 90]] = [400.0, 300.0, 200.0, 500.0]
    for least in ((3.0, 1.5), MOSTLY_FULL):
        leaves = believed_leaves(noisy(counts, 10.0, 200), TREE, np.full(200, 10.0), least)
        assert (leaves >= 0).all()
        assert np.abs(leaves.mean(axis=0) - counts)[[3, 4, 5, 90]].max() < 12
        assert np.abs(leaves[:, 100:].sum(axis=1)).mean() < 8


def test_each_row_has_its_own_noise() -> None:
    counts = np.zeros(256)
    counts[7] = 60.0
    rows = noisy(counts, 1.0, 2)
    leaves = believed_leaves(rows, TREE, np.array([1.0, 100.0]))
    assert leaves[0].sum() > 50
    assert leaves[1].sum() == 0

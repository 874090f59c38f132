"""Counts of a tree's leaves from noisy counts of all of its nodes: post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.statistics.consistency import consistent
from dpgrain.statistics.values import Tree

#: Minimum standard deviations of credible nodes, below the root and below credible nodes: for trees
#: with mostly empty leaves, and with few empty leaves.
MOSTLY_EMPTY, MOSTLY_FULL = (3.0, 1.5), (2.0, 0.0)


def consistent_leaves(masses: FloatArray, tree: Tree) -> FloatArray:
    """Return the least-squares leaves, (V, bins), for all noisy nodes, (V, nodes).

    Source: Hay et al. 2010, "Boosting the accuracy of differentially private histograms".
    """
    b, (own, _) = tree.branching, _from_below(masses, tree)
    # Downwards: divide the excess of a parent over its children equally among them.
    known = own[0]
    for counts in own[1:]:
        children = counts.reshape(len(masses), -1, b)
        missing = known - children.sum(axis=2)
        known = (children + missing[:, :, None] / b).reshape(len(masses), -1)
    return np.asarray(known)


def believed_leaves(
    masses: FloatArray, tree: Tree, sd: FloatArray, least: Sequence[float] = MOSTLY_EMPTY
) -> FloatArray:
    """Return non-negative counts of leaves, (V, bins), 0 for those within the noise.

    The noise of empty leaves adds up to a large rank. So nodes are dropped from the top down, and
    the others share the count of their parent.
    """
    b, (levels, variances) = tree.branching, _from_below(masses, tree)
    known = np.zeros((len(masses), 1))
    for depth, (counts, variance) in enumerate(zip(levels, variances, strict=True)):
        children = counts.reshape(len(masses), -1, b)
        above = least[min(depth, 1)] * math.sqrt(variance) * sd
        included = children > above[:, None, None]
        if depth:
            # The fullest child of a credible node is credible.
            best = children.argmax(axis=2)[:, :, None]
            included |= np.arange(b) == best
            included &= (known > 0)[:, :, None]
            total = known.ravel()
        else:
            total = np.where(included, np.maximum(children, 0.0), 0.0).sum(axis=2).ravel()
        parents = np.repeat(np.arange(total.size), b)
        estimate = np.where(included, children, 0.0).ravel()
        known = consistent(estimate, included.ravel().astype(np.float64), total, parents)
        known = known.reshape(len(masses), -1)
    return known


def _from_below(masses: FloatArray, tree: Tree) -> tuple[list[FloatArray], list[float]]:
    """Return the counts of each level, combined with those below, and their variances."""
    b = tree.branching
    levels, at = [], 0
    for level in range(1, tree.height + 1):
        levels.append(masses[:, at : at + b**level])
        at += b**level
    # Each node's own count and the sum of its children are combined by inverse variance.
    own, variances = [levels[-1]], [1.0]
    for counts in reversed(levels[:-1]):
        children = own[0].reshape(len(masses), -1, b).sum(axis=2)
        variance = b * variances[0] / (1 + b * variances[0])
        own.insert(0, variance * counts + (1 - variance) * children)
        variances.insert(0, variance)
    return own, variances

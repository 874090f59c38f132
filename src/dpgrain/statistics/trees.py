"""Counts of a tree's leaves from noisy counts of all of its nodes: post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.statistics.consistency import consistent
from dpgrain.statistics.values import Tree

#: Standard deviations above which nodes are believed to hold numbers, below the root and within one
#: that is believed: where most are empty, and where few are.
MOSTLY_EMPTY, MOSTLY_FULL = (3.0, 1.5), (2.0, 0.0)


def consistent_leaves(masses: FloatArray, tree: Tree) -> FloatArray:
    """Return the least-squares estimate of the leaves from noisy counts of all nodes.

    Args:
        masses: (V, nodes) noisy counts, level by level, all of the same variance.
        tree: the tree.

    Returns:
        (V, bins) estimates of the leaves.

    The two passes of Hay et al. 2010, "Boosting the accuracy of differentially private histograms".
    """
    b, (own, _) = tree.branching, _from_below(masses, tree)
    # Downwards, what a parent has more than its children is divided equally among them.
    known = own[0]
    for counts in own[1:]:
        children = counts.reshape(len(masses), -1, b)
        missing = known - children.sum(axis=2)
        known = (children + missing[:, :, None] / b).reshape(len(masses), -1)
    return np.asarray(known)


def believed_leaves(
    masses: FloatArray, tree: Tree, sd: FloatArray, least: Sequence[float] = MOSTLY_EMPTY
) -> FloatArray:
    """Return counts of leaves that are not negative, and 0 where none is believed to hold numbers.

    Args:
        masses: (V, nodes) noisy counts, level by level.
        tree: the tree, most of whose leaves may be empty.
        sd: (V,) the standard deviation of the noise of each count.
        least: the standard deviations above which a node below the root is believed to hold
            numbers, and those above which a node of one that is believed is, too.

    Returns:
        (V, bins) counts. Noise of empty leaves adds up to a large rank; from the top down, nodes
        that do not stand out are left out, and the others share what their parent has.
    """
    b, (levels, variances) = tree.branching, _from_below(masses, tree)
    known = np.zeros((len(masses), 1))
    for depth, (counts, variance) in enumerate(zip(levels, variances, strict=True)):
        children = counts.reshape(len(masses), -1, b)
        above = least[min(depth, 1)] * math.sqrt(variance) * sd
        kept = children > above[:, None, None]
        if depth:
            # Of a node that is believed, the fullest child is.
            best = children.argmax(axis=2)[:, :, None]
            kept |= np.arange(b) == best
            kept &= (known > 0)[:, :, None]
            total = known.ravel()
        else:
            total = np.where(kept, np.maximum(children, 0.0), 0.0).sum(axis=2).ravel()
        parents = np.repeat(np.arange(total.size), b)
        estimate = np.where(kept, children, 0.0).ravel()
        known = consistent(estimate, kept.ravel().astype(np.float64), total, parents)
        known = known.reshape(len(masses), -1)
    return known


def _from_below(masses: FloatArray, tree: Tree) -> tuple[list[FloatArray], list[float]]:
    """Return the counts of each level by a node's own and those below it, with their variances.

    Args:
        masses: (V, nodes) noisy counts, level by level, all of variance 1.
        tree: the tree.
    """
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

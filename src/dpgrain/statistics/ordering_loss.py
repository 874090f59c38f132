"""Loss of the element-level paper for the order of items, for research."""

from __future__ import annotations

import numpy as np

from dpgrain._types import FloatArray


def misordered_pairs(truth: FloatArray, estimate: FloatArray, gamma: float) -> int:
    """Count the pairs with a true gap of at least γ (and above 0) in the wrong order.

    Args:
        truth: (V,) true frequencies p.
        estimate: (V,) numbers that order the items.
        gamma: smallest counted gap.

    Returns:
        #{(j, l): p_j − p_l ≥ γ, p_j > p_l, estimate_j < estimate_l}; in O(V log V).

    Source: element-level paper, eq. (8), which is printed with its second inequality reversed.

    >>> misordered_pairs(np.array([0.5, 0.3, 0.2]), np.array([5.0, 1.0, 2.0]), gamma=0.05)
    1
    """
    descending = np.argsort(-truth, kind="stable")
    p = truth[descending]
    ranks = np.unique(estimate[descending], return_inverse=True)[1]
    # Number of first items that are far enough above the l-th item in decreasing order of p.
    above = np.minimum(
        np.searchsorted(-p, -(p + gamma), side="right"), np.searchsorted(-p, -p, side="left")
    )
    # Fenwick tree over the ranks of the estimates of those items.
    tree = [0] * (int(ranks.max(initial=-1)) + 2)
    inserted = wrong = 0
    for needed, rank in zip(above.tolist(), ranks.tolist(), strict=True):
        while inserted < needed:
            i = int(ranks[inserted]) + 1
            while i < len(tree):
                tree[i] += 1
                i += i & -i
            inserted += 1
        i = rank
        while i > 0:
            wrong += tree[i]
            i -= i & -i
    return wrong

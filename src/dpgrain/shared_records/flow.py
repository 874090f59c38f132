"""Rows of two owners: the largest sum is half of a maximum flow, exactly.

Each person is doubled, left and right. From the source an arc of the person's bound leads to the left
copy, and from the right copy one to the sink; a row of u and v is an arc from u's left copy to v's
right copy and one from v's left to u's right, each of the row's amount. Of a flow and its mirror image
the mean is w·amount for weights w of the rows, and twice such weights are a flow.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow as flow_in_32_bits

from dpgrain._types import IntArray
from dpgrain.shared_records.sharing import saturating_sums

# Largest capacity that the solver of SciPy keeps; it truncates others, without an error.
_LARGEST = 2**31 - 1
# Bits by which capacities are looked at more finely, from one scale to the next.
_FINER = 24


def two_owner_flow(
    first: IntArray, second: IntArray, amount: IntArray, bound: IntArray
) -> IntArray:
    """Return twice the share of each person in the largest sum of rows of two owners.

    Args:
        first: (R,) one owner of each row.
        second: (R,) the other, a different one.
        amount: (R,) whole numbers of at least 0, what each row adds.
        bound: (P,) whole numbers, of at most 2^62.

    Returns:
        (P,) whole numbers: their sum is twice the largest sum.

    >>> pairs, ones = np.array([[0, 1, 2], [1, 2, 0]]), np.ones(3, dtype=np.int64)
    >>> two_owner_flow(*pairs, 2 * ones, 3 * ones)
    array([3, 3, 3])
    """
    people = bound.size
    # Parallel rows are one; Σ amounts may pass 64 bits, their clipped sum does not.
    amount = np.minimum(amount, np.minimum(bound[first], bound[second]))
    pair = np.minimum(first, second) * people + np.maximum(first, second)
    pairs, place = np.unique(pair, return_inverse=True)
    u, v = pairs // people, pairs % people
    most = np.minimum(bound[u], bound[v])
    both = np.minimum(saturating_sums(place, amount, pairs.size), most)
    everyone = np.arange(people)
    source, sink = 2 * people, 2 * people + 1
    tail = np.concatenate([np.full(people, source), u, v, everyone + people])
    head = np.concatenate([everyone, v + people, u + people, np.full(people, sink)])
    capacity = np.concatenate([bound, both, both, bound])
    return maximum_flow(tail, head, capacity, source, sink)[:people]


def maximum_flow(
    tail: IntArray, head: IntArray, capacity: IntArray, source: int, sink: int
) -> IntArray:
    """Return a maximum flow, exactly, for capacities of up to 2^62.

    Args:
        tail: (A,) where each arc begins; no two arcs join the same places, either way.
        head: (A,) where it ends.
        capacity: (A,) whole numbers of at least 0.
        source: where the flow begins.
        sink: where it ends.

    Returns:
        (A,) the flow of each arc.

    Capacities beyond 32 bits are looked at coarsely first: what a flow of capacities in steps of a
    power of two leaves of each arc, in both directions, is the next problem, until nothing can be added
    in steps of 1.

    >>> one = np.array([0, 1]), np.array([1, 2])
    >>> maximum_flow(*one, np.array([2**33, 2**62]), 0, 2)
    array([8589934592, 8589934592])
    """
    flow = np.zeros(capacity.size, dtype=np.int64)
    if not capacity.any():
        return flow
    unit = int(np.gcd.reduce(capacity))
    left = capacity // unit
    shift = max(0, int(left.max()).bit_length() - 31)
    nodes = int(max(tail.max(), head.max(), sink)) + 1
    while True:
        pushed = _pushed(tail, head, (left - flow) >> shift, flow >> shift, (source, sink, nodes))
        if pushed.any():
            flow += pushed << shift
        elif shift:
            shift = max(0, shift - _FINER)
        else:
            return flow * unit


def _pushed(
    tail: IntArray, head: IntArray, ahead: IntArray, back: IntArray, ends: tuple[int, int, int]
) -> IntArray:
    """Return the change of each arc's flow by a maximum flow in what is left of them, (A,)."""
    source, sink, nodes = ends
    left = np.minimum(np.concatenate([ahead, back]), _LARGEST).astype(np.int32)
    both = np.concatenate([tail, head]), np.concatenate([head, tail])
    graph = csr_array((left, both), shape=(nodes, nodes))
    graph.eliminate_zeros()
    result = flow_in_32_bits(graph, source, sink).flow.tocsr()
    return np.asarray(result[tail, head], dtype=np.int64).ravel()

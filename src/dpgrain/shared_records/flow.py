"""Rows of two owners: the largest clipped sum is half of a maximum flow, exactly.

Each person has a left and a right copy. Arcs with the person's bound as capacity lead from the
source to the left copy, and from the right copy to the sink. A row of u and v is an arc from u's
left to v's right copy and one from v's left to u's right copy, each with the row's amount as
capacity. The mean of a flow and its mirror image is w·amount for weights w of the rows, and twice
such weights are a flow.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow as flow_in_32_bits

from dpgrain._types import IntArray
from dpgrain.shared_records.sharing import saturating_sums

# Largest capacity of SciPy's solver, which silently truncates larger ones.
_LARGEST = 2**31 - 1
# Additional bits of capacity from one scale to the next.
_FINER = 24


def two_owner_flow(
    first: IntArray, second: IntArray, amount: IntArray, bound: IntArray
) -> IntArray:
    """Return twice the share of each person in the largest clipped sum, (P,).

    ``first`` and ``second`` are the distinct owners of each row, (R,), ``amount`` are integers of
    at least 0, (R,), and ``bound`` integers of at most 2^62, (P,).

    >>> pairs, ones = np.array([[0, 1, 2], [1, 2, 0]]), np.ones(3, dtype=np.int64)
    >>> two_owner_flow(*pairs, 2 * ones, 3 * ones)
    array([3, 3, 3])
    """
    people = bound.size
    # Merge parallel rows; sums of amounts may exceed 64 bits, but clipped sums do not.
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
    """Return an exact maximum flow for capacities up to 2^62, (A,).

    ``tail`` and ``head`` are the ends of each arc, (A,); two nodes are joined by at most one arc.

    Capacities beyond 32 bits are solved on coarser scales first: the residual capacities of a flow
    with steps of a power of two, in both directions, are the next problem, until no flow of step 1
    remains.

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
    """Return the change of each arc's flow by a maximum flow in the residual graph, (A,)."""
    source, sink, nodes = ends
    left = np.minimum(np.concatenate([ahead, back]), _LARGEST).astype(np.int32)
    both = np.concatenate([tail, head]), np.concatenate([head, tail])
    graph = csr_array((left, both), shape=(nodes, nodes))
    graph.eliminate_zeros()
    result = flow_in_32_bits(graph, source, sink).flow.tocsr()
    return np.asarray(result[tail, head], dtype=np.int64).ravel()

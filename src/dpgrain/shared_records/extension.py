"""Lipschitz extension of a sum of shared rows: one person changes it by at most a bound.

Rows with a known weight are removed from the problem first (:func:`presolve`). The rest is a
maximum flow: each person has a left and a right copy. Arcs with the person's bound as capacity lead
from the source to the left copy, and from the right copy to the sink. A row of u and v is an arc
from u's left to v's right copy and one from v's left to u's right copy, each with the row's amount
as capacity. The mean of a flow and its mirror image is w·amount for weights w of the rows, and
twice such weights are a flow.

The bound on a person's records is chosen privately where the extension flattens. On the public grid
B, 2B, 4B, … the first bound with a small noisy q = (f(2B) − f(B))/B is selected. q is at most the
number of people with a total of B or more, and decreases with B. One person changes it by at most 2
if records are removed, and by at most 3 if they are replaced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow as flow_in_32_bits

from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import AboveThreshold
from dpgrain.noise import RandomSource
from dpgrain.publishing.draws import counted
from dpgrain.shared_records.owned_rows import OwnedRows
from dpgrain.shared_records.sharing import SharedAmounts, saturating_sums, sums_at
from dpgrain.units import Level, Relation

# Largest capacity of SciPy's solver, which silently truncates larger ones.
_LARGEST = 2**31 - 1
# Additional bits of capacity from one scale to the next.
_FINER = 24


def two_owner_flow(
    first: IntArray, second: IntArray, amount: IntArray, bound: IntArray
) -> IntArray:
    """Return twice the share of each person in the largest clipped sum, (P,).

    The (R,) rows have two distinct owners and an amount ≥ 0; ``bound`` is (P,), at most 2^62.
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
    """Return an exact maximum flow for (A,) arcs with capacities up to 2^62."""
    # Two nodes are joined by at most one arc. Capacities beyond 32 bits are solved on coarser
    # scales first: the residual capacities of a flow in steps of a power of two are the next
    # problem.
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


# Maximum rounds of the presolve, because a chain of people takes one round per person.
_MOST_ROUNDS = 40


def extension(sharing: SharedAmounts) -> IntArray:
    """Return twice the largest clipped sum of each cell, (K,), with ≤ 2 owners a row.

    Formal guarantee: removing or replacing the rows that a person owns in a cell changes the result
    by at most twice the bound of the cell. Source: docs/theory, "Records with several owners".
    """
    taken, rest = presolve(sharing)
    taken = 2 * taken
    if not rest.amount.size:
        return taken
    # The presolve removes all rows with fewer than two owners.
    owners = rest.person.reshape(-1, 2)
    flow = two_owner_flow(owners[:, 0], owners[:, 1], rest.amount, rest.bound)
    return taken + sums_at(rest.person_cells(), flow, rest.cells)


def presolve(sharing: SharedAmounts) -> tuple[IntArray, SharedAmounts]:
    """Return the sum of rows with known weights in each cell, (K,), and the rest.

    Formal guarantee: the largest sum of all rows is the returned sum plus the largest sum of the
    rest. Source: docs/theory, "Records with several owners".
    """
    taken = np.zeros(sharing.cells, dtype=np.int64)
    cell_of = sharing.person_cells()
    for _ in range(_MOST_ROUNDS):
        before = sharing
        sharing = _clipped(sharing)
        tight = sharing.load() > sharing.bound
        pairs = tight[sharing.person]
        sharing = replace(sharing, row=sharing.row[pairs], person=sharing.person[pairs])
        owners = sharing.owners()
        free = owners == 0
        taken += sums_at(sharing.cell[free], sharing.amount[free], sharing.cells)
        own = owners[sharing.row] == 1
        mine = sharing.amount[sharing.row[own]]
        wanted = saturating_sums(sharing.person[own], mine, sharing.bound.size)
        assigned = np.minimum(wanted, sharing.bound)
        taken += sums_at(cell_of, assigned, sharing.cells)
        sharing = replace(sharing.rows(owners > 1), bound=sharing.bound - assigned)
        if sharing.amount.size == before.amount.size and not assigned.any():
            break
    return taken, _clipped(sharing)


def _clipped(sharing: SharedAmounts) -> SharedAmounts:
    """Clamp amounts to the bounds of their owners, and drop rows with amount 0."""
    amount = sharing.amount.copy()
    np.minimum.at(amount, sharing.row, sharing.bound[sharing.person])
    return replace(sharing, amount=amount).rows(amount > 0)


# Bits of the lowest bound in steps, and of one person in integer units.
_LOW_BITS, _PERSON_BITS = 10, 11
# Budget of the noise on queries relative to the threshold: a threshold that is much too low would
# reject many bounds.
_QUERIES = 0.6
# Noise scales added to the threshold, so that it is rarely below 0.
_RAISED = 3.0


@dataclass(frozen=True)
class BoundSearch:
    """Search for the bound of each cell, given by public numbers.

    The target is a q below ``people``; the threshold is higher by three times its noise scale.
    """

    low: float  # the lowest bound
    doublings: int  # at most
    people: float
    threshold_scale: float  # noise scale of the threshold, in people
    query_scale: float  # noise scale of each q
    level: Level
    relation: Relation

    @staticmethod
    def create(
        epsilon: float, low: float, high: float, *, level: Level, relation: Relation
    ) -> BoundSearch:
        """Return the search between ``low`` and ``high`` with the least noise for an ε."""
        doublings = max(0, math.floor(math.log2(high / low) + 1e-9))
        search = BoundSearch(low, doublings, 0.0, 1.0, 1.0, level, relation)
        scale = search.sensitivity * (1 + _QUERIES) / epsilon * (1 + 1e-9)
        return replace(search, threshold_scale=scale, query_scale=2 * scale / _QUERIES)

    @property
    def sensitivity(self) -> float:
        """Largest change of q by one unit, including rounding to integers."""
        people = 2 if self.relation == "zero_out" else 3
        return people + 2.0**-_PERSON_BITS

    @property
    def event(self) -> AboveThreshold:
        """Event for the accountant."""
        return AboveThreshold(
            self.threshold_scale,
            self.query_scale,
            self.sensitivity,
            noise="laplace",
            level=self.level,
            relation=self.relation,
        )

    def bounds(self, levels: IntArray) -> FloatArray:
        """Return the selected bounds, (K,), from their numbers of doublings."""
        return np.asarray(self.low * 2.0**levels, dtype=np.float64)

    def find(self, pairs: OwnedRows, source: RandomSource) -> IntArray:
        """Return the noisy number of doublings of each cell, (K,)."""
        cells = pairs.cells
        levels = np.full(cells, self.doublings, dtype=np.int64)
        if not self.doublings:
            return levels
        unit = 2.0**_PERSON_BITS
        run = counted(source, self.event).comparisons(self.event, cells, unit)
        limit = math.floor((self.people + _RAISED * self.threshold_scale) * unit)
        open_ = np.ones(cells, dtype=np.bool_)
        small = self._sums(pairs, 0)
        for doubled in range(self.doublings):
            large = self._sums(pairs, doubled + 1)
            # In half steps; a bound has 2^(11 + doubled).
            people = (large - small) >> doubled
            passed = run.stop(people, lambda noisy, lowered: noisy <= limit + lowered)
            levels[passed] = doubled
            open_ &= ~passed
            if not open_.any():
                break
            pairs, small = pairs.of_cells(open_), large
        return levels

    def _sums(self, pairs: OwnedRows, doubled: int) -> IntArray:
        """Return twice the extension of each cell at one bound, in steps of 2^-10 of the lowest."""
        bound = np.full(pairs.cells, 1 << (_LOW_BITS + doubled), dtype=np.int64)
        step = np.full(pairs.cells, self.low * 2.0**-_LOW_BITS)
        return extension(pairs.within(bound, step))

"""Private choice of the bound on a person's records: the bound at which the extension flattens.

On the public grid B, 2B, 4B, … the first bound with a small noisy q = (f(2B) − f(B))/B is selected.
q is at most the number of people with a total of B or more, and decreases with B. One person
changes it by at most 2 if records are removed, and by at most 3 if they are replaced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import AboveThreshold
from dpgrain.noise import RandomSource
from dpgrain.publishing.draws import counted
from dpgrain.shared_records.extension import extension
from dpgrain.shared_records.owned_rows import OwnedRows
from dpgrain.units import Level, Relation

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

    ``low`` is the lowest bound and ``doublings`` the maximum number of doublings. The target is a q
    below ``people``; the threshold is higher by three times its noise scale. ``threshold_scale``
    and ``query_scale`` are the noise scales of the threshold, in people, and of each q.

    >>> search = BoundSearch.of(0.15, 1.0, 2.0**20, level="user", relation="replace")
    >>> round(search.event.epsilon(relation="replace"), 6), round(search.query_scale)
    (0.15, 107)
    """

    low: float
    doublings: int
    people: float
    threshold_scale: float
    query_scale: float
    level: Level
    relation: Relation

    @staticmethod
    def of(
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

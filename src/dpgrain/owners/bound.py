"""The bound on a person's records, found privately: where the extension stops to grow.

Of a public grid of bounds B, 2B, 4B, … the first is taken at which q = (f(2B) − f(B))/B is small by a
noisy look. It is at most the number of people whose records add up to B or more, and does not grow with
B. One person moves it by 2 where records are removed and by 3 where they are exchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import AboveThreshold
from dpgrain.noise import RandomSource
from dpgrain.noise.distributions import raise_scale
from dpgrain.noise.sums import with_laplace
from dpgrain.owners.extension import extension
from dpgrain.owners.pairs import Pairs
from dpgrain.units import Level, Relation

# Bits of the least bound in steps, and those by which a person counts in whole numbers.
_LOW_BITS, _PERSON_BITS = 10, 11
# Ratio of the budgets of the noise on queries and on the threshold: a threshold that is far too low
# would pass by bound after bound.
_QUERIES = 0.6
# Scales of its noise by which the threshold is raised, so that it is seldom below nothing.
_RAISED = 3.0


@dataclass(frozen=True)
class BoundSearch:
    """The search for the bound of each cell, in public numbers.

    Args:
        low: the least bound.
        doublings: how often it may be doubled.
        people: the number q, in people, below which a bound is wanted; the threshold lies higher, by
            three times the scale of its noise.
        threshold_scale: the scale of the noise on the threshold, in people.
        query_scale: the scale of the noise on each q.
        level: the unit that is protected.
        relation: the relation of neighbours.

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
        """Return the search with the least noise for an ε.

        Args:
            epsilon: the ε of the search.
            low: the least bound.
            high: the largest.
            level: the unit that is protected.
            relation: the relation of neighbours.
        """
        doublings = max(0, math.floor(math.log2(high / low) + 1e-9))
        search = BoundSearch(low, doublings, 0.0, 1.0, 1.0, level, relation)
        scale = search.sensitivity * (1 + _QUERIES) / epsilon * (1 + 1e-9)
        return replace(search, threshold_scale=scale, query_scale=2 * scale / _QUERIES)

    @property
    def sensitivity(self) -> float:
        """The most by which one unit moves a q, with what rounding it to whole numbers adds."""
        people = 2 if self.relation == "zero_out" else 3
        return people + 2.0**-_PERSON_BITS

    @property
    def event(self) -> AboveThreshold:
        """The accountant's event."""
        return AboveThreshold(
            self.threshold_scale,
            self.query_scale,
            self.sensitivity,
            noise="laplace",
            level=self.level,
            relation=self.relation,
        )

    def bounds(self, found: IntArray) -> FloatArray:
        """Return the bounds that were found, (K,), from how often the least one is doubled."""
        return np.asarray(self.low * 2.0**found, dtype=np.float64)

    def find(self, pairs: Pairs, source: RandomSource) -> IntArray:
        """Return how often the least bound is doubled in each cell, (K,).

        Args:
            pairs: the rows.
            source: where noise comes from.
        """
        cells = pairs.cells
        found = np.full(cells, self.doublings, dtype=np.int64)
        if not self.doublings:
            return found
        unit = 2.0**_PERSON_BITS
        lowered = with_laplace(
            np.zeros(cells, dtype=np.int64), raise_scale(self.threshold_scale * unit), source=source
        )
        limit = math.floor((self.people + _RAISED * self.threshold_scale) * unit)
        open_ = np.ones(cells, dtype=np.bool_)
        small = self._sums(pairs, 0)
        for doubled in range(self.doublings):
            large = self._sums(pairs, doubled + 1)
            # In half steps, of which a bound has 2^(11 + doubled).
            people = (large - small) >> doubled
            noisy = with_laplace(people, raise_scale(self.query_scale * unit), source=source)
            passed = open_ & (noisy <= limit + lowered)
            found[passed] = doubled
            open_ &= ~passed
            if not open_.any():
                break
            pairs, small = pairs.of_cells(open_), large
        return found

    def _sums(self, pairs: Pairs, doubled: int) -> IntArray:
        """Return twice the extension of each cell at one bound, in steps of the least one's 2^-10."""
        bound = np.full(pairs.cells, 1 << (_LOW_BITS + doubled), dtype=np.int64)
        step = np.full(pairs.cells, self.low * 2.0**-_LOW_BITS)
        return extension(pairs.within(bound, step))

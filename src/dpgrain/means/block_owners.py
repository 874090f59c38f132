"""Population with the index of each block's user, for rounds with different users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.means.grid import tiles
from dpgrain.means.mean_protocol import Contributions, Drawn
from dpgrain.numerics.row_clipping import zero_nonfinite_rows

# Maximum entries of users' vectors in memory.
_BATCH_ENTRIES = 1 << 21


@dataclass(frozen=True, eq=False)
class BlockOwners:
    """Index of each block's user, (blocks,), and the order of blocks; see :meth:`of`."""

    owners: NDArray[np.int64]
    order: NDArray[np.intp]

    @staticmethod
    def from_indices(owners: NDArray[Any] | None) -> BlockOwners:
        """Create the population of blocks from their users' indices, (blocks,)."""
        # A user's index must not depend on which other users have data.
        places = np.asarray(owners)
        if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
            raise ParameterError(
                "owners must be integers of shape (blocks,), the index of each block's user in the "
                f"roster, not {places.dtype} in {places.ndim} dimensions."
            )
        places = places.astype(np.int64)
        return BlockOwners(places, np.argsort(places, kind="stable"))

    def vectors(self, contributions: Contributions, first: int, end: int) -> Iterator[FloatArray]:
        """Yield vectors of users with indices in [``first``, ``end``), in bounded batches."""
        # Blocks of the same user are added; users without blocks have no row.
        if contributions.blocks != len(self.owners):
            raise ParameterError("owners must have one user per block.", name="owners")
        bounds = np.searchsorted(self.owners, [first, end], sorter=self.order)
        drawn = self.order[bounds[0] : bounds[1]]
        starts = np.flatnonzero(np.diff(self.owners[drawn], prepend=first - 1))
        if len(starts) == len(drawn):
            return tiles(contributions, np.sort(drawn))
        return self._added(contributions, drawn, starts)

    def _added(
        self, contributions: Contributions, drawn: Drawn, starts: NDArray[np.intp]
    ) -> Iterator[FloatArray]:
        """Yield each user's sum of blocks, which are adjacent in ``drawn``."""
        most, ends = max(1, _BATCH_ENTRIES // contributions.dimension), [*starts, len(drawn)]
        for low in range(0, len(starts), most):
            high = min(low + most, len(starts))
            own = np.sort(drawn[ends[low] : ends[high]])
            row = np.unique(self.owners[own], return_inverse=True)[1]
            result, done = np.zeros((high - low, contributions.dimension)), 0
            with np.errstate(over="ignore", invalid="ignore"):
                # Overflow depends on a user's value, which a warning would reveal.
                for tile in tiles(contributions, own):
                    np.add.at(result, row[done : done + len(tile)], tile)
                    done += len(tile)
            yield zero_nonfinite_rows(result)

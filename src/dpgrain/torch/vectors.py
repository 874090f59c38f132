"""The vectors of all blocks of one step, side by side, for means with comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpgrain._types import IndexArray
from dpgrain.errors import ParameterError
from dpgrain.means import Vectors
from dpgrain.torch.clipping import Sums, mean_of, whole_sums
from dpgrain.torch.layout import Layout
from dpgrain.torch.uses import Uses

# The vectors of a thousand blocks then take half a gigabyte.
_MOST_PARAMETERS = 2**16


def check_small(parameters: Sequence[Any]) -> None:
    """Refuse a network with too many parameters for a vector of each block.

    Raises:
        ParameterError: if it has.
    """
    entries = sum(parameter.numel() for parameter in parameters)
    if entries > _MOST_PARAMETERS:
        raise ParameterError(
            f"mean requires one vector per block, and the network trains {entries:,} parameters, "
            f"more than the {_MOST_PARAMETERS:,} that are possible; freeze some with "
            "requires_grad_(False), or omit mean and clip.",
            name="mean",
        )


class VectorSum:
    """The mean gradients of the blocks of one step, read one by one.

    Args:
        parameters: what is trained.
        places: (blocks,) the place among the blocks of each that comes, in the order in which they do.
    """

    def __init__(self, parameters: Sequence[Any], places: IndexArray) -> None:
        self._parameters, self._places = parameters, places
        self._vectors = np.zeros((len(places), sum(p.numel() for p in parameters)))
        self._come = 0

    def add_blocks(self, uses: Uses, layout: Layout) -> None:
        """Add a batch, which must hold one block."""
        assert layout.blocks == 1  # noqa: S101 - nothing of other blocks may enter a kernel
        self.add_block(whole_sums(uses, layout), layout.rows)

    def add_block(self, vector: Sums, records: int) -> None:
        """Add one block, a sum over its records."""
        self._vectors[self._places[self._come]] = mean_of(vector, self._parameters, records)
        self._come += 1

    @property
    def vectors(self) -> Vectors:
        """The vectors, in the order of blocks; the blocks that have not come are 0."""
        return Vectors(self._vectors)

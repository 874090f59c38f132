"""Vectors of all blocks of one step, for means that compare vectors."""

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

# Maximum number of parameters; the vectors of 1,000 blocks then need 0.5 GB.
_MOST_PARAMETERS = 2**16


def check_small(parameters: Sequence[Any]) -> None:
    """Reject a network with too many parameters to store a vector per block."""
    entries = sum(parameter.numel() for parameter in parameters)
    if entries > _MOST_PARAMETERS:
        raise ParameterError(
            f"mean requires one vector per block, and the network trains {entries:,} parameters, "
            f"more than the {_MOST_PARAMETERS:,} that are possible; freeze some with "
            "requires_grad_(False), or omit mean and clip.",
            name="mean",
        )


class VectorSum:
    """Mean gradients of the blocks of one step, read separately.

    ``places`` are the indices of blocks in reading order, (blocks,).
    """

    def __init__(self, parameters: Sequence[Any], places: IndexArray) -> None:
        self._parameters, self._places = parameters, places
        self._vectors = np.zeros((len(places), sum(p.numel() for p in parameters)))
        self._come = 0

    def add_blocks(self, uses: Uses, layout: Layout) -> None:
        """Add a batch, which must contain exactly one block."""
        assert layout.blocks == 1  # noqa: S101 - nothing of other blocks may enter a kernel
        self.add_block(whole_sums(uses, layout), layout.rows)

    def add_block(self, vector: Sums, records: int) -> None:
        """Add one block, given the sum of its gradients over ``records`` records."""
        self._vectors[self._places[self._come]] = mean_of(vector, self._parameters, records)
        self._come += 1

    @property
    def vectors(self) -> Vectors:
        """Vectors in the order of blocks; missing blocks are 0."""
        return Vectors(self._vectors)

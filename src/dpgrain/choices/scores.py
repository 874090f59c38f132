"""Losses of blocks as integers, for sums in a choice between candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain._types import IntArray
from dpgrain.inputs.array_blocks import ArrangedRows
from dpgrain.inputs.numbers import numbers, vector

# Steps of the largest loss of a block.
STEPS = 2**24
# Saturation limit of totals; saturation never increases the sensitivity.
_LARGEST_TOTAL = 2**52


@dataclass(frozen=True)
class BlockLosses:
    """Rule from records' losses to one integer per block, from 0 to 2^24.

    A loss is clamped to [lower, lower + bound], NaN to the upper end, and truncated to a step; a
    block has the truncated mean of its records. Sums of integers are exact in any order.
    """

    rows: ArrangedRows
    lower: float
    bound: float

    def of(self, losses: Any) -> IntArray:
        """Return the losses of the blocks in steps, (G,), from all records' losses, (m,)."""
        counted = numbers(vector(losses))[self.rows.indices]
        with np.errstate(all="ignore"):
            share = np.nan_to_num(
                (counted - self.lower) / self.bound, nan=1.0, posinf=1.0, neginf=0.0
            )
        steps = np.floor(np.clip(share, 0.0, 1.0) * STEPS)
        blocks = len(self.rows.owners)
        # The sums are integers below 2^53, which are exact in floating point.
        sums = np.bincount(self.rows.blocks, steps, minlength=blocks).astype(np.int64)
        means: IntArray = sums // np.bincount(self.rows.blocks, minlength=blocks)
        return np.minimum(means, STEPS)


def sum_losses(losses: IntArray) -> int:
    """Return the sum over blocks, saturated at 2^52."""
    return min(int(losses.sum()), _LARGEST_TOTAL)

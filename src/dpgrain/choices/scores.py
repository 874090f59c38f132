"""Losses of blocks as whole numbers: what a choice between candidates adds up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain._types import IntArray
from dpgrain.arrays.blocks import Rows
from dpgrain.inputs.numbers import numbers, vector

# A block's loss is so many steps at most.
STEPS = 2**24
# Totals saturate here, which no unit's step exceeds.
_LARGEST = 2**52


@dataclass(frozen=True)
class BlockLosses:
    """How losses of records become one whole number for each block, from 0 to 2^24.

    Args:
        rows: which block each record is in.
        lower: the loss that counts 0.
        bound: how far above it the loss counts most.

    A record's loss is clipped to [lower, lower + bound] and truncated to a step; one that is not a
    number counts as lower + bound. A block's is the mean over its records, truncated. All sums are of
    whole numbers: exact, and the same in any order.

    >>> from dpgrain.arrays.blocks import arrange
    >>> from dpgrain.units import User
    >>> losses = BlockLosses(arrange(3, ["ann", "bob", "ann"], None, User()), 0.0, 1.0)
    >>> (losses.of([0.5, float("nan"), 0.0]) / STEPS).tolist()
    [0.25, 1.0]
    """

    rows: Rows
    lower: float
    bound: float

    def of(self, losses: Any) -> IntArray:
        """(G,) the blocks' losses in steps.

        Args:
            losses: (m,) of all records, also of those that do not count.
        """
        found = numbers(vector(losses))[self.rows.kept]
        with np.errstate(all="ignore"):
            share = np.nan_to_num(
                (found - self.lower) / self.bound, nan=1.0, posinf=1.0, neginf=0.0
            )
        steps = np.floor(np.clip(share, 0.0, 1.0) * STEPS)
        blocks = len(self.rows.owners)
        # Whole numbers below 2^53: exact in floating point.
        sums = np.bincount(self.rows.blocks, steps, minlength=blocks).astype(np.int64)
        means: IntArray = sums // np.bincount(self.rows.blocks, minlength=blocks)
        return np.minimum(means, STEPS)


def total(losses: IntArray) -> int:
    """The sum over blocks, which saturates at 2^52.

    >>> total(np.array([1, 2]))
    3
    """
    return min(int(losses.sum()), _LARGEST)

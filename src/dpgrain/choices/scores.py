"""Losses of blocks as whole numbers, to be added up in a choice between candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgrain._types import IntArray
from dpgrain.arrays.blocks import Rows
from dpgrain.inputs.numbers import numbers, vector

# Steps of the largest loss of a block.
STEPS = 2**24
# Largest total, at which sums saturate; saturating never makes one unit move a total farther.
_LARGEST_TOTAL = 2**52


@dataclass(frozen=True)
class BlockLosses:
    """A rule from records' losses to one whole number for each block, from 0 to 2^24.

    Args:
        rows: the rows, which say in which block each record is.
        lower: the loss that counts 0.
        bound: the distance above ``lower`` from which a loss counts most.

    A record's loss is clipped to [lower, lower + bound] and truncated to a step; one that is not a
    number counts as lower + bound. The loss of a block is the mean over its records, truncated. All
    sums are of whole numbers, so that they are exact, and the same in any order.

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
        """Return the losses of the G blocks in steps, (G,).

        Args:
            losses: (m,) losses of all records, also of those that do not count.
        """
        counted = numbers(vector(losses))[self.rows.kept]
        with np.errstate(all="ignore"):
            share = np.nan_to_num(
                (counted - self.lower) / self.bound, nan=1.0, posinf=1.0, neginf=0.0
            )
        steps = np.floor(np.clip(share, 0.0, 1.0) * STEPS)
        blocks = len(self.rows.owners)
        # The sums are whole numbers below 2^53, which are exact in floating point.
        sums = np.bincount(self.rows.blocks, steps, minlength=blocks).astype(np.int64)
        means: IntArray = sums // np.bincount(self.rows.blocks, minlength=blocks)
        return np.minimum(means, STEPS)


def total(losses: IntArray) -> int:
    """Return the sum over blocks, saturated at 2^52.

    >>> total(np.array([1, 2]))
    3
    """
    return min(int(losses.sum()), _LARGEST_TOTAL)

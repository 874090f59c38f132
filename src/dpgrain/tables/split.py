"""The splitting of a record's number into non-negative integers, added to coordinates of its group.

A number is split between a few *corners* (coordinates) so that every moment or rank that is wanted
is a linear function of the sums: docs/theory, "Numbers as masses". Blocks of such sums are
non-negative vectors, like those of a histogram, and are clipped, added and noised in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.tables.engines.feed import Chunk
from dpgrain.tables.engines.kernel import SATURATION


class Split(Protocol):
    """A rule from records' numbers to their additions, in multiples of ``unit``."""

    @property
    def corners(self) -> int:
        """The number of coordinates of each group."""

    @property
    def unit(self) -> float:
        """The value of one count, a power of two."""

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return the keys of the coordinates to which records add, and the totals that they add."""


@dataclass(frozen=True)
class Weight:
    """Each record adds its number where that is above 0, truncated to multiples of ``unit``."""

    unit: float
    corners: int = 1

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return the keys of the records that count, and their truncated numbers."""
        assert values is not None  # noqa: S101 - the engine brings numbers wherever there is a split
        counted = values > 0
        if not counted.all():
            keys, values = keys[counted], values[counted]
        with np.errstate(over="ignore"):
            # An overflow saturates like any huge weight, and a warning would publish it.
            totals = values * (1 / self.unit)
        return keys, np.floor(np.minimum(totals, SATURATION, out=totals), out=totals)


@dataclass(frozen=True)
class Present:
    """Each record with a finite number counts 1."""

    corners: int = 1
    unit: float = 1.0

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:  # noqa: ARG002
        """Return the keys, and None for totals of 1."""
        return keys, None

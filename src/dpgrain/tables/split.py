"""Splitting of a record's number into non-negative integers for the coordinates of its group.

A number is split between a few *corners* (coordinates), so that every moment or rank is a linear
function of the sums: docs/theory, "Numbers as masses". Blocks of such sums are non-negative
vectors, like in a histogram, with the same clipping, summation and noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpgrain._types import FloatArray, IntArray
from dpgrain.tables.engines.feed import Chunk
from dpgrain.tables.engines.kernel import SATURATION


class Split(Protocol):
    """A function from numbers of records to their additions, in multiples of ``unit``."""

    @property
    def corners(self) -> int:
        """Number of coordinates of each group."""

    @property
    def unit(self) -> float:
        """Value of one count, a power of two."""

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return coordinates' keys and additions, from keys and numbers, (r,)."""


@dataclass(frozen=True)
class Weight:
    """Each record adds its positive number, truncated to a multiple of ``unit``."""

    unit: float
    corners: int = 1

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return the keys of records with positive numbers, and the truncated numbers."""
        assert values is not None  # noqa: S101 - the engine brings numbers wherever there is a split
        counted = values > 0
        if not counted.all():
            keys, values = keys[counted], values[counted]
        with np.errstate(over="ignore"):
            # An overflow saturates like any huge weight; a warning would reveal it.
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


@dataclass(frozen=True)
class OfAllGroups:
    """Additions of another split to one set of coordinates, for records of any group."""

    split: Split
    item_bits: int  # bits of a coordinate in the keys

    @property
    def corners(self) -> int:
        """Number of coordinates."""
        return self.split.corners

    @property
    def unit(self) -> float:
        """Value of one count."""
        return self.split.unit

    def __call__(self, keys: IntArray, values: FloatArray | None) -> Chunk:
        """Return the keys of common coordinates, and the additions to them."""
        return self.split(keys >> self.item_bits << self.item_bits, values)

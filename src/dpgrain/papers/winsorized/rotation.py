"""Random rotations: random signs and a padded Walsh–Hadamard transform."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource
from dpgrain.noise.sources import random_bits

# Numbers per batch of a transform; they fit in the cache.
_BATCH_ENTRIES = 1 << 16


def padded(dimension: int) -> int:
    """Return the smallest power of two that is at least the dimension."""
    return 1 << (_validate.integer(minimum=1, dimension=dimension) - 1).bit_length()


def hadamard(columns: FloatArray) -> FloatArray:
    """Multiply (D, n) columns by the ±1 Hadamard matrix H, in place; D = 2^k.

    Formal guarantee: each column's result depends only on that column, bit by bit. H·H = D·I.
    """
    size, count = columns.shape
    if size < 1 or size & (size - 1):
        raise ParameterError(f"columns must have a power of two as their length, not {size}.")
    half = 1
    while half < size:
        pairs = columns.reshape(size // (2 * half), 2, half * count)
        low, high = pairs[:, 0], pairs[:, 1]
        difference = low - high
        low += high
        high[...] = difference
        half *= 2
    return columns


@dataclass(frozen=True)
class Rotation:
    """The public orthogonal map x ↦ H(w∘x)/√D with signs w, x padded to length D.

    With probability 1 − β a coordinate of the image of a vector independent of the signs is within
    ‖x‖√(2 ln(2/β)/D) of 0 (Hoeffding). Source: Levy et al. 2021, Lemma 2, with constant √2.
    """

    signs: FloatArray

    @staticmethod
    def draw(dimension: int, source: RandomSource) -> Rotation:
        """Draw random signs for vectors of this length; the signs may be published."""
        bits = random_bits(source, dimension) >> np.uint64(63)
        return Rotation(1.0 - 2.0 * bits.astype(np.float64))

    @property
    def size(self) -> int:
        """Length D of rotated vectors."""
        return padded(len(self.signs))

    def of(self, vectors: NDArray[np.float64]) -> FloatArray:
        """Rotate (n, d) rows into (D, n) columns that only depend on their rows, bit by bit."""
        n, size = len(vectors), self.size
        scale = self.signs / math.sqrt(size)
        out = np.empty((size, n))
        most = max(1, _BATCH_ENTRIES // size)
        for first in range(0, n, most):
            some = slice(first, min(first + most, n))
            part = np.zeros((size, some.stop - first))
            np.multiply(vectors[some].T, scale[:, None], out=part[: len(scale)])
            out[:, some] = hadamard(part)
        return out

    def back(self, rotated: FloatArray) -> FloatArray:
        """Return the vector with a given image, (D,) to (d,): the inverse, up to rounding."""
        column = hadamard(rotated.reshape(-1, 1).astype(np.float64))[:, 0]
        vector: FloatArray = column[: len(self.signs)] * self.signs / math.sqrt(self.size)
        return vector

"""Random rotations: random signs, then the Walsh–Hadamard transform, padded to a power of two."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.noise import Source

# Numbers that are transformed at a time, so that they stay in cache.
_BATCH_ENTRIES = 1 << 16


def padded(dimension: int) -> int:
    """Return the least power of two that is at least the dimension.

    Args:
        dimension: at least 1.

    Raises:
        ParameterError: if it is not a whole number of at least 1.

    >>> [padded(d) for d in (1, 3, 4, 1000)]
    [1, 4, 4, 1024]
    """
    return 1 << (_validate.integer(minimum=1, dimension=dimension) - 1).bit_length()


def hadamard(columns: FloatArray) -> FloatArray:
    """Multiply columns by the Hadamard matrix H (entries ±1), in place.

    Args:
        columns: (D, n) contiguous, D a power of two; overwritten.

    Raises:
        ParameterError: if D is not a power of two.

    Formal guarantee: each column's result depends on that column alone, bit by bit: every number is a
    sum or difference of two numbers of its column, in a fixed order. H·H = D·I.

    >>> hadamard(np.eye(2)).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
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
    """The orthogonal map x ↦ H(w∘x)/√D, x padded with zeros to length D. Public.

    Args:
        signs: (d,) the random signs w, ±1. Those of the padding do not matter.

    A vector that does not depend on the signs has each coordinate of its image within
    ‖x‖√(2 ln(2/β)/D) of 0, but for a probability β (Hoeffding). Source: Levy et al. 2021, Lemma 2, with
    constant √2 instead of 10, and D instead of d.

    >>> rotation = Rotation(np.array([1.0, -1.0, 1.0]))
    >>> rotation.back(rotation.of(np.array([[1.0, 2.0, 3.0]]))[:, 0]).round(12).tolist()
    [1.0, 2.0, 3.0]
    """

    signs: FloatArray

    @staticmethod
    def draw(dimension: int, source: Source) -> Rotation:
        """Draw random signs for vectors of this length.

        Args:
            dimension: the length d.
            source: where the signs come from. They may be published.
        """
        bits = source.words(dimension) >> np.uint64(63)
        return Rotation(1.0 - 2.0 * bits.astype(np.float64))

    @property
    def size(self) -> int:
        """The length D of rotated vectors."""
        return padded(len(self.signs))

    def of(self, vectors: NDArray[np.float64]) -> FloatArray:
        """Rotate rows into columns.

        Args:
            vectors: (n, d).

        Returns:
            (D, n): each column depends on its row alone, bit by bit.
        """
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
        """Return the vector with a given image, (D,) to (d,): the inverse, but for rounding."""
        column = hadamard(rotated.reshape(-1, 1).astype(np.float64))[:, 0]
        vector: FloatArray = column[: len(self.signs)] * self.signs / math.sqrt(self.size)
        return vector

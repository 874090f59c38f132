"""From vectors of bounded norm to small integers, and integers as bytes of a fixed length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._clipping import clipped, finite
from dpgrain._later import later
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise import Source, rounded

if TYPE_CHECKING:
    from dpgrain.inputs import numbers
else:
    # Devices have arrays, and need not load what reads tables.
    numbers = later("dpgrain.inputs.numbers")

# Room for the rounding of norms, products and sums in floating point, for up to 2^20 coordinates.
_ROOM = 1 - 2.0**-30
# Entries that are encoded at a time: the work space stays in cache.
_ENTRIES = 1 << 17
# The most steps of a grid.
_FINEST = 1 << 40
_THREADS, _FEW = 4, 4
#: Bytes of the number of a report.
NONCE = 16


@dataclass(frozen=True)
class Encoding:
    """The randomised rounding of vectors of bounded norm to integers from 0 to g, without bias.

    Args:
        bound: B, l2 norm of a vector; longer ones are shortened to it.
        grid: g, an even number of steps.
        dim: d, the number of coordinates.
        centred: coordinates lie in [−B, B], and 0 is g/2; otherwise in [0, B], and 0 is 0.

    Formal guarantee: with the uniforms of the rounding fixed, the codes of two vectors differ by at
    most ⌈|s_j|⌉ in coordinate j and by at most g + √d in l2 norm, ‖s‖₂ ≤ g; those of a vector and of no
    data by half of g instead of g, where centred. Source: Cheu et al. 2022, Algorithms 1 and 2, with
    the bound of docs/theory.md, "Shuffled sums".
    """

    bound: float
    grid: int
    dim: int
    centred: bool = True

    def __post_init__(self) -> None:
        if self.grid % 2 or not 2 <= self.grid < _FINEST:
            # Halfway must be a step, or the code of no data would not be in the middle.
            raise ParameterError(f"grid must be an even number from 2 to 2^40, not {self.grid!r}.")

    @property
    def step(self) -> float:
        """What one integer stands for."""
        return (2 if self.centred else 1) * self.bound / (self.grid * _ROOM)

    @property
    def null(self) -> int:
        """The code of every coordinate of a user without data."""
        return self.grid // 2 if self.centred else 0

    def vectors(self, values: ArrayLike) -> FloatArray:
        """Vectors as rows, (k, d).

        Args:
            values: (k, d), or (k,) for one coordinate. Cells that are no numbers are NaN; a vector that
                is not finite is a user without data, as is, in a list, one of another length or None.

        Raises:
            ParameterError: if it is not numbers of this shape.
        """
        array = _read(values, self.dim)
        if array.ndim == 1 and self.dim == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != self.dim or array.dtype.kind not in "fiub":
            raise ParameterError(
                f"vectors must be numbers of shape (users, {self.dim}), {self.dim} coordinates each."
            )
        return array

    def codes(self, vectors: FloatArray, source: Source) -> NDArray[Any]:
        """The codes of some users, (k, d).

        Args:
            vectors: (k, d); a row that is not finite is a user without data.
            source: one secret uniform for each coordinate of each user.
        """
        with np.errstate(all="ignore"):
            # What overflows is somebody's value: no warning may tell of it.
            own = clipped(finite(vectors.astype(np.float64, copy=False)), self.bound)
        if not self.centred:
            own = np.clip(own, 0.0, None)
        own *= 1 / self.step
        own += self.null
        return rounded(own, self.grid, source)

    def total(self, tiles: Iterable[FloatArray], source: Source) -> tuple[IntArray, int]:
        """The sum of the codes of users, (d,), and how many there were.

        Args:
            tiles: arrays of users' vectors, (k, d) each.
            source: as above. Where it is secret, several threads draw from it.
        """
        total, users = np.zeros(self.dim, dtype=np.int64), 0

        def coded(part: FloatArray) -> IntArray:
            added: IntArray = self.codes(part, source).sum(axis=0, dtype=np.int64)
            return added

        pieces = self._pieces(tiles)
        # A few pieces are not worth threads; and a seed is used in one order.
        few = None if not source.private else _FEW
        for part in islice(pieces, few):
            total, users = total + coded(part), users + len(part)
        rest = list(islice(pieces, 1))
        if not rest:
            return total, users
        with ThreadPoolExecutor(_THREADS) as pool:
            waiting = []
            for part in chain(rest, pieces):
                waiting.append(pool.submit(coded, part))
                users += len(part)
                if len(waiting) >= 2 * _THREADS:
                    total = total + waiting.pop(0).result()
            for one in waiting:
                total = total + one.result()
        return total, users

    def _pieces(self, tiles: Iterable[FloatArray]) -> Iterator[FloatArray]:
        most = max(1, _ENTRIES // self.dim)
        for tile in tiles:
            if tile.ndim != 2 or tile.shape[1] != self.dim:
                raise ParameterError(
                    f"vectors must be (users, {self.dim}): {self.dim} coordinates, as the protocol has."
                )
            for first in range(0, len(tile), most):
                yield tile[first : first + most]


def _read(values: ArrayLike, dim: int) -> NDArray[Any]:
    """An array, of numbers where its type leaves that open: an odd cell or row is no error."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values
    return numbers.cells(values, dim, name="vectors")


@dataclass(frozen=True)
class Packing:
    """Integers of so many bits each, after a tag and a number that no other report has.

    Args:
        tag: some bytes, which say the protocol and round.
        dim: d, the number of integers.
        largest: the largest integer.

    >>> packing = Packing(b"tag", 3, 1000)
    >>> report = packing.pack(np.array([7, 0, 1000]), bytes(16))
    >>> packing.size, packing.unpack(report).tolist(), packing.unpack(b"else") is None
    (23, [7, 0, 1000], True)
    """

    tag: bytes
    dim: int
    largest: int

    @property
    def bits(self) -> int:
        """The bits of an integer."""
        return self.largest.bit_length()

    @property
    def size(self) -> int:
        """The bytes of a report: the same for all."""
        return self._start + -(-self.dim * self.bits // 8)

    @property
    def _start(self) -> int:
        return len(self.tag) + NONCE

    def pack(self, integers: IntArray, nonce: bytes) -> bytes:
        """Integers as bytes.

        Args:
            integers: (d,), each at most the largest.
            nonce: 16 random bytes.

        Raises:
            ParameterError: if an integer is out of range.
        """
        if integers.min() < 0 or integers.max() > self.largest:
            raise ParameterError(f"integers must lie between 0 and {self.largest}.")
        places = np.arange(self.bits, dtype=np.int64)
        bits = (integers[:, None] >> places) & 1
        return self.tag + nonce + np.packbits(bits.astype(np.uint8).ravel()).tobytes()

    def nonce_of(self, report: bytes) -> bytes:
        """The number that no other report has."""
        return report[len(self.tag) : self._start]

    def unpack(self, report: bytes) -> IntArray | None:
        """The integers, (d,); None if these bytes stand for none that a device can send."""
        if not isinstance(report, bytes) or len(report) != self.size:
            return None
        if not report.startswith(self.tag):
            return None
        bits = np.unpackbits(np.frombuffer(report, dtype=np.uint8, offset=self._start))
        used = self.dim * self.bits
        if bits[used:].any():
            return None
        places = np.int64(1) << np.arange(self.bits, dtype=np.int64)
        integers: IntArray = bits[:used].reshape(self.dim, self.bits).astype(np.int64) @ places
        return None if (integers > self.largest).any() else integers

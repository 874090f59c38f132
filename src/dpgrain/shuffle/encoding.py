"""Encoding of vectors of bounded norm as small integers, and of integers as bytes."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource, rounded
from dpgrain.numerics.row_clipping import clipped, zero_nonfinite_rows

if TYPE_CHECKING:
    from dpgrain.inputs import numbers
else:
    # Loaded on first use, because devices have arrays and need no table readers.
    numbers = lazy_import("dpgrain.inputs.numbers")

# Safety factor for the floating-point rounding of norms, products and sums, for up to 2^20
# coordinates.
_FLOATING_ROOM = 1 - 2.0**-30
# Max entries encoded at a time; their work space fits in the cache.
_PIECE_ENTRIES = 1 << 17
# Exclusive upper limit on the steps of a grid.
_MOST_STEPS = 1 << 40
_THREADS, _UNTHREADED_PIECES = 4, 4
#: Bytes of a report's random number.
NONCE = 16
#: A device identifier: 7 and "7" are the same; None if the sender is unknown.
Device: TypeAlias = str | bytes | int | None


@dataclass(frozen=True)
class VectorEncoding:
    """Unbiased randomised rounding of clipped vectors to integers from 0 to g.

    Formal guarantee: with fixed uniforms, the codes of two vectors differ by ≤ ⌈|s_j|⌉ in coordinate
    j and by ≤ g + √d in l2 norm, ‖s‖₂ ≤ g; to no data by half of g instead of g, if centred.
    Source: Cheu et al. 2022, Algorithms 1 and 2; docs/theory, "Shuffled sums".
    """

    bound: float
    grid: int
    dim: int
    centred: bool = True  # coordinates may be negative; 0 becomes g/2, for an even g

    def __post_init__(self) -> None:
        if self.grid % 2 or not 2 <= self.grid < _MOST_STEPS:
            # The middle must be a step, because it is the code of no data.
            raise ParameterError(f"grid must be an even number from 2 to 2^40, not {self.grid!r}.")

    @property
    def step(self) -> float:
        """Amount of one step."""
        return (2 if self.centred else 1) * self.bound / (self.grid * _FLOATING_ROOM)

    @property
    def null(self) -> int:
        """Code of every coordinate of a user without data."""
        return self.grid // 2 if self.centred else 0

    def vectors(self, values: ArrayLike) -> FloatArray:
        """Read vectors as rows (k, d); those that are not finite are users without data."""
        array = _read(values, self.dim)
        self._rows(array.shape)
        return array.reshape(-1, self.dim)

    def unread(self, values: ArrayLike) -> tuple[Any, int]:
        """Return unread values with the shape of vectors, and their number."""
        listed, shape = numbers.table_and_shape(values, self.dim, name="vectors")
        return listed, self._rows(shape)

    def _rows(self, shape: tuple[int, ...]) -> int:
        """Return the number of vectors in values of a shape."""
        if shape[1:] != (self.dim,) and not (len(shape) == self.dim == 1):
            raise ParameterError(
                f"vectors must be numbers of shape (users, {self.dim}), {self.dim} coordinates "
                "each."
            )
        return shape[0]

    def codes(self, vectors: FloatArray, source: RandomSource) -> NDArray[Any]:
        """Return (k, d) codes of (k, d) vectors; non-finite rows are users without data."""
        with np.errstate(all="ignore"):
            # Overflows and underflows depend on a user's value, so no warning may reveal them.
            own = clipped(zero_nonfinite_rows(vectors.astype(np.float64, copy=False)), self.bound)
            if not self.centred:
                own = np.clip(own, 0.0, None)
            own *= 1 / self.step
            own += self.null
        return rounded(own, self.grid, source)

    def total(self, tiles: Iterable[FloatArray], source: RandomSource) -> tuple[IntArray, int]:
        """Return (d,) the sum of the codes of (k, d) tiles, and the number of users."""
        total, users = np.zeros(self.dim, dtype=np.int64), 0

        def coded(part: FloatArray) -> IntArray:
            added: IntArray = self.codes(part, source).sum(axis=0, dtype=np.int64)
            return added

        pieces = self._pieces(tiles)
        # A small number of pieces is not worth threads. A seeded source never uses threads, because
        # its bits must be used in one order.
        few = None if not source.private else _UNTHREADED_PIECES
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
        most = max(1, _PIECE_ENTRIES // self.dim)
        for tile in tiles:
            if tile.ndim != 2 or tile.shape[1] != self.dim:
                raise ParameterError(
                    f"vectors must have shape (users, {self.dim}), with {self.dim} coordinates as "
                    "in the protocol."
                )
            for first in range(0, len(tile), most):
                yield tile[first : first + most]


def _read(values: ArrayLike, dim: int) -> NDArray[Any]:
    """Return an array of numbers, without errors for malformed cells or rows."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values
    return numbers.numeric_array(values, dim, name="vectors")


def device_bytes(device: Device) -> bytes:
    """Return the bytes of a device identifier."""
    if isinstance(device, bytes):
        return device
    if isinstance(device, str):
        return device.encode("utf-8", "surrogatepass")
    try:
        return str(operator.index(device)).encode()  # type: ignore[arg-type]
    except TypeError:
        raise ParameterError(
            f"device must be text, bytes or an integer, not {type(device).__name__}; pass the "
            "identifier as text."
        ) from None


def device_tag(tag: bytes, device: Device) -> bytes:
    """Return a device's tag, which does not match a report copied under another id."""
    if device is None:
        return tag
    return hashlib.sha256(tag + device_bytes(device)).digest()[: len(tag)]


@dataclass(frozen=True)
class Packing:
    """The bytes of a report: a tag, a random number, and bounded integers."""

    tag: bytes
    dim: int
    largest: int

    def of(self, device: Device) -> Packing:
        """Return the packing of one device's reports, with the device's own tag."""
        return replace(self, tag=device_tag(self.tag, device))

    @property
    def bits(self) -> int:
        """Number of bits of an integer."""
        return self.largest.bit_length()

    @property
    def size(self) -> int:
        """Number of bytes of every report."""
        return self._start + -(-self.dim * self.bits // 8)

    @property
    def _start(self) -> int:
        return len(self.tag) + NONCE

    def pack(self, integers: IntArray, nonce: bytes) -> bytes:
        """Return (d,) integers from 0 to ``largest`` as a report, with 16 random bytes."""
        if integers.min() < 0 or integers.max() > self.largest:
            raise ParameterError(f"integers must be between 0 and {self.largest}.")
        places = np.arange(self.bits, dtype=np.int64)
        bits = (integers[:, None] >> places) & 1
        return self.tag + nonce + np.packbits(bits.astype(np.uint8).ravel()).tobytes()

    def nonce(self, report: bytes) -> bytes:
        """Return the report's random number."""
        return report[len(self.tag) : self._start]

    def unpack(self, report: bytes) -> IntArray | None:
        """Return (d,) the integers of a report; None if no device can send these bytes."""
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

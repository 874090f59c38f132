"""The encoding of vectors of bounded norm as small integers, and of integers as bytes."""

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

# Factor that leaves room for the rounding of norms, products and sums in floating point, for up to 2^20
# coordinates.
_FLOATING_ROOM = 1 - 2.0**-30
# Entries of a piece in which vectors are encoded, at most, whose work space stays in the cache.
_PIECE_ENTRIES = 1 << 17
# Steps of a grid, always fewer than this number.
_MOST_STEPS = 1 << 40
_THREADS, _UNTHREADED_PIECES = 4, 4
#: Bytes of a report's own number.
NONCE = 16
#: The identifier of a device: 7 and "7" are one; None where nobody says who sends.
Device: TypeAlias = str | bytes | int | None


@dataclass(frozen=True)
class Encoding:
    """The randomised rounding of vectors of bounded norm to integers from 0 to g, without bias.

    Args:
        bound: B, the largest l2 norm of a vector; longer vectors are shortened to it.
        grid: g, an even number of steps.
        dim: d, the number of coordinates.
        centred: True if coordinates lie in [−B, B] and 0 becomes g/2; False if they lie in [0, B] and
            0 becomes 0.

    Raises:
        ParameterError: if the grid is odd or out of range.

    Formal guarantee: with the uniforms of the rounding fixed, the codes of two vectors differ by at
    most ⌈|s_j|⌉ in coordinate j and by at most g + √d in l2 norm, ‖s‖₂ ≤ g. Where centred, the codes of
    a vector and of no data differ by at most half of g instead of g. Source: Cheu et al. 2022,
    Algorithms 1 and 2, with the bound of docs/theory, "Shuffled sums".

    >>> from dpgrain.noise import SeededSource
    >>> encoding = Encoding(bound=1.0, grid=10, dim=2)
    >>> codes = encoding.codes(np.array([[0.6, -0.8], [np.nan, 0.0]]), SeededSource(1))
    >>> codes.tolist(), ((codes[0] - encoding.null) * encoding.step).round(1).tolist()
    ([[8, 1], [5, 5]], [0.6, -0.8])
    """

    bound: float
    grid: int
    dim: int
    centred: bool = True

    def __post_init__(self) -> None:
        if self.grid % 2 or not 2 <= self.grid < _MOST_STEPS:
            # The middle must be a step, since it is the code of no data.
            raise ParameterError(f"grid must be an even number from 2 to 2^40, not {self.grid!r}.")

    @property
    def step(self) -> float:
        """The amount of one step."""
        return (2 if self.centred else 1) * self.bound / (self.grid * _FLOATING_ROOM)

    @property
    def null(self) -> int:
        """The code of every coordinate of a user without data."""
        return self.grid // 2 if self.centred else 0

    def vectors(self, values: ArrayLike) -> FloatArray:
        """Read vectors as rows, (k, d).

        Args:
            values: (k, d) numbers, or (k,) for one coordinate. A cell that is no number becomes NaN. A
                vector that is not finite belongs to a user without data, and so does, in a list, None
                or a vector of another length.

        Raises:
            ParameterError: if the values are not numbers of this shape.
        """
        array = _read(values, self.dim)
        self._rows(array.shape)
        return array.reshape(-1, self.dim)

    def unread(self, values: ArrayLike) -> tuple[Any, int]:
        """Return values that are vectors by their shape, and how many there are; none is read.

        Args:
            values: as for :meth:`vectors`.

        Raises:
            ParameterError: if the values are not numbers of this shape.
        """
        listed, shape = numbers.unread(values, self.dim, name="vectors")
        return listed, self._rows(shape)

    def _rows(self, shape: tuple[int, ...]) -> int:
        """Return the number of vectors of values of a shape."""
        if shape[1:] != (self.dim,) and not (len(shape) == self.dim == 1):
            raise ParameterError(
                f"vectors must be numbers of shape (users, {self.dim}), {self.dim} coordinates "
                "each."
            )
        return shape[0]

    def codes(self, vectors: FloatArray, source: Source) -> NDArray[Any]:
        """Return (k, d) the codes of some users.

        Args:
            vectors: (k, d); a row that is not finite belongs to a user without data.
            source: random bits for one secret uniform for each coordinate of each user.
        """
        with np.errstate(all="ignore"):
            # A value that overflows or underflows is somebody's, and no warning may reveal it.
            own = clipped(finite(vectors.astype(np.float64, copy=False)), self.bound)
            if not self.centred:
                own = np.clip(own, 0.0, None)
            own *= 1 / self.step
            own += self.null
        return rounded(own, self.grid, source)

    def total(self, tiles: Iterable[FloatArray], source: Source) -> tuple[IntArray, int]:
        """Return (d,) the sum of the codes of users, and the number of users.

        Args:
            tiles: arrays of users' vectors, (k, d) each.
            source: random bits for the rounding. Several threads draw from a secret source.
        """
        total, users = np.zeros(self.dim, dtype=np.int64), 0

        def coded(part: FloatArray) -> IntArray:
            added: IntArray = self.codes(part, source).sum(axis=0, dtype=np.int64)
            return added

        pieces = self._pieces(tiles)
        # The first pieces run without threads, which few pieces are not worth. A seeded source never
        # has threads, since its bits must be used in one order.
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
    """Return an array of numbers, in which an odd cell or row is no error."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values
    return numbers.cells(values, dim, name="vectors")


def name_of(device: Device) -> bytes:
    """Return the bytes that stand for a device.

    Args:
        device: text, bytes or a whole number.

    Raises:
        ParameterError: if it is anything else, such as a number that does not equal itself.

    >>> name_of("ann"), name_of(7) == name_of("7")
    (b'ann', True)
    """
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


def tag_of(tag: bytes, device: Device) -> bytes:
    """Return the tag of a device's reports: that of the round, hashed with the device's name.

    A report that is copied under another name then has a tag that does not fit.

    Args:
        tag: the tag of the protocol and round, of at most 32 bytes.
        device: the device; None keeps the tag of the round.

    >>> tag_of(b"round 01", None), len(tag_of(b"round 01", "ann"))
    (b'round 01', 8)
    """
    if device is None:
        return tag
    return hashlib.sha256(tag + name_of(device)).digest()[: len(tag)]


@dataclass(frozen=True)
class Packing:
    """The bytes of a report: a tag, a number of its own, and integers of fixed length.

    Args:
        tag: some bytes, which name the protocol and round.
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

    def of(self, device: Device) -> Packing:
        """Return the packing of one device's reports, with a tag of that device alone."""
        return replace(self, tag=tag_of(self.tag, device))

    @property
    def bits(self) -> int:
        """The number of bits of an integer."""
        return self.largest.bit_length()

    @property
    def size(self) -> int:
        """The number of bytes of every report."""
        return self._start + -(-self.dim * self.bits // 8)

    @property
    def _start(self) -> int:
        return len(self.tag) + NONCE

    def pack(self, integers: IntArray, nonce: bytes) -> bytes:
        """Write integers as the bytes of a report.

        Args:
            integers: (d,) integers from 0 to ``largest``.
            nonce: 16 random bytes.

        Raises:
            ParameterError: if an integer is out of range.
        """
        if integers.min() < 0 or integers.max() > self.largest:
            raise ParameterError(f"integers must be between 0 and {self.largest}.")
        places = np.arange(self.bits, dtype=np.int64)
        bits = (integers[:, None] >> places) & 1
        return self.tag + nonce + np.packbits(bits.astype(np.uint8).ravel()).tobytes()

    def nonce_of(self, report: bytes) -> bytes:
        """Return the report's own number."""
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

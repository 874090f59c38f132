"""Sums through a blind shuffler: additive shares, each slot of them shuffled on its own.

Every device splits each integer into random shares that add up to it, modulo q, and sends each share as
a message of its own. The analyzer adds up all messages, from which it learns, up to a small statistical
distance, the sum and nothing else. The shuffler need not add, and cannot read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._special import gammaln
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.noise import Source
from dpgrain.shuffle.encoding import Device, tag_of
from dpgrain.shuffle.parties import Dropped

# Largest modulus, since sums are int64, and whole numbers at most 10^18.
_LARGEST_MODULUS = 1 << 59
# Bytes of a message that the number of the slot takes.
_LABEL_BYTES = 4
# The recursion runs up to the first of these numbers of devices, and up to the second if need be.
_FIRST_DEVICES, _MOST_DEVICES = 1 << 10, 1 << 12
# Bound on the relative rounding of a logarithm of factorials.
_RELATIVE_ROUNDING = 2.0**-48


@dataclass(frozen=True, eq=False)
class CombinedShares:
    """The sums of one round, computed by the analyzer.

    Args:
        total: (dim,) the sums modulo q, in 0 .. q−1, which are uniform noise where a slot is not
            complete.
        complete: (dim,) True where every slot of the coordinate got as many messages as there are
            devices.
        dropped: the malformed messages: they are of another length, protocol or round, of no slot, or
            have a share of q or more.
    """

    total: NDArray[np.int64]
    complete: NDArray[np.bool_]
    dropped: Dropped


@dataclass(frozen=True)
class Shares:
    """The splitting of a device's integers into shares, for the analyzer to add up.

    The coordinates are cut into pieces; each piece is split into ``count`` shares. A message holds one
    share of one piece and the number of its slot (piece and share). Messages of one device must reach
    the analyzer unlinked: each slot has a shuffler of its own, or one shuffler mixes all messages of
    all devices. A device that sends its shares in one message, or in a known order, hides nothing.

    Args:
        dim: the number of integers of a device.
        modulus: q, a power of two, 2 .. 2^59, above every possible sum of all devices.
        count: m, the number of shares of a piece, at least 2.
        width: the number of coordinates of a piece. Wider pieces take fewer messages and more bytes.
        tag: some bytes with which every message begins, which name the protocol and round.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: the view of everybody but the honest devices is within :meth:`variation` of one
    made from the honest devices' sum alone. A corrupt device may add any number to any sum, which does
    not show; a message that is left out or added makes that sum uniform noise, which does show.
    Source: Ishai, Kushilevitz, Ostrovsky & Sahai 2006; Balle, Bell, Gascón & Nissim 2020, with the
    constants of docs/theory, "Sums through a blind shuffler", instead of theirs.

    >>> from dpgrain.noise import SeededSource
    >>> shares, source = Shares(dim=2, modulus=256, count=5), SeededSource(1)
    >>> sent = [m for row in ([3, 4], [10, 20]) for m in shares.messages(row, source)]
    >>> shares.combine(shuffled(sent, source), devices=2).total.tolist()
    [13, 24]
    """

    dim: int
    modulus: int
    count: int
    width: int = 1
    tag: bytes = b""

    def __post_init__(self) -> None:
        _validate.plain(self)
        _validate.integer(minimum=1, dim=self.dim)
        _modulus(self.modulus)
        _validate.integer(minimum=2, count=self.count)
        _validate.integer(minimum=1, width=self.width)
        if self.width > self.dim:
            raise ParameterError(f"width must be at most dim = {self.dim}, not {self.width!r}.")
        if self.slots >= 2 ** (8 * _LABEL_BYTES):
            raise ParameterError(f"dim must be smaller: {self.slots} slots cannot be numbered.")
        if not isinstance(self.tag, bytes):
            raise ParameterError(f"tag must be bytes, not {_validate.said(self.tag)}.")

    @staticmethod
    def within(
        variation: float,
        *,
        devices: int,
        dim: int,
        modulus: int,
        rounds: int = 1,
        width: int = 1,
        tag: bytes = b"",
    ) -> Shares:
        """Make the fewest shares with which all rounds together stay within a distance.

        Args:
            variation: η of all coordinates and rounds together, in (0, 1).
            devices: the number of devices that follow the protocol and are heard, in every round.
            dim: the number of integers of a device.
            modulus: q, a power of two, 2 .. 2^59, above every possible sum of all devices.
            rounds: the number of rounds in which the same devices take part.
            width: the number of coordinates of a piece.
            tag: the bytes with which every message begins.

        Raises:
            ParameterError: if a value is out of range.

        >>> Shares.within(1e-8, devices=1000, dim=100, modulus=2**32).count
        12
        """
        variation = _validate.fraction(variation=variation)
        rounds = _validate.integer(minimum=1, rounds=rounds)
        one = Shares(dim, modulus, 2, width)
        needed = shares_needed(devices, modulus, variation / (one.pieces * rounds), width)
        return Shares(dim, modulus, needed, width, tag)

    def of(self, device: Device) -> Shares:
        """Return the shares of one device, in messages with a tag of its own."""
        return replace(self, tag=tag_of(self.tag, device))

    @property
    def pieces(self) -> int:
        """The number of pieces of the coordinates; the last one may be filled up with zeros."""
        return -(-self.dim // self.width)

    @property
    def slots(self) -> int:
        """The number of messages of a device."""
        return self.pieces * self.count

    @property
    def message_bytes(self) -> int:
        """The length of every message."""
        return len(self.tag) + _LABEL_BYTES + self.width * self._share_bytes

    @property
    def _share_bytes(self) -> int:
        return -(-(self.modulus.bit_length() - 1) // 8)

    def variation(self, devices: int, *, rounds: int = 1, colluding: int = 0) -> float:
        """Return η, the distance of all rounds' view from one that is made from the sums alone.

        Args:
            devices: the number of devices that follow the protocol and are heard, in every round.
            rounds: the number of rounds.
            colluding: the number of the ``count`` shufflers that may reveal to the analyzer who
                sent what, where each share has a shuffler of its own. The first of them costs
                nothing.

        Raises:
            ParameterError: if a value is out of range.

        >>> Shares(100, 2**32, 12).variation(1000) < 1e-8
        True
        """
        rounds = _validate.integer(minimum=1, rounds=rounds)
        told = max(_validate.integer(minimum=0, colluding=colluding) - 1, 0)
        if self.count - told < 2:
            return 1.0
        one = distance(devices, self.modulus, self.count - told, self.width)
        # The shares of a single device show its number, which is the sum, so that η is 0.
        return min(math.nextafter(self.pieces * rounds * one, 1.0), 1.0) if one else 0.0

    def split(self, values: ArrayLike, source: Source) -> NDArray[np.uint64]:
        """Split the integers of one device into shares.

        Args:
            values: (dim,) integers, which are taken modulo q.
            source: random bits.

        Returns:
            (count, dim) shares in 0 .. q−1, any ``count − 1`` of which are uniform and independent.

        Raises:
            ParameterError: if ``values`` are not integers, or not ``dim`` of them.
        """
        given = np.asarray(values)
        if given.shape != (self.dim,) or given.dtype.kind not in "iu":
            raise ParameterError(
                f"values must be {self.dim} integers, not {given.dtype} of shape {given.shape}."
            )
        free = source.words((self.count - 1) * self.dim).reshape(self.count - 1, self.dim)
        # uint64 wraps modulo 2^64, a multiple of q.
        last = given.astype(np.uint64) - free.sum(axis=0, dtype=np.uint64)
        shares: NDArray[np.uint64] = np.vstack([free, last]) & np.uint64(self.modulus - 1)
        return shares

    def messages(self, values: ArrayLike, source: Source) -> list[bytes]:
        """Make the messages of one device, one for each slot, all of the same length.

        Args:
            values: (dim,) integers, which are taken modulo q. A device without data sends shares of
                its noise, too.
            source: random bits.
        """
        filled = np.zeros((self.count, self.pieces * self.width), dtype=np.uint64)
        filled[:, : self.dim] = self.split(values, source)
        # Slots are in the order of pieces: first all shares of the first piece, then of the second, …
        slots = filled.reshape(self.count, self.pieces, self.width).swapaxes(0, 1)
        labels = np.arange(self.slots, dtype="<u4").view(np.uint8).reshape(self.slots, _LABEL_BYTES)
        words = slots.reshape(self.slots, self.width).astype("<u8").view(np.uint8)
        low = words.reshape(self.slots, self.width, 8)[:, :, : self._share_bytes]
        packed = np.hstack([labels, low.reshape(self.slots, -1)])
        return [self.tag + row.tobytes() for row in packed]

    def combine(self, messages: Iterable[bytes], devices: int) -> CombinedShares:
        """Add up the messages of all devices.

        Args:
            messages: the messages of all slots, in any order.
            devices: the number of devices that the shuffler says it heard.

        Returns:
            The sums, and marks of those that are worth nothing. A surplus message of a slot cannot
            be distinguished from the others, so none is left out.

        Raises:
            ParameterError: if ``devices`` is not a whole number of at least 1.
        """
        devices = _validate.integer(minimum=1, devices=devices)
        arrived: list[Any] = _validate.sequence(messages=messages)
        labels, shares = self._parsed([m for m in arrived if self.fits(m)])
        good = (labels < self.slots) & (shares < self.modulus).all(axis=1)
        labels, shares = labels[good], shares[good]
        sums = np.zeros((self.pieces, self.width), dtype=np.uint64)
        np.add.at(sums, labels // self.count, shares)
        heard = np.bincount(labels, minlength=self.slots).reshape(self.pieces, self.count)
        total = (sums.ravel()[: self.dim] & np.uint64(self.modulus - 1)).astype(np.int64)
        complete = np.repeat((heard == devices).all(axis=1), self.width)[: self.dim]
        return CombinedShares(total, complete, Dropped(malformed=len(arrived) - len(labels)))

    def fits(self, message: object) -> bool:
        """Return True if this has the length and the tag of the messages of this protocol and round."""
        return (
            isinstance(message, bytes)
            and len(message) == self.message_bytes
            and message.startswith(self.tag)
        )

    def _parsed(self, messages: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return (n,) the slots and (n, width) the shares of messages of the right length."""
        packed = np.frombuffer(b"".join(messages), dtype=np.uint8).reshape(-1, self.message_bytes)
        packed = packed[:, len(self.tag) :]
        n, size = len(packed), self._share_bytes
        labels = np.ascontiguousarray(packed[:, :_LABEL_BYTES]).view("<u4").ravel().astype(np.int64)
        words = np.zeros((n, self.width, 8), dtype=np.uint8)
        words[:, :, :size] = packed[:, _LABEL_BYTES:].reshape(n, self.width, size)
        return labels, words.reshape(n, 8 * self.width).view("<u8").astype(np.uint64)


def shuffled(messages: Sequence[bytes], source: Source) -> list[bytes]:
    """Return the messages in uniformly random order, as a shuffler in this process.

    Mixing the messages of all slots together mixes each slot on its own.

    Args:
        messages: the messages of all devices.
        source: random bits.
    """
    # Keys have two words, so that equal ones are too rare to matter.
    order = np.lexsort(source.words(2 * len(messages)).reshape(2, -1))
    return [messages[i] for i in order]


def modulus_above(largest_sum: int, spare_bits: int = 0) -> int:
    """Return the smallest power of two above every possible sum.

    Args:
        largest_sum: the largest value of one device times the number of devices.
        spare_bits: the number of bits that are added, so that a sum spoiled by a lost share lies above
            ``largest_sum`` with probability at least 1 − 2^−spare_bits.

    Raises:
        ParameterError: if the modulus would be above 2^59.

    >>> modulus_above(1000 * 300)
    524288
    """
    largest = _validate.integer(minimum=0, largest_sum=largest_sum)
    spare = _validate.integer(minimum=0, spare_bits=spare_bits)
    return _modulus(2 << max(largest, 1).bit_length() - 1 << spare if spare < 64 else 0)


def distance(devices: int, modulus: int, count: int, width: int = 1) -> float:
    """Bound the distance of one piece's shuffled shares from a view that shows only its sum.

    Args:
        devices: N, the number of devices that follow the protocol and are heard.
        modulus: q, a power of two.
        count: m, the number of shares into which each device splits its numbers.
        width: the number of coordinates of a share.

    Returns:
        η, a total variation, rounded up; 1 where nothing is known.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: η = ½·√(E[Q^{C−1}] − 1), Q = q^width, C the number of connected components of
    m − 1 random permutations of N points together; about ½·√(Q·N^{2−m}). Source: docs/theory,
    "Sums through a blind shuffler".

    >>> distance(1000, 2**32, 11) < 1e-8 < distance(1000, 2**32, 9)
    True
    """
    devices = _validate.integer(minimum=1, devices=devices)
    count = _validate.integer(minimum=2, count=count)
    width = _validate.integer(minimum=1, width=width)
    log_modulus = width * math.log(_modulus(modulus))
    if devices == 1:
        return 0.0
    excess = _log_excess(devices, log_modulus, count - 2)
    return 1.0 if excess >= math.log(4) else math.nextafter(0.5 * math.exp(excess / 2), 1.0)


def shares_needed(devices: int, modulus: int, variation: float, width: int = 1) -> int:
    """Return the smallest number of shares that stays within a distance.

    Args:
        devices: N, the number of devices that follow the protocol and are heard.
        modulus: q, a power of two.
        variation: η of one piece, in (0, 1).
        width: the number of coordinates of a share.

    Raises:
        ParameterError: if a value is out of range.

    >>> shares_needed(1000, 2**32, 1e-10)
    12
    """
    variation = _validate.fraction(variation=variation)

    def enough(count: int) -> bool:
        return distance(devices, modulus, count, width) <= variation

    low, step = 1, 1
    if devices > 1:
        # The search starts at a lower bound, which comes from devices that are alone in their
        # component of the permutations.
        alone = width * math.log(_modulus(modulus) / 2) - 2 * math.log(2 * variation)
        low = max(math.floor(1 + alone / math.log(devices)), 1)
    while not enough(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _modulus(modulus: int) -> int:
    modulus = _validate.integer(minimum=0, modulus=modulus)
    if not 2 <= modulus <= _LARGEST_MODULUS or modulus & (modulus - 1):
        raise ParameterError(
            f"modulus must be a power of two, 2 .. 2^59, not {_validate.said(modulus)}."
        )
    return modulus


def _log_excess(devices: int, log_modulus: float, power: int) -> float:
    """Return ln of a bound on E_N = E[Q^{C−1}] − 1 for N devices and power + 1 permutations.

    It is infinite where no useful bound is known.
    """
    if log_modulus - math.log(2) - power * math.log(devices) > math.log(4):
        # The first term of the sum is already too large for a useful bound.
        return math.inf
    last = _FIRST_DEVICES
    while last < min(devices, _MOST_DEVICES + 1):
        excesses = _log_excesses(last, log_modulus, power)
        settled = bool((excesses[last // 2 :] <= 0).all())
        if settled and _beyond(last + 1, excesses, log_modulus, power) <= 0:
            return _beyond(devices, excesses, log_modulus, power)
        last *= 2
    if devices > _MOST_DEVICES:
        return math.inf
    return float(_log_excesses(devices, log_modulus, power)[devices])


@lru_cache(maxsize=64)
def _log_excesses(most: int, log_modulus: float, power: int) -> FloatArray:
    """Return (most + 1,) ln E_n for n = 0 .. most, rounded up.

    It uses E_n ≤ Q·Σ_{j=1}^{n−1} (1 − j/n)·C(n, j)^{−power}·(1 + E_j), whose terms are all positive.
    """
    n = np.arange(most + 1)
    factorials = gammaln(n + 1.0)
    excesses = np.full(most + 1, -math.inf)
    # This holds ln (1 + E_j).
    ones = np.zeros(most + 1)
    for i in range(2, most + 1):
        choose = factorials[i] - factorials[1:i] - factorials[i - 1 : 0 : -1]
        logs = log_modulus + ones[1:i] + np.log1p(-n[1:i] / i) - power * choose
        size = 3 * power * factorials[i] + log_modulus + float(ones[:i].max()) + i
        excesses[i] = _log_sum(logs) + _RELATIVE_ROUNDING * size
        ones[i] = np.logaddexp(0.0, excesses[i])
    return excesses


def _log_sum(logs: FloatArray) -> float:
    """Return ln Σ e^logs."""
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum()))


def _beyond(devices: int, excesses: FloatArray, log_modulus: float, power: int) -> float:
    """Return ln of a bound on E_N for N beyond the table, if E_j ≤ 1 in the upper half of the table.

    With J below the middle of the table, the bound is Q·Σ_{j≤J} C(N, j)^{−power}·(1 + E_j) +
    2Q·(Σ_{i≤J} (i/N)·C(N, i)^{−power} + N·C(N, J+1)^{−power}), which falls in N ≥ 2J + 2.
    """
    half = (len(excesses) - 1) // 2 - 1
    i = np.arange(half + 1, dtype=np.float64)
    choose: FloatArray = np.cumsum(np.log(devices - i) - np.log1p(i))
    few = np.logaddexp(0.0, excesses[1 : half + 1]) - power * choose[:-1]
    many = math.log(2) + np.log((i[:-1] + 1) / devices) - power * choose[:-1]
    middle = math.log(2) + math.log(devices) - power * choose[-1]
    size = power * half * choose[-1] + log_modulus
    return (
        log_modulus + _log_sum(np.array([*few, *many, middle])) + _RELATIVE_ROUNDING * float(size)
    )

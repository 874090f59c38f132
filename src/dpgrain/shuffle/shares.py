"""Sums through a shuffler that is blind: additive shares, each slot of them shuffled on its own.

Every device splits each integer into random shares that add up to it, modulo q, and sends each share as
a message of its own; the analyzer adds up all messages. What it sees is, up to a small statistical
distance, the sum and nothing else: the shuffler need not add, and cannot read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._special import gammaln
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.noise import Source
from dpgrain.shuffle.parties import Dropped

# The largest modulus: sums are int64, and whole numbers up to 10^18.
_LARGEST = 1 << 59
# Bytes of the number of the slot, in a message.
_LABEL = 4
# Numbers of devices up to which the recursion runs: at first, and at most.
_FEW, _MOST = 1 << 10, 1 << 12
# A bound on the relative rounding of a logarithm of factorials.
_ROUNDING = 2.0**-48


@dataclass(frozen=True, eq=False)
class CombinedShares:
    """What the analyzer has of one round.

    Args:
        total: (dim,) the sums modulo q, in 0 .. q−1. Where a slot is not complete, uniform noise.
        complete: (dim,) whether every slot of the coordinate got as many messages as there are devices.
        dropped: messages of another length, protocol or round, of no slot, or with a share of q or more
            (malformed).
    """

    total: NDArray[np.int64]
    complete: NDArray[np.bool_]
    dropped: Dropped


@dataclass(frozen=True)
class Shares:
    """How devices split their integers, and how the analyzer puts the sum together again.

    The coordinates are cut into pieces; each piece is split into ``count`` shares. A message holds one
    share of one piece and the number of its slot (piece and share). Messages of one device must reach
    the analyzer unlinked: each slot has a shuffler of its own, or one shuffler mixes all messages of
    all devices. A device that sends its shares in one message, or in a known order, hides nothing.

    Args:
        dim: how many integers a device has.
        modulus: q, a power of two, 2 .. 2^59, above every possible sum of all devices.
        count: m, how many shares a piece is split into, at least 2.
        width: how many coordinates a piece has. A larger one takes fewer messages and more bytes.
        tag: some bytes that every message begins with, which say the protocol and round.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: the view of everybody but the honest devices is within :meth:`variation` of one
    made from the honest devices' sum alone. A corrupt device may add any number to any sum, and
    whoever leaves out or adds a message makes that sum uniform noise; only the latter shows.
    Source: Ishai, Kushilevitz, Ostrovsky & Sahai 2006; Balle, Bell, Gascón & Nissim 2020, with the
    constants of docs/theory.md, "Sums through a blind shuffler", instead of theirs.

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
        if self.slots >= 2 ** (8 * _LABEL):
            raise ParameterError(f"dim must be smaller: {self.slots} slots cannot be numbered.")
        if not isinstance(self.tag, bytes):
            raise ParameterError(f"tag must be bytes, not {self.tag!r}.")

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
        """The fewest shares with which all rounds together stay within a distance.

        Args:
            variation: η of all coordinates and rounds, in (0, 1).
            devices: how many devices follow the protocol and are heard, in every round.
            dim: as for the class, and so ``modulus`` and ``width``.
            modulus: q.
            rounds: how many rounds the same devices take part in.
            width: coordinates of a piece.
            tag: what messages begin with.

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

    @property
    def pieces(self) -> int:
        """How many pieces the coordinates are cut into; the last may be filled up with zeros."""
        return -(-self.dim // self.width)

    @property
    def slots(self) -> int:
        """How many messages a device sends."""
        return self.pieces * self.count

    @property
    def message_bytes(self) -> int:
        """The length of every message."""
        return len(self.tag) + _LABEL + self.width * self._share_bytes

    @property
    def _share_bytes(self) -> int:
        return -(-(self.modulus.bit_length() - 1) // 8)

    def variation(self, devices: int, *, rounds: int = 1, colluding: int = 0) -> float:
        """η, within which the view is made from the sum alone: all coordinates and rounds together.

        Args:
            devices: how many devices follow the protocol and are heard, in every round.
            rounds: how many rounds.
            colluding: where each share has a shuffler of its own: how many of the ``count`` shufflers
                may tell the analyzer who sent what. The first costs nothing.

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
        # The shares of one device tell its number, which is the sum: nothing else.
        return min(math.nextafter(self.pieces * rounds * one, 1.0), 1.0) if one else 0.0

    def split(self, values: ArrayLike, source: Source) -> NDArray[np.uint64]:
        """The shares of one device.

        Args:
            values: (dim,) integers; they are taken modulo q.
            source: where randomness comes from.

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
        """What one device sends: one message for each slot, all of the same length.

        Arguments as for :meth:`split`. A device without data sends shares of its noise, too.
        """
        filled = np.zeros((self.count, self.pieces * self.width), dtype=np.uint64)
        filled[:, : self.dim] = self.split(values, source)
        # Slot by slot: the shares of the first piece, of the second, …
        slots = filled.reshape(self.count, self.pieces, self.width).swapaxes(0, 1)
        labels = np.arange(self.slots, dtype="<u4").view(np.uint8).reshape(self.slots, _LABEL)
        words = slots.reshape(self.slots, self.width).astype("<u8").view(np.uint8)
        low = words.reshape(self.slots, self.width, 8)[:, :, : self._share_bytes]
        packed = np.hstack([labels, low.reshape(self.slots, -1)])
        return [self.tag + row.tobytes() for row in packed]

    def combine(self, messages: Iterable[bytes], devices: int) -> CombinedShares:
        """The sums that messages of all devices add up to.

        Args:
            messages: of all slots, in any order.
            devices: how many devices the shuffler says it heard.

        Returns:
            The sums, and where they are worth nothing. A surplus message of a slot cannot be told from
            the others, so none is left out.
        """
        devices = _validate.integer(minimum=1, devices=devices)
        arrived = list(messages)
        labels, shares = self._parsed([m for m in arrived if self._expected(m)])
        good = (labels < self.slots) & (shares < self.modulus).all(axis=1)
        labels, shares = labels[good], shares[good]
        sums = np.zeros((self.pieces, self.width), dtype=np.uint64)
        np.add.at(sums, labels // self.count, shares)
        heard = np.bincount(labels, minlength=self.slots).reshape(self.pieces, self.count)
        total = (sums.ravel()[: self.dim] & np.uint64(self.modulus - 1)).astype(np.int64)
        complete = np.repeat((heard == devices).all(axis=1), self.width)[: self.dim]
        return CombinedShares(total, complete, Dropped(malformed=len(arrived) - len(labels)))

    def _expected(self, message: object) -> bool:
        """Whether this has the form of a message of this protocol."""
        return (
            isinstance(message, bytes)
            and len(message) == self.message_bytes
            and message.startswith(self.tag)
        )

    def _parsed(self, messages: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """(n,) the slots and (n, width) the shares of messages of the right length."""
        packed = np.frombuffer(b"".join(messages), dtype=np.uint8).reshape(-1, self.message_bytes)
        packed = packed[:, len(self.tag) :]
        n, size = len(packed), self._share_bytes
        labels = np.ascontiguousarray(packed[:, :_LABEL]).view("<u4").ravel().astype(np.int64)
        words = np.zeros((n, self.width, 8), dtype=np.uint8)
        words[:, :, :size] = packed[:, _LABEL:].reshape(n, self.width, size)
        return labels, words.reshape(n, 8 * self.width).view("<u8").astype(np.uint64)


def shuffled(messages: Sequence[bytes], source: Source) -> list[bytes]:
    """The messages in uniformly random order: the shuffler, in process.

    Mixing the messages of all slots together mixes each slot on its own.

    Args:
        messages: of all devices.
        source: where randomness comes from.
    """
    # Two words: equal keys are too rare to matter.
    order = np.lexsort(source.words(2 * len(messages)).reshape(2, -1))
    return [messages[i] for i in order]


def modulus_above(largest_sum: int, spare_bits: int = 0) -> int:
    """The smallest power of two above every possible sum.

    Args:
        largest_sum: the largest value of one device times the number of devices.
        spare_bits: so many bits more, so that a sum spoiled by a lost share lies above
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
    """How far the shuffled shares of one piece are from telling its sum and nothing else, at most.

    Args:
        devices: N, how many devices follow the protocol and are heard.
        modulus: q, a power of two.
        count: m, how many shares each splits its numbers into.
        width: how many coordinates a share holds.

    Returns:
        η, a total variation, rounded up; 1 where nothing is known.

    Raises:
        ParameterError: if a value is out of range.

    Formal guarantee: η = ½·√(E[Q^{C−1}] − 1), Q = q^width, C the number of connected components of
    m − 1 random permutations of N points together; about ½·√(Q·N^{2−m}). Source: docs/theory.md,
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
    """The smallest number of shares that stays within a distance.

    Args:
        devices: as for :func:`distance`, and so ``modulus`` and ``width``.
        modulus: q.
        variation: η of one piece, in (0, 1).
        width: how many coordinates a share holds.

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
        # By the devices that are alone in their component, which no fewer hide.
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
    if not 2 <= modulus <= _LARGEST or modulus & (modulus - 1):
        raise ParameterError(f"modulus must be a power of two, 2 .. 2^59, not {modulus!r}.")
    return modulus


def _log_excess(devices: int, log_modulus: float, power: int) -> float:
    """ln of a bound on E_N = E[Q^{C−1}] − 1 for N devices and power + 1 permutations; ∞ for none."""
    if log_modulus - math.log(2) - power * math.log(devices) > math.log(4):
        # The first term alone says nothing.
        return math.inf
    known = _FEW
    while known < min(devices, _MOST + 1):
        excesses = _log_excesses(known, log_modulus, power)
        settled = bool((excesses[known // 2 :] <= 0).all())
        if settled and _beyond(known + 1, excesses, log_modulus, power) <= 0:
            return _beyond(devices, excesses, log_modulus, power)
        known *= 2
    if devices > _MOST:
        return math.inf
    return float(_log_excesses(devices, log_modulus, power)[devices])


@lru_cache(maxsize=64)
def _log_excesses(most: int, log_modulus: float, power: int) -> FloatArray:
    """(most + 1,) ln E_n for n = 0 .. most, rounded up.

    E_n ≤ Q·Σ_{j=1}^{n−1} (1 − j/n)·C(n, j)^{−power}·(1 + E_j): all terms are positive.
    """
    n = np.arange(most + 1)
    factorials = gammaln(n + 1.0)
    excesses = np.full(most + 1, -math.inf)
    # ln (1 + E_j).
    ones = np.zeros(most + 1)
    for i in range(2, most + 1):
        choose = factorials[i] - factorials[1:i] - factorials[i - 1 : 0 : -1]
        logs = log_modulus + ones[1:i] + np.log1p(-n[1:i] / i) - power * choose
        size = 3 * power * factorials[i] + log_modulus + float(ones[:i].max()) + i
        excesses[i] = _log_sum(logs) + _ROUNDING * size
        ones[i] = np.logaddexp(0.0, excesses[i])
    return excesses


def _log_sum(logs: FloatArray) -> float:
    """ln Σ e^logs."""
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum()))


def _beyond(devices: int, excesses: FloatArray, log_modulus: float, power: int) -> float:
    """ln of a bound on E_N for N beyond all that are known, if E_j ≤ 1 from the middle of these on.

    With J below the middle: Q·Σ_{j≤J} C(N, j)^{−power}·(1 + E_j) + 2Q·(Σ_{i≤J} (i/N)·C(N, i)^{−power} +
    N·C(N, J+1)^{−power}), which falls in N ≥ 2J + 2.
    """
    half = (len(excesses) - 1) // 2 - 1
    i = np.arange(half + 1, dtype=np.float64)
    choose: FloatArray = np.cumsum(np.log(devices - i) - np.log1p(i))
    few = np.logaddexp(0.0, excesses[1 : half + 1]) - power * choose[:-1]
    many = math.log(2) + np.log((i[:-1] + 1) / devices) - power * choose[:-1]
    middle = math.log(2) + math.log(devices) - power * choose[-1]
    size = power * half * choose[-1] + log_modulus
    return log_modulus + _log_sum(np.array([*few, *many, middle])) + _ROUNDING * float(size)

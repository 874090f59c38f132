"""Store keys of counted records in 32 bits each, in buckets of neighbouring users.

The high bits of a key identify its bucket and need not be stored. A bucket fits in the cache; the
thread that reads it first sorts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgrain._types import BoolArray, IntArray

# Bits of a key within its bucket, and the minimum and maximum number of buckets.
_LOW_BITS, _MIN_BUCKETS, _MAX_BUCKETS = 32, 1 << 6, 1 << 12
# Keys sorted together before they are moved to their buckets.
_STAGED_KEYS = 1 << 20
# Partially filled blocks take at most 1/8 of the capacity.
_SLACK = 8
# Beyond the number of keys that can be sorted, no bucket has more than 1/8 of that number.
_EVEN = 8
# Keys of a bucket per step.
_PART_KEYS = 1 << 20


@dataclass(frozen=True)
class Bucketing:
    """Division of keys into buckets."""

    bits: int  # of a key within its bucket, from those below the user code to 32
    count: int  # number of buckets

    @staticmethod
    def fit(users: int, shift: int) -> Bucketing | None:
        """Choose buckets for user codes below ``users``; None if keys are too long."""
        whole = (max(users, 1) << shift) - 1
        bits = min(_LOW_BITS, max(whole.bit_length() - _MIN_BUCKETS.bit_length() + 1, shift))
        count = (whole >> bits) + 1
        return Bucketing(bits, count) if shift <= bits and count <= _MAX_BUCKETS else None


class Buckets:
    """Keys in buckets of whole users; :meth:`flush` moves staged keys there.

    A bucket with an eighth of the keys lowers their maximum to ``uneven``: sorting copies it.
    """

    def __init__(self, bucketing: Bucketing, capacity: int, uneven: int | None = None) -> None:
        self._bits, self._count, self._capacity = bucketing.bits, bucketing.count, capacity
        self._uneven = capacity if uneven is None else uneven
        self._staged = np.empty(min(_STAGED_KEYS, capacity), dtype=np.int64)
        self._filled = self.size = 0
        block = max(capacity // (_SLACK * self._count), 1)
        # Untouched pages of a new array take no memory.
        self._pool = np.empty((capacity // block + self._count, block), dtype=np.uint32)
        self._blocks: list[list[int]] = [[] for _ in range(self._count)]
        self._free: list[int] = []
        self._taken = 0
        self._sizes = np.zeros(self._count, dtype=np.int64)
        self._sorted = np.zeros(self._count, dtype=np.bool_)

    def add(self, keys: IntArray) -> bool:
        """Add keys; return False and add nothing if they do not fit."""
        size = self.size + keys.size
        if size > self._capacity or (size > self._uneven and self._largest > self._uneven // _EVEN):
            return False
        self.size += keys.size
        while keys.size:
            room = min(self._staged.size - self._filled, keys.size)
            self._staged[self._filled : self._filled + room] = keys[:room]
            self._filled += room
            keys = keys[room:]
            if self._filled == self._staged.size:
                self.flush()
        return True

    @property
    def _largest(self) -> int:
        return int(self._sizes.max())

    @property
    def is_lopsided(self) -> bool:
        """True if one bucket has half of the keys, so that dividing users may not help."""
        return 2 * self._largest >= self.size

    def all_staged(self) -> IntArray | None:
        """Return all keys, sorted; None if some are in their buckets."""
        return self._sorted_stage() if self._filled == self.size else None

    def _sorted_stage(self) -> IntArray:
        self._staged[: self._filled].sort()
        return self._staged[: self._filled]

    def drain(self) -> Iterator[IntArray]:
        """Yield all keys in any order; the buckets cannot be used afterwards."""
        yield self._staged[: self._filled]
        for bucket in self.nonempty():
            yield self.full_keys(bucket, self.sorted_lows(bucket))

    def flush(self) -> None:
        """Move the staged keys to their buckets."""
        keys = self._sorted_stage()
        ends = np.searchsorted(keys, np.arange(1, self._count + 1) << self._bits)
        lows, start = (keys & ((1 << self._bits) - 1)).astype(np.uint32), 0
        for bucket, end in enumerate(ends.tolist()):
            self._put(bucket, lows[start:end])
            start = end
        self._filled = 0

    def _put(self, bucket: int, lows: NDArray[np.uint32]) -> None:
        block = self._pool.shape[1]
        while lows.size:
            place = int(self._sizes[bucket]) % block
            if place == 0:
                self._blocks[bucket].append(self._new_block())
            part = lows[: block - place]
            self._pool[self._blocks[bucket][-1], place : place + part.size] = part
            self._sizes[bucket] += part.size
            self._sorted[bucket] = False
            lows = lows[part.size :]

    def _new_block(self) -> int:
        if self._free:
            return self._free.pop()
        self._taken += 1
        return self._taken - 1

    def filter(self, select: Callable[[IntArray], BoolArray]) -> None:
        """Drop the keys for which a function is false."""
        self.flush()
        for bucket in self.nonempty():
            lows = self.sorted_lows(bucket)
            selected = [part[select(self.full_keys(bucket, part))] for part in _parts(lows)]
            self._free += self._blocks[bucket]
            self._blocks[bucket], self._sizes[bucket] = [], 0
            self._put(bucket, np.concatenate(selected))
            self._sorted[bucket] = True
        self.size = int(self._sizes.sum())

    def has_more_than(self, most: int) -> bool:
        """Return True if there are more than ``most`` distinct keys."""
        self.flush()
        result = 0
        for bucket in self.nonempty():
            lows = self.sorted_lows(bucket)
            result += 1 + sum(int(np.count_nonzero(p[1:] != p[:-1])) for p in _parts(lows, 1))
            if result > most:
                return True
        return False

    def nonempty(self) -> list[int]:
        """Return the buckets with keys."""
        return [int(bucket) for bucket in np.flatnonzero(self._sizes)]

    def sorted_lows(self, bucket: int) -> NDArray[np.uint32]:
        """Return the low bits of a bucket's keys, sorted, as a copy."""
        blocks = self._blocks[bucket]
        rows = self._pool[blocks]
        lows = rows.reshape(-1)[: self._sizes[bucket]]
        if not self._sorted[bucket]:
            lows.sort()
            self._pool[blocks] = rows
            self._sorted[bucket] = True
        return lows

    def full_keys(self, bucket: int, lows: NDArray[np.uint32]) -> IntArray:
        """Restore the high bits of a bucket's keys."""
        keys = lows.astype(np.int64)
        keys |= bucket << self._bits
        return keys

    def parts(self, bucket: int, shift: int, size: int) -> Iterator[IntArray]:
        """Yield the keys of a bucket in parts of whole users, of about ``size`` keys."""
        lows, start = self.sorted_lows(bucket), 0
        while start < lows.size:
            last = min(start + size, lows.size) - 1
            following = ((int(lows[last]) >> shift) + 1) << shift
            stop = lows.size
            if following >> _LOW_BITS == 0:
                stop = int(np.searchsorted(lows, np.uint32(following)))
            yield self.full_keys(bucket, lows[start:stop])
            start = stop


def _parts(lows: NDArray[np.uint32], more: int = 0) -> Iterator[NDArray[np.uint32]]:
    """Yield keys in parts that overlap the next part by ``more`` keys."""
    for start in range(0, lows.size, _PART_KEYS):
        yield lows[start : start + _PART_KEYS + more]

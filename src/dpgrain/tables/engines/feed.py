"""Sort an engine's keys into batches of whole users within bounded memory.

An engine streams keys (``user | cell | item``) in any order and can stream them again. The feed
sorts them, so that each user's records are contiguous, with a limited number of keys in memory:

1. Keys of counted records are stored in buckets, with half the bytes: `buckets.py`.
2. If the memory is full and merging makes it small, equal keys become one key with a total. One
   user with ten million records of a thousand items has a thousand pairs.
3. Otherwise half of the users (by a hash of their code) are deferred to a later pass over the
   source. No row is written to disk here, and the cost is linear in rows if one pass suffices.
"""

from __future__ import annotations

import copy
import itertools
import queue
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain._progress import step
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.errors import DataError
from dpgrain.tables.engines.buckets import Bucketing, Buckets
from dpgrain.tables.engines.kernel import SATURATION, pair_totals
from dpgrain.tables.engines.memory import MAX_SUMS, Memory

Chunk: TypeAlias = tuple[IntArray, FloatArray | None]
#: Unit of work of a thread; calling it yields sorted keys of whole users, with their totals.
Piece: TypeAlias = Callable[[], Iterator[Chunk]]
#: Keys of whole users in memory; calling it with a size yields pieces of about that many keys.
KeyBatch: TypeAlias = Callable[[int], Iterator[Piece]]
#: Bits of a packed key, which is a non-negative int64.
KEY_BITS = 62
# Keys per kernel call; the working set then fits in the cache.
_CALL_KEYS = 1 << 16
# Keys per step when the whole buffer is scanned.
_PART_KEYS = 1 << 20
# Pairs are merged if they are at most 1/8 of the buffered keys.
_FEW_PAIRS = 8
# Max number of parts into which users are divided; a larger part belongs to a single user.
_MAX_PARTS = 1 << 20
# Bit shifts for mixing user codes; the low bits of the mixed code divide the users.
MIXING = (7, 15, 25, 40)


@dataclass(frozen=True)
class UserShare:
    """Users whose mixed code is ``part`` modulo ``parts``, a power of two."""

    parts: int = 1
    part: int = 0

    def contains(self, users: IntArray) -> BoolArray:
        """Return a mask of the user codes that belong to the share, (n,)."""
        mixed = users.copy()
        for shift in MIXING:
            mixed ^= users >> shift
        mixed &= self.parts - 1
        return np.asarray(mixed == self.part)

    def contains_keys(self, keys: IntArray, shift: int) -> BoolArray:
        """Return a mask of the keys of users in the share, (n,)."""
        return self.contains(keys >> shift)

    def halves(self) -> tuple[UserShare, UserShare]:
        """Split the share into two."""
        return UserShare(2 * self.parts, self.part), UserShare(
            2 * self.parts, self.part + self.parts
        )


class Scan(Protocol):
    """An engine's stream of keys, which can be read repeatedly."""

    def __call__(self, share: UserShare) -> Iterator[Chunk]:
        """Yield (keys, totals) of the share's users, in any order; totals None for 1 each."""


@dataclass(frozen=True)
class CoordinateFilter:
    """Select sorted keys of some coordinates and recode them."""

    codes: NDArray[np.int32]  # (V,) new code of each coordinate, in the same order; −1 to drop it
    old: int  # bits of a key below the user code
    new: int  # bits of a new key below the user code

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the new keys of a chunk, still sorted, and their totals."""
        keys, totals = chunk
        codes = self.codes[keys & ((1 << self.old) - 1)]
        selected = np.flatnonzero(codes >= 0)
        narrowed = ((keys[selected] >> self.old) << self.new) | codes[selected]
        return narrowed, None if totals is None else totals[selected]


class Feed:
    """Sorted keys of whole users in batches, which can be iterated several times.

    ``capacity``, ``counted`` and ``call`` limit keys in memory, keys without totals in buckets, and
    keys per kernel call; ``sums`` limits the numbers in all threads' accumulators.
    """

    def __init__(
        self,
        scan: Scan,
        user_shift: int,
        capacity: int,
        threads: int,
        *,
        counted: int | None = None,
        call: int | None = None,
        sums: int | None = None,
        users: int | None = None,
    ) -> None:
        self._scan, self._shift = scan, user_shift
        self._capacity, self._threads = capacity, threads
        self._counted = capacity if counted is None else counted
        self._call = _CALL_KEYS if call is None else call
        self._sums = MAX_SUMS * threads if sums is None else sums
        self._bucketing = None if users is None else Bucketing.fit(users, user_shift)
        self._cached: KeyBatch | None = None
        self._narrow: CoordinateFilter | None = None

    @staticmethod
    def within(
        memory: Memory, scan: Scan, user_shift: int, threads: int, users: int | None = None
    ) -> Feed:
        """Create a feed that stays within its parts of the memory."""
        return Feed(
            scan,
            user_shift,
            memory.keys,
            threads,
            counted=memory.counted,
            call=memory.call,
            sums=memory.sums,
            users=users,
        )

    def narrowed(self, codes: IntArray, shift: int) -> Feed | None:
        """Return a feed of some coordinates of these users; None if keys are not cached."""
        if self._cached is None:
            return None
        feed = copy.copy(self)
        feed._narrow = CoordinateFilter(codes.astype(np.int32), self._shift, shift)
        return feed

    def __iter__(self) -> Iterator[Chunk]:
        return self.chunks(sys.maxsize)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """Yield sorted keys of whole users, about ``size`` at a time or one user's."""
        for batch in self._batches():
            for piece in batch(size):
                yield from piece()

    def _batches(self) -> Iterator[KeyBatch]:
        """Yield all keys in batches of whole users that fit in memory."""
        if self._cached is not None:
            yield self._cached
            return
        todo = [UserShare()]
        while todo:
            share = todo.pop()
            batch, deferred = self._read(share)
            todo.extend(deferred)
            if share.parts == 1 and not todo:
                # Everything fits, so further passes need no scan.
                self._cached = batch
            yield batch

    def _read(self, share: UserShare) -> tuple[KeyBatch, list[UserShare]]:
        """Read the keys of a share; return them and the deferred shares."""
        step("reading rows")
        chunks = self._scan(share)
        if self._bucketing is None:
            return self._buffered(_Buffer(self._capacity, self._shift, share), chunks)
        return self._in_buckets(
            Buckets(self._bucketing, self._counted, self._capacity), share, chunks
        )

    def _in_buckets(
        self, buckets: Buckets, share: UserShare, chunks: Iterator[Chunk]
    ) -> tuple[KeyBatch, list[UserShare]]:
        """Read keys into buckets; when they are full, merge keys or defer users."""
        mine, deferred = share, list[UserShare]()
        for keys, _ in chunks:
            own = keys if mine == share else keys[mine.contains_keys(keys, self._shift)]
            while not buckets.add(own):
                repeated = buckets.size > 0 and not buckets.has_more_than(
                    self._capacity // _FEW_PAIRS
                )
                if repeated or buckets.is_lopsided:
                    # Merging works in one piece, and a user with most of the keys stays there
                    # alone.
                    if repeated:
                        self._bucketing = None
                    buffer = _Buffer(self._capacity, self._shift, share, mine)
                    buffer.fill_from(buckets, repeated)
                    del buckets
                    batch, more = self._buffered(buffer, itertools.chain([(keys, None)], chunks))
                    return batch, deferred + more
                mine, other = mine.halves()
                deferred.append(other)
                buckets.filter(partial(mine.contains_keys, shift=self._shift))
                own = keys[mine.contains_keys(keys, self._shift)]
        return partial(_bucketed_pieces, buckets, self._shift), deferred

    def _buffered(
        self, buffer: _Buffer, chunks: Iterable[Chunk]
    ) -> tuple[KeyBatch, list[UserShare]]:
        """Read keys into a buffer, which merges keys or defers users."""
        for keys, totals in chunks:
            buffer.add(keys, totals)
        step("sorting")
        return partial(_sorted_pieces, *buffer.sorted(), self._shift), buffer.deferred

    def accumulate(
        self, add: Callable[[IntArray, FloatArray | None, IntArray], None], shape: Sequence[int]
    ) -> IntArray:
        """Run a kernel over all users and return the integer sums, (shape)."""
        size = max(int(np.prod(shape)), 1)
        workers = max(min(self._threads, self._sums // size), 1) if size <= MAX_SUMS else 1
        accumulators: queue.SimpleQueue[IntArray] = queue.SimpleQueue()
        for _ in range(workers):
            accumulators.put(np.zeros(shape, dtype=np.int64))

        def work(piece: Piece) -> None:
            out = accumulators.get()
            try:
                for chunk in piece():
                    add(*(chunk if self._narrow is None else self._narrow(chunk)), out)
            finally:
                accumulators.put(out)

        with ThreadPoolExecutor(workers) as pool:
            for batch in self._batches():
                step("processing users")
                list(pool.map(work, batch(self._call)))
        total = accumulators.get()
        for _ in range(workers - 1):
            total += accumulators.get()
        return total


@dataclass(frozen=True)
class RecordScan:
    """Single records in the order of a scan; users need not be contiguous."""

    scan: Scan

    def accumulate(
        self, add: Callable[[IntArray, FloatArray | None, IntArray], None], shape: Sequence[int]
    ) -> IntArray:
        """Run a kernel over all records and return the integer sums, (shape)."""
        out = np.zeros(shape, dtype=np.int64)
        step("reading rows")
        for codes, totals in self.scan(UserShare()):
            add(codes, totals, out)
        return out


def require_bits(users: int, shift: int) -> None:
    """Raise unless the key bits above ``shift`` can distinguish the users."""
    if users.bit_length() + shift > KEY_BITS:
        raise DataError(
            "users × cells × items must not exceed 2^62, the range of one key; split the domain."
        )


def _sorted_pieces(
    keys: IntArray, totals: FloatArray | None, shift: int, size: int
) -> Iterator[Piece]:
    """Split sorted keys, with their totals, into pieces of whole users."""
    start = 0
    while start < keys.size:
        last = int(keys[min(start + size, keys.size) - 1])
        stop = int(np.searchsorted(keys, ((last >> shift) + 1) << shift))
        yield partial(iter, [(keys[start:stop], None if totals is None else totals[start:stop])])
        start = stop


def _bucketed_pieces(buckets: Buckets, shift: int, size: int) -> Iterator[Piece]:
    """Yield each bucket separately; the thread that receives it sorts and splits it."""
    if (staged := buckets.all_staged()) is not None:
        yield from _sorted_pieces(staged, None, shift, size)
        return
    buckets.flush()
    for bucket in buckets.nonempty():
        yield partial(_bucket_chunks, buckets, bucket, shift, size)


def _bucket_chunks(buckets: Buckets, bucket: int, shift: int, size: int) -> Iterator[Chunk]:
    for keys in buckets.parts(bucket, shift, size):
        yield keys, None


class _Buffer:
    """Keys of a share of users: an unsorted part, and merged pairs with totals."""

    def __init__(
        self, capacity: int, shift: int, scanned: UserShare, share: UserShare | None = None
    ) -> None:
        self._capacity, self._shift = capacity, shift
        self._scanned, self._share = scanned, scanned if share is None else share
        # Untouched pages of a new array take no memory.
        self._keys = np.empty(capacity, dtype=np.int64)
        self._totals: FloatArray | None = None
        self._filled = 0
        self._pairs: IntArray = np.zeros(0, dtype=np.int64)
        self._sums: FloatArray = np.zeros(0)
        self.deferred: list[UserShare] = []

    def fill_from(self, buckets: Buckets, merged: bool) -> None:
        """Start with the keys of full buckets, the whole share; merge them on request."""
        if merged:
            self._pairs, self._sums = _merge_buckets(buckets)
            return
        for keys in buckets.drain():
            self.add(keys, None)

    def add(self, keys: IntArray, totals: FloatArray | None) -> None:
        if totals is not None and self._totals is None:
            # A key with its total and the work space for sorting needs four times the memory.
            self._capacity = max(self._capacity // 4, 1)
            self._keys, self._totals = self._keys[: self._capacity], np.empty(self._capacity)
        keys, totals = self._share_keys(keys, totals)
        if totals is not None:
            keys, totals = _dense_totals(keys, totals)
        while keys.size:
            room = min(self._capacity - self._filled, keys.size)
            part = slice(self._filled, self._filled + room)
            self._keys[part] = keys[:room]
            if totals is not None and self._totals is not None:
                self._totals[part] = totals[:room]
            self._filled += room
            keys, totals = keys[room:], totals if totals is None else totals[room:]
            if keys.size:
                self._make_room(at_most=self._capacity // 2)
                keys, totals = self._share_keys(keys, totals)

    def sorted(self) -> Chunk:
        if self._pairs.size:
            self._make_room(at_most=0)
            return self._pairs, self._sums
        self._sort()
        totals = self._totals
        return self._keys[: self._filled], None if totals is None else totals[: self._filled]

    def _share_keys(self, keys: IntArray, totals: FloatArray | None) -> Chunk:
        """Select the scanned keys whose users are in this share."""
        if self._share == self._scanned:
            return keys, totals
        own = self._share.contains_keys(keys, self._shift)
        return keys[own], None if totals is None else totals[own]

    def _make_room(self, at_most: int) -> None:
        """Reduce the unsorted part to ``at_most`` keys: merge few pairs or defer users."""
        self._sort()
        while self._filled > at_most:
            if self._share.parts > _MAX_PARTS:
                # A single user is left: the buffer grows to that user's pairs.
                self._merge()
                self._grow()
            elif _FEW_PAIRS * (self._distinct() + self._pairs.size) <= self._capacity:
                self._merge()
            else:
                self._defer_half()

    def _sort(self) -> None:
        keys = self._keys[: self._filled]
        if self._totals is None:
            keys.sort()
            return
        totals, order = self._totals[: self._filled], np.argsort(keys)
        keys[:] = keys[order]
        totals[:] = totals[order]

    def _distinct(self) -> int:
        """Count the distinct keys of the sorted part that is not merged."""
        keys, count = self._keys[: self._filled], 1
        for start in range(0, self._filled, _PART_KEYS):
            part = keys[start : start + _PART_KEYS + 1]
            count += int(np.count_nonzero(part[1:] != part[:-1]))
        return count

    def _defer_half(self) -> None:
        """Defer half of the users to a later pass."""
        self._share, other = self._share.halves()
        self.deferred.append(other)
        filled, self._filled = self._filled, 0
        # Keys move in place and in parts: the write position never passes the read position.
        for start in range(0, filled, _PART_KEYS):
            part = slice(start, min(start + _PART_KEYS, filled))
            own = self._share.contains_keys(self._keys[part], self._shift)
            keys = self._keys[part][own]
            into = slice(self._filled, self._filled + keys.size)
            if self._totals is not None:
                self._totals[into] = self._totals[part][own]
            self._keys[into] = keys
            self._filled += keys.size
        pairs, sums = self._share_keys(self._pairs, self._sums)
        self._pairs, self._sums = pairs, sums if sums is not None else self._sums

    def _merge(self) -> None:
        """Merge the sorted part into the pairs."""
        totals = self._totals
        pairs, sums = pair_totals(
            self._keys[: self._filled], None if totals is None else totals[: self._filled]
        )
        self._filled = 0
        if self._pairs.size:
            pairs = np.concatenate([self._pairs, pairs])
            sums = np.concatenate([self._sums, sums])
            order = np.argsort(pairs)
            pairs, sums = pair_totals(pairs[order], sums[order])
        self._pairs, self._sums = pairs, sums

    def _grow(self) -> None:
        self._capacity = max(self._capacity, 4 * self._pairs.size)
        if self._keys.size < self._capacity:
            self._keys = np.empty(self._capacity, dtype=np.int64)
            self._totals = None if self._totals is None else np.empty(self._capacity)


def _merge_buckets(buckets: Buckets) -> tuple[IntArray, FloatArray]:
    """Return the pairs of all keys in buckets, sorted, with their totals."""
    merged = [
        pair_totals(buckets.full_keys(place, buckets.sorted_lows(place)), None)
        for place in buckets.nonempty()
    ]
    pairs, sums = zip(*merged, strict=True)
    return np.concatenate(pairs), np.concatenate(sums)


def _dense_totals(keys: IntArray, totals: FloatArray) -> tuple[IntArray, FloatArray]:
    """Merge equal keys without sorting if there are fewer possible keys than keys."""
    low, high = (keys.min(), keys.max()) if keys.size else (0, 0)
    if high - low >= keys.size:
        return keys, totals
    places = keys - low
    result = np.flatnonzero(np.bincount(places))
    return result + low, np.minimum(np.bincount(places, totals)[result], SATURATION)

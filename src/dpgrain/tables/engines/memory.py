"""The division of the allowed working memory, so that all parts together stay within it."""

from __future__ import annotations

from dataclasses import dataclass

#: Bytes, at least, for the row groups and hash tables of usual files.
MIN_BYTES = 256 * 10**6
# Bytes that DuckDB takes beside its own limit, about, for buffers of readers, its allocator and
# code that is loaded late.
_FIXED_BYTES = 40 * 10**6
# Share of the memory that is DuckDB's limit, and bytes that each of its threads needs to read a row
# group and to hash.
_DUCKDB_SHARE, _THREAD_BYTES = 0.33, 80 * 10**6
# Share of the memory for rows that come at a time, bytes that splitting a row into its masses takes
# at most, and rows that come at a time, at most.
_BATCHES_SHARE, _ROW_BYTES, _MAX_ROWS = 0.05, 500, 1 << 20
# Bytes of a key in the buffer, with what merging it takes at its peak; those in a call of the kernel;
# and keys of such a call, at most.
_KEY_BYTES, _CALL_KEY_BYTES, _MAX_CALL_KEYS = 12, 100, 1 << 16
# Bytes of a number in the accumulators of threads, where these are more than one, and the numbers of
# each thread, at most.
_SUM_BYTES, MAX_SUMS = 8, 1 << 22
# Bytes of a counted key in a bucket, with the blocks that buckets do not fill.
_BUCKET_KEY_BYTES = 4.5
# Bytes of pairs with their totals that are merged from buckets, for each key that is held and sorted
# at a time, since an eighth as many pairs are merged at most.
_PAIRS_BYTES = 2


@dataclass(frozen=True)
class Memory:
    """The parts of the memory of one release.

    Args:
        duckdb: the bytes that DuckDB may hold.
        reading: the threads that DuckDB reads with.
        rows: the rows that DuckDB hands over at a time.
        keys: the keys that are held and sorted at a time.
        counted: the keys without totals that are held in buckets, where no bucket is large.
        call: the keys that one call of the kernel handles, where a user has no more.
        sums: the numbers in the accumulators of all threads.

    >>> Memory.split(10**9, threads=4).keys
    48333333
    >>> Memory.split(10**9, threads=4).counted
    71755823
    """

    duckdb: int
    reading: int
    rows: int
    keys: int
    counted: int
    call: int
    sums: int

    @staticmethod
    def split(size: int, threads: int) -> Memory:
        """Divide a number of bytes into parts.

        Args:
            size: the bytes, at least :data:`MIN_BYTES`.
            threads: the threads that compute.
        """
        duckdb, batches = int(_DUCKDB_SHARE * size), int(_BATCHES_SHARE * size)
        sorting = size - _FIXED_BYTES - duckdb - batches
        # The kernel runs when nothing is merged, so it may take the memory of merging.
        kernel = sorting // 4
        call = max(min(kernel // (threads * _CALL_KEY_BYTES), _MAX_CALL_KEYS), 1 << 10)
        sums = min(kernel // _SUM_BYTES, threads * MAX_SUMS)
        keys = sorting // _KEY_BYTES
        # Buckets are there while the kernel runs, and while pairs are merged from them.
        buckets = sorting - threads * call * _CALL_KEY_BYTES - sums * _SUM_BYTES
        return Memory(
            duckdb,
            max(min(threads, duckdb // _THREAD_BYTES), 1),
            min(batches // _ROW_BYTES, _MAX_ROWS),
            keys,
            max(keys, int((buckets - _PAIRS_BYTES * keys) / _BUCKET_KEY_BYTES)),
            call,
            sums,
        )

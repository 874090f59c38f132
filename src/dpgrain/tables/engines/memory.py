"""Divide the working memory of a release between DuckDB, sorting and the kernel."""

from __future__ import annotations

from dataclasses import dataclass

#: Minimum in bytes; it suffices for row groups and hash tables of common files.
MIN_BYTES = 256 * 10**6
# Bytes that DuckDB uses in addition to its limit, for readers, its allocator and lazily loaded
# code; an estimate.
_FIXED_BYTES = 40 * 10**6
# DuckDB's share of the memory, and bytes that each of its threads needs to read a row group and to
# hash.
_DUCKDB_SHARE, _THREAD_BYTES = 0.33, 80 * 10**6
# Share of the memory for a batch of rows, bytes to split one row into its masses, and max rows per
# batch.
_BATCHES_SHARE, _ROW_BYTES, _MAX_ROWS = 0.05, 500, 1 << 20
# Bytes of a buffered key including the peak of merging, bytes of a key in a kernel call, and max
# keys per call.
_KEY_BYTES, _CALL_KEY_BYTES, _MAX_CALL_KEYS = 12, 100, 1 << 16
# Bytes of a number in the threads' accumulators, if there is more than one, and max numbers per
# thread.
_SUM_BYTES, MAX_SUMS = 8, 1 << 22
# Bytes of a counted key in a bucket, including partially filled blocks.
_BUCKET_KEY_BYTES = 4.5
# Bytes of pairs merged from buckets, per key that can be sorted: there are at most 1/8 as many
# pairs as keys.
_PAIRS_BYTES = 2


@dataclass(frozen=True)
class Memory:
    """Parts of the memory of one release.

    Args:
        reading: number of threads of DuckDB.
        counted: keys without totals that fit in buckets if no bucket is large.
        call: keys per kernel call, unless one user has more.

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
        """Divide ``size`` bytes, at least :data:`MIN_BYTES`, into parts."""
        duckdb, batches = int(_DUCKDB_SHARE * size), int(_BATCHES_SHARE * size)
        sorting = size - _FIXED_BYTES - duckdb - batches
        # The kernel does not run during merging, so both share this memory.
        kernel = sorting // 4
        call = max(min(kernel // (threads * _CALL_KEY_BYTES), _MAX_CALL_KEYS), 1 << 10)
        sums = min(kernel // _SUM_BYTES, threads * MAX_SUMS)
        keys = sorting // _KEY_BYTES
        # Buckets coexist with the kernel, and with pairs that are merged from them.
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

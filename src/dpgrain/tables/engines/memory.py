"""How the working memory that a user allows is divided, so that all parts together stay within it."""

from __future__ import annotations

from dataclasses import dataclass

#: The least that suffices for the row groups and hash tables of usual files, in bytes.
LEAST = 256 * 10**6
# What DuckDB takes beside its own limit: buffers of readers, its allocator, code that is loaded late.
_FIXED = 40 * 10**6
# DuckDB's limit, and what it needs for each of its threads to read a row group and to hash.
_DUCKDB, _PER_THREAD = 0.33, 80 * 10**6
# Rows that come at a time, and the bytes that splitting a row into its masses takes at most.
_BATCHES, _PER_ROW, _MOST_ROWS = 0.05, 500, 1 << 20
# Bytes for a key in the buffer, with what merging it takes at its peak; and in a call of the kernel.
_PER_KEY, _PER_CALL, _MOST_CALL = 12, 100, 1 << 18
# Numbers in the accumulators of all threads together, where these are more than one.
_PER_SUM = 8


@dataclass(frozen=True)
class Memory:
    """The parts of the memory of one release.

    Args:
        duckdb: bytes that DuckDB may hold.
        reading: threads that it reads with.
        rows: rows that it hands over at a time.
        keys: keys that are held and sorted at a time.
        call: keys that one call of the kernel handles, where a user has no more.
        sums: numbers in the accumulators of all threads.

    >>> Memory.of(10**9, threads=4).keys
    48333333
    """

    duckdb: int
    reading: int
    rows: int
    keys: int
    call: int
    sums: int

    @staticmethod
    def of(size: int, threads: int) -> Memory:
        """The parts of so many bytes.

        Args:
            size: bytes, at least :data:`LEAST`.
            threads: threads that compute.
        """
        duckdb, batches = int(_DUCKDB * size), int(_BATCHES * size)
        sorting = size - _FIXED - duckdb - batches
        # The kernel runs when nothing is merged: it may take what merging takes.
        kernel = sorting // 4
        return Memory(
            duckdb,
            max(min(threads, duckdb // _PER_THREAD), 1),
            min(batches // _PER_ROW, _MOST_ROWS),
            sorting // _PER_KEY,
            max(min(kernel // (threads * _PER_CALL), _MOST_CALL), 1 << 10),
            kernel // _PER_SUM,
        )

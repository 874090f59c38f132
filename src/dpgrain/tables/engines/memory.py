"""Memory of a release for DuckDB, sorting and the kernel, and its folder of spilled data.

The folder is removed when the release ends or fails. On SIGTERM the process removes it before it
ends, unless the host application handles the signal. When a release starts, it removes the
unlocked folders of killed processes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from dpgrain._files import lock
from dpgrain.errors import DataError
from dpgrain.tables.sources.duckdb_connection import translate_errors
from dpgrain.tables.sources.source import RowSource, transaction

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
    """Parts of the memory of one release."""

    duckdb: int
    reading: int  # threads of DuckDB
    rows: int
    keys: int
    counted: int  # keys without totals that fit in buckets if none is large
    call: int  # keys per kernel call, unless one user has more
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


_PREFIX = "dpgrain-spill-"
_FOLDER_NAME = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")
#: Name of file copies for DuckDB in the folder.
COPIES = "rows"
# Prefixes of the files in the folder. Nothing else is removed from stale folders.
_SPILLED = ("duckdb_temp", COPIES)
_ATTEMPTS = 10
# Bytes of working memory for loading all rows, in addition to the rows.
_LOADING_BYTES = 10**9


class SpillFolder:
    """New private folder, locked while in use."""

    _open: ClassVar[dict[str, int]] = {}
    _guard = threading.RLock()

    def __init__(self) -> None:
        # mkdtemp would silently use another disk if TMPDIR is unusable.
        parent = os.environ.get("TMPDIR") or None
        self._handle: int | None = None
        with self._guard:
            _replace_handler(signal.SIG_DFL, _terminated)
            try:
                for _ in range(_ATTEMPTS):
                    self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
                    self._open[self.path] = os.getpid()
                    self._handle, ours = _lock(self.path)
                    if ours:
                        break
                    # Another process removed the folder before it was locked.
                    self._forget()
                else:
                    raise FileNotFoundError(self.path)
            except OSError as error:
                raise DataError(
                    "The temporary folder cannot be written; point TMPDIR to a disk with free space."
                ) from error
            finally:
                if not self._open:
                    _replace_handler(_terminated, signal.SIG_DFL)
        _remove_stale(Path(self.path).parent)

    def __enter__(self) -> SpillFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        with self._guard:
            self._forget()
            if not self._open:
                _replace_handler(_terminated, signal.SIG_DFL)

    def _forget(self) -> None:
        self._open.pop(self.path, None)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def connect(memory: Memory, folder: str) -> duckdb.DuckDBPyConnection:
    """Open a private connection that spills to a folder, encrypted, and installs no extension."""
    return prepare(open_database(memory, folder), memory)


def open_database(memory: Memory, folder: str) -> duckdb.DuckDBPyConnection:
    """Open a private database that spills to a folder."""
    settings: dict[str, Any] = {
        "threads": memory.reading,
        "memory_limit": f"{memory.duckdb // 1_000_000}MB",
        "temp_directory": folder,
        "temp_file_encryption": True,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "preserve_insertion_order": False,
    }
    return duckdb.connect(":memory:", config=settings)


def prepare(connection: duckdb.DuckDBPyConnection, memory: Memory) -> duckdb.DuckDBPyConnection:
    """Change the settings of one connection to a database, and return it."""
    # A progress bar would print to standard output, and its pace reveals the size of the table.
    connection.execute("SET enable_progress_bar = false")
    # The memory limit in bytes; the setting itself is formatted text.
    connection.execute(f"SET VARIABLE memory = {memory.duckdb}")
    # Times without a zone must denote the same timestamp on every machine.
    connection.execute("SET TimeZone = 'UTC'")
    # Some versions have read-only cryptography and cannot spill without this setting; others lack
    # the setting.
    with suppress(duckdb.Error):
        connection.execute("SET force_mbedtls_unsafe = true")
    return connection


def _lock(path: str) -> tuple[int | None, bool]:
    """Lock a new folder; return the handle, and whether the folder still exists."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        # Windows opens no folders.
        return None, Path(path).is_dir()
    if lock(handle) is False:
        os.close(handle)
        return None, False
    # Without locks on this file system, no process removes the folder.
    return handle, Path(path).is_dir()


def _remove_stale(parent: Path) -> None:
    """Remove folders of this user's killed processes; ignore failures."""
    if not hasattr(os, "O_DIRECTORY"):
        # On Windows, folders of killed processes remain.
        return
    with suppress(OSError):
        for entry in os.scandir(parent):
            if _FOLDER_NAME.fullmatch(entry.name) and entry.path not in SpillFolder._open:
                with suppress(OSError):
                    _remove_if_stale(Path(entry.path))


def _remove_if_stale(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid() or not lock(handle):
            return
        for file in path.iterdir():
            if file.name.startswith(_SPILLED):
                file.unlink()
        path.rmdir()
    finally:
        os.close(handle)


def _replace_handler(handler: Any, by: Any) -> None:
    """Replace the handler of SIGTERM, unless it is another one."""
    if threading.current_thread() is threading.main_thread():
        with suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) is handler:
                signal.signal(signal.SIGTERM, by)


def _terminated(number: int, _: Any) -> None:
    """Remove the folders of this process and end it with the same signal."""
    for path, owner in list(SpillFolder._open.items()):
        if owner == os.getpid():
            with suppress(OSError):
                # Threads of DuckDB cannot write to the renamed folder.
                moved = f"{path}.ended"
                Path(path).rename(moved)
                path = moved
            shutil.rmtree(path, ignore_errors=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def load_rows(source: RowSource) -> pa.Table:
    """Load all rows of a source."""
    with (
        SpillFolder() as folder,
        connect(Memory.split(_LOADING_BYTES, 1), folder.path) as connection,
        transaction(source, connection),
        translate_errors(source.name),
    ):
        connection.execute("SET preserve_insertion_order = true")
        return connection.sql(f"SELECT * FROM {source.attach(connection)}").to_arrow_table()

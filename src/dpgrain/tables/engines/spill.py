"""The folder for DuckDB's spilled data: private, and gone when the release or its process ends.

It goes when the release ends, well or not. A process that is terminated removes it first, where it
would die of the signal without a word; a host that handles the signal itself is left alone. What a
killed process left behind is removed when the next release starts: a folder that nobody holds locked
is nobody's.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import duckdb

from dpgrain.errors import DataError
from dpgrain.tables.engines.memory import Memory

try:
    import fcntl as _fcntl

    _locks: Any = _fcntl
except ImportError:
    # A system without locks of this kind keeps the folders that killed processes left.
    _locks = None

_PREFIX = "dpgrain-spill-"
_FOLDER_NAME = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")
#: Name of copies of files that DuckDB reads from the folder.
COPIES = "rows"
# Names of the files in the folder; of what others left, nothing else is ever removed.
_SPILLED = ("duckdb_temp", COPIES)
_ATTEMPTS = 10


class SpillFolder:
    """A new private folder, locked for as long as it is in use.

    Raises:
        OSError: if none can be made.
    """

    _open: ClassVar[dict[str, int]] = {}
    _guard = threading.RLock()

    def __init__(self) -> None:
        # A TMPDIR that cannot be used would be passed over for another disk without a word.
        parent = os.environ.get("TMPDIR") or None
        self._handle: int | None = None
        with self._guard:
            _install_handler()
            try:
                for _ in range(_ATTEMPTS):
                    self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
                    self._open[self.path] = os.getpid()
                    self._handle, ours = _lock(self.path)
                    if ours:
                        break
                    # Another process that cleans up came between making and locking.
                    self._forget()
                else:
                    raise FileNotFoundError(self.path)
            finally:
                if not self._open:
                    _remove_handler()
        _remove_stale(Path(self.path).parent)

    def __enter__(self) -> SpillFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with self._guard:
            self._forget()
            if not self._open:
                _remove_handler()

    def _forget(self) -> None:
        self._open.pop(self.path, None)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def new_spill_folder() -> SpillFolder:
    """Make a new spill folder, for a release that cannot do without.

    Raises:
        DataError: if none can be made.
    """
    try:
        return SpillFolder()
    except OSError as error:
        raise DataError(
            "The temporary folder cannot be written; point TMPDIR to a disk with free space."
        ) from error


def connect(memory: Memory, folder: str) -> duckdb.DuckDBPyConnection:
    """Return a connection of its own that spills into a folder, encrypted, and installs nothing.

    Args:
        memory: the parts of the memory of a release.
        folder: the folder.
    """
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
    connection = duckdb.connect(":memory:", config=settings)
    # A progress bar would print on standard output, and show by its pace how long the table is.
    connection.execute("SET enable_progress_bar = false")
    # What it may hold, as a number: the setting itself is told in words.
    connection.execute(f"SET VARIABLE memory = {memory.duckdb}")
    # A time without a zone must not be another moment on another machine.
    connection.execute("SET TimeZone = 'UTC'")
    # Without this setting, versions whose own cryptography only reads cannot spill at all; other
    # versions do not have it.
    with suppress(duckdb.Error):
        connection.execute("SET force_mbedtls_unsafe = true")
    return connection


def _lock(path: str) -> tuple[int | None, bool]:
    """Lock a new folder, if there are locks; return the handle, and whether it is still ours."""
    if _locks is None:
        return None, True
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None, False
    try:
        _locks.flock(handle, _locks.LOCK_EX | _locks.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None, False
    except OSError:
        # On a file system without locks nobody can clean up, nor take the folder for nobody's.
        return handle, True
    return handle, Path(path).is_dir()


def _remove_stale(parent: Path) -> None:
    """Remove folders left by killed processes of this user; whatever fails is left alone."""
    if _locks is None:
        return
    with suppress(OSError):
        for entry in os.scandir(parent):
            if _FOLDER_NAME.fullmatch(entry.name) and entry.path not in SpillFolder._open:
                with suppress(OSError):
                    _remove_if_stale(Path(entry.path))


def _remove_if_stale(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            return
        # Locking fails where a living process holds the lock.
        _locks.flock(handle, _locks.LOCK_EX | _locks.LOCK_NB)
        for file in path.iterdir():
            if file.name.startswith(_SPILLED):
                file.unlink()
        path.rmdir()
    finally:
        os.close(handle)


def _install_handler() -> None:
    """Handle termination, where nobody else does and the process would end at once."""
    if threading.current_thread() is not threading.main_thread():
        return
    with suppress(ValueError):
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminated)


def _remove_handler() -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    with suppress(ValueError):
        if signal.getsignal(signal.SIGTERM) is _terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(number: int, _: Any) -> None:
    """Remove the folders of this process, and end as it would have ended."""
    for path, owner in list(SpillFolder._open.items()):
        if owner == os.getpid():
            with suppress(OSError):
                # Under another name no thread of DuckDB finds it to write more.
                moved = f"{path}.ended"
                Path(path).rename(moved)
                path = moved
            shutil.rmtree(path, ignore_errors=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

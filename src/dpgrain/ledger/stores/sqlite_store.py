"""A ledger in a file, with the SQLite of Python's standard library."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from dpgrain import _validate
from dpgrain._files import flush_to_disk, record_input
from dpgrain.errors import AccessError, DataError, ParameterError
from dpgrain.ledger.lines import AFTER_DAMAGE
from dpgrain.ledger.stores.connections import Connections
from dpgrain.ledger.stores.ledger_tables import TABLES, SqlTransaction
from dpgrain.ledger.stores.store_protocol import Transaction

# Maximum wait for other writers, in seconds.
_PATIENCE_SECONDS = 120.0
# Maximum seconds between checks whether other processes closed a file of an earlier version.
_PAUSE_SECONDS = 0.1
# Suffixes of the files that belong to a ledger.
_SUFFIXES = ("-journal", "-wal", "-shm")
# Settings of each connection: commits return when file, journal and folder are on the disk.
_SETTINGS = {
    "synchronous": "EXTRA",
    "fullfsync": "1",
    "checkpoint_fullfsync": "1",
    # Do not run functions that a foreign schema contains.
    "trusted_schema": "0",
}
# Required settings of each connection; 3 is EXTRA.
_REQUIRED = {"synchronous": 3, "locking_mode": "normal"}
# Errors of a file with the journal of a killed process, which requires write access to recover.
_NEEDS_RECOVERY = (
    sqlite3.SQLITE_READONLY_ROLLBACK,
    sqlite3.SQLITE_READONLY_RECOVERY,
    sqlite3.SQLITE_READONLY_CANTINIT,
)


class SqliteStore:
    """A SQLite file, with a journal (``-journal``) next to it during writes.

    The journal of a killed process is part of the ledger: the next process uses it to roll back.
    Ledgers of earlier versions have a write-ahead log (``-wal``, ``-shm``) until the next write.
    """

    def __init__(self, place: str | Path) -> None:
        self._path = Path(place).absolute()
        self.name = str(place)
        self._connections = Connections(self._opened)
        # Device and inode of the open file.
        self._file: tuple[int, int] | None = None

    @property
    def place(self) -> str:
        """Absolute path of the file."""
        return str(self._path)

    @contextmanager
    def creating(self) -> Iterator[Transaction]:
        """Enter a transaction that creates the tables of a ledger."""
        with self._using():
            with closing(self._connected("rwc")) as connection:
                connection.execute("BEGIN IMMEDIATE")
                if _has_tables(connection):
                    raise ParameterError(
                        f"{self.name!r} already exists; open it, or choose another name."
                    )
                with _transaction(connection) as page:
                    for table in TABLES:
                        connection.execute(table)
                    yield page
            flush_to_disk(self._path.resolve().parent)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Enter an exclusive transaction that is on the disk after a normal exit."""
        with self._using():
            self._leave_log()
            with self._connections.connected() as connection:
                connection.execute("BEGIN IMMEDIATE")
                with _transaction(connection) as page:
                    if _only_file(self._path, self.name) != self._file:
                        raise self._moved()
                    yield page

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Enter a read-only transaction with a consistent state."""
        with self._using():
            with self._connections.connected() as connection:
                connection.execute("BEGIN")
                with _transaction(connection) as page:
                    yield page
                logged = _has_log(connection)
            if logged:
                # The next writer can remove the log only if no process has it open.
                self._connections.close()

    def close(self) -> None:
        """Close the connection of this process."""
        self._connections.close()

    def _opened(self) -> sqlite3.Connection:
        """Connect to an existing file with exactly one hard link."""
        file = _only_file(self._path, self.name)
        if file is None:
            raise AccessError(
                f"{self.name!r} is not a file; create a ledger there first, as shown by "
                "dpgrain ledger init --help."
            )
        connection = self._connected_to_log() or self._connected("rw")
        try:
            if file != self._file:
                _check_whole(connection)
            if _only_file(self._path, self.name) != file:
                raise self._moved()
        except BaseException:
            connection.close()
            raise
        self._file = file
        return connection

    def _connected_to_log(self) -> sqlite3.Connection | None:
        """Connect to a file of an earlier version in a read-only folder; None elsewhere."""
        real = self._path.resolve()
        beside = [real.with_name(f"{real.name}{ending}") for ending in _SUFFIXES]
        if os.access(real.parent, os.W_OK) or any(each.exists() for each in beside):
            return None
        connection = self._connected("ro&immutable=1")
        if _has_log(connection):
            return connection
        connection.close()
        return None

    def _connected(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode={mode}",
            uri=True,
            timeout=_PATIENCE_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            for name, value in _SETTINGS.items():
                connection.execute(f"PRAGMA {name} = {value}")
            for name, answer in _REQUIRED.items():
                if _pragma(connection, name) != answer:
                    raise DataError(
                        f"{self.name!r} requires an SQLite that waits for the disk, but this "
                        f"one reports {name} = {_pragma(connection, name)}; use the SQLite "
                        "of python.org's Python."
                    )
            if not _has_log(connection):
                connection.execute("PRAGMA journal_mode = DELETE")
        except BaseException:
            connection.close()
            raise
        return connection

    def _leave_log(self) -> None:
        """Move the contents of an earlier version's log to the file, and remove the log."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            with self._connections.connected() as connection:
                if not _has_log(connection):
                    return
                try:
                    connection.execute("PRAGMA journal_mode = DELETE")
                except sqlite3.OperationalError as error:
                    if _code(error) != sqlite3.SQLITE_BUSY:
                        raise
            # Close the file for a moment, because another process may also wait to remove the log.
            self._connections.close()
            if time.monotonic() > until:
                raise DataError(
                    f"{self.name!r} is open in a process of an earlier version of dpgrain, "
                    "which stores a log next to it; end that process, and try again."
                )
            time.sleep(random.uniform(0, _PAUSE_SECONDS))

    def _moved(self) -> DataError:
        return DataError(
            f"{self.name!r} was deleted, moved or replaced while it was open, so nothing is "
            "charged or published; restore the file that was open, or treat every promise in "
            "it as fully spent."
        )

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Note that the files are in use, and convert errors of SQLite to messages."""
        if not _validate.is_utf8(str(self._path)):
            # SQLite requires UTF-8 names.
            raise ParameterError(
                f"place must be a UTF-8 name, not {_validate.describe(self.name)}."
            )
        real = self._path.resolve()
        if not real.name:
            raise ParameterError(f"place must be a file, not {_validate.describe(self.name)}.")
        record_input(real, *(real.with_name(f"{real.name}{ending}") for ending in _SUFFIXES))
        try:
            yield
        except sqlite3.Error as error:
            if _extended_code(error) == sqlite3.SQLITE_READONLY_DBMOVED:
                raise self._moved() from error
            raise _data_error(self.name, error) from error


def _only_file(path: Path, name: str) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_nlink > 1:
        raise DataError(
            f"{name!r} has {status.st_nlink} hard links, and a ledger must have one, because "
            "after a crash SQLite finds its journal under one name only; delete the other "
            "links, or copy them."
        )
    return status.st_dev, status.st_ino


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    """Return the value of a setting."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value


def _has_log(connection: sqlite3.Connection) -> bool:
    """Return True for a file of an earlier version, with a write-ahead log."""
    return bool(_pragma(connection, "journal_mode") == "wal")


def _extended_code(error: sqlite3.Error) -> int:
    """Return the extended error code of SQLite."""
    return int(getattr(error, "sqlite_errorcode", 0))


def _code(error: sqlite3.Error) -> int:
    """Return the primary error code of SQLite."""
    return _extended_code(error) & 0xFF


def _data_error(name: str, error: sqlite3.Error) -> DataError:
    """Return the error about the file of a ledger, with the remedy."""
    code = _code(error)
    if _extended_code(error) in _NEEDS_RECOVERY:
        return AccessError(
            f"{name!r} is next to the journal or log of a killed process, which only a user "
            "with write access to both and their folder can recover; open it once with those "
            "rights."
        )
    if code == sqlite3.SQLITE_READONLY:
        return AccessError(
            f"{name!r} cannot be written, so nothing can be charged; check its permissions."
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return DataError(
            f"{name!r} could not be written to the disk; check its free space: nothing is "
            "published, and earlier charges remain."
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return DataError(
            f"{name!r} has been locked by another process for {_PATIENCE_SECONDS:g} "
            "seconds; try again."
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return AccessError(f"{name!r} cannot be opened; check the folder and its permissions.")
    if code == sqlite3.SQLITE_ERROR:
        return AccessError(
            f"{name!r} contains no ledger; create one with: dpgrain ledger init {name}. If "
            "it contained one, treat every promise of that one as fully spent."
        )
    return AccessError(f"{name!r} is not a ledger, or is damaged; {AFTER_DAMAGE}.")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[Transaction]:
    """Commit an open transaction on exit, or roll it back after an error."""
    try:
        yield SqlTransaction(lambda statement, values: connection.execute(statement, values))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_whole(connection: sqlite3.Connection) -> None:
    """Read every page of a file, because damage may be in a page that only charges read."""
    (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if result != "ok":
        raise sqlite3.DatabaseError(result)


def _has_tables(connection: sqlite3.Connection) -> bool:
    """Return True if a file has tables; an interrupted creation leaves none."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables:
        connection.execute("ROLLBACK")
    return bool(tables)


@contextmanager
def memory_transaction() -> Iterator[Transaction]:
    """Yield a transaction on an empty database that exists until exit."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for table in TABLES:
            connection.execute(table)
        yield SqlTransaction(connection.execute)

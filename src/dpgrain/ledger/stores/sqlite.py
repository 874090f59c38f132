"""A ledger in a file, by the SQLite of Python's standard library."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpgrain.errors import DataError, ParameterError
from dpgrain.ledger.stores.connections import Connections
from dpgrain.ledger.stores.protocol import Page
from dpgrain.ledger.stores.sql import TABLES, SqlPage

# A process waits so many seconds for others that write.
_PATIENCE_SECONDS = 120.0
# Each connection asks for a write-ahead log, and for a commit to return when that is on the disk.
_SAFELY = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = 1",
    "PRAGMA checkpoint_fullfsync = 1",
    # A value that somebody else has put into the file is not run.
    "PRAGMA trusted_schema = 0",
)


class SqliteStore:
    """A file of SQLite.

    Args:
        place: the file.
    """

    def __init__(self, place: str | Path) -> None:
        self._path = Path(place).absolute()
        self.name = str(place)
        self._connections = Connections(self._opened)

    @property
    def place(self) -> str:
        """The file, as another process finds it."""
        return str(self._path)

    @contextmanager
    def creating(self) -> Iterator[Page]:
        """Enter a transaction that makes the tables of a ledger."""
        with self._telling():
            with self._closed_after(self._connected("rwc")) as connection:
                _begin(connection, "BEGIN IMMEDIATE")
                if _holds_anything(connection):
                    raise ParameterError(
                        f"{self.name!r} exists already; open it, or choose another name."
                    )
                with _transaction(connection) as page:
                    for table in TABLES:
                        connection.execute(table)
                    yield page
            _sync_folder(self._path.parent)

    @contextmanager
    def writing(self) -> Iterator[Page]:
        """Enter a transaction that no other one overlaps, and that is on the disk when it is left."""
        with self._at_hand("BEGIN IMMEDIATE") as page:
            yield page

    @contextmanager
    def reading(self) -> Iterator[Page]:
        """Enter a transaction that sees one state."""
        with self._at_hand("BEGIN") as page:
            yield page

    @contextmanager
    def _at_hand(self, begin: str) -> Iterator[Page]:
        with self._telling(), self._connections.at_hand() as connection:
            _begin(connection, begin)
            with _transaction(connection) as page:
                yield page

    def close(self) -> None:
        """Close this process's connection."""
        self._connections.close()

    def _opened(self) -> sqlite3.Connection:
        """Connect to a file that exists; to one that nobody may write without its log."""
        if not self._path.is_file():
            raise DataError(
                f"{self.name!r} is no file; make a ledger there first: dpgrain ledger init --help "
                "shows how."
            )
        try:
            connection = self._connected("rw")
        except sqlite3.OperationalError:
            log = self._path.with_name(f"{self._path.name}-wal")
            if os.access(self._path, os.W_OK) or log.exists():
                raise
            connection = self._connected("ro&immutable=1")
        try:
            _check_whole(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode={mode}",
            uri=True,
            timeout=_PATIENCE_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            for each in _SAFELY:
                connection.execute(each)
            if mode == "rwc":
                connection.execute("PRAGMA journal_mode = WAL")
            (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
            if journal != "wal" and "immutable" not in mode:
                raise DataError(
                    f"{self.name!r} cannot have a write-ahead log, which a ledger needs; put it on a "
                    "disk of this machine, or into PostgreSQL."
                )
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _closed_after(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn errors of SQLite into one sentence each."""
        try:
            yield
        except sqlite3.Error as error:
            raise DataError(_sentence(self.name, error)) from error


def _sentence(name: str, error: sqlite3.Error) -> str:
    """Say what is wrong with the file of a ledger, and what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_READONLY:
        return f"{name!r} cannot be written, so that nothing can be charged; check its permissions."
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return (
            f"{name!r} could not be written to the disk; check its free space: nothing is published, "
            "and what was charged before is kept."
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{name!r} is held by another process for {_PATIENCE_SECONDS:g} seconds; try again."
    if code == sqlite3.SQLITE_CANTOPEN:
        return f"{name!r} cannot be opened; check the folder and its permissions."
    if code == sqlite3.SQLITE_ERROR:
        return f"{name!r} holds no ledger; make one with: dpgrain ledger init {name}."
    return (
        f"{name!r} is not a ledger, or is damaged; put nothing in its place that is older, and count "
        "every promise that it held as used up."
    )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[Page]:
    """Commit at the end of a transaction that has begun, or take it back after an error."""
    try:
        yield SqlPage(lambda statement, values: connection.execute(statement, values))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _begin(connection: sqlite3.Connection, begin: str) -> None:
    connection.execute(begin)


def _check_whole(connection: sqlite3.Connection) -> None:
    """Read every page of a file, as damage may lie in one that the next charge alone looks at."""
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _holds_anything(connection: sqlite3.Connection) -> bool:
    """Return True if a file has tables; a ledger whose making was cut off has none."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables:
        connection.execute("ROLLBACK")
    return bool(tables)


def _sync_folder(folder: Path) -> None:
    """Wait until the name of a new file is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

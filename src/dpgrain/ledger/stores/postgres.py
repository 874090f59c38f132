"""A ledger in a PostgreSQL database, by psycopg 3 (``pip install 'dpgrain[postgres]'``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from dpgrain.errors import DataError, ParameterError
from dpgrain.ledger.stores.connections import Connections
from dpgrain.ledger.stores.protocol import Page
from dpgrain.ledger.stores.sql import TABLES, SqlPage

# Only one transaction at a time has this lock on the lines; others read them meanwhile.
_LOCK = "LOCK TABLE lines IN EXCLUSIVE MODE"
# A commit returns when it is on the server's disk, whatever the server does by default.
_SAFELY = "SET synchronous_commit TO on"


class PostgresStore:
    """A database of PostgreSQL, whose search path names the schema of the tables.

    Args:
        place: the address, such as ``postgresql://user@host/database``. It may hold a password, which
            messages do not show.
    """

    def __init__(self, place: str) -> None:
        try:
            self._library = import_module("psycopg")
        except ImportError as error:
            raise ParameterError(
                "a ledger in PostgreSQL needs psycopg: pip install 'dpgrain[postgres]'."
            ) from error
        self.place = place
        self.name = _without_password(place)
        self._connections = Connections(self._opened, lambda connection: connection.closed)

    @contextmanager
    def creating(self) -> Iterator[Page]:
        """Enter a transaction that makes the tables of a ledger."""
        with self._at_hand() as connection:
            found = connection.execute("SELECT to_regclass('lines')").fetchone()
            if found[0] is not None:
                raise ParameterError(
                    f"{self.name!r} holds a table of lines already; open it, or name another schema by "
                    "?options=-csearch_path%3Dvisits."
                )
            for table in TABLES:
                connection.execute(table)
            yield _page(connection)

    @contextmanager
    def writing(self) -> Iterator[Page]:
        """Enter a transaction that no other one overlaps, and that is on the disk when it is left."""
        with self._at_hand() as connection:
            connection.execute(_LOCK)
            yield _page(connection)

    @contextmanager
    def reading(self) -> Iterator[Page]:
        """Enter a transaction that sees one state."""
        with self._at_hand() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield _page(connection)

    @contextmanager
    def _at_hand(self) -> Iterator[Any]:
        """Enter a transaction of this process's connection."""
        with (
            self._telling(),
            self._connections.at_hand() as connection,
            connection.transaction(),
        ):
            yield connection

    def close(self) -> None:
        """Close this process's connection."""
        self._connections.close()

    def _opened(self) -> Any:
        """Connect to a server that keeps what it has committed."""
        connection = self._library.connect(self.place, autocommit=True)
        try:
            connection.execute(_SAFELY)
            for setting in ("fsync", "full_page_writes"):
                (value,) = connection.execute(f"SHOW {setting}").fetchone() or ("",)
                if value != "on":
                    raise DataError(
                        f"the server of {self.name!r} has {setting} = {value}: it may lose what it has "
                        f"committed; set {setting} = on."
                    )
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn errors of PostgreSQL into one sentence each."""
        told = self._library.errors
        try:
            yield
        except told.UndefinedTable as error:
            raise DataError(
                f"{self.name!r} holds no ledger; make one with: dpgrain ledger init {self.name}."
            ) from error
        except (
            told.ReadOnlySqlTransaction,
            told.InsufficientPrivilege,
        ) as error:
            raise DataError(
                f"{self.name!r} cannot be written, so that nothing can be charged; check the rights of "
                "the user, and that the server is the primary one."
            ) from error
        except told.Error as error:
            raise DataError(
                f"{self.name!r} could not be reached or written; check the server and its disk: "
                "nothing is published, and what was charged before is kept."
            ) from error


def _page(connection: Any) -> Page:
    def execute(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.replace("?", "%s"), values)
        return list(cursor) if cursor.description else []

    return SqlPage(execute)


def _without_password(place: str) -> str:
    """Return an address without the password between the first ``:`` of its user and the ``@``."""
    scheme, _, rest = place.partition("://")
    login, at, host = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{at}{host}"

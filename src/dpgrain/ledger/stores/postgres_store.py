"""A ledger in a PostgreSQL database, with psycopg 3 (``pip install 'dpgrain[postgres]'``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import quote

from dpgrain.errors import AccessError, DataError, ParameterError
from dpgrain.ledger.stores.connections import Connections
from dpgrain.ledger.stores.ledger_tables import TABLES, SqlTransaction
from dpgrain.ledger.stores.store_protocol import Transaction

_SCHEME = "postgresql://"
# Exclusive lock for writers; readers do not wait.
_LOCK = "LOCK TABLE lines IN EXCLUSIVE MODE"
# Commits return when they are on the server's disk, and text is Unicode, for all server defaults.
_SESSION = ("SET synchronous_commit TO on", "SET client_encoding TO 'UTF8'")
# Parts of an address that messages show if all of them match. Other parts may contain a password,
# and so may these if it was not escaped.
_PUBLIC = {
    "user": r"[\w.+-]+",
    "host": r"[\w.,:/-]+",
    "port": r"[\d,]+",
    "dbname": r"[\w.+-]+",
    "options": r"-c ?search_path=[\w.,]+",
}
# The server's reasons for rejecting a user.
_REJECTED = re.compile(r"authentication failed|no password supplied|role .* does not exist")
_NO_DATABASE = re.compile(r"database .* does not exist")
# Whether the tables of a ledger are ordinary ones, with rows that survive a restart.
_NAMES = tuple(words.split()[-1] for words in (table.partition(" (")[0] for table in TABLES))
_DURABLE = (
    "SELECT name, relkind = 'r' AND relpersistence = 'p' "
    "FROM unnest(%s::text[]) AS name JOIN pg_class ON pg_class.oid = to_regclass(name)"
)


class PostgresStore:
    """A PostgreSQL database; the search path selects the schema of the tables.

    ``place`` is an address, which may contain a password; messages never show it.
    """

    def __init__(self, place: str) -> None:
        try:
            self._library = import_module("psycopg")
        except ImportError as error:
            raise ParameterError(
                "a ledger in PostgreSQL requires psycopg; run pip install 'dpgrain[postgres]'."
            ) from error
        self.place = place
        self.name, self._secrets = _public_address(place, self._library)
        self._connections = Connections(self._opened, lambda connection: connection.closed)

    @contextmanager
    def creating(self) -> Iterator[Transaction]:
        """Enter a transaction that creates the tables of a ledger."""
        with self._at_hand() as connection:
            tables = [name for name, _ in connection.execute(_DURABLE, [list(_NAMES)])]
            if tables:
                raise ParameterError(
                    f"{self.name!r} already has a table {tables[0]!r}; if it belongs to a "
                    "ledger, open that one, otherwise choose another schema with "
                    "?options=-csearch_path%3Dvisits."
                )
            for table in TABLES:
                connection.execute(table)
            yield _page(connection)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Enter an exclusive transaction that is on the disk after a normal exit."""
        with self._at_hand() as connection:
            connection.execute(_LOCK)
            self._check_durable(connection)
            yield _page(connection)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Enter a read-only transaction with a consistent state."""
        with self._at_hand() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._check_durable(connection)
            yield _page(connection)

    @contextmanager
    def _at_hand(self) -> Iterator[Any]:
        """Enter a transaction of this process's connection."""
        with (
            self._translated_errors(),
            self._connections.connected() as connection,
            connection.transaction(),
        ):
            yield connection

    def _check_durable(self, connection: Any) -> None:
        """Reject tables that are views or lose their rows when the server stops."""
        for name, persistence in connection.execute(_DURABLE, [list(_NAMES)]):
            if not persistence:
                raise DataError(
                    f"the table {name!r} of {self.name!r} is unlogged, temporary or a view, "
                    "and loses its rows when the server stops; treat what was charged as "
                    f"spent, and run ALTER TABLE {name} SET LOGGED if it belongs to the "
                    "ledger."
                )

    def close(self) -> None:
        """Close the connection of this process."""
        self._connections.close()

    def _opened(self) -> Any:
        """Connect to a server with durable commits."""
        connection = self._library.connect(self.place, autocommit=True)
        try:
            for each in _SESSION:
                connection.execute(each)
            encoding = connection.info.parameter_status("server_encoding")
            if encoding == "SQL_ASCII":
                raise DataError(
                    f"the database of {self.name!r} has the encoding SQL_ASCII, which leaves "
                    "text undefined; create another with: createdb --encoding=UTF8 "
                    "--template=template0."
                )
            for setting in ("fsync", "full_page_writes"):
                (value,) = connection.execute(f"SHOW {setting}").fetchone() or ("",)
                if value != "on":
                    raise DataError(
                        f"the server of {self.name!r} has {setting} = {value} and may "
                        f"lose committed data; set {setting} = on."
                    )
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Convert errors of PostgreSQL to messages; chained errors contain no secrets."""
        try:
            yield
        except self._library.Error as error:
            secret = any(each in str(error) for each in self._secrets)
            raise self._data_error(error) from (None if secret else error)

    def _data_error(self, error: Exception) -> DataError:
        """Return the error about the database of a ledger, with the remedy."""
        errors = self._library.errors
        if isinstance(error, errors.UndefinedTable):
            return AccessError(
                f"{self.name!r} contains no ledger; create one with: dpgrain ledger init "
                f"{self.name}."
            )
        strange = (
            errors.UndefinedColumn,
            errors.UndefinedFunction,
            errors.DatatypeMismatch,
            errors.WrongObjectType,
        )
        if isinstance(error, strange):
            return DataError(
                f"{self.name!r} has tables with the names of a ledger, but contains no "
                "ledger; pass the schema of the ledger with ?options=-csearch_path%3Dvisits."
            )
        if isinstance(error, errors.ReadOnlySqlTransaction | errors.InsufficientPrivilege):
            return AccessError(
                f"{self.name!r} cannot be written, so nothing can be charged; check the "
                "rights of the user, and that the server is the primary one."
            )
        if isinstance(error, errors.UntranslatableCharacter):
            return AccessError(
                f"the encoding of the database of {self.name!r} cannot store a column name; "
                "create a database with: createdb --encoding=UTF8 --template=template0."
            )
        rejected = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification)
        # Errors of a connection that was never made have no class of their own.
        if isinstance(error, rejected) or _REJECTED.search(str(error)):
            return AccessError(
                f"the server of {self.name!r} rejected the user or the password; check both: "
                "nothing is published."
            )
        if _NO_DATABASE.search(str(error)):
            return AccessError(
                f"the server of {self.name!r} has no database of this name; check the address, or "
                "create the database with createdb: nothing is published."
            )
        return DataError(
            f"{self.name!r} could not be reached or written; check the server and its disk: "
            "nothing is published, and earlier charges remain."
        )


def _page(connection: Any) -> Transaction:
    def execute(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.replace("?", "%s"), values)
        return list(cursor) if cursor.description else []

    return SqlTransaction(execute)


def _public_address(place: str, library: Any) -> tuple[str, tuple[str, ...]]:
    """Return an address for messages, and the secrets that must not be in them."""
    try:
        stated = library.conninfo.conninfo_to_dict(place)
    except library.Error:
        raise ParameterError(
            "the address of a ledger in PostgreSQL must be like "
            "postgresql://user@host/database, with %40 for @ and %2F for / in a password."
        ) from None
    texts = {name: str(value) for name, value in stated.items() if value}
    public = {name: text for name, text in texts.items() if name in _PUBLIC}
    if not all(re.fullmatch(_PUBLIC[name], text) for name, text in public.items()):
        return f"{_SCHEME}…", tuple(texts.values())
    secrets = tuple(text for name, text in texts.items() if name not in _PUBLIC)
    quoted_texts = {name: quote(text, safe="/,:") for name, text in public.items()}
    user = f"{quoted_texts['user']}@" if "user" in quoted_texts else ""
    port = f":{quoted_texts['port']}" if "port" in quoted_texts else ""
    schema = f"?options={quoted_texts['options']}" if "options" in quoted_texts else ""
    where = f"{quoted_texts.get('host', '')}{port}/{quoted_texts.get('dbname', '')}{schema}"
    return f"{_SCHEME}{user}{where}", secrets

"""Rows of a table or a query of PostgreSQL, by ADBC (``pip install 'dpgrain[sql]'``).

All that one release reads is of one snapshot, and each set of columns is fetched once, into memory and,
beyond a share of it, into an encrypted file of the release's own. Where a release counts, the server
groups: what it sends is each combination of values with the number of its records. No value can end a
query: types are those of the catalogue, and what a type of Arrow's cannot hold (infinite days, texts
beyond the longest label) is a null before it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import duckdb
import pyarrow as pa

from dpgrain._progress import step
from dpgrain.errors import DataError, DpgrainError, ParameterError, SchemaError
from dpgrain.tables.engines.sql import quoted, text
from dpgrain.tables.sources.column_names import require_names
from dpgrain.tables.sources.column_types import LONGEST_LABEL
from dpgrain.tables.sources.duckdb_connection import memory_limit
from dpgrain.tables.sources.read_errors import translate_errors
from dpgrain.tables.sources.source import RECORDS
from dpgrain.tables.sources.streams import store_stream

Answer = TypeVar("Answer")

#: Beginnings of addresses of PostgreSQL.
POSTGRES = ("postgresql://", "postgres://")
# Parts of an address that are secrets, beside the password before the host.
_SECRETS = ("password", "sslpassword")
# A limit of time would make it depend on rows whether a release ends; versions before 17 lack one.
_NO_LIMIT = (
    "SELECT pg_catalog.set_config('{0}', '0', true) "
    "WHERE pg_catalog.current_setting('{0}', true) IS NOT NULL"
)
_LIMITS = ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout")
# Settings end with the transaction: a pool may give the connection to others.
_BEGIN = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL client_encoding TO 'UTF8'",
    "SET LOCAL standard_conforming_strings TO on",
    *map(_NO_LIMIT.format, _LIMITS),
)
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_LENGTH = re.compile(r"\(\d+\)")
_MOST_DIGITS = 38
# Share of what DuckDB may hold, for rows that are kept in memory; the rest of them go to a file.
_KEPT_SHARE = 0.5
# States of SQL of errors that are told apart: their first letters, and what they mean.
_STATES = {
    "42501": "the user has no permission to read it; grant SELECT on it",
    "42": "it does not run there; check it with psql in the same schema",
    "57014": "an administrator of the server canceled it; run it again",
    "53": "the server has no memory, disk space or connection left for it; run it again later",
    "40": "the server could not keep a consistent state of it; run it again",
}


@dataclass(frozen=True)
class _Kind:
    """The reading of columns of one type.

    Args:
        kind: the type that DuckDB holds.
        there: the SQL of a column on the server; ``{0}`` is the column.
        grouped: whether the server may group by it: equal values are equal bytes.
        here: the SQL of what was sent, in DuckDB.
    """

    kind: str
    there: str = "{0}"
    grouped: bool = False
    here: str = "{0}"


def _time(kind: str, there: str) -> _Kind:
    # Microseconds since 1970 end sooner than the server's, which count from 2000.
    last = f"pg_catalog.isfinite({{0}}) AND {{0}} < {there} '294247-01-01 00:00:00'"
    return _Kind(kind, f"CASE WHEN {last} THEN {{0}} END")


_LABEL = f"CASE WHEN pg_catalog.octet_length({{0}}) <= {LONGEST_LABEL} THEN {{0}} END"
# Collations may hold different texts to be equal; this one compares bytes.
_TEXT = _Kind("VARCHAR", f'({_LABEL}) COLLATE "C"', grouped=True)
_AS_TEXT = _Kind("VARCHAR", _LABEL.replace("{0}", "({0}::text)"))
_KINDS = {
    "smallint": _Kind("SMALLINT", grouped=True),
    "integer": _Kind("INTEGER", grouped=True),
    "bigint": _Kind("BIGINT", grouped=True),
    "boolean": _Kind("BOOLEAN", grouped=True),
    "date": _Kind("DATE", "CASE WHEN pg_catalog.isfinite({0}) THEN {0} END", grouped=True),
    "text": _TEXT,
    "character varying": _Kind("VARCHAR", _TEXT.there.replace("{0}", "({0}::text)"), grouped=True),
    "character": _AS_TEXT,
    "uuid": _AS_TEXT,
    # A cast may be a function of the type's owner; this is what the server prints.
    "enum": _Kind("VARCHAR", "pg_catalog.enum_out({0})::text"),
    "real": _Kind("FLOAT"),
    "double precision": _Kind("DOUBLE"),
    "numeric": _Kind("DOUBLE", "{0}::text", here="TRY_CAST({0} AS DOUBLE)"),
    "timestamp without time zone": _time("TIMESTAMP", "timestamp"),
    "timestamp with time zone": _time("TIMESTAMP WITH TIME ZONE", "timestamptz"),
}


def _kind_of(told: str) -> _Kind | None:
    """Return how a type is read, by its name in the catalogue; None for one that is not."""
    if digits := _NUMERIC.fullmatch(told):
        if int(digits[2]) <= int(digits[1]) <= _MOST_DIGITS:
            kind = f"DECIMAL({digits[1]},{digits[2]})"
            return _Kind(kind, "{0}::text", here=f"TRY_CAST({{0}} AS {kind})")
        return _KINDS["numeric"]
    return _KINDS.get(_LENGTH.sub("", told))


def _kind_of_arrow(column: pa.Field) -> str:
    """Return the name of a type of the server's by that in which it is sent, for columns of a query.

    Amounts of money are sent as whole numbers of hundredths, and numbers of objects modulo 2^32.
    """
    told: str = (column.metadata or {}).get(b"POSTGRESQL:type", b"").decode()
    if told in ("money", "oid"):
        return told
    kind = column.type
    known = {
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.bool_(): "boolean",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.date32(): "date",
        pa.string(): "character",
        pa.timestamp("us"): "timestamp without time zone",
        pa.timestamp("us", "UTC"): "timestamp with time zone",
    }
    opaque = isinstance(kind, pa.BaseExtensionType) and getattr(kind, "type_name", "") == "numeric"
    return "numeric" if opaque else known.get(kind, str(kind))


@dataclass(frozen=True)
class _Described:
    """A table or a query as the catalogue describes it.

    Args:
        rows: the SQL of the rows.
        kinds: column → its type there.
        known: which table it is; 0 for a query.
        is_table: whether it is a table as it stands: no view, no foreign table, all of its rows.
    """

    rows: str
    kinds: Mapping[str, str] = field(hash=False)
    known: int = 0
    is_table: bool = False


class Address:
    """An address, which may hold a secret: it is neither shown nor written down.

    Args:
        written: the address, such as ``postgresql://host/database``.

    >>> Address("postgresql://ann:pw@host/db")
    Address(…)
    """

    def __init__(self, written: str) -> None:
        self._written = written

    def __repr__(self) -> str:
        return "Address(…)"

    def __reduce__(self) -> Any:
        raise ParameterError(
            "a database table cannot be pickled, because its address may contain a password; "
            "call dg.read where it is used."
        )

    def __deepcopy__(self, _: Any) -> Address:
        return self

    def opened(self) -> Any:
        """Return a new connection.

        Raises:
            ParameterError: if the driver is missing.
        """
        return _driver().connect(self._written, autocommit=True)


@dataclass(frozen=True, eq=False, repr=False)
class PostgresSource:
    """A table or a query of PostgreSQL; nobody sees the address.

    Args:
        address: the address.
        table: the name of the table, as SQL writes it; or
        query: the query.
    """

    address: Address
    table: str | None = None
    query: str | None = None
    _sessions: dict[int, PostgresSession] = field(default_factory=dict, init=False)

    @staticmethod
    def of(address: Address, table: str | None, query: str | None) -> PostgresSource:
        """Return the source, whose schema is read.

        Raises:
            ParameterError: if not one of table and query is given, or a driver is missing.
            DataError: if the database cannot be reached, or has no such table.
            SchemaError: if columns have names that no query can state.
        """
        if (table is None) == (query is None):
            raise ParameterError(
                "table or query must be passed for a database, and not both: table='visits' is "
                "the table itself, and query='SELECT …' also requires rows='as given'.",
                name="table",
            )
        source = PostgresSource(address, table, query)
        require_names(source.columns(), source.name)
        return source

    @property
    def name(self) -> str:
        """The name in messages, in which nothing of the address stands."""
        return "The query" if self.table is None else f"The table {self.table!r}"

    @property
    def title(self) -> str:
        """The name in reports."""
        return "a query of PostgreSQL" if self.table is None else self.table

    @cached_property
    def _opened(self) -> _Described:
        with self._connected() as connection:
            return self._described(connection)

    @property
    def is_table(self) -> bool:
        """Whether it is a table as it stands."""
        return self._opened.is_table

    @property
    def counts_duplicates(self) -> bool:
        """Whether rows may be told by their number: a query may give others each time it is asked."""
        return self.is_table and RECORDS not in map(str.casefold, self._opened.kinds)

    def columns(self) -> dict[str, str]:
        """Return column name → type, as the catalogue had them when it was first asked."""
        known = {name: _kind_of(kind) for name, kind in self._opened.kinds.items()}
        return {
            name: self._opened.kinds[name].upper() if kind is None else kind.kind
            for name, kind in known.items()
        }

    @contextmanager
    def begin(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Enter a transaction that sees one state, for all that a connection of DuckDB's reads.

        Args:
            connection: the connection of DuckDB's.

        Raises:
            DataError: if the database cannot be reached.
            SchemaError: if it is another table, or has other columns, than when it was opened.
        """
        if id(connection) in self._sessions:
            # A table that is joined with itself is read in one state as well.
            yield
            return
        opened = self._opened
        with self._connected() as there:
            now = self._described(there)
            if now != opened or now.kinds != opened.kinds:
                raise self._another()
            self._sessions[id(connection)] = PostgresSession(self, there, connection, now)
            try:
                yield
            finally:
                del self._sessions[id(connection)]

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the rows, fetched once; grouped with their numbers, where these are asked for."""
        return self._sessions[id(connection)].rows(used)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Enter a transaction of a new connection."""
        connection = self.asked(self.address.opened, self._unreached)
        try:
            for each in _BEGIN:
                self.asked(partial(_rows, connection, each))
            yield connection
        finally:
            with suppress(Exception):
                connection.close()

    def asked(
        self, ask: Callable[[], Answer], tell: Callable[[Exception], DpgrainError] | None = None
    ) -> Answer:
        """Return an answer of the server's; what it raises becomes one sentence without a cause.

        Its own text may hold a host, a user, a password, or a value of a row.

        Args:
            ask: the question.
            tell: the sentence about what it raises; that about what is asked without it.
        """
        try:
            return ask()
        except DpgrainError:
            raise
        except Exception as error:
            told = (tell or self._failed)(error)
        # Outside of the handler, so that the error has no context either.
        raise told

    def _unreached(self, error: Exception) -> DpgrainError:
        said = str(error)
        if "password" in said or "authentication" in said:
            why = (
                "it rejects the password; check the secret (PGPASSWORD, or the variable of "
                "source_env)"
            )
        elif "does not exist" in said:
            why = "it has no such database or user; check the address"
        else:
            why = "check the address, and that the server is running"
        return DataError(f"{self.name} cannot be reached in its database: {why}.")

    def _failed(self, error: Exception) -> DpgrainError:
        state = getattr(error, "sqlstate", None) or ""
        for known, why in _STATES.items():
            if state.startswith(known):
                return DataError(f"{self.name} cannot be read: {why}.")
        return DataError(
            f"{self.name} cannot be read completely; check the connection to the database, "
            "and that its query runs to completion."
        )

    def _described(self, connection: Any) -> _Described:
        if self.table is None:
            rows = f"({str(self.query).strip().rstrip(';')}\n)"
            ask = partial(_schema, connection, f"SELECT * FROM {rows} AS given")
            schema = self.asked(ask)
            require_names(schema.names, self.name)
            return _Described(rows, {each.name: _kind_of_arrow(each) for each in schema})
        known, rows = self._held(connection, self.table)
        ((named, is_table),) = self.asked(partial(_rows, connection, _FIND.format(known)))
        if named != rows:
            raise self._another()
        columns = self.asked(partial(_rows, connection, _COLUMNS.format(known)))
        return _Described(rows, dict(columns), known, bool(is_table))

    def _held(self, connection: Any, table: str) -> tuple[int, str]:
        """Return which table a name is, and its whole name, which it keeps while the transaction lasts.

        From here on no name but the server's own is looked up without its schema.
        """
        ((known,),) = self.asked(partial(_rows, connection, _NUMBER.format(text(table))))
        if known is None:
            raise DataError(
                f"There is no table {table!r} in the database, or the user has no access to "
                "it; check the name, which may need its schema: table='public.visits'."
            )
        self.asked(partial(_rows, connection, "SET LOCAL search_path TO ''"))
        ((rows,),) = self.asked(partial(_rows, connection, _NAME.format(known)))
        # What is read of it keeps others from giving its name to another one.
        self.asked(partial(_rows, connection, f"SELECT 1 FROM {rows} LIMIT 0"))
        return known, rows

    def _another(self) -> SchemaError:
        return SchemaError(
            f"{self.name} has different columns than when it was opened, or its name refers "
            "to another table; call dg.read again."
        )


class PostgresSession:
    """The rows that one release reads of a source, in one transaction.

    Args:
        source: the source.
        there: the connection to the database.
        here: the connection of DuckDB's, which keeps what was fetched until the release ends.
        described: what the catalogue says.
    """

    def __init__(
        self, source: PostgresSource, there: Any, here: duckdb.DuckDBPyConnection,
        described: _Described,
    ) -> None:  # fmt: skip
        self._source, self._there, self._here, self._described = source, there, here, described
        known = {name: _kind_of(kind) for name, kind in described.kinds.items()}
        self._kinds = {name: kind for name, kind in known.items() if kind is not None}
        self._fetched: list[tuple[frozenset[str], bool, str]] = []

    def rows(self, used: Collection[str] | None) -> str:
        """Return SQL of columns.

        Args:
            used: the columns; all without it. With :data:`RECORDS` among them rows are of any number of
                records, which that column tells.
        """
        asked = frozenset(self._kinds if used is None else set(used) & set(self._kinds))
        counted = used is not None and RECORDS in used
        if not self._described.is_table:
            # A query, or a view, may give other rows when it is asked again.
            asked = frozenset(self._kinds)
        grouped = counted and all(self._kinds[name].grouped for name in asked)
        for columns, told, name in self._fetched:
            if asked <= columns and (counted or not told):
                return name if told or not counted else f"(SELECT *, 1 AS {_records()} FROM {name})"
        name = self._fetch(sorted(asked), grouped)
        self._fetched.append((asked, grouped, name))
        return name if grouped or not counted else f"(SELECT *, 1 AS {_records()} FROM {name})"

    def _fetch(self, columns: list[str], grouped: bool) -> str:
        """Fetch columns, and return SQL of what was fetched."""
        step("reading the database")
        there = ", ".join(
            f"{self._kinds[name].there.format(quoted(name))} AS c{place}"
            for place, name in enumerate(columns)
        )
        listed = [there or "NULL::integer AS none", *(["pg_catalog.count(*) AS records"] * grouped)]
        asked = f"SELECT {', '.join(listed)} FROM {self._described.rows} AS given"
        if grouped:
            # By places, as a name would be that of a column of the table's.
            asked += f" GROUP BY {', '.join(str(1 + i) for i in range(len(columns))) or '()'}"
        here = {
            name: self._kinds[name].here.format(f"c{place}") for place, name in enumerate(columns)
        }
        if grouped:
            here[RECORDS] = "records"
        with self._there.cursor() as cursor:
            self._source.asked(partial(cursor.execute, asked))
            return self._source.asked(partial(self._kept, cursor.fetch_record_batch(), here))

    def _kept(self, rows: pa.RecordBatchReader, columns: dict[str, str]) -> str:
        with translate_errors(self._source.name):
            return store_stream(
                self._here, rows, columns, int(_KEPT_SHARE * memory_limit(self._here))
            )


def _records() -> str:
    return quoted(RECORDS)


def contains_password(address: str) -> bool:
    """Return whether an address holds a password, which a file or a command line keeps for others.

    Args:
        address: the address.

    >>> contains_password("postgresql://ann:pw@host/db"), contains_password("postgresql://ann@host/db")
    (True, False)
    """
    try:
        parts = urlsplit(address)
        stated = parts.password is not None or any(
            name in parse_qs(parts.query) for name in _SECRETS
        )
    except ValueError:
        return "@" in address
    return stated


def _driver() -> Any:
    try:
        return import_module("adbc_driver_postgresql.dbapi")
    except ImportError:
        pass
    raise ParameterError(
        "source is a database, which requires ADBC; run pip install 'dpgrain[sql]'.", name="source"
    )


def _rows(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def _schema(connection: Any, statement: str) -> pa.Schema:
    with connection.cursor() as cursor:
        return cursor.adbc_execute_schema(statement)


# Which table a name stands for, and the whole name of a table in SQL.
_NUMBER = "SELECT pg_catalog.to_regclass({0}::pg_catalog.text)::pg_catalog.oid::pg_catalog.int8"
_NAME = "SELECT {0}::oid::regclass::text"
# The name of a table in SQL, and whether it is one as it stands: with what inherits from it, an
# ordinary table, of which the user may see all rows, in a server whose texts are UTF-8.
_FIND = """
WITH RECURSIVE below AS (
  SELECT {0}::oid AS oid
  UNION ALL SELECT inhrelid FROM pg_catalog.pg_inherits JOIN below ON inhparent = below.oid
)
SELECT {0}::oid::regclass::text,
  NOT row_security_active({0}::oid)
  AND (SELECT bool_and(kinds.relkind IN ('r', 'p')) FROM below
       JOIN pg_catalog.pg_class AS kinds USING (oid))
  AND NOT EXISTS (SELECT FROM below JOIN pg_catalog.pg_attribute ON attrelid = below.oid
                  WHERE attgenerated = 'v' AND NOT attisdropped)
  AND current_setting('server_encoding') = 'UTF8'
"""
_COLUMNS = """
SELECT attname::text, CASE WHEN typtype = 'e' THEN 'enum'
  ELSE pg_catalog.format_type(atttypid, atttypmod) END
FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_type ON pg_type.oid = atttypid
WHERE attrelid = {0} AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

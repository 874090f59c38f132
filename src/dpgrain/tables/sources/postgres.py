"""Rows of a table or a query of PostgreSQL, by ADBC (``pip install 'dpgrain[sql]'``).

One release reads one snapshot. It fetches each set of columns once, into memory and, beyond a share
of it, into an encrypted file. For counts the server can group, and sends each combination of values
with its number of records. It also selects the rows of a region if it compares values exactly as
DuckDB does (:mod:`~dpgrain.tables.sources.postgres_region`). No value can end a query: types come
from the catalogue, and the server replaces values that Arrow cannot represent (infinite dates, very
long texts) with nulls.
"""

from __future__ import annotations

import json
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
from dpgrain.errors import AccessError, DataError, DpgrainError, ParameterError, SchemaError
from dpgrain.scope.regions import Region
from dpgrain.tables.engines.sql import literal, quoted
from dpgrain.tables.sources.column_names import require_names
from dpgrain.tables.sources.column_types import LONGEST_LABEL
from dpgrain.tables.sources.duckdb_connection import memory_limit, translate_errors
from dpgrain.tables.sources.postgres_region import UNREADABLE, server_condition
from dpgrain.tables.sources.source import RECORDS, RowSource, SourceWrapper
from dpgrain.tables.sources.streams import store_stream

Answer = TypeVar("Answer")

#: URI schemes of PostgreSQL.
POSTGRES_SCHEMES = ("postgresql://", "postgres://")
# Secret query parameters of an address, in addition to the password before the host.
_SECRETS = ("password", "sslpassword")
# Disable timeouts, with which rows could decide whether a release ends; older versions lack some.
_DISABLE_TIMEOUT = (
    "SELECT pg_catalog.set_config('{0}', '0', true) "
    "WHERE pg_catalog.current_setting('{0}', true) IS NOT NULL"
)
_TIMEOUTS = ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout")
# Settings for one transaction only, because a pool can reuse the connection.
_BEGIN = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL client_encoding TO 'UTF8'",
    "SET LOCAL standard_conforming_strings TO on",
    *map(_DISABLE_TIMEOUT.format, _TIMEOUTS),
)
# Option of ADBC for statements that COPY rejects, such as EXPLAIN.
_WITHOUT_COPY = {"adbc.postgresql.use_copy": "false"}
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_LENGTH = re.compile(r"\(\d+\)")
_MAX_DIGITS = 38
# Share of DuckDB's memory for fetched rows; further rows go to a file.
_MEMORY_SHARE = 0.5
# Prefixes of SQLSTATE codes, and their meaning.
_STATES = {
    "42501": "the user has no permission to read it; grant SELECT on it",
    "42": "the server rejects it; check it with psql in the same schema",
    "57014": "an administrator of the server canceled it; run it again",
    "53": "the server has no memory, disk space or connection left for it; run it again later",
    "40": "the server could not keep a consistent state of it; run it again",
}


@dataclass(frozen=True)
class _PostgresType:
    """How to read columns of one type."""

    read_as: str
    server_sql: str = "{0}"  # of the column ``{0}`` on the server
    groupable: bool = False  # the server can group by it: equal values are equal bytes
    local_sql: str = "{0}"  # DuckDB's, of the fetched column ``{0}``


def _timestamp(kind: str, name: str) -> _PostgresType:
    last = f"{{0}} < '{UNREADABLE[name]}' AND {{0}} > '-infinity'"
    return _PostgresType(kind, f"CASE WHEN {last} THEN {{0}} END")


_LABEL = f"CASE WHEN pg_catalog.octet_length({{0}}) <= {LONGEST_LABEL} THEN {{0}} END"
# Some collations treat different texts as equal; "C" compares bytes.
_TEXT = _PostgresType("VARCHAR", f'({_LABEL}) COLLATE "C"', groupable=True)
_AS_TEXT = _PostgresType("VARCHAR", _LABEL.replace("{0}", "({0}::text)"))
_TYPES = {
    "smallint": _PostgresType("SMALLINT", groupable=True),
    "integer": _PostgresType("INTEGER", groupable=True),
    "bigint": _PostgresType("BIGINT", groupable=True),
    "boolean": _PostgresType("BOOLEAN", groupable=True),
    "date": _PostgresType(
        "DATE", "CASE WHEN pg_catalog.isfinite({0}) THEN {0} END", groupable=True
    ),
    "text": _TEXT,
    "character varying": _PostgresType(
        "VARCHAR", _TEXT.server_sql.replace("{0}", "({0}::text)"), groupable=True
    ),
    "character": _AS_TEXT,
    "uuid": _AS_TEXT,
    # Not a cast, which can be a function of the type's owner.
    "enum": _PostgresType("VARCHAR", "pg_catalog.enum_out({0})::text"),
    "real": _PostgresType("FLOAT"),
    "double precision": _PostgresType("DOUBLE"),
    "numeric": _PostgresType("DOUBLE", "{0}::text", local_sql="TRY_CAST({0} AS DOUBLE)"),
    **{
        name: _timestamp(kind, name)
        for name, kind in (
            ("timestamp without time zone", "TIMESTAMP"),
            ("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
        )
    },
}


def _postgres_type(name: str) -> _PostgresType | None:
    """Return how to read a type of the catalogue; None for an unusable type."""
    if digits := _NUMERIC.fullmatch(name):
        if int(digits[2]) <= int(digits[1]) <= _MAX_DIGITS:
            kind = f"DECIMAL({digits[1]},{digits[2]})"
            return _PostgresType(kind, "{0}::text", local_sql=f"TRY_CAST({{0}} AS {kind})")
        return _TYPES["numeric"]
    return _TYPES.get(_LENGTH.sub("", name))


def _type_name(column: pa.Field) -> str:
    """Return the server's name of the type of a query's column, from its Arrow type.

    Do not read money, sent as an integer of hundredths, and oid, sent modulo 2³².
    """
    name: str = (column.metadata or {}).get(b"POSTGRESQL:type", b"").decode()
    if name in ("money", "oid"):
        return name
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
class _Description:
    """A table or a query, described by the catalogue."""

    rows: str
    kinds: Mapping[str, str] = field(hash=False)
    table_id: int = 0  # oid of the table; 0 for a query
    is_table: bool = False  # a base table with all rows visible, not a view or a foreign table


class Address:
    """Address ``postgresql://…``, never shown because of its password."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def __repr__(self) -> str:
        return "Address(…)"

    def __reduce__(self) -> Any:
        raise ParameterError(
            "a database table cannot be pickled, because its address may contain a password; "
            "call dg.read where it is used."
        )

    def __deepcopy__(self, _: Any) -> Address:
        return self

    def connect(self) -> Any:
        """Return a new connection; raises ParameterError if the driver is missing."""
        return _driver().connect(self._uri, autocommit=True)


@dataclass(frozen=True, eq=False, repr=False)
class PostgresSource:
    """A table, by its SQL name, or a query of PostgreSQL; the address is never shown."""

    address: Address
    table: str | None = None
    query: str | None = None
    _sessions: dict[int, PostgresSession] = field(default_factory=dict, init=False)

    @staticmethod
    def create(address: Address, table: str | None, query: str | None) -> PostgresSource:
        """Return the source, after reading its schema."""
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
        """Name in error messages, without the address."""
        return "The query" if self.table is None else f"The table {self.table!r}"

    @property
    def title(self) -> str:
        """Name in reports."""
        return "a query of PostgreSQL" if self.table is None else self.table

    @cached_property
    def _opened(self) -> _Description:
        with self._connected() as connection:
            return self._describe(connection)

    @property
    def is_table(self) -> bool:
        """Whether it is a base table."""
        return self._opened.is_table

    @property
    def counts_duplicates(self) -> bool:
        """Whether the server can group equal rows; a query can return other rows each time."""
        return self.is_table and RECORDS not in map(str.casefold, self._opened.kinds)

    def columns(self) -> dict[str, str]:
        """Return column name → type at the first call."""
        known = {name: _postgres_type(kind) for name, kind in self._opened.kinds.items()}
        return {
            name: self._opened.kinds[name].upper() if kind is None else kind.read_as
            for name, kind in known.items()
        }

    @contextmanager
    def begin(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Enter a transaction with one snapshot for all reads of a DuckDB connection."""
        if id(connection) in self._sessions:
            # A table joined with itself has one snapshot.
            yield
            return
        opened = self._opened
        with self._connected() as server:
            now = self._describe(server)
            if now != opened or now.kinds != opened.kinds:
                raise self._changed_error()
            self._sessions[id(connection)] = PostgresSession(self, server, connection, now)
            try:
                yield
            finally:
                del self._sessions[id(connection)]

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the rows, fetched once; grouped if :data:`RECORDS` is used."""
        return self.session(connection).rows(used)

    def session(self, connection: duckdb.DuckDBPyConnection) -> PostgresSession:
        """Return the session of a connection."""
        return self._sessions[id(connection)]

    def select(self, region: Region) -> tuple[RowSource, Region]:
        """Return the rows that the server selects by a table's columns; a query unchanged."""
        kinds = {name: _LENGTH.sub("", kind) for name, kind in self._opened.kinds.items()}
        conditions = {
            side.column: condition
            for side in region.sides
            if self.is_table
            and side.column in kinds
            and (condition := server_condition(side, kinds[side.column])) is not None
        }
        if not conditions:
            return self, region
        rest = [side.column for side in region.sides if side.column not in conditions]
        return SelectedRows(self, " AND ".join(conditions.values())), region.only(rest)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Enter a read-only transaction of a new connection."""
        connection = self.call(self.address.connect, self._connection_error)
        try:
            for each in _BEGIN:
                self.call(partial(_rows, connection, each))
            yield connection
        finally:
            with suppress(Exception):
                connection.close()

    def call(
        self,
        request: Callable[[], Answer],
        to_error: Callable[[Exception], DpgrainError] | None = None,
    ) -> Answer:
        """Send a request to the server, and replace its errors, by default as a query's.

        Their text can contain a host, a user, a password, or a value of a row.
        """
        try:
            return request()
        except DpgrainError:
            raise
        except Exception as error:
            replacement = (to_error or self._query_error)(error)
        # Raise outside the handler, so that the error has no context either.
        raise replacement

    def _connection_error(self, error: Exception) -> DpgrainError:
        message = str(error)
        kind: type[DataError] = AccessError
        if "password" in message or "authentication" in message:
            why = (
                "it rejects the password; check the secret (PGPASSWORD, or the variable of "
                "source_env)"
            )
        elif "does not exist" in message:
            why = "it has no such database or user; check the address"
        else:
            why, kind = "check the address, and that the server is running", DataError
        return kind(f"{self.name} cannot be reached in its database: {why}.")

    def _query_error(self, error: Exception) -> DpgrainError:
        state = getattr(error, "sqlstate", None) or ""
        for known, why in _STATES.items():
            if state.startswith(known):
                return DataError(f"{self.name} cannot be read: {why}.")
        return DataError(
            f"{self.name} cannot be read completely; check the connection to the database, "
            "and that its query runs to completion."
        )

    def _describe(self, connection: Any) -> _Description:
        if self.table is None:
            rows = f"({str(self.query).strip().rstrip(';')}\n)"
            schema = self.call(partial(_schema, connection, f"SELECT * FROM {rows} AS given"))
            require_names(schema.names, self.name)
            return _Description(rows, {each.name: _type_name(each) for each in schema})
        table_id, rows = self._lock(connection, self.table)
        ((named, is_table),) = self.call(partial(_rows, connection, _FIND.format(table_id)))
        if named != rows:
            raise self._changed_error()
        columns = self.call(partial(_rows, connection, _COLUMNS.format(table_id)))
        return _Description(rows, dict(columns), table_id, bool(is_table))

    def _lock(self, connection: Any, table: str) -> tuple[int, str]:
        """Return the oid and qualified name of a table, and lock it in the transaction.

        From here on the search path is empty: other names need their schema.
        """
        ((table_id,),) = self.call(partial(_rows, connection, _NUMBER.format(literal(table))))
        if table_id is None:
            raise AccessError(
                f"There is no table {table!r} in the database, or the user has no access to "
                "it; check the name, which may need its schema: table='public.visits'."
            )
        self.call(partial(_rows, connection, "SET LOCAL search_path TO ''"))
        ((rows,),) = self.call(partial(_rows, connection, _NAME.format(table_id)))
        # Reading takes a lock, so that no other session can rename the table.
        self.call(partial(_rows, connection, f"SELECT 1 FROM {rows} LIMIT 0"))
        return table_id, rows

    def _changed_error(self) -> SchemaError:
        return SchemaError(
            f"{self.name} has different columns than when it was opened, or its name refers "
            "to another table; call dg.read again."
        )


@dataclass(frozen=True, eq=False)
class SelectedRows(SourceWrapper):
    """The rows of a table that satisfy a condition on the server."""

    source: PostgresSource
    condition: str

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the rows, as :meth:`PostgresSource.attach`."""
        return self.source.session(connection).rows(used, self.condition)


class PostgresSession:
    """Rows read by one release in one transaction, stored on its DuckDB connection."""

    def __init__(
        self,
        source: PostgresSource,
        server: Any,
        local: duckdb.DuckDBPyConnection,
        table: _Description,
    ) -> None:
        self._source, self._server, self._local, self._table = source, server, local, table
        known = {name: _postgres_type(kind) for name, kind in table.kinds.items()}
        self._kinds = {name: kind for name, kind in known.items() if kind is not None}
        self._fetched: list[tuple[str, frozenset[str], bool, str]] = []

    def rows(self, used: Collection[str] | None, condition: str = "") -> str:
        """Return SQL of columns, None for all, of the rows that satisfy a condition.

        With :data:`RECORDS` among them, each row can represent several records.
        """
        wanted = frozenset(self._kinds if used is None else set(used) & set(self._kinds))
        counted = used is not None and RECORDS in used
        if not self._table.is_table:
            # Fetch all columns at once, because a query or view can return other rows next time.
            wanted = frozenset(self._kinds)
        groupable = counted and all(self._kinds[name].groupable for name in wanted)
        for selected, columns, has_counts, name in self._fetched:
            if selected == condition and wanted <= columns and (counted or not has_counts):
                return self._counted(name) if counted and not has_counts else name
        listed = sorted(wanted)
        grouped = groupable and self._groups_on_server(listed, condition)
        name = self._fetch(listed, grouped, condition)
        self._fetched.append((condition, wanted, grouped, name))
        return self._counted(name) if counted and not grouped else name

    def _counted(self, rows: str) -> str:
        """Return SQL of single rows with their number of records."""
        return f"(SELECT *, 1 AS {_records()} FROM {rows})"

    def _groups_on_server(self, columns: list[str], condition: str) -> bool:
        """Return True if the server's plan groups faster than single rows are sent."""
        query = f"EXPLAIN (FORMAT JSON) {self._query(columns, grouped=True, condition=condition)}"
        ((plan,),) = self._source.call(partial(_rows, self._server, query, **_WITHOUT_COPY))
        return not _is_slow(json.loads(plan)[0]["Plan"])

    def _query(self, columns: list[str], *, grouped: bool, condition: str) -> str:
        listed = [
            f"{self._kinds[name].server_sql.format(quoted(name))} AS c{index}"
            for index, name in enumerate(columns)
        ] or ["NULL::integer AS none"]
        listed += ["pg_catalog.count(*) AS records"] * grouped
        query = f"SELECT {', '.join(listed)} FROM {self._table.rows} AS given"
        if condition:
            query += f" WHERE {condition}"
        if grouped:
            # By position, because a name would refer to a column of the table.
            query += f" GROUP BY {', '.join(str(1 + i) for i in range(len(columns))) or '()'}"
        return query

    def _fetch(self, columns: list[str], grouped: bool, condition: str) -> str:
        """Fetch columns, and return SQL of the fetched rows."""
        step("reading the database")
        query = self._query(columns, grouped=grouped, condition=condition)
        local_columns = {
            name: self._kinds[name].local_sql.format(f"c{index}")
            for index, name in enumerate(columns)
        }
        if grouped:
            local_columns[RECORDS] = "records"
        with self._server.cursor() as cursor:
            self._source.call(partial(cursor.execute, query))
            return self._source.call(
                partial(self._store, cursor.fetch_record_batch(), local_columns)
            )

    def _store(self, rows: pa.RecordBatchReader, columns: dict[str, str]) -> str:
        with translate_errors(self._source.name):
            memory = int(_MEMORY_SHARE * memory_limit(self._local))
            return store_stream(self._local, rows, columns, memory)


def _is_slow(plan: Mapping[str, Any]) -> bool:
    """Return True if a plan sorts single rows, or groups them in several passes."""
    below = plan.get("Plans", [])
    sorts_rows = plan["Node Type"].endswith("Sort") and not any(map(_has_groups, below))
    return sorts_rows or plan.get("Planned Partitions", 0) > 0 or any(map(_is_slow, below))


def _has_groups(plan: Mapping[str, Any]) -> bool:
    return plan["Node Type"] == "Aggregate" or any(map(_has_groups, plan.get("Plans", [])))


def _records() -> str:
    return quoted(RECORDS)


def contains_password(address: str) -> bool:
    """Return True if an address contains a password, unfit for a file or a command."""
    try:
        parts = urlsplit(address)
        contains = parts.password is not None or any(
            name in parse_qs(parts.query) for name in _SECRETS
        )
    except ValueError:
        return "@" in address
    return contains


def _driver() -> Any:
    try:
        return import_module("adbc_driver_postgresql.dbapi")
    except ImportError:
        pass
    raise ParameterError(
        "source is a database, which requires ADBC; run pip install 'dpgrain[sql]'.", name="source"
    )


def _rows(connection: Any, statement: str, **options: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**options)
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def _schema(connection: Any, statement: str) -> pa.Schema:
    with connection.cursor() as cursor:
        return cursor.adbc_execute_schema(statement)


# The oid of a name, and the qualified name of an oid.
_NUMBER = "SELECT pg_catalog.to_regclass({0}::pg_catalog.text)::pg_catalog.oid::pg_catalog.int8"
_NAME = "SELECT {0}::oid::regclass::text"
# The qualified name of a table, and whether it is a base table: it and its children are ordinary
# tables without virtual columns, the user can see all rows, and the server's encoding is UTF-8.
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

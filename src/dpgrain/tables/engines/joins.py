"""Joins: with a public table by a key, or with another table of the same users."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import duckdb
import pyarrow as pa

from dpgrain import _validate
from dpgrain._formatting import suggest_columns
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.inputs.long_labels import stated_label
from dpgrain.publishing.facts import Fact
from dpgrain.scope.regions import EVERYTHING, Region
from dpgrain.tables.engines.derived_columns import CompiledExpression
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.sql import key_sql, label_sql, quoted
from dpgrain.tables.expression import CallNode, ColumnNode, ConstantNode
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import (
    BOOLEAN,
    DAY,
    INTEGERS,
    LONGEST_LABEL,
    TEXT,
    is_readable,
)
from dpgrain.tables.sources.duckdb_connection import register_rows
from dpgrain.tables.sources.source import RowSource, SourceWrapper, all_rows, transaction

# Max distinct values of a public column that becomes a domain.
_MAX_DOMAIN = 1000
# Types of values that a domain can list.
_DOMAIN_TYPES = (*INTEGERS, TEXT, DAY, BOOLEAN)
# Max pairs per user and row: the engine stores one hash for each.
_MAX_PAIRS = 1000
# Function of the key in the expression of a public column.
_LOOKED_UP = "looked_up"


@dataclass(frozen=True, eq=False)
class PublicJoin(SourceWrapper):
    """Rows of a source, each joined with the row of a public table with its key."""

    row_wise = True

    source: RowSource
    on: str
    kind: str
    table: pa.Table  # ``key``, unique and without nulls, and ``c0``, ``c1``, …
    kinds: Mapping[str, str]  # column → type, in the order of ``c0``, ``c1``, …

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {**self.source.columns(), **self.kinds}

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return SQL of the rows with the public columns of their key; null without a match."""
        wanted = {
            f"c{index}": name
            for index, name in enumerate(self.kinds)
            if used is None or name in used
        }
        if not wanted:
            return self.source.attach(connection, used)
        rows = self.source.attach(connection, None if used is None else self.needed(used))
        public = register_rows(connection, self.table.select(["key", *wanted]))
        listed = ", ".join(f"public.{index} AS {quoted(name)}" for index, name in wanted.items())
        return (
            f"(SELECT own.*, {listed} FROM {rows} AS own LEFT JOIN {public} AS public "
            f"ON {key_sql(self.on, self.kind, of='own')} = public.key)"
        )

    def needed(self, used: Collection[str]) -> set[str]:
        """Return the columns of the source needed for these columns, including the key."""
        return {*used, self.on} - set(self.kinds)


def join_public(
    rows: TableRows, public: TableRows, on: str, key: str
) -> tuple[PublicJoin, dict[str, CompiledExpression]]:
    """Join rows with a public table; each new column is a function of the key."""
    rows.require_key(on, "on")
    if on in rows.cells:
        raise SchemaError(
            f"on {on!r} is a column of cells; join by {rows.cells[on].of!r}, or create the "
            "key with derive.",
            name="on",
        )
    public.require_key(key, "on")
    names = [
        name for name, kind in public.base_columns.items() if name != key and is_readable(kind)
    ]
    if not names:
        raise ParameterError(f"{public.source.title} has no column other than {key!r} to join.")
    for name in names:
        rows.require_new(name)
    kinds = {name: public.schema[name] for name in names}
    columns = ", ".join(
        f"{quoted(name)} AS c{index}, CAST({quoted(name)} AS VARCHAR) AS t{index}"
        for index, name in enumerate(names)
    )
    key_sql = _public_key(key, public.schema[key], on, rows.schema[on])
    with DuckDB(public) as engine:
        table = engine.query(
            f"SELECT * FROM (SELECT {key_sql} AS key, {columns} FROM source) WHERE key IS NOT NULL "
            "ORDER BY ALL",
            [key, *names],
        )
    keys = table.column("key")
    if pa.types.is_string(keys.type):
        keys = pa.chunked_array([list(map(stated_label, keys.to_pylist()))], keys.type)
        table = table.set_column(0, "key", keys)
    if len(keys.unique()) < len(keys):
        counts = keys.value_counts()
        twice = next(each["values"] for each in counts.to_pylist() if each["counts"] > 1)
        raise ParameterError(
            f"{public.source.title} must have one row for each value of {key!r}, but "
            f"{twice!r} occurs twice; remove one.",
            name="on",
        )
    joined = table.select(["key", *(f"c{index}" for index in range(len(names)))])
    source = PublicJoin(all_rows(rows.source), on, rows.key_type(on), joined, kinds)
    title = public.source.title
    return source, {
        name: _looked_up(
            name, on, kinds[name], table.select(["key", f"c{index}", f"t{index}"]), title
        )
        for index, name in enumerate(names)
    }


def _public_key(key: str, kind: str, on: str, own: str) -> str:
    """Return the SQL of a public key as rows write it, before replacing long texts."""
    if own in INTEGERS and kind == TEXT:
        return f"TRY_CAST({label_sql(quoted(key))} AS BIGINT)"
    if kind == TEXT:
        return label_sql(quoted(key))
    if kind == own or (own in INTEGERS and kind in INTEGERS):
        return key_sql(key, kind)
    if own == TEXT and kind in INTEGERS:
        return f"CAST({quoted(key)} AS VARCHAR)"
    raise SchemaError(
        f"on {on!r} has type {own}, and {key!r} of the public table has type {kind}; cast one of "
        "them.",
        name="on",
    )


def _looked_up(name: str, on: str, kind: str, table: pa.Table, title: str) -> CompiledExpression:
    """Return a public column as a function of the key, known by a hash of its values."""
    pairs = repr([table.column(index).to_pylist() for index in (0, 2)])
    mark = sha256(pairs.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    node = CallNode(_LOOKED_UP, (ColumnNode(on), ConstantNode(name), ConstantNode(mark)))
    values = None
    if kind in _DOMAIN_TYPES:
        distinct = table.column(1).unique().drop_null()
        # A domain cannot list dates outside the years of Python's calendar.
        with suppress(OverflowError, ValueError):
            if 0 < len(distinct) <= _MAX_DOMAIN:
                values = tuple(sorted(value for value in distinct.to_pylist() if _fits(value)))
    return CompiledExpression(
        f"{name} of {title} by {on} (#{mark[:8]})", kind, quoted(name), node, values=values or None
    )


def _fits(value: Any) -> bool:
    return not isinstance(value, str) or len(value.encode()) <= LONGEST_LABEL


@dataclass(frozen=True, eq=False)
class UserJoin:
    """The rows of a table, each joined with rows of the same user in another table."""

    rows: TableRows
    others: TableRows
    taken: tuple[str, ...]
    pairs: int  # max rows per user of the other table

    @staticmethod
    def create(rows: TableRows, others: Any, columns: Sequence[str] | None, pairs: int) -> UserJoin:
        """Validate a join, without reading rows."""
        pairs = _validate.integer(minimum=1, pairs=pairs)
        if pairs > _MAX_PAIRS:
            raise ParameterError(
                f"pairs must be at most {_MAX_PAIRS:,}, not {pairs:,}: one hash per pair "
                "is stored for each person.",
                name="pairs",
            )
        if not isinstance(others, TableRows):
            raise ParameterError(
                f"join requires a table from dg.read, not {type(others).__name__}; for a "
                "fully public table, use join_public.",
                name="others",
            )
        if rows.user is None or others.user is None:
            raise ParameterError(
                "join requires user ids in both tables; pass user= to dg.read, or join a "
                "public table with join_public.",
                name="others",
            )
        own, kinds = (
            "integers" if each.is_integer(name) else each.schema[name]
            for each, name in ((rows, rows.user), (others, others.user))
        )
        # User ids of all other types are text in per-user tables.
        if own != kinds and ("integers" in (own, kinds) or TEXT not in (own, kinds)):
            raise SchemaError(
                f"user {rows.user!r} has type {rows.schema[rows.user]}, but "
                f"{others.user!r} of the other table has type {others.schema[others.user]}; "
                "cast one of them, or pass types= in dg.read.",
                name="others",
            )
        known = [
            name
            for name, kind in others.base_columns.items()
            if name != others.user and is_readable(kind)
        ]
        if columns is not None and not isinstance(columns, str | list | tuple):
            raise ParameterError(
                f"columns must be a list of columns, not {_validate.describe(columns)}.",
                name="columns",
            )
        if isinstance(columns, str):
            columns = [columns]
        for name in columns or ():
            if name not in known:
                raise SchemaError(
                    f"columns contains {_validate.describe(name)}, which cannot be taken from the "
                    f"other table; {suggest_columns(str(name), known)}.",
                    name="columns",
                )
        taken = tuple(known if columns is None else dict.fromkeys(columns))
        if not taken:
            raise ParameterError(
                "join requires at least one column from the other table.", name="columns"
            )
        if twice := next((name for name in taken if rows.has(name)), None):
            raise ParameterError(
                f"columns of both tables are called {twice!r}; select the ones to add with "
                f"columns=[…], or rename it in the other table with derive(other='{twice}').",
                name="columns",
            )
        return UserJoin(rows, others, taken, pairs)

    @property
    def name(self) -> str:
        """Name in error messages."""
        return self.rows.source.name

    @property
    def title(self) -> str:
        """Name in reports."""
        return f"{self.rows.source.title} with {self.others.source.title}"

    @property
    def region(self) -> Region:
        """Public region of the rows of both tables; everything if they differ."""
        return self.rows.scope if self.rows.scope == self.others.scope else EVERYTHING

    @property
    def paths(self) -> tuple[str, ...]:
        """Files of both tables, if any."""
        return tuple(
            path for each in (self.rows, self.others) for path in getattr(each.source, "paths", ())
        )

    @property
    def one_row(self) -> bool:
        """True if each user has at most one row."""
        return self.pairs == 1 and bool(getattr(self.rows.source, "one_row", False))

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        own = {name: kind for name, kind in self.rows.schema.items() if name not in self.rows.cells}
        return {**own, **{name: self.others.schema[name] for name in self.taken}}

    @property
    def labels(self) -> frozenset[str]:
        """Added text columns, whose long texts are replaced already."""
        return frozenset(filter(self._is_text, self.taken))

    @contextmanager
    def begin(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Enter the transactions of both tables."""
        with transaction(self.rows.source, connection), transaction(self.others.source, connection):
            yield

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return SQL of the rows, each joined with up to `pairs` rows of its user, or nulls."""
        rows, others = self.rows, self.others
        assert rows.user is not None  # noqa: S101 - as checked
        assert others.user is not None  # noqa: S101 - as checked
        wanted = [name for name in self.taken if used is None or name in used]
        own = None if used is None else {rows.user, *used} - set(self.taken)
        left = rows.source.attach(connection, own)
        if not wanted and self.pairs == 1:
            return left
        selected = self._selected_rows(connection)
        columns = "".join(
            f", others.c{index} AS {quoted(name)}"
            for index, name in enumerate(self.taken)
            if name in wanted
        )
        return (
            f"(SELECT own.*{columns} FROM {left} AS own LEFT JOIN {selected} AS others "
            f"ON {key_sql(rows.user, rows.key_type(rows.user), of='own')} = others.key)"
        )

    def _selected_rows(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Return the SQL of the other table's joined rows, up to `pairs` for each user.

        They are the first by a hash of their values, independent of the engine's order. Only hashes
        of a user's many rows are stored, and equal rows are grouped.
        """
        others = self.others
        assert others.user is not None  # noqa: S101 - as checked
        key, columns = (
            key_sql(others.user, others.key_type(others.user)),
            list(enumerate(self.taken)),
        )
        written = {index: self._written(name) for index, name in columns}
        digest = f"md5_number(concat({', '.join(map(_with_length, written.values()))}))"
        texts = [f"t{index}" for index, _ in columns]
        listed = ", ".join(
            f"{written[index]} AS t{index}"
            + ("" if self._is_text(name) else f", {quoted(name)} AS c{index}")
            for index, name in columns
        )
        back = ", ".join(
            f"t{index} AS c{index}" if self._is_text(name) else f"any_value(c{index}) AS c{index}"
            for index, name in columns
        )
        first, again = (
            f"(SELECT {key} AS key, {digest} AS hash{more} "
            f"FROM {others.source.attach(connection, {others.user, *self.taken})} "
            f"WHERE {key} IS NOT NULL)"
            for more in ("", f", {listed}")
        )
        # Sorting row numbers can spill; a list of hashes for each user could not.
        numbered = (
            "" if self.pairs == 1 else ", row_number() OVER (PARTITION BY key ORDER BY hash) AS n"
        )
        last = "min(hash)" if self.pairs == 1 else f"max(hash) FILTER (n <= {self.pairs})"
        grouped = (
            f"(SELECT key, hash, {', '.join(texts)}, {back}, count(*) AS number FROM {again} "
            f"JOIN (SELECT key, {last} AS last FROM (SELECT *{numbered} FROM {first}) GROUP BY key) "
            f"USING (key) "
            f"WHERE hash <= last GROUP BY key, hash, {', '.join(texts)})"
        )
        ordered = f"PARTITION BY key ORDER BY hash, {', '.join(texts)}"
        through = f"sum(number) OVER ({ordered} ROWS UNBOUNDED PRECEDING)"
        values = ", ".join(f"c{index}" for index, _ in columns)
        return (
            f"(SELECT key, {values} FROM (SELECT key, {values}, unnest(range(CAST(least(number, "
            f"greatest({self.pairs} - before, 0)) AS BIGINT))) AS copy FROM "
            f"(SELECT *, {through} - number AS before FROM {grouped})))"
        )

    def _written(self, column: str) -> str:
        """Return the SQL of a column as text, with long texts replaced as in labels."""
        if self._is_text(column):
            return key_sql(column, self.others.key_type(column))
        return f"CAST({quoted(column)} AS VARCHAR)"

    def _is_text(self, column: str) -> bool:
        return self.others.schema[column] == TEXT

    @property
    def fact(self) -> Fact:
        """Public fact about the pairs of rows."""
        one, other = self.rows.source.title, self.others.source.title
        if self.pairs == 1:
            return Fact("paired-row", (one, other))
        return Fact("paired-rows", (one, self.pairs, other))


def _with_length(text: str) -> str:
    """Return the SQL of a text with its length, which keeps joined texts distinct."""
    return f"coalesce(concat(strlen({text}), ':', {text}), 'none')"

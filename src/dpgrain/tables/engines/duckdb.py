"""DuckDB, the embedded engine: it encodes rows and streams them as packed integer keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Self, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpgrain._progress import step
from dpgrain.errors import ParameterError
from dpgrain.tables.arrow_arrays import number_array, one_array
from dpgrain.tables.elements import label_table
from dpgrain.tables.engines.feed import (
    KEY_BITS,
    MIXING,
    Chunk,
    Feed,
    RecordScan,
    Scan,
    UserShare,
    require_bits,
)
from dpgrain.tables.engines.memory import Memory, SpillFolder, connect
from dpgrain.tables.engines.protocol import Form
from dpgrain.tables.engines.sql import has_key_sql, key_sql, number_sql, quoted, valid_key_sql
from dpgrain.tables.groups import Dictionary, GroupCells, Groups, hash_words, md5_words
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import LABEL
from dpgrain.tables.sources.duckdb_connection import run_interruptible, translate_errors
from dpgrain.tables.sources.source import RECORDS, RegionSource, nested_sources, transaction
from dpgrain.tables.split import Split

Answer = TypeVar("Answer")

# Below this number of names, hashing in Python is faster than a query.
_FEW_NAMES = 1 << 14
# Engines on one connection use different names for their lookups.
_lookups = itertools.count()


class DuckDB:
    """Private DuckDB connection for one release, with safe settings.

    Spilled data are in a folder of the current user, deleted at the end. Their encryption uses
    random keys that DuckDB does not guarantee to be secure. No extension is installed or loaded.
    """

    def __init__(self, table: TableRows) -> None:
        self.table = table
        self._memory = Memory.split(table.memory, table.threads)
        self._lookups: dict[str, str] = {}
        # The source may return duplicate rows once, with their number.
        self._has_counts = bool(getattr(table.source, "counts_duplicates", False))
        source = table.source
        # The source may create a table of the columns that are attached first.
        self._creates_tables = any(
            getattr(each, "creates_table", False) for each in nested_sources(source)
        )
        self._rows = source.selected() if isinstance(source, RegionSource) else source

    @staticmethod
    def over(table: TableRows, connection: duckdb.DuckDBPyConnection) -> DuckDB:
        """Create an engine on another engine's connection, which the other one closes."""
        engine = DuckDB(table)
        engine._connection = connection
        return engine

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._spill = SpillFolder()
            opened.callback(self._spill.remove)
            with translate_errors("The spill folder"):
                self._connection = connect(self._memory, self._spill.path)
            opened.callback(self._connection.close)
            # Rows stream past the groups and users in a join. DuckDB does not know the number of
            # rows in a stream and might swap the sides, storing all rows.
            self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            opened.enter_context(transaction(self.table.source, self._connection))
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """Return the distinct groups of users' rows with a finite ``value``; private."""
        step("finding groups")
        columns = [f"{self._key(key, valid_key_sql)} AS k{i}" for i, key in enumerate(keys)]
        valid = self._valid_rows(keys, value)
        query = f"SELECT DISTINCT {', '.join(columns)} FROM source WHERE {valid}"
        result = self.query(query, self._with_counts(keys) if value is None else [*keys, value])
        return Groups.of(keys, [one_array(column) for column in result.columns])

    def extent(self, key: str) -> tuple[int, int, int] | None:
        """Return the minimum and maximum of an integer column, and the number of rows."""
        name = self._key(key)
        number = f"CAST(coalesce(sum({quoted(RECORDS)}), 0) AS BIGINT)"
        rows = number if self._has_counts else "count(*)"
        result = self.query(
            f"SELECT min({name}) AS low, max({name}) AS high, {rows} AS rows FROM source",
            self._with_counts([key]),
        )
        ((low, high, rows),) = (tuple(row.values()) for row in result.to_pylist())
        return None if low is None else (low, high, rows)

    def dictionary(
        self, groups: Groups, cells: GroupCells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Assign codes to (V,) distinct groups and their cells."""
        step("ordering groups")
        known = Dictionary.create(
            groups,
            cells,
            column_cells=None
            if cell_column is None
            else self._encode_cells(cell_column, groups.names),
            corners=corners,
            digests=self._digests,
        )
        self.set_codes(known)
        return known

    def set_codes(self, known: Dictionary, cells: pa.Table | None = None) -> None:
        """Use existing codes of groups, and of a column's cells (cell, code)."""
        columns = {f"k{i}": column for i, column in enumerate(known.groups.columns)}
        self._store(
            "items", pa.table({**columns, "code": number_array(np.arange(len(known.groups)))})
        )
        if cells is not None:
            self._store("cells", cells)

    def _digests(self, names: pa.Array) -> NDArray[np.uint64]:
        """Hash names, on all threads if there are many."""
        if len(names) < _FEW_NAMES:
            return md5_words(names)
        self._store(
            "names", pa.table({"name": names, "place": number_array(np.arange(len(names)))})
        )
        with translate_errors("The domain"):
            hashed = self._connection.sql(
                "SELECT place, unhex(md5(name::VARCHAR)) AS digest FROM names"
            ).to_arrow_table()
            self._connection.execute("DROP TABLE names")
        words = np.empty((len(names), 2), dtype=np.uint64)
        digests = one_array(hashed.column("digest")).cast(pa.binary(16))
        words[np.from_dlpack(one_array(hashed.column("place")))] = hash_words(digests.buffers()[1])
        return words

    def _encode_cells(self, column: str, keys: Sequence[str]) -> int:
        """Number a column's cells in a public order, 0 for null; return their number."""
        key = self._key(column)
        with translate_errors(self.table.source.name):
            self._fetch(self._with_counts([*keys, column]))
            rows = self._attach(self._with_counts([column]))
            self._execute(
                "CREATE OR REPLACE TEMP TABLE cells AS SELECT cell, "
                "row_number() OVER (ORDER BY md5(cell::VARCHAR), cell) AS code FROM "
                f"(SELECT DISTINCT {key} AS cell FROM {rows}) WHERE cell IS NOT NULL"
            )
            ((cells,),) = self._connection.sql("SELECT count(*) FROM cells").fetchall()
        return int(cells) + 1

    def users(
        self,
        dictionary: Dictionary,
        *,
        value: str | None = None,
        split: Split | None = None,
        cell_column: str | None = None,
    ) -> Feed:
        """Return whole users' records in the groups last passed to :meth:`dictionary`."""
        layout, keys = dictionary.layout, dictionary.groups.names
        used = [name for name in (*keys, cell_column, value) if name is not None]
        self._fetch(self._with_counts(used) if value is None and split is None else used)
        user, users, join = self._user_codes(layout.user_shift)
        code = f"({user} << {layout.user_shift}) | {_code(dictionary)}"
        cell, column = "NULL", None
        if cell_column is not None:
            code += f" | (coalesce(cells.code, 0) << {layout.item_bits})"
            cell, column = self._key(cell_column), cell_column
            join += " LEFT JOIN cells ON rows_.cell = cells.cell"
        scan = self._scan(f"CAST({code} AS BIGINT)", keys, value, split, cell, column, join, user)
        counted = users if split is None and not self._has_counts else None
        return Feed.within(self._memory, scan, layout.user_shift, self.table.threads, counted)

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> RecordScan:
        """Return single records as codes of coordinates."""
        code = f"CAST({_code(dictionary)} AS BIGINT)"
        scan = self._scan(code, dictionary.groups.names, value, split, "NULL", None, "", "0")
        if not self._has_counts or value is not None or split is not None:
            return RecordScan(scan)
        return RecordScan(lambda share: _singly(scan(share), self._memory.rows))

    def columns(self, wanted: Sequence[tuple[str, Form]]) -> pa.Table:
        """Return columns of all rows, in their order."""
        listed = ", ".join(
            f"{self._as(column, form)} AS c{place}" for place, (column, form) in enumerate(wanted)
        )
        with translate_errors(self.table.source.name):
            self._connection.execute("SET preserve_insertion_order = true")
            used = {column for column, _ in wanted}
            rows = self.table.source.attach(self._connection, used)
            result = self._wait(self._connection.sql(f"SELECT {listed} FROM {rows}").to_arrow_table)
            self._connection.execute("SET preserve_insertion_order = false")
        return result

    def _as(self, column: str, form: Form) -> str:
        """Return the SQL of a column in a form."""
        if form == "as it is":
            return quoted(column)
        if form == "number":
            return number_sql(column)
        return self._key(column) if form == "key" else f"CAST({self._key(column)} AS VARCHAR)"

    def _key(self, column: str, sql: Callable[..., str] = key_sql, **how: str) -> str:
        """Return the SQL of a column as a key; public labels of cells remain unchanged."""
        kind = LABEL if column in self.table.cells else self.table.key_type(column)
        return sql(column, kind, **how)

    def _user_codes(self, shift: int) -> tuple[str, int, str]:
        """Return the SQL of the user code, an upper bound on codes, and the required join."""
        if self.table.user is None:
            raise ParameterError("user must be passed to dg.read for this privacy unit.")
        key = self._key(self.table.user)
        if self.table.is_integer(self.table.user):
            with translate_errors(self.table.source.name):
                query = f"SELECT min({key}), max({key}) FROM {self._attach(self._with_counts())}"
                ((low, high),) = self._wait(self._connection.sql(query).fetchall)
            low, high = (0, 0) if low is None else (low, high)
            if (high - low).bit_length() + shift <= KEY_BITS:
                return f"(rows_.user_ - ({low}))", high - low + 1, ""
        step("numbering users")
        with translate_errors(self.table.source.name):
            self._execute(
                "CREATE OR REPLACE TEMP TABLE users AS SELECT user_, row_number() OVER () - 1 AS code "
                f"FROM (SELECT DISTINCT {self._key(self.table.user, valid_key_sql)} AS user_ FROM "
                f"{self._attach(self._with_counts())} WHERE {self._key(self.table.user, has_key_sql)})"
            )
            ((users,),) = self._connection.sql("SELECT count(*) FROM users").fetchall()
        require_bits(users, shift)
        return "users.code", users, " JOIN users ON rows_.user_ = users.user_"

    def _scan(
        self,
        key: str,
        keys: Sequence[str],
        value: str | None,
        split: Split | None,
        cell: str,
        cell_column: str | None,
        join: str,
        user: str,
    ) -> Scan:
        columns = [f"{self._key(name, valid_key_sql)} AS k{i}" for i, name in enumerate(keys)]
        columns.append(f"{cell} AS cell")
        valid = self._valid_rows(keys, value)
        if cell_column is not None and self.table.drops(cell_column):
            valid += f" AND {cell} IS NOT NULL"
        if self.table.user is not None:
            columns.append(f"{self._key(self.table.user, valid_key_sql)} AS user_")
        numbers = ""
        if value is not None:
            columns.append(f"{number_sql(value)} AS value")
            numbers = ", value"
        items = " AND ".join(f"rows_.k{i} = items.k{i}" for i in range(len(keys)))
        items = f" JOIN items ON {items}" if keys else ""
        used = [*keys, *(name for name in (cell_column, value) if name is not None)]
        alike = self._has_counts and value is None and split is None
        if alike:
            columns.append(f"{quoted(RECORDS)} AS records")
            numbers, used = ", records", self._with_counts(used)

        def scan(share: UserShare) -> Iterator[Chunk]:
            query = (
                f"SELECT {key} AS key{numbers} FROM (SELECT {', '.join(columns)} "
                f"FROM {self._attach(used)} WHERE {valid}) rows_{items}{join}"
                f"{_in_share(user, share)}"
            )
            with translate_errors(self.table.source.name):
                rows = self._connection.sql(query)
                for batch in self._wait(partial(rows.to_arrow_reader, self._memory.rows)):
                    result = np.from_dlpack(batch.column("key")).astype(np.int64, copy=False)
                    if alike:
                        yield result, batch.column("records").to_numpy().astype(np.float64)
                        continue
                    values = None if value is None else batch.column("value").to_numpy()
                    yield (result, None) if split is None else split(result, values)

        return scan

    def _valid_rows(self, keys: Sequence[str], value: str | None) -> str:
        """Return the SQL condition that a row has a user, a group and a finite number."""
        conditions = [self._key(key, has_key_sql) for key in keys]
        if self.table.user is not None:
            conditions.append(self._key(self.table.user, has_key_sql))
        if value is not None:
            # Rows with null, NaN or ±∞ are dropped.
            conditions.append(f"isfinite({number_sql(value)})")
        return " AND ".join(conditions) or "true"

    def _attach(self, used: Sequence[str] = ()) -> str:
        """Return SQL to select from, with the user's column and the columns used."""
        cells, needed = self.table.cells, self.table.needed(used)
        if self._has_counts:
            # Lookups read from what is fetched for all columns.
            self._rows.attach(self._connection, needed - set(cells))
        # Create lookups first: they read the source, and an attached source serves only one query.
        lookups = {name: self._lookup(name) for name in cells if name in needed}
        source = self._rows.attach(self._connection, needed - set(cells))
        for name, lookup in lookups.items():
            value = self._key(cells[name].of, of="rows0")
            source = (
                f"(SELECT rows0.*, {lookup}.label AS {quoted(name)} FROM {source} rows0 "
                f"LEFT JOIN {lookup} ON {lookup}.value = {value})"
            )
        return source

    def _with_counts(self, used: Sequence[str] = ()) -> list[str]:
        """Return columns, with the number of duplicate rows if the source counts them."""
        return [*used, *([RECORDS] if self._has_counts else [])]

    def _fetch(self, used: Sequence[str]) -> None:
        """Fetch columns together if the source stores rows, for later queries of parts."""
        if self._has_counts or self._creates_tables:
            with translate_errors(self.table.source.name):
                self._attach(used)

    def _lookup(self, name: str) -> str:
        """Register the table value → label of a cell column; return the table's name."""
        if name not in self._lookups:
            column = self.table.cells[name]
            labels = column.lookup
            if labels is None:
                labels = label_table(column.elements, self.distinct([column.of]).columns[0])
            lookup = f"lookup{next(_lookups)}"
            self._store(lookup, labels)
            self._lookups[name] = lookup
        return self._lookups[name]

    def _store(self, name: str, rows: pa.Table) -> None:
        """Store rows as a DuckDB table, which all threads read."""
        self._connection.register("kept", rows)
        with translate_errors("The domain"):
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM kept")
        self._connection.unregister("kept")

    @property
    def reading(self) -> int:
        """Number of threads that read rows."""
        return self._memory.reading

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """Connection, for queries that need a source's own functions."""
        return self._connection

    def register(self, name: str, rows: pa.Table) -> None:
        """Register an Arrow table for later queries."""
        self._connection.register(name, rows)

    def create_table_in_parts(
        self, name: str, queries: Sequence[str], order: str, used: Sequence[str]
    ) -> None:
        """Create an ordered table from several queries on the rows, one after the other."""
        for place, query in enumerate(queries):
            self.create_table(f"{name}_{place}", query, used)
        parts = [f"{name}_{place}" for place in range(len(queries))]
        rows = " UNION ALL ".join(f"SELECT * FROM {part}" for part in parts)
        with translate_errors(self.table.source.name):
            self._execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM ({rows}) ORDER BY {order}")
            for part in parts:
                self._execute(f"DROP TABLE {part}")

    def create_table(self, name: str, query: str, used: Sequence[str] = ()) -> None:
        """Create a table from a query on the rows, named ``source`` in it."""
        with translate_errors(self.table.source.name):
            source = f"WITH source AS (SELECT * FROM {self._attach(used)})"
            step("making tables")
            self._execute(f"CREATE TEMP TABLE {name} AS {source} {query}")

    def query(self, query: str, used: Sequence[str] = ()) -> pa.Table:
        """Return the private result of a query on the rows, named ``source`` in it."""
        with translate_errors(self.table.source.name):
            query = f"WITH source AS (SELECT * FROM {self._attach(used)}) {query}"
            return self._wait(self._connection.sql(query).to_arrow_table)

    def _execute(self, statement: str) -> None:
        self._wait(partial(self._connection.execute, statement))

    def _wait(self, work: Callable[[], Answer]) -> Answer:
        return run_interruptible(self._connection, work)


def _singly(chunks: Iterator[Chunk], most: int) -> Iterator[Chunk]:
    """Repeat each code by its count, in parts of at most ``most`` codes."""
    for codes, counts in chunks:
        assert counts is not None  # noqa: S101 - a source that counts gives numbers
        left = counts.astype(np.int64)
        while codes.size:
            few = np.minimum(left, max(most // codes.size, 1))
            yield np.repeat(codes, few), None
            left -= few
            codes, left = codes[left > 0], left[left > 0]


def _code(dictionary: Dictionary) -> str:
    """Return the SQL of the first coordinate of a record's group."""
    if not dictionary.groups.names:
        return "0"
    return "items.code" if dictionary.corners == 1 else f"items.code * {dictionary.corners}"


def _in_share(user: str, share: UserShare) -> str:
    """Return the SQL condition for users in a share, as in :meth:`UserShare.contains`."""
    if share.parts == 1:
        return ""
    mixed = user
    for shift in MIXING:
        mixed = f"xor({mixed}, {user} >> {shift})"
    return f" WHERE {mixed} & {share.parts - 1} = {share.part}"

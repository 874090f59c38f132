"""DuckDB, the embedded engine: it encodes rows and streams them as packed integer keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpgrain._progress import step
from dpgrain.errors import ParameterError
from dpgrain.tables.arrow_arrays import number_array, numpy_array, one_array
from dpgrain.tables.dictionary import Dictionary, GroupCells, hash_words, md5_words
from dpgrain.tables.elements import label_table
from dpgrain.tables.engines.feed import (
    KEY_BITS,
    MIXING,
    Chunk,
    Feed,
    Scan,
    Scanned,
    Share,
    require_bits,
)
from dpgrain.tables.engines.memory import Memory
from dpgrain.tables.engines.protocol import Form
from dpgrain.tables.engines.spill import connected, new_spill_folder
from dpgrain.tables.engines.sql import held_key, holds, number, quoted
from dpgrain.tables.engines.sql import key as key_of
from dpgrain.tables.groups import Groups
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.duckdb_connection import run_interruptible
from dpgrain.tables.sources.read_errors import translate_errors
from dpgrain.tables.sources.source import RECORDS, transaction
from dpgrain.tables.split import Split

Answer = TypeVar("Answer")

# Names below which hashing in Python takes less time than a query.
_FEW_NAMES = 1 << 14
# Engines that share a connection give their lookups different names.
_lookups = itertools.count()


class DuckDB:
    """A private DuckDB connection for one release, with safe settings.

    Spilled data lie in a folder that only this process's user can enter and that is removed at
    the end. It is encrypted besides, with what DuckDB has without extensions, whose random keys it does
    not call secure. No extension is installed or loaded.
    """

    def __init__(self, table: TableRows) -> None:
        self.table = table
        self._memory = Memory.of(table.memory, table.threads)
        self._lookups: dict[str, str] = {}
        self._begun = ExitStack()
        # Rows that are alike may come once, with their number.
        self._counts = bool(getattr(table.source, "counts_duplicates", False))

    @staticmethod
    def over(table: TableRows, connection: duckdb.DuckDBPyConnection) -> DuckDB:
        """Return an engine on a connection of another one, which closes it later."""
        engine = DuckDB(table)
        engine._connection = connection
        return engine

    def __enter__(self) -> Self:
        self._spill = new_spill_folder()
        try:
            with translate_errors("The spill folder"):
                self._connection = connected(self._memory, self._spill.path)
        except BaseException:
            self._spill.remove()
            raise
        # Rows pass by the groups and users that they are joined with. DuckDB does not know how many
        # rows a stream brings, and would hold all of them to join them the other way round.
        self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        try:
            self._begun.enter_context(transaction(self.table.source, self._connection))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._begun.close()
        self._connection.close()
        self._spill.remove()

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """Return the different groups of users' rows; private.

        Args:
            keys: the columns that give a record's group.
            value: a column of numbers; rows without a finite one are left out.
        """
        step("finding groups")
        columns = [f"{self._held_key(key)} AS k{i}" for i, key in enumerate(keys)]
        query = f"SELECT DISTINCT {', '.join(columns)} FROM source WHERE {self._held(keys, value)}"
        result = self.ask(query, self._alike(keys) if value is None else [*keys, value])
        return Groups.of(keys, [one_array(column) for column in result.columns])

    def extent(self, key: str) -> tuple[int, int, int] | None:
        """Return the extremes of a column of whole numbers, and the number of rows."""
        name = self._key(key)
        number = f"CAST(coalesce(sum({quoted(RECORDS)}), 0) AS BIGINT)"
        rows = number if self._counts else "count(*)"
        result = self.ask(
            f"SELECT min({name}) AS low, max({name}) AS high, {rows} AS rows FROM source",
            self._alike([key]),
        )
        ((low, high, rows),) = (tuple(row.values()) for row in result.to_pylist())
        return None if low is None else (low, high, rows)

    def dictionary(
        self, groups: Groups, cells: GroupCells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Give groups and cells their codes.

        Args:
            groups: (V,) different groups, of the types of the key columns.
            cells: the cell of each group.
            cell_column: another column that holds the cells instead.
            corners: the number of coordinates of each group.
        """
        step("ordering groups")
        known = Dictionary.of(
            groups,
            cells,
            column_cells=None
            if cell_column is None
            else self._encode_cells(cell_column, groups.names),
            corners=corners,
            digests=self._digests,
        )
        self.take_codes(known)
        return known

    def take_codes(self, known: Dictionary, cells: pa.Table | None = None) -> None:
        """Take codes that were given before: of groups, and of a column's cells (cell, code)."""
        columns = {f"k{i}": column for i, column in enumerate(known.groups.columns)}
        self._keep(
            "items", pa.table({**columns, "code": number_array(np.arange(len(known.groups)))})
        )
        if cells is not None:
            self._keep("cells", cells)

    def _digests(self, names: pa.Array) -> NDArray[np.uint64]:
        """Hash names, on all threads if they are many."""
        if len(names) < _FEW_NAMES:
            return md5_words(names)
        self._keep("names", pa.table({"name": names, "place": number_array(np.arange(len(names)))}))
        with translate_errors("The domain"):
            hashed = self._connection.sql(
                "SELECT place, unhex(md5(name::VARCHAR)) AS digest FROM names"
            ).to_arrow_table()
            self._connection.execute("DROP TABLE names")
        words = np.empty((len(names), 2), dtype=np.uint64)
        digests = one_array(hashed.column("digest")).cast(pa.binary(16))
        words[numpy_array(one_array(hashed.column("place")))] = hash_words(digests.buffers()[1])
        return words

    def _encode_cells(self, column: str, keys: Sequence[str]) -> int:
        """Number the cells of a column in a public order; null is a cell too. Return their number.

        Args:
            column: the column.
            keys: columns that are read later, and may be fetched with it.
        """
        key = self._key(column)
        with translate_errors(self.table.source.name):
            self._fetch(self._alike([*keys, column]))
            rows = self._attach(self._alike([column]))
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
        """Return whole users' records in the groups last given to :meth:`dictionary`."""
        layout, keys = dictionary.layout, dictionary.groups.names
        used = [name for name in (*keys, cell_column, value) if name is not None]
        self._fetch(self._alike(used) if value is None and split is None else used)
        user, users, join = self._user_codes(layout.user_shift)
        code = f"({user} << {layout.user_shift}) | {_code(dictionary)}"
        cell, column = "NULL", None
        if cell_column is not None:
            code += f" | (coalesce(cells.code, 0) << {layout.item_bits})"
            cell, column = self._key(cell_column), cell_column
            join += " LEFT JOIN cells ON rows_.cell = cells.cell"
        scan = self._scan(
            f"CAST({code} AS BIGINT)",
            keys,
            value,
            split,
            cell,
            column,
            join,
            user,
        )
        counted = users if split is None and not self._counts else None
        return Feed.within(self._memory, scan, layout.user_shift, self.table.threads, counted)

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> Scanned:
        """Return single records as codes of coordinates."""
        code = f"CAST({_code(dictionary)} AS BIGINT)"
        scan = self._scan(code, dictionary.groups.names, value, split, "NULL", None, "", "0")
        if not self._counts or value is not None or split is not None:
            return Scanned(scan)
        return Scanned(lambda share: _singly(scan(share), self._memory.rows))

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
        """Return the SQL of a column that is read in a form."""
        if form == "as it is":
            return quoted(column)
        if form == "number":
            return number(column)
        return self._key(column) if form == "key" else f"CAST({self._key(column)} AS VARCHAR)"

    def _key(self, column: str, *, of: str = "") -> str:
        """Return the SQL of a column used as a key; the labels of cells are public, and as they are."""
        if column in self.table.cells:
            return f"{of}.{quoted(column)}" if of else quoted(column)
        return key_of(column, self.table.key_type(column), of=of)

    def _held_key(self, column: str) -> str:
        """Return the SQL of a key in rows that are held."""
        if column in self.table.cells:
            return quoted(column)
        return held_key(column, self.table.key_type(column))

    def _holds(self, column: str) -> str:
        """Return the SQL condition that a row has a key in a column."""
        if column in self.table.cells:
            return f"{quoted(column)} IS NOT NULL"
        return holds(column, self.table.key_type(column))

    def _user_codes(self, shift: int) -> tuple[str, int, str]:
        """Return the SQL of a user's code, a number above all codes, and the join it needs."""
        if self.table.user is None:
            raise ParameterError("user must be passed to dg.read for this privacy unit.")
        key = self._key(self.table.user)
        if self.table.is_integer(self.table.user):
            with translate_errors(self.table.source.name):
                query = f"SELECT min({key}), max({key}) FROM {self._attach(self._alike())}"
                ((low, high),) = self._wait(self._connection.sql(query).fetchall)
            low, high = (0, 0) if low is None else (low, high)
            if (high - low).bit_length() + shift <= KEY_BITS:
                return f"(rows_.user_ - ({low}))", high - low + 1, ""
        step("numbering users")
        with translate_errors(self.table.source.name):
            self._execute(
                "CREATE OR REPLACE TEMP TABLE users AS SELECT user_, row_number() OVER () - 1 AS code "
                f"FROM (SELECT DISTINCT {self._held_key(self.table.user)} AS user_ "
                f"FROM {self._attach(self._alike())} WHERE {self._holds(self.table.user)})"
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
        columns = [f"{self._held_key(name)} AS k{i}" for i, name in enumerate(keys)]
        columns.append(f"{cell} AS cell")
        held = self._held(keys, value)
        if cell_column is not None and self.table.drops(cell_column):
            held += f" AND {cell} IS NOT NULL"
        if self.table.user is not None:
            columns.append(f"{self._held_key(self.table.user)} AS user_")
        numbers = ""
        if value is not None:
            columns.append(f"{number(value)} AS value")
            numbers = ", value"
        items = " AND ".join(f"rows_.k{i} = items.k{i}" for i in range(len(keys)))
        items = f" JOIN items ON {items}" if keys else ""
        used = [*keys, *(name for name in (cell_column, value) if name is not None)]
        alike = self._counts and value is None and split is None
        if alike:
            columns.append(f"{quoted(RECORDS)} AS records")
            numbers, used = ", records", self._alike(used)

        def scan(share: Share) -> Iterator[Chunk]:
            query = (
                f"SELECT {key} AS key{numbers} FROM (SELECT {', '.join(columns)} "
                f"FROM {self._attach(used)} WHERE {held}) rows_{items}{join}"
                f"{_in_share(user, share)}"
            )
            with translate_errors(self.table.source.name):
                rows = self._connection.sql(query)
                for batch in self._wait(partial(rows.to_arrow_reader, self._memory.rows)):
                    result = numpy_array(batch.column("key"))
                    if alike:
                        yield result, batch.column("records").to_numpy().astype(np.float64)
                        continue
                    values = None if value is None else batch.column("value").to_numpy()
                    yield (result, None) if split is None else split(result, values)

        return scan

    def _held(self, keys: Sequence[str], value: str | None) -> str:
        """Return the SQL condition that a row has a user, a group and a finite number."""
        held = [self._holds(key) for key in keys]
        if self.table.user is not None:
            held.append(self._holds(self.table.user))
        if value is not None:
            # By the fixed rule, rows with null, NaN or ±∞ count nothing.
            held.append(f"isfinite({number(value)})")
        return " AND ".join(held) or "true"

    def _attach(self, used: Sequence[str] = ()) -> str:
        """Return SQL to select from, with the user's column and those that are used."""
        cells, needed = self.table.cells, self.table.needed(used)
        if self._counts:
            # What is fetched for all columns serves the lookups.
            self.table.source.attach(self._connection, needed - set(cells))
        # The lookups read the source, so they come first: what it hands over is good for one query.
        lookups = {name: self._lookup(name) for name in cells if name in needed}
        source = self.table.source.attach(self._connection, needed - set(cells))
        for name, lookup in lookups.items():
            value = self._key(cells[name].of, of="rows0")
            source = (
                f"(SELECT rows0.*, {lookup}.label AS {quoted(name)} FROM {source} rows0 "
                f"LEFT JOIN {lookup} ON {lookup}.value = {value})"
            )
        return source

    def _alike(self, used: Sequence[str] = ()) -> list[str]:
        """Return columns, with the number of records of each row where the source tells it."""
        return [*used, *([RECORDS] if self._counts else [])]

    def _fetch(self, used: Sequence[str]) -> None:
        """Have a source that fetches rows fetch columns together, of which later answers are parts."""
        if self._counts:
            with translate_errors(self.table.source.name):
                self._attach(used)

    def _lookup(self, name: str) -> str:
        """Register the table of a column of cells, value → label, and return its name."""
        if name not in self._lookups:
            column = self.table.cells[name]
            made = column.lookup
            if made is None:
                made = label_table(column.elements, self.distinct([column.of]).columns[0])
            lookup = f"lookup{next(_lookups)}"
            self._keep(lookup, made)
            self._lookups[name] = lookup
        return self._lookups[name]

    def _keep(self, name: str, rows: pa.Table) -> None:
        """Keep rows as a table of DuckDB's own, which all threads read."""
        self._connection.register("kept", rows)
        with translate_errors("The domain"):
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM kept")
        self._connection.unregister("kept")

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection, for questions that only a source can ask."""
        return self._connection

    def register(self, name: str, rows: pa.Table) -> None:
        """Give later queries a table of the caller's."""
        self._connection.register(name, rows)

    def keep(self, name: str, query: str, used: Sequence[str] = ()) -> None:
        """Make a table of the answer to a query of the table, which it calls ``source``."""
        with translate_errors(self.table.source.name):
            source = f"WITH source AS (SELECT * FROM {self._attach(used)})"
            step("making tables")
            self._execute(f"CREATE TEMP TABLE {name} AS {source} {query}")

    def ask(self, query: str, used: Sequence[str] = ()) -> pa.Table:
        """Return the answer to a query of the table, which it calls ``source``; private."""
        with translate_errors(self.table.source.name):
            query = f"WITH source AS (SELECT * FROM {self._attach(used)}) {query}"
            return self._wait(self._connection.sql(query).to_arrow_table)

    def _execute(self, statement: str) -> None:
        self._wait(partial(self._connection.execute, statement))

    def _wait(self, work: Callable[[], Answer]) -> Answer:
        return run_interruptible(self._connection, work)


def _singly(chunks: Iterator[Chunk], most: int) -> Iterator[Chunk]:
    """Yield codes as often as they were counted, in parts.

    Args:
        chunks: codes with their numbers.
        most: the length of a part.
    """
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


def _in_share(user: str, share: Share) -> str:
    """Return the SQL condition that a user code belongs to a share: :meth:`Share.holds`."""
    if share.parts == 1:
        return ""
    mixed = user
    for shift in MIXING:
        mixed = f"xor({mixed}, {user} >> {shift})"
    return f" WHERE {mixed} & {share.parts - 1} = {share.part}"

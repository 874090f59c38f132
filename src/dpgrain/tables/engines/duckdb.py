"""DuckDB, the embedded engine: it encodes rows and streams them as packed integer keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType

import duckdb
import numpy as np
import pyarrow as pa

from dpgrain._types import IntArray
from dpgrain.errors import DataError, ParameterError
from dpgrain.tables.blocks import Blocks
from dpgrain.tables.elements import cell_codes, cell_labels
from dpgrain.tables.engines.feed import MIXING, Chunk, Feed, Scan, Share
from dpgrain.tables.engines.kernel import Layout
from dpgrain.tables.engines.memory import Memory
from dpgrain.tables.engines.spill import new_spill_folder
from dpgrain.tables.groups import Groups
from dpgrain.tables.sources import quoted, reading
from dpgrain.tables.split import Split
from dpgrain.tables.table import UserTable

# Items that are whole numbers are listed from the least to the largest up to so many.
_LISTED = 1 << 21
# Packed keys are non-negative int64.
_KEY_BITS = 62


@dataclass(frozen=True, eq=False)
class Cells:
    """Which cell each of some groups lies in.

    Args:
        labels: (V,) the name that orders cells; null where the group has no cell and is left out.
        codes: (V,) a number for each cell; −1 where the group is left out.
    """

    labels: pa.Array
    codes: IntArray

    @staticmethod
    def of(blocks: Blocks, groups: Groups, *, public: bool) -> Cells:
        """The cells of groups under a unit's partition; one cell where the group tells none.

        Args:
            blocks: the blocks of the unit.
            groups: the groups.
            public: whether they are a public domain.
        """
        size = len(groups)
        if blocks.key is None:
            return Cells(pa.repeat("all", size), np.zeros(size, dtype=np.int64))
        values = groups.columns[blocks.key]
        if blocks.elements is not None:
            names, codes = cell_codes(blocks.elements, values.to_pylist(), public=public)
            return Cells(pa.array(names, pa.string()), codes)
        # Values that are their own cells; made without a Python object each, for there may be many.
        codes = np.arange(size, dtype=np.int64)
        if not blocks.alone:
            codes = values.dictionary_encode().indices.to_numpy().astype(np.int64)
        return Cells(values.cast(pa.string()), codes)

    @cached_property
    def sizes(self) -> IntArray:
        """(K,) how many groups each cell holds."""
        return np.unique(self.codes[self.codes >= 0], return_counts=True)[1].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Dictionary:
    """The groups of a release, in the public order of cells and then of keys.

    Args:
        groups: (V,) the groups.
        layout: how the keys of their coordinates are packed and which cell each lies in.
        cell_sizes: (K,) number of coordinates in each cell; (1,) where the cell is another column.
        given: (V,) where each group stood among those that were given.
        corners: how many coordinates each group has.
    """

    groups: Groups
    layout: Layout
    cell_sizes: IntArray
    given: IntArray
    corners: int = 1

    def cell_rows(self, rows: int) -> IntArray:
        """(V,) where each group's cell stands in an array of one row per cell, or one for all."""
        if rows == 1 or self.layout.cell_of is None:
            return np.zeros(len(self.groups), dtype=np.int64)
        return self.layout.cell_of[:: self.corners]


class Engine:
    """A private DuckDB connection for one release, with safe settings.

    What it spills lies in a folder that only this process's user can enter and that is removed at
    the end. It is encrypted besides, with what DuckDB has without extensions, whose random keys it does
    not call secure. No extension is installed or loaded.
    """

    def __init__(self, table: UserTable) -> None:
        self.table = table
        self._memory = Memory.of(table.memory, table.threads)
        self._lookups: dict[str, str] = {}

    def __enter__(self) -> Engine:
        self._spill = new_spill_folder()
        try:
            with reading("The spill folder"):
                self._connection = duckdb.connect(":memory:", config=self._settings())
        except BaseException:
            self._spill.remove()
            raise
        # It would print on standard output, and tell by its pace how long the table is.
        self._connection.execute("SET enable_progress_bar = false")
        # Without it, versions whose own cryptography only reads cannot spill at all; others lack it.
        with suppress(duckdb.Error):
            self._connection.execute("SET force_mbedtls_unsafe = true")
        return self

    def _settings(self) -> dict[str, str | bool | int | float | list[str]]:
        return {
            "threads": self._memory.reading,
            "memory_limit": f"{self._memory.duckdb // 1_000_000}MB",
            "temp_directory": self._spill.path,
            "temp_file_encryption": True,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "preserve_insertion_order": False,
        }

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._spill.remove()

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """The different groups that rows of users belong to; private.

        Args:
            keys: the columns that tell a record's group.
            value: a column of numbers; rows without a finite one are left out.
        """
        columns = [f"{self.table.key(key, 'by')} AS k{i}" for i, key in enumerate(keys)]
        query = f"SELECT DISTINCT {', '.join(columns)} FROM source WHERE {self._held(keys, value)}"
        found = self.ask(query, [*keys])
        return Groups.of(keys, [_one_array(column) for column in found.columns])

    def candidates(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """Groups that rows may belong to, among them all that they do; arguments as above.

        Whole numbers that lie close together are all of them: to list them is quicker than to look
        which occur. For what tells afterwards which groups nobody holds.
        """
        if len(keys) == 1 and self.table.is_integer(keys[0]):
            key = self.table.key(keys[0], "by")
            found = self.ask(
                f"SELECT min({key}) AS low, max({key}) AS high, count(*) AS rows FROM source", keys
            )
            ((low, high, rows),) = (tuple(row.values()) for row in found.to_pylist())
            if low is not None and high - low < min(rows // 16, _LISTED):
                return Groups.of(keys, [pa.array(np.arange(low, high + 1, dtype=np.int64))])
        return self.distinct(keys, value)

    def dictionary(
        self, groups: Groups, cells: Cells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Give groups and cells their codes.

        Args:
            groups: (V,) different groups, of the types of the key columns.
            cells: the cell of each.
            cell_column: the cell is this other column instead.
            corners: how many coordinates each group has.
        """
        names = [f"k{i}" for i in range(len(groups.names))]
        given = pa.table(
            {
                **dict(zip(names, groups.columns, strict=True)),
                "cell": cells.codes,
                "label": cells.labels,
                "given": np.arange(len(groups)),
            }
        ).filter(pa.array(cells.codes >= 0))
        self._connection.register("given_items", given)
        # A public function of each group alone orders groups and cells: what is kept when a bound is
        # enforced may not depend on what else is there.
        marks = [f"md5({name}::VARCHAR)" for name in names]
        order = ["md5(label)", "label", "cell", *(f"concat({', '.join(marks)})" for _ in marks[:1])]
        with reading("The domain"):
            self._connection.execute(
                f"CREATE OR REPLACE TEMP TABLE items AS SELECT {''.join(n + ', ' for n in names)}cell, "
                f"given, row_number() OVER (ORDER BY {', '.join(order + names)}) - 1 AS code "
                "FROM given_items"
            )
        self._connection.unregister("given_items")
        ordered = self._connection.sql(
            "SELECT cell, given FROM items ORDER BY code"
        ).to_arrow_table()
        place = ordered.column("given").to_numpy()
        known = groups.take(place)
        if cell_column is not None:
            layout = Layout(len(known) * corners, self._encode_cells(cell_column), None)
            return Dictionary(known, layout, np.array([layout.items]), place, corners)
        cell = ordered.column("cell").to_numpy()
        cell_of = np.cumsum(np.diff(cell, prepend=cell[:1]) != 0, dtype=np.int64)
        sizes = np.bincount(cell_of) * corners
        layout = Layout(len(known) * corners, sizes.size, np.repeat(cell_of, corners))
        return Dictionary(known, layout, sizes, place, corners)

    def _encode_cells(self, column: str) -> int:
        """Number the cells of a column in a public order; null is a cell too. Returns how many."""
        key = self.table.key(column, "element")
        with reading(self.table.source.name):
            self._connection.execute(
                "CREATE OR REPLACE TEMP TABLE cells AS SELECT cell, "
                "row_number() OVER (ORDER BY md5(cell::VARCHAR), cell) AS code FROM "
                f"(SELECT DISTINCT {key} AS cell FROM {self._attach([column])}) WHERE cell IS NOT NULL"
            )
            rows = self._connection.sql("SELECT count(*) FROM cells").fetchall()
        return int(rows[0][0]) + 1

    def feed(
        self,
        dictionary: Dictionary,
        *,
        value: str | None = None,
        split: Split | None = None,
        cell_column: str | None = None,
    ) -> Feed:
        """Whole users' sorted keys, for the groups last given to :meth:`dictionary`.

        Args:
            dictionary: what :meth:`dictionary` returned.
            value: the column of numbers that is split; each row counts 1 without one.
            split: from numbers to what each record adds to its group's coordinates.
            cell_column: as given to :meth:`dictionary`.
        """
        layout = dictionary.layout
        user, join = self._user_codes(layout.user_shift)
        code = f"({user} << {layout.user_shift}) | {_code(dictionary)}"
        cell, column = "NULL", None
        if cell_column is not None:
            code += f" | (coalesce(cells.code, 0) << {layout.item_bits})"
            cell, column = self.table.key(cell_column, "element"), cell_column
            join += " LEFT JOIN cells ON rows_.cell = cells.cell"
        scan = self._scan(
            f"CAST({code} AS BIGINT)",
            dictionary.groups.names,
            value,
            split,
            cell,
            column,
            join,
            user,
        )
        memory = self._memory
        return Feed(
            scan,
            layout.user_shift,
            memory.keys,
            self.table.threads,
            call=memory.call,
            sums=memory.sums,
        )

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> Iterator[Chunk]:
        """Coordinates of single records and what each adds there; arguments as above."""
        code = f"CAST({_code(dictionary)} AS BIGINT)"
        scan = self._scan(code, dictionary.groups.names, value, split, "NULL", None, "", "0")
        return scan(Share())

    def _user_codes(self, shift: int) -> tuple[str, str]:
        """The SQL of a user's code, and the join it needs."""
        if self.table.user is None:
            raise ParameterError("user must be given to dg.read for this privacy unit.")
        key = self.table.key(self.table.user, "user")
        if self.table.is_integer(self.table.user):
            with reading(self.table.source.name):
                query = f"SELECT min({key}), max({key}) FROM {self._attach()}"
                ((low, high),) = self._connection.sql(query).fetchall()
            low, high = (0, 0) if low is None else (low, high)
            if (high - low).bit_length() + shift <= _KEY_BITS:
                return f"(rows_.user_ - ({low}))", ""
        with reading(self.table.source.name):
            self._connection.execute(
                "CREATE OR REPLACE TEMP TABLE users AS SELECT user_, row_number() OVER () - 1 AS code "
                f"FROM (SELECT DISTINCT {key} AS user_ FROM {self._attach()}) WHERE user_ IS NOT NULL"
            )
            ((users,),) = self._connection.sql("SELECT count(*) FROM users").fetchall()
        if users.bit_length() + shift > _KEY_BITS:
            raise DataError(
                "users × cells × items exceed 2^62, what one key can tell apart; split the domain."
            )
        return "users.code", " JOIN users ON rows_.user_ = users.user_"

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
        columns = [f"{self.table.key(name, 'by')} AS k{i}" for i, name in enumerate(keys)]
        columns.append(f"{cell} AS cell")
        held = self._held(keys, value)
        if cell_column is not None and self._drops(cell_column):
            held += f" AND {cell} IS NOT NULL"
        if self.table.user is not None:
            columns.append(f"{self.table.key(self.table.user, 'user')} AS user_")
        number = ""
        if value is not None:
            columns.append(f"{self.table.number(value, 'value')} AS value")
            number = ", value"
        items = " AND ".join(f"rows_.k{i} = items.k{i}" for i in range(len(keys)))
        items = f" JOIN items ON {items}" if keys else ""
        used = [*keys, *([] if cell_column is None else [cell_column])]

        def scan(share: Share) -> Iterator[Chunk]:
            query = (
                f"SELECT {key} AS key{number} FROM (SELECT {', '.join(columns)} "
                f"FROM {self._attach(used)} WHERE {held}) rows_{items}{join}"
                f"{_in_share(user, share)}"
            )
            with reading(self.table.source.name):
                for batch in self._connection.sql(query).to_arrow_reader(self._memory.rows):
                    found = batch.column("key").to_numpy()
                    values = None if value is None else batch.column("value").to_numpy()
                    yield (found, None) if split is None else split(found, values)

        return scan

    def _held(self, keys: Sequence[str], value: str | None) -> str:
        """The SQL condition that a row has a user, a group and a finite number."""
        held = [f"{self.table.key(key, 'by')} IS NOT NULL" for key in keys]
        if self.table.user is not None:
            held.append(f"{quoted(self.table.user)} IS NOT NULL")
        if value is not None:
            # The fixed rule: rows with null, NaN or ±∞ count nothing.
            held.append(f"isfinite({self.table.number(value, 'value')})")
        return " AND ".join(held) or "true"

    def _drops(self, column: str) -> bool:
        """Whether records without a cell in this column of cells are left out."""
        return column in self.table.cells and self.table.cells[column].elements.missing == "drop"

    def _attach(self, used: Sequence[str] = ()) -> str:
        """Something to select from, with those columns of cells that are used."""
        cells, needed = self.table.cells, set(used)
        for name in reversed(list(cells)):
            # A column of cells may be of another one, which was added before it.
            if name in needed:
                needed.add(cells[name].of)
        # The lookups read the source, which is good for one query.
        lookups = {name: self._lookup(name) for name in cells if name in needed}
        source = self.table.source.attach(self._connection)
        for name, lookup in lookups.items():
            value = self.table.key(cells[name].of, "of", source="rows0")
            source = (
                f"(SELECT rows0.*, {lookup}.label AS {quoted(name)} FROM {source} rows0 "
                f"LEFT JOIN {lookup} ON {lookup}.value = {value})"
            )
        return source

    def _lookup(self, name: str) -> str:
        """The table of a column of cells: value → label."""
        if name not in self._lookups:
            column = self.table.cells[name]
            values = self.distinct([column.of]).columns[0]
            labels = cell_labels(column.elements, values.to_pylist())
            lookup = f"lookup{len(self._lookups)}"
            made = pa.table({"value": values, "label": pa.array(labels, pa.string())})
            self._connection.register("made", made)
            with reading(self.table.source.name):
                self._connection.execute(f"CREATE TEMP TABLE {lookup} AS SELECT * FROM made")
            self._connection.unregister("made")
            self._lookups[name] = lookup
        return self._lookups[name]

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection, for what a source alone knows to ask."""
        return self._connection

    def register(self, name: str, rows: pa.Table) -> None:
        """Give later queries a table of the caller's."""
        self._connection.register(name, rows)

    def ask(self, query: str, used: Sequence[str] = ()) -> pa.Table:
        """The answer to a query of the table, which it calls ``source``; private."""
        with reading(self.table.source.name):
            query = f"WITH source AS (SELECT * FROM {self._attach(used)}) {query}"
            return self._connection.sql(query).to_arrow_table()


def _code(dictionary: Dictionary) -> str:
    """The SQL of the first coordinate of a record's group."""
    if not dictionary.groups.names:
        return "0"
    return "items.code" if dictionary.corners == 1 else f"items.code * {dictionary.corners}"


def _in_share(user: str, share: Share) -> str:
    """The SQL condition that a user code belongs to a share: :meth:`Share.holds`."""
    if share.parts == 1:
        return ""
    mixed = user
    for shift in MIXING:
        mixed = f"xor({mixed}, {user} >> {shift})"
    return f" WHERE {mixed} & {share.parts - 1} = {share.part}"


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined

"""DuckDB, the embedded engine: it encodes rows and streams them as packed integer keys."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpgrain.data.elements import Elements, cell_codes
from dpgrain.data.feed import MIXING, Chunk, Feed, Scan, Share
from dpgrain.data.kernel import SATURATION, IntArray, Layout
from dpgrain.data.sources import quoted, reading
from dpgrain.data.table import UserTable
from dpgrain.errors import DataError, ParameterError

_ROWS = 1 << 20
# The shares of the memory that DuckDB and the sorted keys get; the rest is for merging and summing.
_DUCKDB, _KEYS = 0.4, 0.35
# Packed keys are non-negative int64.
_KEY_BITS = 62


@dataclass(frozen=True)
class Dictionary:
    """The items of a release, in the public order of cells and then of items.

    Args:
        items: (V,) the items.
        layout: how their keys are packed and which cell each lies in.
        cell_sizes: (K,) number of items in each cell; (1,) where the cell is another column.
        given: (V,) where each item stood in the list that was given.
    """

    items: pa.Array
    layout: Layout
    cell_sizes: IntArray
    given: IntArray

    def cell_rows(self, rows: int) -> IntArray:
        """(V,) where each item's cell stands in an array of one row per cell, or one for all."""
        if rows == 1 or self.layout.cell_of is None:
            return np.zeros(len(self.items), dtype=np.int64)
        return self.layout.cell_of


class Engine:
    """A private DuckDB connection for one release, with safe settings.

    What it spills lies in a folder that only this process's user can enter and that is removed at
    the end. It is encrypted besides, with what DuckDB has without extensions, whose random keys it does
    not call secure. No extension is installed or loaded.
    """

    def __init__(self, table: UserTable) -> None:
        self.table = table

    def __enter__(self) -> Engine:
        try:
            # A TMPDIR that cannot be used would be passed over for another disk without a word.
            self._folder = tempfile.mkdtemp(prefix="dpgrain-", dir=os.environ.get("TMPDIR") or None)
        except OSError as error:
            raise DataError(
                "The temporary folder cannot be written; point TMPDIR to a disk with room."
            ) from error
        try:
            with reading("The spill folder"):
                self._connection = duckdb.connect(":memory:", config=self._settings())
        except DataError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        # It would print on standard output, and tell by its pace how long the table is.
        self._connection.execute("SET enable_progress_bar = false")
        # Without it, versions whose own cryptography only reads cannot spill at all; others lack it.
        with suppress(duckdb.Error):
            self._connection.execute("SET force_mbedtls_unsafe = true")
        return self

    def _settings(self) -> dict[str, str | bool | int | float | list[str]]:
        return {
            "threads": self.table.threads,
            "memory_limit": f"{int(_DUCKDB * self.table.memory) // 1_000_000}MB",
            "temp_directory": self._folder,
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
        shutil.rmtree(self._folder, ignore_errors=True)

    def distinct(self, column: str, role: str) -> pa.Array:
        """The different values of a column, among rows of users; private."""
        key = self.table.key(column, role)
        query = f"SELECT DISTINCT {key} AS value FROM source WHERE {self._held(key)}"
        values = self._query(query).column("value")
        return _one_array(values)

    def dictionary(
        self,
        items: pa.Array,
        elements: Elements | None,
        *,
        public: bool,
        cell_column: str | None = None,
        one_cell: bool = False,
    ) -> Dictionary:
        """Give items and cells their codes.

        Args:
            items: (V,) different items, of the type of the item column.
            elements: the partition by item; None: each item is its own cell.
            public: whether the items are a public domain.
            cell_column: the cell is this other column instead.
            one_cell: all items are one cell: the block is the whole user.
        """
        if cell_column is not None or one_cell:
            labels = pa.repeat("all", len(items))
            codes = np.zeros(len(items), dtype=np.int64)
        elif elements is None:
            # Each item is its own cell; made without a Python object each, for there may be many.
            labels = items.cast(pa.string())
            codes = np.arange(len(items), dtype=np.int64)
        else:
            names, codes = cell_codes(elements, items.to_pylist(), public=public)
            labels = pa.array(names, pa.string())
        kept = codes >= 0
        given = pa.table(
            {
                "item": items,
                "cell": codes,
                "label": labels,
                "given": np.arange(len(items)),
            }
        ).filter(pa.array(kept))
        self._connection.register("given_items", given)
        # A public function of each item alone orders items and cells: what is kept when a bound is
        # enforced may not depend on what else is there.
        with reading("The domain"):
            self._connection.execute(
                "CREATE OR REPLACE TEMP TABLE items AS SELECT item, cell, given, row_number() OVER "
                "(ORDER BY md5(label), label, cell, md5(item::VARCHAR), item) - 1 AS code "
                "FROM given_items"
            )
        ordered = self._connection.sql(
            "SELECT item, cell, given FROM items ORDER BY code"
        ).to_arrow_table()
        ordered_items = _one_array(ordered.column("item"))
        place = ordered.column("given").to_numpy()
        if cell_column is not None:
            cells = self._encode_cells(cell_column)
            layout = Layout(len(ordered_items), cells, None)
            return Dictionary(ordered_items, layout, np.array([len(ordered_items)]), place)
        cell = ordered.column("cell").to_numpy()
        cell_of = np.cumsum(np.diff(cell, prepend=cell[:1]) != 0, dtype=np.int64)
        sizes = np.bincount(cell_of)
        layout = Layout(len(ordered_items), sizes.size, cell_of)
        return Dictionary(ordered_items, layout, sizes, place)

    def _encode_cells(self, column: str) -> int:
        """Number the cells of a column in a public order; null is a cell too. Returns how many."""
        key = self.table.key(column, "element")
        with reading(self.table.source.name):
            self._connection.execute(
                "CREATE OR REPLACE TEMP TABLE cells AS SELECT cell, "
                "row_number() OVER (ORDER BY md5(cell::VARCHAR), cell) AS code FROM "
                f"(SELECT DISTINCT {key} AS cell FROM {self._attach()}) WHERE cell IS NOT NULL"
            )
            rows = self._connection.sql("SELECT count(*) FROM cells").fetchall()
        return int(rows[0][0]) + 1

    def feed(
        self,
        item: str,
        layout: Layout,
        *,
        weight: str | None = None,
        unit: float = 1.0,
        cell_column: str | None = None,
    ) -> Feed:
        """Whole users' sorted keys, for the items last given to :meth:`dictionary`.

        Args:
            item: the item column.
            layout: of the dictionary.
            weight: the weight column; each row counts 1 without one.
            unit: weights are truncated to multiples of this.
            cell_column: as given to :meth:`dictionary`.
        """
        user, join = self._user_codes(layout.user_shift)
        code = f"({user} << {layout.user_shift}) | items.code"
        if cell_column is not None:
            code += f" | (coalesce(cells.code, 0) << {layout.item_bits})"
            cell = self.table.key(cell_column, "element")
            join += " LEFT JOIN cells ON rows_.cell = cells.cell"
        else:
            cell = "NULL"
        scan = self._scan(f"CAST({code} AS BIGINT)", item, weight, unit, cell, join, user)
        capacity = int(_KEYS * self.table.memory) // 8
        return Feed(scan, layout.user_shift, capacity, self.table.threads)

    def records(
        self, item: str, *, weight: str | None = None, unit: float = 1.0
    ) -> Iterator[Chunk]:
        """Item codes of single records, and their values in multiples of ``unit``."""
        scan = self._scan("CAST(items.code AS BIGINT)", item, weight, unit, "NULL", "", "0")
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
        self, key: str, item: str, weight: str | None, unit: float, cell: str, join: str, user: str
    ) -> Scan:
        columns = [f"{self.table.key(item, 'item')} AS item", f"{cell} AS cell"]
        held = [self._held(self.table.key(item, "item"))]
        if self.table.user is not None:
            columns.append(f"{self.table.key(self.table.user, 'user')} AS user_")
        value = ""
        if weight is not None:
            number = self.table.number(weight, "weight")
            columns.append(f"{number} AS weight")
            # The fixed rules: NaN, ±∞ and what is not above 0 count 0.
            held.append(f"isfinite({number}) AND {number} > 0")
            value = ", weight AS value"

        def scan(share: Share) -> Iterator[Chunk]:
            query = (
                f"SELECT {key} AS key{value} FROM (SELECT {', '.join(columns)} FROM {self._attach()} "
                f"WHERE {' AND '.join(held)}) rows_ JOIN items ON rows_.item = items.item{join}"
                f"{_in_share(user, share)}"
            )
            with reading(self.table.source.name):
                for batch in self._connection.sql(query).to_arrow_reader(_ROWS):
                    keys = batch.column("key").to_numpy()
                    yield keys, _multiples(batch, unit) if weight is not None else None

        return scan

    def _held(self, key: str) -> str:
        """The SQL condition that a row has a user and an item."""
        user = self.table.user
        return f"{key} IS NOT NULL" + (f" AND {quoted(user)} IS NOT NULL" if user else "")

    def _attach(self) -> str:
        return self.table.source.attach(self._connection)

    def _query(self, query: str) -> pa.Table:
        """The answer to a query of the table, which it calls ``source``."""
        with reading(self.table.source.name):
            query = f"WITH source AS (SELECT * FROM {self._attach()}) {query}"
            return self._connection.sql(query).to_arrow_table()


def _in_share(user: str, share: Share) -> str:
    """The SQL condition that a user code belongs to a share: :meth:`Share.holds`."""
    if share.parts == 1:
        return ""
    mixed = user
    for shift in MIXING:
        mixed = f"xor({mixed}, {user} >> {shift})"
    return f" WHERE {mixed} & {share.parts - 1} = {share.part}"


def _multiples(batch: pa.RecordBatch, unit: float) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        # An overflow saturates like any huge weight; a warning would publish it.
        values = batch.column("value").to_numpy() * (1 / unit)
    return np.asarray(np.floor(np.minimum(values, SATURATION, out=values), out=values))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def check(table: UserTable, item: str | None, weight: str | None) -> str:
    """What :meth:`UserTable.check` reports."""
    counts = {"rows": "count(*)"}
    if table.user is not None:
        user = table.key(table.user, "user")
        counts["rows without a user (left out)"] = f"count(*) - count({user})"
        counts["users with a record"] = f"count(DISTINCT {user})"
    if item is not None:
        counts["rows without an item (left out)"] = f"count(*) - count({table.key(item, 'item')})"
    if weight is not None:
        number = table.number(weight, "weight")
        counts["weights that are null, NaN or infinite (count 0)"] = (
            f"count(*) FILTER (({number} IS NULL) OR NOT isfinite({number}))"
        )
        counts["negative weights (count 0)"] = (
            f"count(*) FILTER (isfinite({number}) AND {number} < 0)"
        )
    with Engine(table) as engine:
        query = "SELECT " + ", ".join(counts.values()) + " FROM source"
        row = engine._query(query).to_pylist()[0].values()
        found = dict(zip(counts, row, strict=True))
        if table.user is not None:
            most = engine._query(
                f"SELECT coalesce(max(n), 0) AS n FROM (SELECT count(*) AS n FROM source "
                f"WHERE {quoted(table.user)} IS NOT NULL GROUP BY {quoted(table.user)})"
            )
            found["most records of one user"] = most.column("n")[0].as_py()
        distinct = engine._query("SELECT count(*) AS n FROM (SELECT DISTINCT * FROM source)")
        found["rows that repeat another (they add up)"] = (
            found["rows"] - distinct.column("n")[0].as_py()
        )
    lines = ["For the curator only: these exact counts are NOT private and must not be published."]
    return "\n".join(lines + [f"  {value:>14,}  {name}" for name, value in found.items()])

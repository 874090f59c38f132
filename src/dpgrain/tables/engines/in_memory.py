"""The engine in memory: Arrow columns and NumPy, for tables that are small or there already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpgrain._arrow import numbers, truths, whole
from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.tables.dictionary import Cells, Dictionary, column_order
from dpgrain.tables.elements import cell_labels
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.feed import Chunk, Feed, Scanned, Share, require_bits
from dpgrain.tables.engines.memory import Memory
from dpgrain.tables.engines.protocol import Form
from dpgrain.tables.engines.sources import ArrowSource, OverSource, Source
from dpgrain.tables.groups import Groups
from dpgrain.tables.rows import Rows
from dpgrain.tables.split import Split

# Arrow reads these types as DuckDB does; DuckDB reads the others, once, and hands them over.
_KEYS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.large_string())
_NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())


class InMemory:
    """Columns in memory for one release; the ``memory`` of the table does not bound them."""

    def __init__(self, table: Rows) -> None:
        self.table = table
        self._columns: dict[tuple[str, Form], pa.Array] = {}
        self._reader: DuckDB | None = None
        self._codes: IntArray = np.zeros(0, dtype=np.int64)
        self._cells: IntArray = np.zeros(0, dtype=np.int64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._columns.clear()
        if self._reader is not None:
            self._reader.__exit__(None, None, None)
            self._reader = None

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """Return the different groups that rows of users belong to."""
        held = self._held(keys, value)
        columns = [self._key(key).filter(truths(held)) for key in keys]
        if len(keys) == 1:
            return Groups.of(keys, [columns[0].unique()])
        first = np.unique(_ranks(columns), return_index=True)[1]
        return Groups.of(keys, [column.take(numbers(first)) for column in columns])

    def extent(self, key: str) -> tuple[int, int, int] | None:
        """Return the extremes of a column of whole numbers, and the number of rows."""
        column = self._key(key)
        ends = pc.min_max(column).as_py()
        return None if ends["min"] is None else (ends["min"], ends["max"], len(column))

    def dictionary(
        self, groups: Groups, cells: Cells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Give groups and cells their codes, and rows the codes of their groups and cells."""
        column_cells = None if cell_column is None else self._encode_cells(cell_column)
        known = Dictionary.of(groups, cells, column_cells=column_cells, corners=corners)
        columns = [self._key(name) for name in groups.names]
        self._codes = _places(columns, known.groups) if columns else self._zeros()
        self._codes = np.where(self._codes < 0, -1, self._codes * corners)
        return known

    def _encode_cells(self, column: str) -> int:
        """Number the cells of a column in the public order; null is a cell too. Return their number."""
        names = column_order(self._key(column).drop_null().unique().to_pylist())
        ordered = pa.array(names, self._key(column).type)
        self._cells = _index(self._key(column), ordered) + 1
        return len(names) + 1

    def users(
        self,
        dictionary: Dictionary,
        *,
        value: str | None = None,
        split: Split | None = None,
        cell_column: str | None = None,
    ) -> Feed:
        """Return whole users' records in the groups last given to :meth:`dictionary`."""
        if self.table.user is None:
            raise ParameterError("user must be given to dg.read for this privacy unit.")
        layout = dictionary.layout
        names = self._key(self.table.user).dictionary_encode()
        require_bits(len(names.dictionary), layout.user_shift)
        users = names.indices.fill_null(0).to_numpy().astype(np.int64)
        keys = (users << layout.user_shift) | self._codes
        held = self._held(dictionary.groups.names, value)
        if cell_column is not None:
            keys |= self._cells << layout.item_bits
            if self.table.drops(cell_column):
                held &= self._cells > 0
        chunk = self._chunk(keys, held, value, split)

        def scan(share: Share) -> Iterator[Chunk]:
            mine = share.of_keys(chunk[0], layout.user_shift)
            yield chunk[0][mine], None if chunk[1] is None else chunk[1][mine]

        memory = Memory.of(self.table.memory, self.table.threads)
        counted = len(names.dictionary) if split is None else None
        return Feed.within(memory, scan, layout.user_shift, self.table.threads, counted)

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> Scanned:
        """Return single records as codes of coordinates."""
        held = self._held(dictionary.groups.names, value)
        chunk = self._chunk(self._codes, held, value, split)
        return Scanned(lambda _: iter([chunk]))

    def columns(self, wanted: Sequence[tuple[str, Form]]) -> pa.Table:
        """Return columns of all rows, in their order."""
        columns = [self._column(*asked) for asked in wanted]
        return pa.table({f"c{place}": column for place, column in enumerate(columns)})

    def _chunk(
        self, keys: IntArray, held: BoolArray, value: str | None, split: Split | None
    ) -> Chunk:
        """Return (keys, totals) of the rows that are held and lie in a group that has a code."""
        held = held & (self._codes >= 0)
        if split is None:
            return keys[held], None
        return split(keys[held], None if value is None else self._number(value)[held])

    def _held(self, keys: Sequence[str], value: str | None) -> BoolArray:
        """Return whether each row has a user, a group and a finite number, (rows,)."""
        held = self._zeros() == 0
        for key in (*keys, *([] if self.table.user is None else [self.table.user])):
            column = self._key(key)
            if column.null_count:
                held &= column.is_valid().to_numpy(zero_copy_only=False)
        return held if value is None else np.asarray(held & np.isfinite(self._number(value)))

    def _zeros(self) -> IntArray:
        """Return a zero for each row, (rows,)."""
        name = self.table.user or next(iter(self.table.schema))
        form: Form = "as it is" if self.table.user is None else "key"
        return np.zeros(len(self._column(name, form)), dtype=np.int64)

    def _number(self, column: str) -> FloatArray:
        numbers = self._column(column, "number").fill_null(np.nan)
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)

    def _key(self, column: str) -> pa.Array:
        if column not in self.table.cells:
            return self._column(column, "key")
        if (column, "key") not in self._columns:
            self._columns[column, "key"] = self._labels(column)
        return self._columns[column, "key"]

    def _labels(self, column: str) -> pa.Array:
        """Return the labels of a column of cells; its partition is asked about what users hold only."""
        made = self.table.cells[column]
        values = self.distinct([made.of]).columns[0]
        labels = pa.array(cell_labels(made.elements, values.to_pylist()), pa.string())
        return labels.take(pc.index_in(self._key(made.of), value_set=values))

    def _column(self, column: str, form: Form) -> pa.Array:
        """Return a column in a form, read only once."""
        if (column, form) not in self._columns:
            found = self._of_arrow(column, form)
            if found is None:
                found = self._duckdb().columns([(column, form)]).column(0)
            self._columns[column, form] = whole(found)
        return self._columns[column, form]

    def _duckdb(self) -> DuckDB:
        """Return DuckDB over rows that it reads once, so that the columns of one row stay together.

        A query or a file that is read again may give its rows in another order, or others; an Arrow
        table does not.
        """
        if self._reader is None:
            source = self.table.source
            kept = source if isinstance(source, ArrowSource) else _ReadOnce(source)
            self._reader = DuckDB(replace(self.table, source=kept)).__enter__()
        return self._reader

    def _of_arrow(self, column: str, form: Form) -> pa.ChunkedArray | None:
        """Return a column of an Arrow table, where Arrow reads it as DuckDB does."""
        source = self.table.source
        if not isinstance(source, ArrowSource) or source.table.schema.names.count(column) != 1:
            return None
        found = source.table.column(column)
        if form == "key" and found.type in _KEYS:
            return found.cast(pa.int64() if pa.types.is_integer(found.type) else pa.string())
        if form == "number" and found.type in _NUMBERS:
            return found.cast(pa.float64(), safe=False)
        return None


@dataclass
class _ReadOnce(OverSource):
    """A source whose rows DuckDB reads once, into a table of its own, in their order."""

    source: Source
    _name: str | None = None

    def attach(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Read all rows into a table, the first time, and return its name."""
        if self._name is None:
            rows, self._name = self.source.attach(connection), "rows_read_once"
            connection.execute(f"CREATE TEMP TABLE {self._name} AS SELECT * FROM {rows}")
        return self._name


def _index(column: pa.Array, values: pa.Array) -> IntArray:
    """Return the place of each value of a column among different values, (n,); −1 without one."""
    found = pc.index_in(column, value_set=values).fill_null(-1)
    return np.asarray(found.to_numpy(), dtype=np.int64)


def _ranks(columns: Sequence[pa.Array]) -> IntArray:
    """Return a number for each row of columns without nulls, (n,); equal rows have the same."""
    ranks = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        found = column.dictionary_encode()
        both = ranks * max(len(found.dictionary), 1) + found.indices.to_numpy()
        ranks = np.unique(both, return_inverse=True)[1].astype(np.int64)
    return ranks


def _places(columns: Sequence[pa.Array], groups: Groups) -> IntArray:
    """Return the place of each row's group among different ones, (n,); −1 without one."""
    places = np.zeros(len(columns[0]), dtype=np.int64)
    own = np.zeros(len(groups), dtype=np.int64)
    for column, known in zip(columns, groups.columns, strict=True):
        values = known.unique()
        at = _index(column, values)
        # Each row is a pair of its rank so far and this key, ranked among the pairs of the groups.
        ranked, own = np.unique(own * len(values) + _index(known, values), return_inverse=True)
        pairs = places * len(values) + at
        found = np.searchsorted(ranked, pairs)
        there = (at >= 0) & (places >= 0) & (found < ranked.size)
        there[there] = ranked[found[there]] == pairs[there]
        places = np.where(there, found, -1)
    order = np.append(np.argsort(own), -1)
    return np.asarray(order[places], dtype=np.int64)

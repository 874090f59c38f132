"""An independent engine for tests: Arrow columns in memory and NumPy, for small tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpgrain._types import BoolArray, FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.long_labels import WHOLE_BYTES, text_label
from dpgrain.tables.arrow_arrays import boolean_array, number_array, one_array
from dpgrain.tables.elements import cell_labels
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.feed import Chunk, Feed, RecordScan, UserShare, require_bits
from dpgrain.tables.engines.memory import Memory
from dpgrain.tables.engines.protocol import Form
from dpgrain.tables.engines.sql import quoted
from dpgrain.tables.groups import Dictionary, GroupCells, Groups, column_order
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.column_types import INTEGERS, LONGEST_LABEL, REALS, TEXT
from dpgrain.tables.sources.frames import ArrowSource
from dpgrain.tables.sources.source import RowSource, SourceWrapper
from dpgrain.tables.split import Split

_TEXTS = (pa.string(), pa.large_string())
# Bytes, more than any machine has: everything stays in memory, also in DuckDB.
_NO_BOUND = 1 << 50


class InMemory:
    """Columns in memory for one release; the ``memory`` of the table does not bound them."""

    def __init__(self, table: TableRows) -> None:
        self.table = table
        self._columns: dict[tuple[str, Form], pa.Array] = {}
        self._reader: DuckDB | None = None
        self._read: set[str] = set()
        # The names of cells of a column, in the public order.
        self._cells: dict[str, list[Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._columns.clear()
        self._close()

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        self._need(*keys, value)
        held = self._held(keys, value)
        columns = [self._key(key).filter(boolean_array(held)) for key in keys]
        if len(keys) == 1:
            return Groups.of(keys, [columns[0].unique()])
        first = np.unique(_ranks(columns), return_index=True)[1]
        return Groups.of(keys, [column.take(number_array(first)) for column in columns])

    def extent(self, key: str) -> tuple[int, int, int] | None:
        self._need(key)
        column = self._key(key)
        ends = pc.min_max(column).as_py()
        return None if ends["min"] is None else (ends["min"], ends["max"], len(column))

    def dictionary(
        self, groups: Groups, cells: GroupCells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Give groups and cells their codes, in the public order; null is a cell too."""
        count = None
        if cell_column is not None:
            self._need(cell_column)
            names = column_order(self._key(cell_column).drop_null().unique().to_pylist())
            self._cells[cell_column] = names
            count = len(names) + 1
        return Dictionary.create(groups, cells, column_cells=count, corners=corners)

    def users(
        self,
        dictionary: Dictionary,
        *,
        value: str | None = None,
        split: Split | None = None,
        cell_column: str | None = None,
    ) -> Feed:
        if self.table.user is None:
            raise ParameterError("user must be passed to dg.read for this privacy unit.")
        self._need(*dictionary.groups.names, value, cell_column)
        layout, codes = dictionary.layout, self._codes(dictionary)
        names = self._key(self.table.user).dictionary_encode()
        require_bits(len(names.dictionary), layout.user_shift)
        users = names.indices.fill_null(0).to_numpy().astype(np.int64)
        keys = (users << layout.user_shift) | codes
        held = self._held(dictionary.groups.names, value) & (codes >= 0)
        if cell_column is not None:
            column = self._key(cell_column)
            cells = _index(column, pa.array(self._cells[cell_column], column.type)) + 1
            keys |= cells << layout.item_bits
            if self.table.drops(cell_column):
                held &= cells > 0
        chunk = self._chunk(keys, held, value, split)

        def scan(share: UserShare) -> Iterator[Chunk]:
            mine = share.contains_keys(chunk[0], layout.user_shift)
            yield chunk[0][mine], None if chunk[1] is None else chunk[1][mine]

        memory = Memory.split(self.table.memory, self.table.threads)
        counted = len(names.dictionary) if split is None else None
        return Feed.within(memory, scan, layout.user_shift, self.table.threads, counted)

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> RecordScan:
        self._need(*dictionary.groups.names, value)
        codes = self._codes(dictionary)
        held = self._held(dictionary.groups.names, value) & (codes >= 0)
        chunk = self._chunk(codes, held, value, split)
        return RecordScan(lambda _: iter([chunk]))

    def columns(self, wanted: Sequence[tuple[str, Form]]) -> pa.Table:
        self._need(*(name for name, _ in wanted))
        columns = [self._column(*asked) for asked in wanted]
        return pa.table({f"c{place}": column for place, column in enumerate(columns)})

    def _chunk(
        self, keys: IntArray, held: BoolArray, value: str | None, split: Split | None
    ) -> Chunk:
        if split is None:
            return keys[held], None
        return split(keys[held], None if value is None else self._number(value)[held])

    def _codes(self, dictionary: Dictionary) -> IntArray:
        """Return the first coordinate of each row's group, (rows,); −1 where it has no code."""
        columns = [self._key(name) for name in dictionary.groups.names]
        if not columns:
            return np.zeros(self._count(), dtype=np.int64)
        places = _places(columns, dictionary.groups)
        return np.where(places < 0, -1, places * dictionary.corners)

    def _held(self, keys: Sequence[str], value: str | None) -> BoolArray:
        held = np.ones(self._count(), dtype=np.bool_)
        for key in (*keys, *([] if self.table.user is None else [self.table.user])):
            column = self._key(key)
            if column.null_count:
                held &= column.is_valid().to_numpy(zero_copy_only=False)
        return held if value is None else np.asarray(held & np.isfinite(self._number(value)))

    def _count(self) -> int:
        if self.table.user is not None:
            return len(self._key(self.table.user))
        source = self.table.source
        if isinstance(source, ArrowSource):
            return int(source.table.num_rows)
        return int(self._duckdb().query("SELECT count(*) AS n FROM source").column("n")[0].as_py())

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
        """Return the labels of a column of cells; only existing items are passed on."""
        made = self.table.cells[column]
        values = self.distinct([made.of]).columns[0]
        labels = pa.array(cell_labels(made.elements, values.to_pylist()), pa.string())
        return labels.take(pc.index_in(self._key(made.of), value_set=values))

    def _column(self, column: str, form: Form) -> pa.Array:
        if (column, form) not in self._columns:
            result = self._of_arrow(column, form)
            if result is None:
                result = self._duckdb().columns([(column, form)]).column(0)
            self._columns[column, form] = one_array(result)
        return self._columns[column, form]

    def _need(self, *names: str | None) -> None:
        """Have DuckDB read columns together, so that each row stays together.

        A query or a file that is read again may return its rows in another order, or others; so
        earlier columns are read again with new ones. An Arrow table always returns the same rows.
        """
        needed = self.table.needed(name for name in names if name is not None)
        if needed <= self._read or isinstance(self.table.source, ArrowSource):
            return
        self._read |= needed
        self._columns.clear()
        self._close()

    def _duckdb(self) -> DuckDB:
        """Return DuckDB over the rows, with the needed columns read once."""
        if self._reader is None:
            source = self.table.source
            if not isinstance(source, ArrowSource):
                source = _ReadOnce(source, frozenset(self._read - set(self.table.cells)))
            table = replace(self.table, source=source, memory=_NO_BOUND)
            self._reader = DuckDB(table).__enter__()
        return self._reader

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.__exit__(None, None, None)
            self._reader = None

    def _of_arrow(self, column: str, form: Form) -> pa.ChunkedArray | None:
        """Return a column of an Arrow table, if Arrow and DuckDB read it equally."""
        source, kind = self.table.source, self.table.schema[column]
        if not isinstance(source, ArrowSource):
            return None
        result = source.table.column(column)
        if form == "key" and kind in INTEGERS and pa.types.is_integer(result.type):
            return result.cast(pa.int64())
        if form == "key" and kind == TEXT and result.type in _TEXTS:
            return text_labels(result, LONGEST_LABEL)
        if form == "number" and kind in (*INTEGERS, *REALS) and pa.types.is_primitive(result.type):
            return result.cast(pa.float64(), safe=False)
        return None


@dataclass
class _ReadOnce(SourceWrapper):
    """Columns of a source that DuckDB reads once, into a separate table, in row order."""

    source: RowSource
    needed: frozenset[str]
    _name: str | None = None

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,
        used: Collection[str] | None = None,
    ) -> str:
        if self._name is None:
            rows, self._name = self.source.attach(connection, self.needed), "rows_read_once"
            listed = ", ".join(map(quoted, sorted(self.needed))) or 'NULL AS "none"'
            connection.execute(f"CREATE TEMP TABLE {self._name} AS SELECT {listed} FROM {rows}")
        return self._name


def _index(column: pa.Array, values: pa.Array) -> IntArray:
    """Return the place of each value of a column among different values, (n,); −1 without one."""
    result = pc.index_in(column, value_set=values).fill_null(-1)
    return np.asarray(result.to_numpy(), dtype=np.int64)


def _ranks(columns: Sequence[pa.Array]) -> IntArray:
    """Return a number for each row of columns without nulls, (n,); equal rows have the same."""
    ranks = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        result = column.dictionary_encode()
        both = ranks * max(len(result.dictionary), 1) + result.indices.to_numpy()
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
        result = np.searchsorted(ranked, pairs)
        there = (at >= 0) & (places >= 0) & (result < ranked.size)
        there[there] = ranked[result[there]] == pairs[there]
        places = np.where(there, result, -1)
    order = np.append(np.argsort(own), -1)
    return np.asarray(order[places], dtype=np.int64)


def text_labels(column: pa.ChunkedArray, longest: int) -> pa.ChunkedArray:
    """Return the labels of a column of texts; null for texts of more than ``longest`` bytes."""
    size = pc.binary_length(column)
    long = pc.greater(size, WHOLE_BYTES)
    if not pc.any(long).as_py():
        return column.cast(pa.string())
    short_enough = pc.if_else(pc.greater(size, longest), None, column)
    texts = [text_label(text) for text in short_enough.filter(long).to_pylist() if text is not None]
    short = pc.if_else(long, None, short_enough).cast(pa.string()).combine_chunks()
    replaced = pc.and_(pc.fill_null(long, False), short_enough.is_valid()).combine_chunks()
    labels = pc.replace_with_mask(short, replaced, pa.array(texts, pa.string()))
    return pa.chunked_array([labels])

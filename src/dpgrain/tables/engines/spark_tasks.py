"""Spark tasks on the rows of one partition: DuckDB reads them, the kernel adds them up.

A task receives public facts, the codes of groups and a kernel, but no noise, budget or ledger. Its
results are Arrow batches of four types: groups, columns, whole users' keys (which stay on the
executors) and sums. Sums are split into slices, so that other tasks can add up one slice of all
partitions. Each slice has a fingerprint of all sums of its task. If Spark runs a task twice with
different results, for example because the source returned other rows, slices of both runs have
different fingerprints and nothing is released. So each user's contribution comes from a single
run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import duckdb
import numpy as np
import pyarrow as pa

from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray, IntArray
from dpgrain._version import __version__
from dpgrain.errors import DataError
from dpgrain.tables.arrow_arrays import number_array
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.feed import Chunk, CoordinateFilter
from dpgrain.tables.engines.joins import UserJoin
from dpgrain.tables.engines.kernel import pair_totals
from dpgrain.tables.engines.per_user import PerUser, per_user_source
from dpgrain.tables.engines.protocol import Add, Form
from dpgrain.tables.engines.sql import key_sql, quoted
from dpgrain.tables.groups import Dictionary
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.frames import readable_table
from dpgrain.tables.sources.source import RowSource, SourceWrapper
from dpgrain.tables.split import Split

if TYPE_CHECKING:
    import pyspark
else:
    pyspark = lazy_import("pyspark")

#: Error message of a task if the executor has another version of this package.
OTHER_VERSION = "dpgrain-other-version"
# Approximate number of keys per row of :data:`KEYS`.
_ROW_KEYS = 1 << 16
# Number of sums per slice.
_SLICE = 1 << 13

KEYS = pa.schema({"keys": pa.binary(), "totals": pa.binary()})
SUMS = pa.schema(
    {"slice": pa.int32(), "part": pa.int32(), "mark": pa.binary(), "sums": pa.binary()}
)


class SparkTask(Protocol):
    """Function of the rows of a partition."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of one schema."""


class RowQuery(Protocol):
    """Query on the rows of a partition."""

    @property
    def single_pass(self) -> bool:
        """True if rows are read once and need not be stored."""

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Yield at least one batch of results."""


@dataclass(eq=False)
class PartitionStream:
    """Stream of a partition's rows as a source for DuckDB."""

    batches: pa.RecordBatchReader | None = None  # None before rows arrive
    stored: bool = True  # store the rows, which otherwise can only be read once
    name: str = "The partition"
    title: str = "rows of Spark"
    _attached: bool = False

    def columns(self) -> dict[str, str]:
        """Return the columns; their types are not used."""
        return {} if self.batches is None else dict.fromkeys(self.batches.schema.names, "")

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,
        used: Collection[str] | None = None,  # noqa: ARG002 - no others come
    ) -> str:
        """Register the stream, or store its rows the first time, and return the name."""
        if not self._attached:
            self._attached = True
            connection.register("stream", self.batches)
            if self.stored:
                connection.execute("CREATE TEMP TABLE given AS SELECT * FROM stream")
                connection.unregister("stream")
        return "given" if self.stored else "stream"


def replace_base(rows: TableRows, source: RowSource) -> TableRows:
    """Return the same derived rows of another base source."""
    return replace(rows, source=_replace_base(rows.source, source))


def _replace_base(known: Any, source: RowSource) -> RowSource:
    if isinstance(known, PerUser):
        return replace(known, rows=replace_base(known.rows, source))
    if isinstance(known, UserJoin):
        return replace(
            known, rows=replace_base(known.rows, source), others=replace_base(known.others, source)
        )
    if isinstance(known, SourceWrapper):
        wrapper: Any = known
        derived: RowSource = replace(wrapper, source=_replace_base(known.source, source))
        return derived
    return source


@dataclass(frozen=True, eq=False)
class JoinSide(SourceWrapper):
    """Rows of one of two joined tables."""

    source: RowSource  # rows of both tables, marked with their table's number
    side: int  # number of the table
    names: Mapping[str, str]  # column → its name in ``source``

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return the columns of this table's rows."""
        rows = self.source.attach(connection, None)
        listed = ", ".join(
            f"{joined} AS {quoted(name)}"
            for name, joined in self.names.items()
            if used is None or name in used
        )
        return f"(SELECT {listed} FROM {rows} WHERE side = {self.side})"


@dataclass(frozen=True)
class MarkSide:
    """Task that moves rows to the common schema of two joined tables."""

    side: int  # number of their table
    columns: tuple[str, ...]  # common names; other columns are null
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the common schema."""
        for batch in batches:
            own = dict(zip(self.columns, batch.columns, strict=True))
            own["side"] = pa.repeat(pa.scalar(self.side, pa.int8()), batch.num_rows)
            yield pa.RecordBatch.from_arrays(
                [
                    own[each.name].cast(each.type)
                    if each.name in own
                    else pa.nulls(batch.num_rows, each.type)
                    for each in self.schema
                ],
                schema=self.schema,
            )


@dataclass(frozen=True)
class QueryTask:
    """Task that runs a query on the rows of a partition with DuckDB."""

    rows: TableRows
    names: tuple[str, ...]
    question: RowQuery

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results; an empty partition has none."""
        named = (self._named(batch) for batch in batches)
        first = next(named, None)
        if first is None:
            return

        def stream() -> Iterator[pa.RecordBatch]:
            yield first
            yield from named

        yield from self._answer(pa.RecordBatchReader.from_batches(first.schema, stream()))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the result for a schema of rows."""
        nothing = pa.table(dict(zip(self.names, schema.empty_table().columns, strict=True)))
        return next(self._answer(nothing.to_reader())).schema

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        table = readable_table(pa.Table.from_batches([batch]).rename_columns(list(self.names)))
        return table.combine_chunks().to_batches()[0] if len(table) else _empty(table.schema)

    def _answer(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        # Per-user rows come from one query, which reads the records once.
        stored = not self.question.single_pass and per_user_source(self.rows) is None
        stored |= isinstance(self.rows.source, UserJoin)
        with DuckDB(replace_base(self.rows, PartitionStream(stream, stored))) as engine:
            yield from self.question.answer(engine)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)


@dataclass(frozen=True)
class VersionedTask:
    """Task that fails unless it runs in the same version of this package."""

    task: SparkTask
    version: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the task."""
        if self.version != __version__:
            raise RuntimeError(f"{OTHER_VERSION}: {__version__}")
        yield from self.task(batches)


@dataclass(frozen=True)
class DistinctQuery:
    """Distinct groups of users' rows: columns k0, k1 and so on."""

    keys: tuple[str, ...]
    value: str | None = None
    single_pass: bool = True

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Yield the groups of the partition."""
        groups = engine.distinct(self.keys, self.value)
        yield _batch({f"k{place}": column for place, column in enumerate(groups.columns)})


@dataclass(frozen=True)
class ExtentQuery:
    """Minimum and maximum of an integer column, and the number of rows."""

    key: str
    single_pass: bool = True

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Yield one row of numbers."""
        name = key_sql(self.key, engine.table.key_type(self.key))
        listed = f"min({name}) AS low, max({name}) AS high, count(*) AS rows"
        (batch,) = engine.query(f"SELECT {listed} FROM source", [self.key]).to_batches()
        yield batch


@dataclass(frozen=True)
class ColumnQuery:
    """Columns of all rows: c0, c1 and so on."""

    wanted: tuple[tuple[str, Form], ...]
    single_pass: bool = True

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Yield the columns in batches."""
        result = engine.columns(self.wanted)
        yield from result.to_batches() or [_empty(result.schema)]


@dataclass(frozen=True, eq=False)
class RecordEncoding:
    """Codes of groups and cells, and the value that a record adds."""

    dictionary: Dictionary
    value: str | None
    split: Split | None  # computes the values that each record adds
    cell_column: str | None = None  # separate column of cells, if there is one
    cells: pa.Table | None = None


@dataclass(frozen=True)
class UserKeyQuery:
    """Sorted keys of whole users, as bytes."""

    coded: RecordEncoding
    single_pass: bool = False

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Yield batches of keys."""
        coded = self.coded
        engine.set_codes(coded.dictionary, coded.cells)
        feed = engine.users(
            coded.dictionary, value=coded.value, split=coded.split, cell_column=coded.cell_column
        )
        yield _empty(KEYS)
        for keys, totals in feed.chunks(_ROW_KEYS):
            if keys.size > 2 * _ROW_KEYS:
                # A single user, with at most one pair per coordinate.
                keys, totals = pair_totals(keys, totals)
            if keys.size:
                total_bytes = None if totals is None else totals.astype(np.float64).tobytes()
                yield pa.RecordBatch.from_pydict(
                    {"keys": [keys.astype(np.int64).tobytes()], "totals": [total_bytes]},
                    schema=KEYS,
                )


@dataclass(frozen=True)
class RecordSumQuery:
    """Sums of single records by a kernel."""

    coded: RecordEncoding
    add: Add
    shape: tuple[int, ...]
    single_pass: bool = True

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Yield the sums of the partition in slices."""
        coded = self.coded
        engine.set_codes(coded.dictionary)
        records = engine.records(coded.dictionary, value=coded.value, split=coded.split)
        yield slices(records.accumulate(self.add, self.shape).reshape(-1), _partition_id())


@dataclass(frozen=True)
class AddUsersTask:
    """Task that runs a kernel on whole users' keys."""

    add: Add
    shape: tuple[int, ...]
    narrow: CoordinateFilter | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the sums of the partition in slices."""
        out = np.zeros(self.shape, dtype=np.int64)
        for batch in batches:
            for keys, totals in zip(batch.column(0), batch.column(1), strict=True):
                chunk: Chunk = (_numbers(keys), _totals(totals))
                self.add(*(chunk if self.narrow is None else self.narrow(chunk)), out)
        yield slices(out.reshape(-1), _partition_id())


@dataclass(frozen=True)
class MapTask:
    """Task that derives rows from the batches of its partition by a function."""

    make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the derived rows."""
        yield from self.make(batches)


@dataclass(frozen=True)
class SumTask:
    """Task that adds up the integers that a function computes from its partition."""

    of: Callable[[Iterable[pa.RecordBatch]], IntArray]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the sums of the partition in slices."""
        yield slices(self.of(batches).reshape(-1), _partition_id())


def _numbers(scalar: Any) -> IntArray:
    return np.frombuffer(scalar.as_buffer(), np.int64)


def _totals(scalar: Any) -> FloatArray | None:
    return np.frombuffer(scalar.as_buffer(), np.float64) if scalar.is_valid else None


def _partition_id() -> int:
    context = pyspark.TaskContext.get()
    return 0 if context is None else context.partitionId()


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def slices(sums: IntArray, part: int) -> pa.RecordBatch:
    """Split the sums of a partition into slices, each with the fingerprint of all sums."""
    mark = hashlib.sha256(sums.tobytes()).digest()
    pieces = [sums[i : i + _SLICE] for i in range(0, max(sums.size, 1), _SLICE)]
    result = [piece.tobytes() if piece.any() else b"" for piece in pieces]
    count = len(pieces)
    columns = [number_array(np.arange(count)), number_array(np.full(count, part))]
    bytes_ = [pa.array([mark] * count, pa.binary()), pa.array(result, pa.binary())]
    places = [column.cast(pa.int32()) for column in columns]
    return pa.RecordBatch.from_arrays([*places, *bytes_], schema=SUMS)


class SliceSums:
    """Sums of slices, modulo 2^64, with the fingerprints of their partitions."""

    def __init__(self) -> None:
        self._sums: dict[int, IntArray] = {}
        self._marks: dict[int, dict[int, bytes]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add slices."""
        columns = (column.to_pylist() for column in batch.columns)
        for place, part, mark, sums in zip(*columns, strict=True):
            marks = self._marks.setdefault(place, {})
            if part in marks:
                raise DataError("A slice came twice.")
            marks[part] = mark
            if sums:
                result = np.frombuffer(sums, np.int64)
                known = self._sums.get(place)
                self._sums[place] = result.copy() if known is None else known + result

    def merged(self) -> Iterator[pa.RecordBatch]:
        """Yield each slice as one partition, whose fingerprint combines all fingerprints."""
        for place in sorted(self._marks):
            sums = self._sums.get(place)
            row = [place, 0, self._mark(place), b"" if sums is None else sums.tobytes()]
            yield pa.RecordBatch.from_pylist([dict(zip(SUMS.names, row, strict=True))], SUMS)

    def _mark(self, place: int) -> bytes:
        marks = self._marks[place]
        joined = b"".join(part.to_bytes(8, "big") + marks[part] for part in sorted(marks))
        return hashlib.sha256(joined).digest()

    def total(self, size: int) -> IntArray:
        """Return all sums, (size,)."""
        out = np.zeros(size, dtype=np.int64)
        if not self._marks:
            # All partitions are empty.
            return out
        if set(self._marks) != set(range(slice_count(size))):
            raise DataError("Slices are missing.")
        if len({self._mark(place) for place in self._marks}) > 1:
            raise DataError("Slices come from different runs.")
        for place, sums in self._sums.items():
            out[place * _SLICE : place * _SLICE + sums.size] = sums
        return out


def slice_count(size: int) -> int:
    """Return the number of slices for a number of sums."""
    return max(math.ceil(size / _SLICE), 1)


@dataclass(frozen=True)
class AddSlicesTask:
    """Task that adds up slices of several partitions."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per slice."""
        result = SliceSums()
        for batch in batches:
            result.add(batch)
        yield from result.merged()

"""Tasks of Spark on the rows of their partition: DuckDB reads them, the kernel adds up.

A task is given public facts, the codes of groups and a kernel; no noise, no budget and no ledger. Its
answers are Arrow batches, of one of four kinds: groups, columns, whole users' keys (which stay with the
executors) and sums. Sums come in slices, so that other tasks can add up those of one slice. A task
marks each of its slices with a fingerprint of all its sums. If Spark has run a task twice and the runs
differ, as they may where the source gives other rows when it is read again, then slices of both runs
have different marks and nothing is released; a person's contribution comes from one run alone.
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
from dpgrain.tables.dictionary import Dictionary
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.feed import Chunk, Narrow
from dpgrain.tables.engines.joins import UserJoin
from dpgrain.tables.engines.kernel import pair_totals
from dpgrain.tables.engines.people import PerUser, made_of_people
from dpgrain.tables.engines.protocol import Add, Form
from dpgrain.tables.engines.sql import key as key_of
from dpgrain.tables.engines.sql import quoted
from dpgrain.tables.rows import TableRows
from dpgrain.tables.sources.frames import readable_table
from dpgrain.tables.sources.source import RowSource, SourceWrapper
from dpgrain.tables.split import Split

if TYPE_CHECKING:
    import pyspark
else:
    pyspark = lazy_import("pyspark")

#: Words with which a task fails if it finds another version of this package where it runs.
OTHER_VERSION = "dpgrain-other-version"
# Keys, about, in a row of keys of whole users.
_ROW_KEYS = 1 << 16
# Sums in a slice.
_SLICE = 1 << 13

KEYS = pa.schema({"keys": pa.binary(), "totals": pa.binary()})
SUMS = pa.schema(
    {"slice": pa.int32(), "part": pa.int32(), "mark": pa.binary(), "sums": pa.binary()}
)


class Task(Protocol):
    """A function of the rows of a partition."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Answer with batches of one schema."""


class Question(Protocol):
    """A question about the rows of a partition."""

    @property
    def once(self) -> bool:
        """True if the rows are gone through once, so that they need not be kept."""

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Answer from an engine of the rows; in one batch at least."""


@dataclass(eq=False)
class Given:
    """Rows that come in a stream, as DuckDB reads them.

    Args:
        batches: the stream; None where no rows are there yet.
        kept: keep the rows, which otherwise can be read once.
    """

    batches: pa.RecordBatchReader | None = None
    kept: bool = True
    name: str = "The partition"
    title: str = "rows of Spark"
    _attached: bool = False

    def columns(self) -> dict[str, str]:
        """Return the columns, whose types nobody asks for here."""
        return {} if self.batches is None else dict.fromkeys(self.batches.schema.names, "")

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,
        used: Collection[str] | None = None,  # noqa: ARG002 - no others come
    ) -> str:
        """Register the stream, or keep its rows the first time, and return the name."""
        if not self._attached:
            self._attached = True
            connection.register("stream", self.batches)
            if self.kept:
                connection.execute("CREATE TEMP TABLE given AS SELECT * FROM stream")
                connection.unregister("stream")
        return "given" if self.kept else "stream"


def over(rows: TableRows, source: RowSource) -> TableRows:
    """Return the same rows, made of those of another source at the bottom."""
    return replace(rows, source=_over(rows.source, source))


def _over(known: Any, source: RowSource) -> RowSource:
    if isinstance(known, PerUser):
        return replace(known, rows=over(known.rows, source))
    if isinstance(known, UserJoin):
        return replace(known, rows=over(known.rows, source), others=over(known.others, source))
    if isinstance(known, SourceWrapper):
        return _made_of(known, _over(known.source, source))
    return source


def _made_of(known: Any, source: RowSource) -> RowSource:
    """Return the same change of rows, made to those of another source."""
    made: RowSource = replace(known, source=source)
    return made


@dataclass(frozen=True, eq=False)
class Side(SourceWrapper):
    """The rows of one of two tables that come together, marked with the table's number.

    Args:
        source: the rows of both.
        side: the number.
        names: column → its name in both.
    """

    source: RowSource
    side: int
    names: Mapping[str, str]

    def attach(
        self,
        connection: duckdb.DuckDBPyConnection,
        used: Collection[str] | None = None,
    ) -> str:
        """Return the columns of this table's rows."""
        rows = self.source.attach(connection, None)
        listed = ", ".join(
            f"{there} AS {quoted(name)}"
            for name, there in self.names.items()
            if used is None or name in used
        )
        return f"(SELECT {listed} FROM {rows} WHERE side = {self.side})"


@dataclass(frozen=True)
class Marked:
    """A task that brings rows into the columns of two tables that come together.

    Args:
        side: the number of their table.
        columns: the columns of both, one for each that comes; others are null.
        schema: the schema of both.
        version: the version of this package that asks.
    """

    side: int
    columns: tuple[str, ...]
    schema: pa.Schema
    version: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the same rows in the columns of both tables."""
        require_same(self.version)
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
class AskRows:
    """A task for a question to DuckDB about the rows of its partition.

    Args:
        rows: the public part of the rows.
        names: the columns of the rows that come.
        question: the question.
        version: the version of this package that asks.
    """

    rows: TableRows
    names: tuple[str, ...]
    question: Question
    version: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Answer; an empty partition has nothing to say."""
        require_same(self.version)
        named = (self._named(batch) for batch in batches)
        first = next(named, None)
        if first is None:
            return

        def stream() -> Iterator[pa.RecordBatch]:
            yield first
            yield from named

        yield from self._answer(pa.RecordBatchReader.from_batches(first.schema, stream()))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the answer, where rows of a schema come."""
        nothing = pa.table(dict(zip(self.names, schema.empty_table().columns, strict=True)))
        return next(self._answer(nothing.to_reader())).schema

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        table = readable_table(pa.Table.from_batches([batch]).rename_columns(list(self.names)))
        return table.combine_chunks().to_batches()[0] if len(table) else _empty(table.schema)

    def _answer(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        # A person's rows are made by one query, which goes through the records once.
        kept = not self.question.once and made_of_people(self.rows) is None
        kept |= isinstance(self.rows.source, UserJoin)
        with DuckDB(over(self.rows, Given(stream, kept))) as engine:
            yield from self.question.answer(engine)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)


def require_same(version: str) -> None:
    """Raise unless this package has the version of the one that asks."""
    if version != __version__:
        raise RuntimeError(f"{OTHER_VERSION}: {__version__}")


@dataclass(frozen=True)
class Distinct:
    """The different groups of users' rows: columns k0, k1 and so on."""

    keys: tuple[str, ...]
    value: str | None = None
    once: bool = True

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Return the groups of the partition."""
        groups = engine.distinct(self.keys, self.value)
        yield _batch({f"k{place}": column for place, column in enumerate(groups.columns)})


@dataclass(frozen=True)
class Extent:
    """The ends of a column of whole numbers, and the number of rows; no ends where there is none."""

    key: str
    once: bool = True

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Return a row of numbers."""
        name = key_of(self.key, engine.table.key_type(self.key))
        asked = f"min({name}) AS low, max({name}) AS high, count(*) AS rows"
        (batch,) = engine.ask(f"SELECT {asked} FROM source", [self.key]).to_batches()
        yield batch


@dataclass(frozen=True)
class Columns:
    """Columns of all rows: c0, c1 and so on."""

    wanted: tuple[tuple[str, Form], ...]
    once: bool = True

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Return the columns in batches."""
        result = engine.columns(self.wanted)
        yield from result.to_batches() or [_empty(result.schema)]


@dataclass(frozen=True, eq=False)
class Coded:
    """The codes of groups and cells, and what a record adds.

    Args:
        dictionary: the codes of groups.
        value: the column of numbers that is split.
        split: the function from numbers to what each record adds.
        cell_column: the column that gives the cell, if one does.
        cells: the codes of its cells.
    """

    dictionary: Dictionary
    value: str | None
    split: Split | None
    cell_column: str | None = None
    cells: pa.Table | None = None


@dataclass(frozen=True)
class UserKeys:
    """Sorted keys of whole users, in rows of bytes."""

    coded: Coded
    once: bool = False

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Return a batch of keys at a time."""
        coded = self.coded
        engine.take_codes(coded.dictionary, coded.cells)
        feed = engine.users(
            coded.dictionary,
            value=coded.value,
            split=coded.split,
            cell_column=coded.cell_column,
        )
        yield _empty(KEYS)
        for keys, totals in feed.chunks(_ROW_KEYS):
            if keys.size > 2 * _ROW_KEYS:
                # It is one user, whose pairs are no more than there are coordinates.
                keys, totals = pair_totals(keys, totals)
            if keys.size:
                held = None if totals is None else totals.astype(np.float64).tobytes()
                yield pa.RecordBatch.from_pydict(
                    {"keys": [keys.astype(np.int64).tobytes()], "totals": [held]}, schema=KEYS
                )


@dataclass(frozen=True)
class RecordSums:
    """Sums of single records by a kernel."""

    coded: Coded
    add: Add
    shape: tuple[int, ...]
    once: bool = True

    def answer(self, engine: DuckDB) -> Iterator[pa.RecordBatch]:
        """Return the sums of the partition in slices."""
        coded = self.coded
        engine.take_codes(coded.dictionary)
        records = engine.records(coded.dictionary, value=coded.value, split=coded.split)
        yield slices(records.accumulate(self.add, self.shape).reshape(-1), _part())


@dataclass(frozen=True)
class AddUsers:
    """A task for a kernel over whole users' keys.

    Args:
        add: the kernel.
        shape: the shape of the sums.
        narrow: a change to keys of some of the coordinates.
        version: the version of this package that asks.
    """

    add: Add
    shape: tuple[int, ...]
    narrow: Narrow | None = None
    version: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the sums of the partition in slices."""
        require_same(self.version)
        out = np.zeros(self.shape, dtype=np.int64)
        for batch in batches:
            for keys, totals in zip(batch.column(0), batch.column(1), strict=True):
                chunk: Chunk = (_numbers(keys), _totals(totals))
                self.add(*(chunk if self.narrow is None else self.narrow(chunk)), out)
        yield slices(out.reshape(-1), _part())


@dataclass(frozen=True)
class Make:
    """A task that makes other rows of those of its partition.

    Args:
        make: the function of the batches of a partition.
        version: the version of this package that asks.
    """

    make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    version: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return what the function makes."""
        require_same(self.version)
        yield from self.make(batches)


@dataclass(frozen=True)
class Sum:
    """A task for the sum of its partition's rows.

    Args:
        of: the function from the batches of a partition to whole numbers.
        version: the version of this package that asks.
    """

    of: Callable[[Iterable[pa.RecordBatch]], IntArray]
    version: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the sums of the partition in slices."""
        require_same(self.version)
        yield slices(self.of(batches).reshape(-1), _part())


def _numbers(scalar: Any) -> IntArray:
    return np.frombuffer(scalar.as_buffer(), np.int64)


def _totals(scalar: Any) -> FloatArray | None:
    return np.frombuffer(scalar.as_buffer(), np.float64) if scalar.is_valid else None


def _part() -> int:
    context = pyspark.TaskContext.get()
    return 0 if context is None else context.partitionId()


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def slices(sums: IntArray, part: int) -> pa.RecordBatch:
    """Return the sums of a partition in slices, each with the fingerprint of all of them."""
    mark = hashlib.sha256(sums.tobytes()).digest()
    pieces = [sums[i : i + _SLICE] for i in range(0, max(sums.size, 1), _SLICE)]
    result = [piece.tobytes() if piece.any() else b"" for piece in pieces]
    count = len(pieces)
    columns = [number_array(np.arange(count)), number_array(np.full(count, part))]
    bytes_ = [pa.array([mark] * count, pa.binary()), pa.array(result, pa.binary())]
    places = [column.cast(pa.int32()) for column in columns]
    return pa.RecordBatch.from_arrays([*places, *bytes_], schema=SUMS)


class Slices:
    """Slices of sums, added up modulo 2^64, with the marks of the partitions that they come from."""

    def __init__(self) -> None:
        self._sums: dict[int, IntArray] = {}
        self._marks: dict[int, dict[int, bytes]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add slices.

        Raises:
            DataError: if a partition has sent a slice twice.
        """
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

    def together(self) -> Iterator[pa.RecordBatch]:
        """Yield each slice, as of one partition whose mark is a fingerprint of all marks."""
        for place in sorted(self._marks):
            sums = self._sums.get(place)
            row = [place, 0, self._mark(place), b"" if sums is None else sums.tobytes()]
            yield pa.RecordBatch.from_pylist([dict(zip(SUMS.names, row, strict=True))], SUMS)

    def _mark(self, place: int) -> bytes:
        marks = self._marks[place]
        joined = b"".join(part.to_bytes(8, "big") + marks[part] for part in sorted(marks))
        return hashlib.sha256(joined).digest()

    def total(self, size: int) -> IntArray:
        """Return all sums, (size,).

        Raises:
            DataError: if slices are missing, or come from different runs of one task.
        """
        out = np.zeros(size, dtype=np.int64)
        if not self._marks:
            # No partition has any rows.
            return out
        if set(self._marks) != set(range(count_of_slices(size))):
            raise DataError("Slices are missing.")
        if len({self._mark(place) for place in self._marks}) > 1:
            raise DataError("Slices come from different runs.")
        for place, sums in self._sums.items():
            out[place * _SLICE : place * _SLICE + sums.size] = sums
        return out


def count_of_slices(size: int) -> int:
    """Return the number of slices for a number of sums."""
    return max(math.ceil(size / _SLICE), 1)


@dataclass(frozen=True)
class AddSlices:
    """A task for sums of slices of several partitions."""

    version: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return one row for each slice."""
        require_same(self.version)
        result = Slices()
        for batch in batches:
            result.add(batch)
        yield from result.together()

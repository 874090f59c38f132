"""Spark, for tables beyond one machine: it brings users together, and tasks add up in place.

Rows are read by DuckDB in each task, by the same rules and the same kernel as on one machine, so that
integers are the same bit for bit. What comes to this process is groups, partial sums of whole numbers
and, for fits, columns. Docs/theory, "Sums made in many places", says why tasks that are run again,
or twice, never change what a person adds by more than the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpgrain._lazy_import import lazy_import
from dpgrain._progress import step
from dpgrain._types import IntArray
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.tables.arrow_arrays import number_array, one_array
from dpgrain.tables.dictionary import Dictionary, GroupCells, column_order
from dpgrain.tables.elements import Elements, label_table
from dpgrain.tables.engines.derived import DerivedSource, FilteredSource
from dpgrain.tables.engines.feed import Narrow
from dpgrain.tables.engines.joins import PublicJoin, UserJoin
from dpgrain.tables.engines.people import PerUser, made_of_people
from dpgrain.tables.engines.protocol import Add, Form
from dpgrain.tables.engines.spark_session import Session, is_frame, planning
from dpgrain.tables.engines.spark_source import SparkSource
from dpgrain.tables.engines.spark_tasks import (
    KEYS,
    SUMS,
    AddSlices,
    AddUsers,
    AskRows,
    Coded,
    Columns,
    Distinct,
    Extent,
    Given,
    Make,
    Marked,
    Question,
    RecordSums,
    Side,
    Slices,
    Sum,
    Task,
    UserKeys,
    count_of_slices,
)
from dpgrain.tables.groups import Groups
from dpgrain.tables.rows import CellColumn, TableRows
from dpgrain.tables.sources.column_types import is_readable, read_as
from dpgrain.tables.sources.day_columns import DayColumnSource
from dpgrain.tables.sources.folders import CSV_ENDINGS
from dpgrain.tables.sources.frames import ArrowSource
from dpgrain.tables.sources.read_arguments import resolve_source
from dpgrain.tables.sources.region_source import RegionSource, all_rows
from dpgrain.tables.sources.schemas import duckdb_type
from dpgrain.tables.sources.source import RowSource, SourceWrapper
from dpgrain.tables.sources.typed_columns import TypedSource
from dpgrain.tables.split import Split

if TYPE_CHECKING:
    from pyspark import sql
else:
    sql = lazy_import("pyspark.sql")

# Names of columns of two tables that come together: of the key of people, and marks of each table's.
_KEY, _SIDES = "k", ("l", "r")
# Name of the column of people in tasks, which no other column has.
_OWNER = "\x1fowner"
# Slices up to which they are added up here; of more, tasks add up each by itself.
_FEW_SLICES = 4


class Spark:
    """Rows in a session of Spark, for one release; what it keeps there is dropped at the end."""

    def __init__(self, table: TableRows, session: Session) -> None:
        self.table = table
        self._session = session
        self._name = table.source.name
        self._lookups: dict[tuple[int, int], pa.Table] = {}
        self._cells: dict[str, pa.Table] = {}
        self._kept: list[sql.DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._kept:
            # Where Spark has ended, nothing is kept any more; an error must not hide the first one.
            with suppress(DataError):
                self._session.run(frame.unpersist, self._name)
        self._kept.clear()

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """Return the different groups of users' rows."""
        return self._distinct(self.table, keys, value)

    def _distinct(self, rows: TableRows, keys: Sequence[str], value: str | None = None) -> Groups:
        step("finding groups")
        used = [*keys, *([] if value is None else [value])]
        with planning():
            asked = self._asked(rows, used, Distinct(tuple(keys), value)).distinct()
        result = self._session.collect(asked, self._name)
        return Groups.of(keys, [one_array(column) for column in result.columns])

    def extent(self, key: str) -> tuple[int, int, int] | None:
        """Return the extremes of a column of whole numbers, and the number of rows."""
        result = self._session.collect(self._asked(self.table, [key], Extent(key)), self._name)
        low, high = pc.min(result["low"]).as_py(), pc.max(result["high"]).as_py()
        return None if low is None else (low, high, pc.sum(result["rows"]).as_py())

    def dictionary(
        self, groups: Groups, cells: GroupCells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Give groups and cells their codes."""
        count = None
        if cell_column is not None:
            (held,) = self.distinct([cell_column]).columns
            ordered = pa.array(column_order(held.to_pylist()), held.type)
            codes = number_array(np.arange(1, len(ordered) + 1))
            self._cells[cell_column] = pa.table({"cell": ordered, "code": codes})
            count = len(ordered) + 1
        return Dictionary.of(groups, cells, column_cells=count, corners=corners)

    def users(
        self,
        dictionary: Dictionary,
        *,
        value: str | None = None,
        split: Split | None = None,
        cell_column: str | None = None,
    ) -> SparkUsers:
        """Return whole users' records in the groups last given to :meth:`dictionary`."""
        if self.table.user is None:
            raise ParameterError("user must be passed to dg.read for this privacy unit.")
        cells = None if cell_column is None else self._cells[cell_column]
        coded = Coded(_codes(dictionary), value, split, cell_column, cells)
        used = [*dictionary.groups.names, *(name for name in (value, cell_column) if name)]
        asked = self._asked(self.table, used, UserKeys(coded), whole=True, schema=KEYS)
        return SparkUsers(self, self._session.keep(asked), dictionary.layout.user_shift)

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> SparkRecords:
        """Return single records as codes of coordinates."""
        return SparkRecords(self, Coded(_codes(dictionary), value, split))

    def columns(self, wanted: Sequence[tuple[str, Form]]) -> pa.Table:
        """Return columns of all rows, in the order in which Spark lists them."""
        used = [name for name, _ in wanted]
        asked = self._asked(self.table, used, Columns(tuple(wanted)))
        return self._session.collect(asked, self._name)

    def kept(
        self,
        wanted: Sequence[tuple[str, Form]],
        make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
    ) -> SparkKept:
        """Keep what a function makes of columns; it is computed when it is first added up."""
        used = [name for name, _ in wanted]
        whole = self.table.user is not None
        asked = self._asked(self.table, used, Columns(tuple(wanted)), whole=whole)
        made = self._session.map(asked, Make(make), schema)
        return SparkKept(self, self.keep(self._session.keep(made)))

    def added(self, frame: sql.DataFrame, shape: Sequence[int]) -> IntArray:
        """Return the sums from their slices, (shape).

        Raises:
            DataError: if Spark fails, or has run tasks again on other rows.
        """
        size = int(np.prod(shape))
        if count_of_slices(size) > _FEW_SLICES:
            with planning():
                frame = self._session.map(frame.repartition("slice"), AddSlices(), SUMS)
        result = Slices()
        for batch in self._session.collect(frame, self._name).to_batches():
            result.add(batch)
        try:
            return result.total(size).reshape(tuple(shape))
        except DataError as error:
            raise DataError(
                f"{self._name} returned different rows when Spark read them again after a "
                "failure; write them to Parquet first, and read that."
            ) from error

    def keep(self, frame: sql.DataFrame) -> sql.DataFrame:
        """Keep a frame on the executors until the release is made."""
        self._kept.append(frame)
        return frame

    def map(self, frame: sql.DataFrame, task: Task) -> sql.DataFrame:
        """Return the sums that a task makes of each partition of what is kept."""
        return self._session.map(frame, task, SUMS)

    def asked_of_records(self, question: RecordSums) -> sql.DataFrame:
        """Return what tasks answer about single records."""
        coded = question.coded
        used = [*coded.dictionary.groups.names, *([coded.value] if coded.value else [])]
        return self._asked(self.table, used, question, schema=SUMS)

    def _asked(
        self,
        rows: TableRows,
        used: Iterable[str],
        question: Question,
        *,
        whole: bool = False,
        schema: pa.Schema | None = None,
    ) -> sql.DataFrame:
        """Return the frame of all answers to a question.

        Args:
            rows: the rows that are asked about.
            used: the columns that the question is about, beside the user's.
            question: the question.
            whole: bring all rows of a user together first.
            schema: the schema of an answer, where it is known.
        """
        return self._answers(rows, used, question, whole=whole, schema=schema)[0]

    def _answers(
        self,
        rows: TableRows,
        used: Iterable[str],
        question: Question,
        *,
        whole: bool = False,
        schema: pa.Schema | None = None,
    ) -> tuple[sql.DataFrame, pa.Schema]:
        """Return the frame of all answers to a question, and its schema."""
        known, bottom = self._known(rows, used), _bottom(rows)
        names = _read_of(known, used) or [_any_column(bottom)]
        frame, kinds = self._frame(bottom, names)
        if (whole or made_of_people(rows) is not None) and bottom.user is not None:
            frame = self._session.by_user(frame, f"c{names.index(bottom.user)}")
        task = AskRows(known, tuple(names), question)
        schema = task.schema(kinds) if schema is None else schema
        return self._session.map(frame, task, schema), schema

    def _frame(self, rows: TableRows, names: list[str]) -> tuple[sql.DataFrame, pa.Schema]:
        """Return columns of the rows inside the region, as they are made, and their schema."""
        if not isinstance(rows.source, SourceWrapper):
            return self._columns(rows.source, names)
        source, needed = _narrowed(rows.source, set(names))
        read = [name for name in rows.schema if name in needed]
        frame, kinds = self._columns(_inner(rows.source), read)
        question = Columns(tuple((name, "as it is") for name in names))
        task = AskRows(replace(_bare(rows), source=source), tuple(read), question)
        schema = task.schema(kinds)
        self._require(rows.schema, names, schema)
        return self._session.map(frame, task, schema), schema

    def _columns(self, source: RowSource, names: list[str]) -> tuple[sql.DataFrame, pa.Schema]:
        """Return columns of a source as they are, called c0, c1 and so on, and their schema."""
        if isinstance(source, SparkSource):
            return self._session.select(source.rows, names), source.schema(names)
        if isinstance(source, UserJoin):
            return self._joined(source, names)
        if isinstance(source, PerUser):
            question = Columns(tuple((name, "as it is") for name in names))
            people = TableRows(
                source, source.rows.user, None, source.columns(), source.rows.memory, threads=1
            )
            return self._answers(people, names, question)
        if not isinstance(source, ArrowSource):
            raise ParameterError(
                f"{source.name} cannot be read by Spark; pass a Spark DataFrame, a path of "
                "Parquet files or a table in memory."
            )
        table = _flat(source.read(names), [f"c{i}" for i in range(len(names))])
        self._require(source.columns(), names, table.schema)
        return self._session.frame(table), table.schema

    def _joined(self, join: UserJoin, names: list[str]) -> tuple[sql.DataFrame, pa.Schema]:
        """Return columns of rows beside those of the same person, called c0, c1 and so on.

        Rows of both tables come to the task that has their person.
        """
        own = [name for name in names if name not in join.taken]
        sides = [
            self._side(rows, columns)
            for rows, columns in ((join.rows, own), (join.others, list(join.taken)))
        ]
        fields = [pa.field("side", pa.int8()), pa.field(_KEY, sides[0][1].field(0).type)]
        fields += [
            pa.field(f"{mark}{place}", kinds.field(1 + place).type)
            for mark, (_, kinds) in zip(_SIDES, sides, strict=True)
            for place in range(len(kinds) - 1)
        ]
        both = pa.schema(fields)
        marked, known = [], []
        for side, (mark, (frame, kinds), rows, columns) in enumerate(
            zip(_SIDES, sides, (join.rows, join.others), (own, join.taken), strict=True)
        ):
            there = [f"{mark}{place}" for place in range(len(kinds) - 1)]
            marked.append(self._session.map(frame, Marked(side, (_KEY, *there), both), both))
            read = Side(Given(), side, dict(zip((_OWNER, *columns), (_KEY, *there), strict=True)))
            kind = "BIGINT" if pa.types.is_integer(kinds.field(0).type) else "VARCHAR"
            schema = {_OWNER: kind, **{name: rows.schema[name] for name in columns}}
            labels = rows.labels | {_OWNER}
            known.append(
                replace(_bare(rows), source=read, user=_OWNER, schema=schema, labels=labels)
            )
        together = self._session.by_user(self._session.together(*marked), _KEY)
        made = replace(join, rows=known[0], others=known[1])
        asked = replace(known[0], source=made, schema={**known[0].schema, **made.columns()})
        question = Columns(tuple((name, "as it is") for name in names))
        task = AskRows(asked, tuple(both.names), question)
        schema = task.schema(both)
        return self._session.map(together, task, schema), schema

    def _side(self, rows: TableRows, columns: list[str]) -> tuple[sql.DataFrame, pa.Schema]:
        """Return whose each row is, and columns as they are."""
        assert rows.user is not None  # noqa: S101 - tables of people are joined
        wanted: list[tuple[str, Form]] = [
            (rows.user, "key"),
            *((name, "as it is") for name in columns),
        ]
        return self._answers(rows, [rows.user, *columns], Columns(tuple(wanted)))

    def _require(self, kinds: Mapping[str, str], names: list[str], schema: pa.Schema) -> None:
        """Raise unless columns reach the tasks with the types that they have here.

        Raises:
            SchemaError: if Spark lacks one of the types.
        """
        there = self._session.types_there(schema)
        for name, column, kind in zip(names, schema, there, strict=True):
            if kind is None or read_as(duckdb_type(kind)) != kinds[name]:
                raise SchemaError(
                    f"The column {name!r} has type {column.type}, which Spark lacks; cast it, or use "
                    "engine='duckdb'."
                )

    def _known(self, rows: TableRows, used: Iterable[str]) -> TableRows:
        """Return the public part of rows as tasks need it: without functions, with cells looked up."""
        known, made = _bare(rows), made_of_people(rows)
        if made is not None:
            known = replace(known, source=replace(made, rows=self._known(made.rows, made.used)))
        needed, cells = rows.needed(used), {}
        for name, column in rows.cells.items():
            if name in needed:
                kept = Elements(column.elements.name, mapping={}, missing=column.elements.missing)
                cells[name] = CellColumn(column.of, kept, self._lookup(rows, column))
        return replace(known, cells=cells)

    def _lookup(self, rows: TableRows, column: CellColumn) -> pa.Table:
        """Return the label of each value of a column; the partition is asked here, and only once."""
        # Tables on both sides of a join, or on top of one another, may use one name for two columns.
        place = id(rows.source), id(column)
        if place not in self._lookups:
            (values,) = self._distinct(rows, [column.of]).columns
            self._lookups[place] = label_table(column.elements, values)
        return self._lookups[place]


@dataclass(frozen=True, eq=False)
class SparkUsers:
    """Whole users' records, kept as keys on the executors, each user's in one partition.

    Args:
        engine: the engine.
        keys: the frame of keys.
        shift: bits of a key below the user code.
        narrow: a change to keys of some of the coordinates.
    """

    engine: Spark
    keys: sql.DataFrame
    shift: int
    narrow: Narrow | None = None

    def __post_init__(self) -> None:
        if self.narrow is None:
            self.engine.keep(self.keys)

    def accumulate(self, add: Add, shape: Sequence[int]) -> IntArray:
        """Run a kernel over all users where they are, and return the integer sums."""
        if not np.prod(shape):
            return np.zeros(shape, dtype=np.int64)
        step("processing users")
        task = AddUsers(add, tuple(shape), self.narrow)
        return self.engine.added(self.engine.map(self.keys, task), shape)

    def narrowed(self, codes: IntArray, shift: int) -> SparkUsers | None:
        """Return the same users' keys for some of the coordinates only."""
        if self.narrow is not None:
            return None
        return replace(self, narrow=Narrow(codes.astype(np.int32), self.shift, shift))


@dataclass(frozen=True, eq=False)
class SparkRecords:
    """Single records, wherever they are."""

    engine: Spark
    coded: Coded

    def accumulate(self, add: Add, shape: Sequence[int]) -> IntArray:
        """Run a kernel over all records where they are, and return the integer sums."""
        if not np.prod(shape):
            return np.zeros(shape, dtype=np.int64)
        step("reading rows")
        question = RecordSums(self.coded, add, tuple(shape))
        return self.engine.added(self.engine.asked_of_records(question), shape)


@dataclass(frozen=True, eq=False)
class SparkKept:
    """Rows made of others, kept on the executors."""

    engine: Spark
    frame: sql.DataFrame

    def sums(
        self, of: Callable[[Iterable[pa.RecordBatch]], IntArray], shape: Sequence[int]
    ) -> IntArray:
        """Return the integer sums of what a function makes of each partition."""
        return self.engine.added(self.engine.map(self.frame, Sum(of)), shape)


@dataclass(frozen=True)
class OnSpark:
    """The place where Spark runs: a session, or the address of one.

    Args:
        place: the session, or the address.
    """

    place: Any = field(default="spark")
    distributed: ClassVar[bool] = True

    def session(self, source: RowSource | None = None) -> Session:
        """Return the session, which is that of a frame where one is read.

        Raises:
            ParameterError: if the frame is of another session.
        """
        if not isinstance(source, SparkSource):
            return Session.at(self.place) if isinstance(self.place, str) else Session(self.place)
        own = source.frame.sparkSession
        if not isinstance(self.place, str) and self.place is not own:
            raise ParameterError(
                "engine must be the session of the DataFrame, not another one; pass that "
                "session, or 'spark'.",
                name="engine",
            )
        return Session(own)

    def resolve_source(self, data: Any) -> RowSource:
        """Return the source of rows: paths are read by Spark, from wherever it can.

        Raises:
            ParameterError: if Spark cannot read it.
            DataError: if there is no such file.
        """
        paths = [data] if not isinstance(data, list | tuple) else list(data)
        if not all(hasattr(path, "__fspath__") or isinstance(path, str) for path in paths):
            if is_frame(data):
                return SparkSource.of(data)
            source = resolve_source(data)
            if not isinstance(source, ArrowSource):
                raise ParameterError(
                    "source must be a Spark DataFrame, a path of Parquet files or a table in "
                    f"memory for engine='spark', not {type(data).__name__}; or use "
                    "engine='duckdb'.",
                    name="source",
                )
            return source
        return _parquet(self.session(), [str(path) for path in paths])

    def __call__(self, rows: TableRows) -> Spark:
        """Open the rows of one release."""
        return Spark(rows, self.session(all_rows(_bottom(rows).source)))


def _parquet(session: Session, paths: list[str]) -> SparkSource:
    """Return the source of Parquet files.

    Raises:
        ParameterError: if they are CSV.
        DataError: if there are none.
        SchemaError: if a column has types that do not fit together.
    """
    if any(path.lower().endswith(CSV_ENDINGS) for path in paths):
        raise ParameterError(
            f"source {paths[0]!r} must not be CSV with Spark, because only DuckDB handles "
            "malformed CSV rows; use engine='duckdb', or convert it to Parquet once.",
            name="source",
        )
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    frame = session.parquet(paths)
    name, title = f"The file {paths[0]!r}{more}", f"{PurePath(paths[0]).name}{more}"
    return replace(SparkSource.of(frame), name=name, title=title, paths=tuple(paths))


def _bottom(rows: TableRows) -> TableRows:
    """Return the rows from which all others are made."""
    made = made_of_people(rows)
    return rows if made is None else _bottom(made.rows)


def _bare(rows: TableRows) -> TableRows:
    """Return the public part of rows that come to a task, which reads by one thread."""
    schema = dict(rows.schema)
    return TableRows(
        Given(), rows.user, rows.n_users, schema, rows.memory, threads=1, labels=rows.labels
    )


def _inner(source: RowSource) -> RowSource:
    """Return the source of all rows as they are, without regions and stated types."""
    return _inner(source.source) if isinstance(source, SourceWrapper) else source


def _narrowed(source: RowSource, names: set[str]) -> tuple[RowSource, set[str]]:
    """Return a source of some columns, made of rows that come; and the columns that have to come."""
    if isinstance(source, RegionSource):
        names = names | {side.column for side in source.region.sides}
        inner, read = _narrowed(source.source, names)
        return replace(source, source=inner, kinds=dict(source.kinds)), read
    if isinstance(source, DayColumnSource):
        if source.column not in names:
            return _narrowed(source.source, names)
        inner, read = _narrowed(source.source, names - {source.column} | {source.of})
        return replace(source, source=inner), read
    if isinstance(source, DerivedSource) and source.column not in names:
        return _narrowed(source.source, names)
    if isinstance(source, PublicJoin) and names.isdisjoint(source.kinds):
        return _narrowed(source.source, names)
    if isinstance(source, DerivedSource | FilteredSource | PublicJoin):
        inner, read = _narrowed(source.source, source.needed(names))
        return replace(source, source=inner), read
    if isinstance(source, TypedSource):
        stated = {name: kind for name, kind in source.types.items() if name in names}
        return (replace(source, source=Given(), types=stated) if stated else Given()), names
    return Given(), names


def _read_of(rows: TableRows, used: Iterable[str]) -> list[str]:
    """Return the columns at the bottom that columns are made of, with that of users."""
    made = made_of_people(rows)
    if made is not None:
        return _read_of(made.rows, made.used)
    needed = rows.needed(used)
    return [name for name in rows.schema if name in needed and name not in rows.cells]


def _any_column(rows: TableRows) -> str:
    """Return a column that can be read, for a question that is about none.

    Raises:
        SchemaError: if there is none.
    """
    result = next((name for name, kind in rows.schema.items() if is_readable(kind)), None)
    if result is None:
        raise SchemaError(f"{rows.source.name} has no column of a supported type; add one.")
    return result


def _codes(dictionary: Dictionary) -> Dictionary:
    """Return what tasks need to give records their codes."""
    layout, nothing = dictionary.layout, np.zeros(0, dtype=np.int64)
    layout = replace(layout, cell_of=None if layout.cell_of is None else nothing)
    return replace(dictionary, layout=layout, cell_sizes=nothing, given=nothing)


def _flat(table: pa.Table, names: list[str]) -> pa.Table:
    """Return a table under other names, with values in place of codes of values."""
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=names)

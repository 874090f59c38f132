"""Spark, for tables larger than one machine: it groups rows by user, and tasks add up in place.

DuckDB reads the rows in each task, with the same rules and kernel as on one machine, so integers
are identical bit for bit. Groups, partial integer sums and, for fits, columns return to this
process. Docs/theory, "Sums made in many places", proves that repeated or duplicate tasks never
change a user's contribution by more than the bound.
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
from dpgrain.tables.elements import Elements, label_table
from dpgrain.tables.engines.derived_columns import DerivedSource, FilteredSource
from dpgrain.tables.engines.feed import CoordinateFilter
from dpgrain.tables.engines.joins import PublicJoin, UserJoin
from dpgrain.tables.engines.per_user import PerUser, per_user_source
from dpgrain.tables.engines.protocol import Add, Form
from dpgrain.tables.engines.spark_session import SparkRunner, is_frame, planning
from dpgrain.tables.engines.spark_source import SparkSource
from dpgrain.tables.engines.spark_tasks import (
    KEYS,
    SUMS,
    AddSlicesTask,
    AddUsersTask,
    ColumnQuery,
    DistinctQuery,
    ExtentQuery,
    JoinSide,
    MapTask,
    MarkSide,
    PartitionStream,
    QueryTask,
    RecordEncoding,
    RecordSumQuery,
    RowQuery,
    SliceSums,
    SparkTask,
    SumTask,
    UserKeyQuery,
    slice_count,
)
from dpgrain.tables.groups import Dictionary, GroupCells, Groups, column_order
from dpgrain.tables.rows import CellColumn, TableRows
from dpgrain.tables.sources.column_types import is_readable, read_as
from dpgrain.tables.sources.day_columns import DayColumnSource
from dpgrain.tables.sources.distinct_rows import DistinctRows
from dpgrain.tables.sources.duckdb_connection import duckdb_type
from dpgrain.tables.sources.folders import CSV_ENDINGS
from dpgrain.tables.sources.frames import ArrowSource
from dpgrain.tables.sources.read_arguments import resolve_source
from dpgrain.tables.sources.source import RegionSource, RowSource, SourceWrapper, all_rows
from dpgrain.tables.sources.typed_columns import TypedSource
from dpgrain.tables.split import Split

if TYPE_CHECKING:
    from pyspark import sql
else:
    sql = lazy_import("pyspark.sql")

# Columns of two joined tables: the user's key, and prefixes of each table's columns.
_KEY, _SIDES = "k", ("l", "r")
# Name of the user column in tasks, which no other column has.
_OWNER = "\x1fowner"
# With at most this number of slices, the driver adds them up; otherwise tasks do.
_FEW_SLICES = 4


class Spark:
    """Rows in a Spark session for one release; cached data are dropped at the end."""

    def __init__(self, table: TableRows, session: SparkRunner) -> None:
        self.table = table
        self._session = session
        self._name = table.source.name
        self._lookups: dict[tuple[int, int], pa.Table] = {}
        self._cells: dict[str, pa.Table] = {}
        self._cached: list[sql.DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._cached:
            # A stopped Spark session caches nothing; do not hide the first error.
            with suppress(DataError):
                self._session.run(frame.unpersist, self._name)
        self._cached.clear()

    def distinct(self, keys: Sequence[str], value: str | None = None) -> Groups:
        """Return the distinct groups of users' rows."""
        return self._distinct(self.table, keys, value)

    def _distinct(self, rows: TableRows, keys: Sequence[str], value: str | None = None) -> Groups:
        step("finding groups")
        used = [*keys, *([] if value is None else [value])]
        with planning():
            groups = self._query(rows, used, DistinctQuery(tuple(keys), value)).distinct()
        result = self._session.collect(groups, self._name)
        return Groups.of(keys, [one_array(column) for column in result.columns])

    def extent(self, key: str) -> tuple[int, int, int] | None:
        """Return the minimum and maximum of an integer column, and the number of rows."""
        result = self._session.collect(self._query(self.table, [key], ExtentQuery(key)), self._name)
        low, high = pc.min(result["low"]).as_py(), pc.max(result["high"]).as_py()
        return None if low is None else (low, high, pc.sum(result["rows"]).as_py())

    def dictionary(
        self, groups: Groups, cells: GroupCells, *, cell_column: str | None = None, corners: int = 1
    ) -> Dictionary:
        """Assign codes to groups and cells."""
        count = None
        if cell_column is not None:
            (values,) = self.distinct([cell_column]).columns
            ordered = pa.array(column_order(values.to_pylist()), values.type)
            codes = number_array(np.arange(1, len(ordered) + 1))
            self._cells[cell_column] = pa.table({"cell": ordered, "code": codes})
            count = len(ordered) + 1
        return Dictionary.create(groups, cells, column_cells=count, corners=corners)

    def users(
        self,
        dictionary: Dictionary,
        *,
        value: str | None = None,
        split: Split | None = None,
        cell_column: str | None = None,
    ) -> SparkUsers:
        """Return whole users' records in the groups last passed to :meth:`dictionary`."""
        if self.table.user is None:
            raise ParameterError("user must be passed to dg.read for this privacy unit.")
        cells = None if cell_column is None else self._cells[cell_column]
        coded = RecordEncoding(_task_codes(dictionary), value, split, cell_column, cells)
        used = [*dictionary.groups.names, *(name for name in (value, cell_column) if name)]
        keys = self._query(self.table, used, UserKeyQuery(coded), whole=True, schema=KEYS)
        return SparkUsers(self, self._session.cache(keys), dictionary.layout.user_shift)

    def records(
        self, dictionary: Dictionary, *, value: str | None = None, split: Split | None = None
    ) -> SparkRecords:
        """Return single records as codes of coordinates."""
        return SparkRecords(self, RecordEncoding(_task_codes(dictionary), value, split))

    def columns(self, wanted: Sequence[tuple[str, Form]]) -> pa.Table:
        """Return columns of all rows, in Spark's order."""
        used = [name for name, _ in wanted]
        frame = self._query(self.table, used, ColumnQuery(tuple(wanted)))
        return self._session.collect(frame, self._name)

    def cache(
        self,
        wanted: Sequence[tuple[str, Form]],
        make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
    ) -> SparkCachedBlocks:
        """Cache what a function derives from columns; it is computed at the first sum."""
        used = [name for name, _ in wanted]
        whole = self.table.user is not None
        frame = self._query(self.table, used, ColumnQuery(tuple(wanted)), whole=whole)
        derived = self._session.map(frame, MapTask(make), schema)
        return SparkCachedBlocks(self, self.keep(self._session.cache(derived)))

    def sum_slices(self, frame: sql.DataFrame, shape: Sequence[int]) -> IntArray:
        """Add up slices of sums, (shape)."""
        size = int(np.prod(shape))
        if slice_count(size) > _FEW_SLICES:
            with planning():
                frame = self._session.map(frame.repartition("slice"), AddSlicesTask(), SUMS)
        result = SliceSums()
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
        """Register a cached frame, which is dropped at the end."""
        self._cached.append(frame)
        return frame

    def map(self, frame: sql.DataFrame, task: SparkTask) -> sql.DataFrame:
        """Return the sums that a task computes from each partition."""
        return self._session.map(frame, task, SUMS)

    def record_sums(self, question: RecordSumQuery) -> sql.DataFrame:
        """Return the sums of single records from each partition."""
        coded = question.coded
        used = [*coded.dictionary.groups.names, *([coded.value] if coded.value else [])]
        return self._query(self.table, used, question, schema=SUMS)

    def _query(
        self,
        rows: TableRows,
        used: Iterable[str],
        question: RowQuery,
        *,
        whole: bool = False,
        schema: pa.Schema | None = None,
    ) -> sql.DataFrame:
        """Return the frame of all results of a query."""
        return self._query_with_schema(rows, used, question, whole=whole, schema=schema)[0]

    def _query_with_schema(
        self,
        rows: TableRows,
        used: Iterable[str],
        question: RowQuery,
        *,
        whole: bool = False,
        schema: pa.Schema | None = None,
    ) -> tuple[sql.DataFrame, pa.Schema]:
        """Return the frame of all results of a query, and its schema."""
        known, bottom = self._task_rows(rows, used), _base_rows(rows)
        names = _base_columns(known, used) or [_any_column(bottom)]
        frame, kinds = self._frame(bottom, names)
        if (whole or per_user_source(rows) is not None) and bottom.user is not None:
            frame = self._session.by_user(frame, f"c{names.index(bottom.user)}")
        task = QueryTask(known, tuple(names), question)
        schema = task.schema(kinds) if schema is None else schema
        return self._session.map(frame, task, schema), schema

    def _frame(self, rows: TableRows, names: list[str]) -> tuple[sql.DataFrame, pa.Schema]:
        """Return columns of the rows in the region, and their schema."""
        if not isinstance(rows.source, SourceWrapper):
            return self._columns(rows.source, names)
        source, needed = _restrict(rows.source, set(names))
        read = [name for name in rows.schema if name in needed]
        frame, kinds = self._columns(_base_source(rows.source), read)
        question = ColumnQuery(tuple((name, "as it is") for name in names))
        task = QueryTask(replace(_public_part(rows), source=source), tuple(read), question)
        schema = task.schema(kinds)
        self._require_types(rows.schema, names, schema)
        return self._session.map(frame, task, schema), schema

    def _columns(self, source: RowSource, names: list[str]) -> tuple[sql.DataFrame, pa.Schema]:
        """Return unchanged columns of a source, named c0, c1 and so on, and their schema."""
        if isinstance(source, SparkSource):
            return self._session.select(source.rows, names), source.schema(names)
        if isinstance(source, UserJoin):
            return self._joined(source, names)
        if isinstance(source, PerUser):
            question = ColumnQuery(tuple((name, "as it is") for name in names))
            people = TableRows(
                source, source.rows.user, None, source.columns(), source.rows.memory, threads=1
            )
            return self._query_with_schema(people, names, question)
        if isinstance(source, DistinctRows):
            return self._distinct_rows(source, names)
        if not isinstance(source, ArrowSource):
            raise ParameterError(
                f"{source.name} cannot be read by Spark; pass a Spark DataFrame, a path of "
                "Parquet files or a table in memory."
            )
        table = _decoded(source.read(names), [f"c{i}" for i in range(len(names))])
        self._require_types(source.columns(), names, table.schema)
        return self._session.frame(table), table.schema

    def _distinct_rows(
        self, source: DistinctRows, names: list[str]
    ) -> tuple[sql.DataFrame, pa.Schema]:
        """Return columns of distinct rows; rows of a user, or equal rows, move to one task."""
        columns, user = list(source.kinds), self.table.user
        rows = TableRows(source.source, None, None, source.kinds, self.table.memory, threads=1)
        question = ColumnQuery(tuple((name, "as it is") for name in columns))
        frame, kinds = self._query_with_schema(rows, columns, question)
        moved = self._session.by_user(frame, f"c{columns.index(user) if user in columns else 0}")
        distinct = replace(rows, source=replace(source, source=PartitionStream()))
        question = ColumnQuery(tuple((name, "as it is") for name in names))
        task = QueryTask(distinct, tuple(columns), question)
        schema = task.schema(kinds)
        return self._session.map(moved, task, schema), schema

    def _joined(self, join: UserJoin, names: list[str]) -> tuple[sql.DataFrame, pa.Schema]:
        """Join rows with another table's rows of the same user, as columns c0, c1, ….

        Rows of both tables move to the task of their user.
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
            right_names = [f"{mark}{place}" for place in range(len(kinds) - 1)]
            marked.append(
                self._session.map(frame, MarkSide(side, (_KEY, *right_names), both), both)
            )
            read = JoinSide(
                PartitionStream(),
                side,
                dict(zip((_OWNER, *columns), (_KEY, *right_names), strict=True)),
            )
            kind = "BIGINT" if pa.types.is_integer(kinds.field(0).type) else "VARCHAR"
            schema = {_OWNER: kind, **{name: rows.schema[name] for name in columns}}
            labels = rows.labels | {_OWNER}
            known.append(
                replace(_public_part(rows), source=read, user=_OWNER, schema=schema, labels=labels)
            )
        together = self._session.by_user(self._session.union(*marked), _KEY)
        joined = replace(join, rows=known[0], others=known[1])
        right_rows = replace(
            known[0], source=joined, schema={**known[0].schema, **joined.columns()}
        )
        question = ColumnQuery(tuple((name, "as it is") for name in names))
        task = QueryTask(right_rows, tuple(both.names), question)
        schema = task.schema(both)
        return self._session.map(together, task, schema), schema

    def _side(self, rows: TableRows, columns: list[str]) -> tuple[sql.DataFrame, pa.Schema]:
        """Return the user id of each row, and unchanged columns."""
        assert rows.user is not None  # noqa: S101 - tables of people are joined
        wanted: list[tuple[str, Form]] = [
            (rows.user, "key"),
            *((name, "as it is") for name in columns),
        ]
        return self._query_with_schema(rows, [rows.user, *columns], ColumnQuery(tuple(wanted)))

    def _require_types(self, kinds: Mapping[str, str], names: list[str], schema: pa.Schema) -> None:
        """Raise unless columns have the same types in tasks as here."""
        task_types = self._session.task_types(schema)
        for name, column, kind in zip(names, schema, task_types, strict=True):
            if kind is None or read_as(duckdb_type(kind)) != kinds[name]:
                raise SchemaError(
                    f"The column {name!r} has type {column.type}, which Spark lacks; cast it, or use "
                    "engine='duckdb'."
                )

    def _task_rows(self, rows: TableRows, used: Iterable[str]) -> TableRows:
        """Return the public part of rows for tasks, with lookups instead of functions."""
        known, people = _public_part(rows), per_user_source(rows)
        if people is not None:
            known = replace(
                known, source=replace(people, rows=self._task_rows(people.rows, people.used))
            )
        needed, cells = rows.needed(used), {}
        for name, column in rows.cells.items():
            if name in needed:
                elements = Elements(
                    column.elements.name, mapping={}, missing=column.elements.missing
                )
                cells[name] = CellColumn(column.of, elements, self._lookup(rows, column))
        return replace(known, cells=cells)

    def _lookup(self, rows: TableRows, column: CellColumn) -> pa.Table:
        """Return the label of each value of a column; the only call of its partition."""
        # Joined or nested tables may use one name for different columns.
        place = id(rows.source), id(column)
        if place not in self._lookups:
            (values,) = self._distinct(rows, [column.of]).columns
            self._lookups[place] = label_table(column.elements, values)
        return self._lookups[place]


@dataclass(frozen=True, eq=False)
class SparkUsers:
    """Whole users' keys, cached on the executors with each user in one partition."""

    engine: Spark
    keys: sql.DataFrame
    shift: int  # bits of a key below the user code
    narrow: CoordinateFilter | None = None

    def __post_init__(self) -> None:
        if self.narrow is None:
            self.engine.keep(self.keys)

    def accumulate(self, add: Add, shape: Sequence[int]) -> IntArray:
        """Run a kernel over all users on the executors and return the integer sums."""
        if not np.prod(shape):
            return np.zeros(shape, dtype=np.int64)
        step("processing users")
        task = AddUsersTask(add, tuple(shape), self.narrow)
        return self.engine.sum_slices(self.engine.map(self.keys, task), shape)

    def narrowed(self, codes: IntArray, shift: int) -> SparkUsers | None:
        """Return the same users' keys of some coordinates."""
        if self.narrow is not None:
            return None
        return replace(self, narrow=CoordinateFilter(codes.astype(np.int32), self.shift, shift))


@dataclass(frozen=True, eq=False)
class SparkRecords:
    """Single records on the executors."""

    engine: Spark
    coded: RecordEncoding

    def accumulate(self, add: Add, shape: Sequence[int]) -> IntArray:
        """Run a kernel over all records on the executors and return the integer sums."""
        if not np.prod(shape):
            return np.zeros(shape, dtype=np.int64)
        step("reading rows")
        question = RecordSumQuery(self.coded, add, tuple(shape))
        return self.engine.sum_slices(self.engine.record_sums(question), shape)


@dataclass(frozen=True, eq=False)
class SparkCachedBlocks:
    """Derived rows, cached on the executors."""

    engine: Spark
    frame: sql.DataFrame

    def sums(
        self, of: Callable[[Iterable[pa.RecordBatch]], IntArray], shape: Sequence[int]
    ) -> IntArray:
        """Return the integer sums that a function computes from each partition."""
        return self.engine.sum_slices(self.engine.map(self.frame, SumTask(of)), shape)


@dataclass(frozen=True)
class SparkOpener:
    """Opener of engines on a Spark session, from the session or its address."""

    place: Any = field(default="spark")
    distributed: ClassVar[bool] = True

    def session(self, source: RowSource | None = None) -> SparkRunner:
        """Return the session, which is the frame's own if the source is a frame."""
        if not isinstance(source, SparkSource):
            return (
                SparkRunner.at(self.place)
                if isinstance(self.place, str)
                else SparkRunner(self.place)
            )
        own = source.frame.sparkSession
        if not isinstance(self.place, str) and self.place is not own:
            raise ParameterError(
                "engine must be the session of the DataFrame, not another one; pass that "
                "session, or 'spark'.",
                name="engine",
            )
        return SparkRunner(own)

    def open_source(self, data: Any) -> RowSource:
        """Return the source of rows; Spark reads paths from any storage that it supports."""
        paths = [data] if not isinstance(data, list | tuple) else list(data)
        if not all(hasattr(path, "__fspath__") or isinstance(path, str) for path in paths):
            if is_frame(data):
                return SparkSource.from_frame(data)
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
        return Spark(rows, self.session(all_rows(_base_rows(rows).source)))


def _parquet(session: SparkRunner, paths: list[str]) -> SparkSource:
    """Return the source of Parquet files."""
    if any(path.lower().endswith(CSV_ENDINGS) for path in paths):
        raise ParameterError(
            f"source {paths[0]!r} must not be CSV with Spark, because only DuckDB handles "
            "malformed CSV rows; use engine='duckdb', or convert it to Parquet once.",
            name="source",
        )
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    frame = session.parquet(paths)
    name, title = f"The file {paths[0]!r}{more}", f"{PurePath(paths[0]).name}{more}"
    return replace(SparkSource.from_frame(frame), name=name, title=title, paths=tuple(paths))


def _base_rows(rows: TableRows) -> TableRows:
    """Return the rows from which all others are derived."""
    people = per_user_source(rows)
    return rows if people is None else _base_rows(people.rows)


def _public_part(rows: TableRows) -> TableRows:
    """Return the public part of rows for a task, which reads with one thread."""
    schema = dict(rows.schema)
    return TableRows(
        PartitionStream(),
        rows.user,
        rows.n_users,
        schema,
        rows.memory,
        threads=1,
        labels=rows.labels,
    )


def _base_source(source: RowSource) -> RowSource:
    """Return the source of all rows, without regions and declared types."""
    if isinstance(source, DistinctRows) or not isinstance(source, SourceWrapper):
        return source
    return _base_source(source.source)


def _restrict(source: RowSource, names: set[str]) -> tuple[RowSource, set[str]]:
    """Return a source of some columns of a partition, and the columns that it requires."""
    if isinstance(source, RegionSource):
        names = names | {side.column for side in source.region.sides}
        inner, read = _restrict(source.source, names)
        return replace(source, source=inner, kinds=dict(source.kinds)), read
    if isinstance(source, DayColumnSource):
        if source.column not in names:
            return _restrict(source.source, names)
        inner, read = _restrict(source.source, names - {source.column} | {source.of})
        return replace(source, source=inner), read
    if isinstance(source, DerivedSource) and source.column not in names:
        return _restrict(source.source, names)
    if isinstance(source, PublicJoin) and names.isdisjoint(source.kinds):
        return _restrict(source.source, names)
    if isinstance(source, DerivedSource | FilteredSource | PublicJoin):
        inner, read = _restrict(source.source, source.needed(names))
        return replace(source, source=inner), read
    if isinstance(source, TypedSource):
        stated = {name: kind for name, kind in source.types.items() if name in names}
        return (
            replace(source, source=PartitionStream(), types=stated) if stated else PartitionStream()
        ), names
    return PartitionStream(), names


def _base_columns(rows: TableRows, used: Iterable[str]) -> list[str]:
    """Return the base columns that columns are derived from, including the user's."""
    people = per_user_source(rows)
    if people is not None:
        return _base_columns(people.rows, people.used)
    needed = rows.needed(used)
    return [name for name in rows.schema if name in needed and name not in rows.cells]


def _any_column(rows: TableRows) -> str:
    """Return a readable column, for a query without columns."""
    result = next((name for name, kind in rows.schema.items() if is_readable(kind)), None)
    if result is None:
        raise SchemaError(f"{rows.source.name} has no column of a supported type; add one.")
    return result


def _task_codes(dictionary: Dictionary) -> Dictionary:
    """Return the part of a dictionary that tasks need to encode records."""
    layout, nothing = dictionary.layout, np.zeros(0, dtype=np.int64)
    layout = replace(layout, cell_of=None if layout.cell_of is None else nothing)
    return replace(dictionary, layout=layout, cell_sizes=nothing, positions=nothing)


def _decoded(table: pa.Table, names: list[str]) -> pa.Table:
    """Rename the columns of a table and decode its dictionaries."""
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=names)

"""Arrow tables and data frames with values that Arrow, DuckDB and Spark can all read.

Arrow looks neither at the bytes of texts nor at the numbers of times, and what is beyond their range
would end a query. Each such value is a null here, by itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpgrain._arrow import numbers
from dpgrain._types import BoolArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.labels import cell_text
from dpgrain.tables.sources.column_sql import arrow_expressions, select_from, usable_columns
from dpgrain.tables.sources.column_types import FIRST_TIME, LAST_TIME, read_as
from dpgrain.tables.sources.duckdb_connection import register_rows
from dpgrain.tables.sources.schemas import duckdb_type

# Microseconds in a unit of time.
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
_DAY_MILLISECONDS = 24 * 60 * 60 * 10**3
_INFINITE = 2**63 - 1


@dataclass(frozen=True, eq=False)
class FrameColumns:
    """Columns in memory.

    Args:
        table: the columns; one of a type that Arrow lacks is there as nulls.
        unread: column → type, of columns of a type that Arrow lacks.
    """

    table: pa.Table
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ArrowSource:
    """An Arrow table in memory, or the columns of a data frame.

    Args:
        table: the columns; one of a type that Arrow lacks is there as nulls.
        name: the name in messages.
        title: the name in reports.
        unread: column → type, of columns of a type that Arrow lacks.
    """

    table: pa.Table
    name: str = "The table"
    title: str = "a table in memory"
    unread: Mapping[str, str] = field(default_factory=dict)
    # Not handed on to a copy with another table.
    _read: dict[str, pa.ChunkedArray] = field(default_factory=dict, init=False, repr=False)

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {column: read_as(kind) for column, kind in self._kinds.items()}

    @property
    def _kinds(self) -> dict[str, str]:
        kinds = {column.name: duckdb_type(column.type) for column in self.table.schema}
        return {**kinds, **self.unread}

    def read(self, columns: Iterable[str]) -> pa.Table:
        """Return columns, whose times are microseconds within their range."""
        for column in columns:
            if column not in self._read:
                self._read[column] = readable_column(self.table.column(column))
        return pa.table({column: self._read[column] for column in columns})

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Register the columns, and return their name."""
        kinds = usable_columns(self._kinds, used)
        rows = self.read(kinds) if kinds else pa.table({"none": pa.nulls(self.table.num_rows)})
        return select_from(register_rows(connection, rows), arrow_expressions(kinds))


def frame_columns(
    names: list[str],
    column: Callable[[int], pa.Array],
    kind: Callable[[int], Any],
    rows: int,
) -> FrameColumns:
    """Return the columns of a data frame, one by one.

    Args:
        names: the name of each column.
        column: the function from a place to the column, which fails on types that Arrow lacks.
        kind: the function from a place to the type in the frame.
        rows: the number of rows.
    """
    columns, unread = [], {}
    for place, name in enumerate(names):
        try:
            columns.append(column(place))
        except (pa.ArrowException, TypeError):
            columns.append(pa.nulls(rows))
            unread[name] = str(kind(place))
    return FrameColumns(pa.table(columns, names=names), unread)


def pandas_columns(frame: Any) -> FrameColumns:
    """Return the columns of a data frame of pandas.

    Raises:
        ParameterError: if it is no frame.
    """
    if not hasattr(frame, "columns"):
        raise ParameterError(
            f"source must be a pandas DataFrame, not a {type(frame).__name__}; use .to_frame()."
        )
    return frame_columns(
        [str(name) for name in frame.columns],
        lambda place: _from_column(frame.iloc[:, place]),
        lambda place: frame.dtypes.iloc[place],
        len(frame),
    )


def polars_columns(frame: Any) -> FrameColumns:
    """Return the columns of a data frame of Polars."""
    columns = frame.get_columns()
    made = frame_columns(
        list(frame.columns),
        lambda place: columns[place].to_arrow(),
        lambda place: columns[place].dtype,
        len(frame),
    )
    return FrameColumns(valid_texts(made.table), made.unread)


def readable_table(table: pa.Table) -> pa.Table:
    """Return a table whose texts are UTF-8 and whose times are microseconds within their range."""
    return readable_times(valid_texts(table))


def readable_times(table: pa.Table) -> pa.Table:
    """Return a table whose times are microseconds within their range."""
    columns = [readable_column(column) for column in table.columns]
    return pa.table(columns, names=table.schema.names)


def readable_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column whose times are microseconds within their range."""
    chunks = [_readable_times(chunk) for chunk in column.chunks or [pa.array([], column.type)]]
    return pa.chunked_array(chunks, chunks[0].type)


def _readable_times(chunk: pa.Array) -> pa.Array:
    """Return times as microseconds, and days as days; those beyond their range are nulls."""
    if pa.types.is_run_end_encoded(chunk.type):
        chunk = _of_runs(chunk)
    if pa.types.is_dictionary(chunk.type) and pa.types.is_temporal(chunk.type.value_type):
        chunk = chunk.cast(chunk.type.value_type)
    if pa.types.is_date64(chunk.type):
        days = _counted(chunk) // _DAY_MILLISECONDS
        result = numbers(days, _nulls(chunk) | (np.abs(days) >= 2**31 - 1))
        return result.cast(pa.int32(), safe=False).cast(pa.date32())
    if not pa.types.is_timestamp(chunk.type) or (chunk.type.unit == "us" and _in_range(chunk)):
        return chunk
    result = numbers(*_microseconds(_counted(chunk), chunk.type.unit, _nulls(chunk)))
    return result.cast(pa.timestamp("us", chunk.type.tz))


def _microseconds(counted: IntArray, unit: str, null: BoolArray) -> tuple[IntArray, BoolArray]:
    """Return microseconds of times in a unit, (n,), and where they are none, (n,)."""
    infinite = (counted == _INFINITE) | (counted == -_INFINITE)
    if unit == "ns":
        result = counted // 1000
    else:
        one = _MICROSECONDS[unit]
        inside = (counted >= -(-FIRST_TIME // one)) & (counted <= LAST_TIME // one)
        null = null | ~(inside | infinite)
        result = np.where(inside, counted, 0) * one
    return np.where(infinite, counted, result), null


def _in_range(chunk: pa.Array) -> bool:
    """Return whether times of microseconds are all within their range, infinite ones included."""
    least = pc.min(chunk.cast(pa.int64())).as_py()
    return least is None or least >= FIRST_TIME


def _counted(chunk: pa.Array) -> IntArray:
    """Return the numbers that times are stored as, (n,); 0 for nulls."""
    return np.asarray(chunk.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def _nulls(chunk: pa.Array) -> BoolArray:
    return np.asarray(chunk.is_null().to_numpy(zero_copy_only=False))


def _from_column(column: Any) -> pa.Array:
    """Return a column of a data frame, read as its type says, whatever its values are."""
    if column.dtype == object:
        # Any type may stand in any row; if it were guessed, one row would decide for all.
        return _texts(column)
    if column.dtype == "category":
        # Categories are values, from which pandas takes their type: each is text by itself.
        names = _texts(column.cat.categories)
        codes = column.cat.codes.to_numpy()
        return names.take(pa.array(codes, pa.int64(), mask=codes < 0))
    try:
        result = pa.Array.from_pandas(column)
    except UnicodeError:
        return _texts(column)
    return _valid_chunk(result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result)


def _texts(column: Any) -> pa.Array:
    """Return each value as text by itself."""
    return pa.array([_as_text(value) for value in column], pa.string())


def _is_null(value: Any) -> bool:
    """Return whether a value stands for none; asking all at once might raise for one of them."""
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, float | np.floating | np.datetime64 | np.timedelta64):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _as_text(value: Any) -> str | None:
    """Return the value as text, or null where it has none: an error would reveal one row."""
    with warnings.catch_warnings():
        # A warning would say something about one row, too.
        warnings.simplefilter("ignore")
        try:
            result = None if _is_null(value) else cell_text(value)
            # Half of a surrogate pair is no text; a substitute for it might be somebody else's name.
            return None if result is None else result.encode().decode()
        except Exception:
            return None


def valid_texts(table: pa.Table) -> pa.Table:
    """Return a table whose texts are UTF-8, with nulls for those that are not: Arrow does not look."""
    for place, column in enumerate(table.columns):
        chunks = [_valid_chunk(chunk) for chunk in column.chunks]
        if any(new is not old for new, old in zip(chunks, column.chunks, strict=True)):
            result = pa.chunked_array(chunks)
            table = table.set_column(
                place, table.schema.field(place).with_type(result.type), result
            )
    return table


def _valid_chunk(chunk: pa.Array) -> pa.Array:
    if pa.types.is_run_end_encoded(chunk.type):
        return _valid_chunk(_of_runs(chunk))
    if pa.types.is_dictionary(chunk.type):
        names = _valid_chunk(chunk.dictionary)
        if names is chunk.dictionary:
            return chunk
        return pa.DictionaryArray.from_arrays(chunk.indices, names, ordered=chunk.type.ordered)
    if chunk.type not in _BYTES:
        return chunk
    try:
        chunk.validate(full=True)
    except pa.ArrowException:
        values = [_decoded(value) for value in chunk.cast(_BYTES[chunk.type])]
        return pa.array(values, chunk.type)
    return chunk


def _of_runs(chunk: pa.Array) -> pa.Array:
    """Return the value of each row of runs; Arrow itself decodes those of plain values alone."""
    rows = np.arange(chunk.offset, chunk.offset + len(chunk))
    return chunk.values.take(pa.array(np.searchsorted(chunk.run_ends, rows, side="right")))


_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


def _decoded(value: pa.Scalar) -> str | None:
    try:
        return None if value.as_py() is None else bytes(value.as_py()).decode()
    except UnicodeError:
        return None

"""Arrow tables and data frames in memory, with invalid values replaced by nulls.

Arrow validates neither the bytes of texts nor the range of timestamps, and one invalid value would
end a query in DuckDB or Spark.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpgrain._types import BoolArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.labels import cell_text
from dpgrain.tables.arrow_arrays import number_array
from dpgrain.tables.engines.sql import arrow_expressions, select_from, usable_columns
from dpgrain.tables.sources.column_types import FIRST_TIME, LAST_TIME, read_as
from dpgrain.tables.sources.duckdb_connection import register_rows, schema_types

# Microseconds in a unit of time.
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
_DAY_MILLISECONDS = 24 * 60 * 60 * 10**3
_INFINITE = 2**63 - 1


@dataclass(frozen=True, eq=False)
class ArrowSource:
    """An Arrow table in memory, or the columns of a data frame."""

    table: pa.Table
    name: str = "The table"
    title: str = "a table in memory"
    unread: Mapping[str, str] = field(default_factory=dict)  # column → type that Arrow lacks
    # Cached columns; init=False, so that a copy with another table begins with none.
    _read: dict[str, pa.ChunkedArray] = field(default_factory=dict, init=False, repr=False)

    def columns(self) -> dict[str, str]:
        """Return column name → type."""
        return {column: read_as(kind) for column, kind in self._kinds.items()}

    @property
    def _kinds(self) -> dict[str, str]:
        return {**schema_types(self.table.schema), **self.unread}

    def read(self, columns: Iterable[str]) -> pa.Table:
        """Return columns with timestamps in microseconds; null if out of range."""
        for column in columns:
            if column not in self._read:
                self._read[column] = readable_column(self.table.column(column))
        return pa.table({column: self._read[column] for column in columns})

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Register the columns, and return SQL of them."""
        kinds = usable_columns(self._kinds, used)
        rows = self.read(kinds) if kinds else pa.table({"none": pa.nulls(self.table.num_rows)})
        return select_from(register_rows(connection, rows), arrow_expressions(kinds))


def _frame_source(
    names: list[str],
    column: Callable[[int], pa.Array],
    kind: Callable[[int], Any],
    rows: int,
) -> ArrowSource:
    """Return a data frame as a source, with columns converted one by one."""
    columns, unread = [], {}
    for index, name in enumerate(names):
        try:
            columns.append(column(index))
        except (pa.ArrowException, TypeError):
            columns.append(pa.nulls(rows))
            unread[name] = str(kind(index))
    return ArrowSource(pa.table(columns, names=names), "The data frame", unread=unread)


def pandas_source(frame: Any) -> ArrowSource:
    """Return a pandas data frame as a source; raises ParameterError for a Series."""
    if not hasattr(frame, "columns"):
        raise ParameterError(
            f"source must be a pandas DataFrame, not a {type(frame).__name__}; use .to_frame()."
        )
    return _frame_source(
        [str(name) for name in frame.columns],
        lambda index: _from_column(frame.iloc[:, index]),
        lambda index: frame.dtypes.iloc[index],
        len(frame),
    )


def polars_source(frame: Any) -> ArrowSource:
    """Return a Polars data frame as a source."""
    columns = frame.get_columns()
    source = _frame_source(
        list(frame.columns),
        lambda index: columns[index].to_arrow(),
        lambda index: columns[index].dtype,
        len(frame),
    )
    return replace(source, table=valid_texts(source.table))


def readable_table(table: pa.Table) -> pa.Table:
    """Return a table with valid UTF-8 and timestamps in microseconds; null if invalid."""
    return readable_times(valid_texts(table))


def readable_times(table: pa.Table) -> pa.Table:
    """Return a table with timestamps in microseconds; null if out of range."""
    columns = [readable_column(column) for column in table.columns]
    return pa.table(columns, names=table.schema.names)


def readable_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with timestamps in microseconds; null if out of range."""
    chunks = [_readable_times(chunk) for chunk in column.chunks or [pa.array([], column.type)]]
    return pa.chunked_array(chunks, chunks[0].type)


def _readable_times(chunk: pa.Array) -> pa.Array:
    """Return timestamps in microseconds, and dates in days; null if out of range."""
    if pa.types.is_run_end_encoded(chunk.type):
        chunk = _decode_runs(chunk)
    if pa.types.is_dictionary(chunk.type) and pa.types.is_temporal(chunk.type.value_type):
        chunk = chunk.cast(chunk.type.value_type)
    if pa.types.is_date64(chunk.type):
        days = _ticks(chunk) // _DAY_MILLISECONDS
        result = number_array(days, _nulls(chunk) | (np.abs(days) >= 2**31 - 1))
        return result.cast(pa.int32(), safe=False).cast(pa.date32())
    if not pa.types.is_timestamp(chunk.type) or (chunk.type.unit == "us" and _in_range(chunk)):
        return chunk
    result = number_array(*_microseconds(_ticks(chunk), chunk.type.unit, _nulls(chunk)))
    return result.cast(pa.timestamp("us", chunk.type.tz))


def _microseconds(counted: IntArray, unit: str, null: BoolArray) -> tuple[IntArray, BoolArray]:
    """Return microseconds of timestamps in a unit, (n,), and whether each is null, (n,)."""
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
    """Return True if timestamps in microseconds are all in range; infinite ones are."""
    least = pc.min(chunk.cast(pa.int64())).as_py()
    return least is None or least >= FIRST_TIME


def _ticks(chunk: pa.Array) -> IntArray:
    """Return the integers that timestamps are stored as, (n,); 0 for nulls."""
    return np.asarray(chunk.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def _nulls(chunk: pa.Array) -> BoolArray:
    return np.asarray(chunk.is_null().to_numpy(zero_copy_only=False))


def _from_column(column: Any) -> pa.Array:
    """Return a column of a data frame, by its type and never by its values."""
    if column.dtype == object:
        # If the type were inferred from the values, one row would decide it for all.
        return _texts(column)
    if column.dtype == "category":
        # pandas infers the type of categories from their values, so read each as text.
        names = _texts(column.cat.categories)
        codes = column.cat.codes.to_numpy()
        return names.take(pa.array(codes, pa.int64(), mask=codes < 0))
    try:
        result = pa.Array.from_pandas(column)
    except UnicodeError:
        return _texts(column)
    return _valid_chunk(result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result)


def _texts(column: Any) -> pa.Array:
    """Return each value as text; fast for text and dates, which run no foreign code."""
    days: dict[date, str | None] = {}

    def text(value: Any) -> str | None:
        kind = type(value)
        if kind is str:
            return _encodable(value)
        if kind is not date:
            return _as_text(value)
        if value not in days:
            days[value] = _as_text(value)
        return days[value]

    return pa.array(map(text, column), pa.string())


def _encodable(text: str) -> str | None:
    """Return a text, or null for half a surrogate pair: a replacement could be an id."""
    try:
        return text.encode().decode()
    except UnicodeError:
        return None


def _is_null(value: Any) -> bool:
    """Return True if a value is missing; pd.isna can raise for a value of a column."""
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, float | np.floating | np.datetime64 | np.timedelta64):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _as_text(value: Any) -> str | None:
    """Return a value as text, or null if that fails: an error would reveal one row."""
    with warnings.catch_warnings():
        # A warning would also reveal one row.
        warnings.simplefilter("ignore")
        try:
            result = None if _is_null(value) else cell_text(value)
            return None if result is None else _encodable(result)
        except Exception:
            return None


def valid_texts(table: pa.Table) -> pa.Table:
    """Return a table with nulls in place of texts that are not UTF-8."""
    for index, column in enumerate(table.columns):
        chunks = [_valid_chunk(chunk) for chunk in column.chunks]
        if any(new is not old for new, old in zip(chunks, column.chunks, strict=True)):
            result = pa.chunked_array(chunks)
            table = table.set_column(
                index, table.schema.field(index).with_type(result.type), result
            )
    return table


def _valid_chunk(chunk: pa.Array) -> pa.Array:
    if pa.types.is_run_end_encoded(chunk.type):
        return _valid_chunk(_decode_runs(chunk))
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


def _decode_runs(chunk: pa.Array) -> pa.Array:
    """Decode a run-end encoded array; Arrow decodes only runs of primitive values."""
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

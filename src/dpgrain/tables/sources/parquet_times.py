"""Parquet timestamps out of range, at which a DuckDB query would fail.

A file stores timestamps as integers of milliseconds, microseconds or nanoseconds, or as a day and
its nanoseconds (Spark's INT96), with any value. DuckDB multiplies milliseconds and days when
reading them, and fails on overflow. So it reads a copy with nulls in place of these values, unless
the footer shows that all milliseconds are in range and no day is out of range. The query itself
checks microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpgrain._lazy_import import lazy_import
from dpgrain._types import BoolArray
from dpgrain.errors import SchemaError
from dpgrain.tables.arrow_arrays import number_array
from dpgrain.tables.sources.column_types import FIRST_TIME, LAST_TIME
from dpgrain.tables.sources.frames import readable_times

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = lazy_import("pyarrow.parquet")

# Rows copied per batch.
_ROWS = 1 << 16
# Microseconds in a second.
_SECOND = 10**6


@dataclass(frozen=True)
class UncheckedTimes:
    """Lower-case names of timestamp columns that the footer does not show to be in range.

    Args:
        others: columns in microseconds, or in days and nanoseconds.
        int96: columns in days and nanoseconds, which no footer describes.
    """

    milliseconds: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    int96: frozenset[str] = frozenset()


def column_names(path: str) -> list[str]:
    """Return the column names of a file."""
    return list(pq.read_schema(path).names)


def schema_key(path: str) -> Hashable | None:
    """Return a key that is equal for files of one schema; None if Arrow cannot read the footer."""
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError, UnicodeError):
        return None
    # Drop the first line, which contains the address of the object.
    columns = str(footer.schema).partition("\n")[2]
    # GeoParquet describes its columns in the metadata.
    return tuple(footer.schema.names), columns, (footer.metadata or {}).get(b"geo")


def unchecked_times(path: str) -> UncheckedTimes:
    """Return the timestamp columns that the footer does not show to be in range."""
    try:
        footer = pq.read_metadata(path)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"The file {path!r} has timestamp columns and a column of a type that Arrow "
            "cannot read, such as 128-bit integers; write that column as another type, or omit "
            "it."
        ) from error
    milliseconds, others, days = set(), set(), set()
    for index in range(footer.num_columns):
        column = footer.schema.column(index)
        if column.path != column.name:
            # No release reads columns inside lists and structs.
            continue
        unit = _unit(column)
        if unit == "milliseconds" and not _within(
            footer, index, FIRST_TIME // 1000, LAST_TIME // 1000
        ):
            milliseconds.add(column.name.casefold())
        elif unit == "INT96":
            days.add(column.name.casefold())
        elif unit == "microseconds" and not _within(footer, index, FIRST_TIME, 2**63 - 1):
            others.add(column.name.casefold())
    return UncheckedTimes(frozenset(milliseconds), frozenset(others | days), frozenset(days))


def _unit(column: Any) -> str | None:
    """Return the unit of a timestamp column; None for other columns."""
    if column.physical_type == "INT96":
        return "INT96"
    description = f"{column.logical_type.to_json()} {column.converted_type}".lower()
    if "timestamp" not in description:
        return None
    return next((unit for unit in ("milli", "micro") if unit in description), "nano") + "seconds"


def _within(footer: Any, column: int, low: int, high: int) -> bool:
    """Return whether the footer shows that all values of a column are in [low, high]."""
    return all(
        _chunk_within(footer.row_group(index).column(column), low, high)
        for index in range(footer.num_row_groups)
    )


def _chunk_within(chunk: Any, low: int, high: int) -> bool:
    statistics = chunk.statistics
    if statistics is None:
        return False
    if statistics.has_min_max:
        return bool(low <= statistics.min_raw and statistics.max_raw <= high)
    return bool(statistics.has_null_count and statistics.null_count == chunk.num_values)


def out_of_range_int96(path: str) -> frozenset[str]:
    """Return the lower-case names of INT96 columns with values out of range."""
    names, result = _int96_columns(path), set()
    for _, in_range in _microseconds(path, names):
        result |= {name for name in names if not in_range[name].all()}
    return frozenset(name.casefold() for name in result)


def copy_valid_times(path: str, copy: Path, columns: Collection[str], *, rows: int = _ROWS) -> None:
    """Copy columns, given in lower case, with null for timestamps out of range."""
    names = [name for name in column_names(path) if name.casefold() in columns]
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        schema = readable_times(file.schema_arrow.empty_table().select(names)).schema
    with pq.ParquetWriter(copy, schema) as writer:
        for table, in_range in _microseconds(path, names, rows):
            for name, valid in in_range.items():
                index, column = table.schema.get_field_index(name), table.column(name)
                values = number_array(_ticks(column), ~valid | _nulls(column)).cast(column.type)
                table = table.set_column(index, table.schema.field(index), values)
            writer.write_table(readable_times(table))


def _int96_columns(path: str) -> list[str]:
    """Return the names of the INT96 columns of a file."""
    schema = pq.read_metadata(path).schema
    columns = [schema.column(index) for index in range(len(schema.names))]
    return [each.name for each in columns if each.path == each.name and _unit(each) == "INT96"]


def _microseconds(
    path: str, names: Sequence[str], rows: int = _ROWS
) -> Iterator[tuple[pa.Table, dict[str, BoolArray]]]:
    """Yield rows in microseconds, and for each INT96 column which values are in range.

    Arrow computes microseconds modulo 2^64 but seconds exactly, so they disagree out of range.
    """
    int96 = [name for name in _int96_columns(path) if name in names]
    with (
        pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file,
        pq.ParquetFile(path, coerce_int96_timestamp_unit="s") as coarse,
    ):
        seconds = _next_rows(coarse, int96)
        for batch in file.iter_batches(rows, columns=list(names)):
            result, by_seconds = pa.Table.from_batches([batch]), seconds(batch.num_rows)
            yield (
                result,
                {
                    name: _ticks(result.column(name)) // _SECOND == _ticks(by_seconds.column(name))
                    for name in int96
                },
            )


def _next_rows(file: pq.ParquetFile, names: Sequence[str]) -> Callable[[int], pa.Table]:
    """Return a function that reads the next n rows; batch lengths depend on the columns."""
    batches = file.iter_batches(_ROWS, columns=names) if names else iter(())
    waiting = file.schema_arrow.empty_table().select(names)

    def read(rows: int) -> pa.Table:
        nonlocal waiting
        while names and waiting.num_rows < rows:
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([next(batches)])])
        taken, waiting = waiting.slice(0, rows), waiting.slice(rows)
        return taken

    return read


def _ticks(column: pa.Array | pa.ChunkedArray) -> Any:
    """Return the integers that timestamps are stored as, (n,); 0 for nulls."""
    return np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy())


def _nulls(column: pa.ChunkedArray) -> BoolArray:
    return np.asarray(column.is_null().to_numpy())

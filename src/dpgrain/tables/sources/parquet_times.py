"""Times of Parquet out of range, which no query may see: DuckDB ends at the first of them.

A file holds times as whole numbers of milliseconds, microseconds or nanoseconds, or as a day and its
nanoseconds (INT96, of Spark), and any number can be written. DuckDB multiplies milliseconds and days as
it reads them and fails at one that is too large. So a file whose footer does not show that all
milliseconds are within range, or one with a day that is not, is read from a copy, in which such a time
is a null. Microseconds are read as they are, and judged by the query.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpgrain._arrow import numbers
from dpgrain._later import later
from dpgrain._types import BoolArray
from dpgrain.errors import SchemaError
from dpgrain.tables.sources.column_types import FIRST_TIME, LAST_TIME
from dpgrain.tables.sources.frames import readable_times

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = later("pyarrow.parquet")

# Rows that are copied at once.
_ROWS = 1 << 16
# Microseconds in a second.
_SECOND = 10**6


@dataclass(frozen=True)
class UncheckedTimes:
    """Columns of times of which the footer of a file does not show that all are within range.

    Args:
        milliseconds: the columns, in small letters, that are counted in milliseconds.
        others: those that are counted in microseconds, or in days and nanoseconds.
        int96: those of these that are counted in days and nanoseconds, which no footer describes.
    """

    milliseconds: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    int96: frozenset[str] = frozenset()


def column_names(path: str) -> list[str]:
    """Return the names of the columns of a file, as it has them."""
    return list(pq.read_schema(path).names)


def schema_key(path: str) -> Hashable | None:
    """Return what is the same of files whose columns are; None where Arrow cannot read a footer.

    Args:
        path: the file.
    """
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError, UnicodeError):
        return None
    # Its first line names the object, which differs from file to file.
    columns = str(footer.schema).partition("\n")[2]
    # What lies in files of places on earth is stated beside their columns.
    return tuple(footer.schema.names), columns, (footer.metadata or {}).get(b"geo")


def unchecked_times(path: str) -> UncheckedTimes:
    """Return the columns of a file whose times have to be judged one by one.

    Raises:
        SchemaError: if a column, used or not, has a type that Arrow cannot read.
        pa.ArrowException: if the footer is damaged.
        OSError: if the file cannot be read.
    """
    try:
        footer = pq.read_metadata(path)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"The file {path!r} has timestamp columns and a column of a type that Arrow "
            "cannot read, such as 128-bit integers; write that column as another type, or omit "
            "it."
        ) from error
    milliseconds, others, days = set(), set(), set()
    for place in range(footer.num_columns):
        column = footer.schema.column(place)
        if column.path != column.name:
            # Nothing reads what lies inside lists and structures.
            continue
        unit = _unit(column)
        if unit == "milliseconds" and not _within(
            footer, place, FIRST_TIME // 1000, LAST_TIME // 1000
        ):
            milliseconds.add(column.name.casefold())
        elif unit == "INT96":
            days.add(column.name.casefold())
        elif unit == "microseconds" and not _within(footer, place, FIRST_TIME, 2**63 - 1):
            others.add(column.name.casefold())
    return UncheckedTimes(frozenset(milliseconds), frozenset(others | days), frozenset(days))


def _unit(column: Any) -> str | None:
    """Return the unit of a column of times; None for other columns, and for nanoseconds."""
    if column.physical_type == "INT96":
        return "INT96"
    told = f"{column.logical_type.to_json()} {column.converted_type}".lower()
    if "timestamp" not in told:
        return None
    return next((unit for unit in ("milli", "micro") if unit in told), "nano") + "seconds"


def _within(footer: Any, column: int, low: int, high: int) -> bool:
    """Return whether the footer shows that all values of a column lie from low to high."""
    return all(
        _lies_within(footer.row_group(place).column(column), low, high)
        for place in range(footer.num_row_groups)
    )


def _lies_within(chunk: Any, low: int, high: int) -> bool:
    stated = chunk.statistics
    if stated is None:
        return False
    if stated.has_min_max:
        return bool(low <= stated.min_raw and stated.max_raw <= high)
    return bool(stated.has_null_count and stated.null_count == chunk.num_values)


def out_of_range_int96(path: str) -> frozenset[str]:
    """Return the columns of a file, in small letters, that hold days and nanoseconds out of range.

    Raises:
        pa.ArrowException: if the file is damaged.
        OSError: if it cannot be read.
    """
    names, far = _days_in(path), set()
    for _, reached in _microseconds(path, names):
        far |= {name for name in names if not reached[name].all()}
    return frozenset(name.casefold() for name in far)


def copy_valid_times(path: str, copy: Path, columns: Collection[str], *, rows: int = _ROWS) -> None:
    """Write columns of a file to another one, in which times out of range are nulls.

    Args:
        path: the file.
        copy: the other one.
        columns: the columns, in small letters.
        rows: the rows that are copied at once.
    """
    names = [name for name in column_names(path) if name.casefold() in columns]
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        schema = readable_times(file.schema_arrow.empty_table().select(names)).schema
    # A file without rows is copied, too.
    with pq.ParquetWriter(copy, schema) as writer:
        for table, reached in _microseconds(path, names, rows):
            for name, inside in reached.items():
                place, column = table.schema.get_field_index(name), table.column(name)
                kept = numbers(_ticks(column), ~inside | _nulls(column)).cast(column.type)
                table = table.set_column(place, table.schema.field(place), kept)
            writer.write_table(readable_times(table))


def _days_in(path: str) -> list[str]:
    """Return the names of the columns of a file that hold days and nanoseconds."""
    schema = pq.read_metadata(path).schema
    columns = [schema.column(place) for place in range(len(schema.names))]
    return [each.name for each in columns if each.path == each.name and _unit(each) == "INT96"]


def _microseconds(
    path: str, names: Sequence[str], rows: int = _ROWS
) -> Iterator[tuple[pa.Table, dict[str, BoolArray]]]:
    """Yield rows of a file, and for each column of days and nanoseconds the microseconds to use.

    Arrow makes microseconds of them modulo 2^64, and seconds as they are; both agree on the others.
    """
    days = [name for name in _days_in(path) if name in names]
    with (
        pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file,
        pq.ParquetFile(path, coerce_int96_timestamp_unit="s") as coarse,
    ):
        seconds = _next_rows(coarse, days)
        for batch in file.iter_batches(rows, columns=list(names)):
            result, by_seconds = pa.Table.from_batches([batch]), seconds(batch.num_rows)
            yield (
                result,
                {
                    name: _ticks(result.column(name)) // _SECOND == _ticks(by_seconds.column(name))
                    for name in days
                },
            )


def _next_rows(file: pq.ParquetFile, names: Sequence[str]) -> Callable[[int], pa.Table]:
    """Return a function that reads the next rows of a file, as many as it is asked for.

    Where a file is read in batches, their lengths depend on the columns that are read.
    """
    batches = file.iter_batches(_ROWS, columns=names) if names else iter(())
    held = file.schema_arrow.empty_table().select(names)

    def read(rows: int) -> pa.Table:
        nonlocal held
        while names and held.num_rows < rows:
            held = pa.concat_tables([held, pa.Table.from_batches([next(batches)])])
        taken, held = held.slice(0, rows), held.slice(rows)
        return taken

    return read


def _ticks(column: pa.Array | pa.ChunkedArray) -> Any:
    """Return the numbers of times, (n,); 0 for nulls."""
    return np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy())


def _nulls(column: pa.ChunkedArray) -> BoolArray:
    return np.asarray(column.is_null().to_numpy())

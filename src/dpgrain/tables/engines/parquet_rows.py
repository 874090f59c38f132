"""Times of Parquet that no query may see: DuckDB ends at the first that is out of range.

A file holds times as whole numbers of milliseconds, microseconds or nanoseconds, and any number can be
written. DuckDB multiplies milliseconds as it reads them and fails at one that is too large, so that a
file whose footer does not show that all are within range is read from a copy, in which such a time is
a null. Microseconds are read as they are, and judged by the query.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpgrain._later import later
from dpgrain.errors import SchemaError
from dpgrain.tables.engines.column_types import FIRST_TIME, LAST_TIME
from dpgrain.tables.engines.frames import readable_times

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = later("pyarrow.parquet")

# Rows that are copied at once.
_ROWS = 1 << 16


@dataclass(frozen=True)
class OddTimes:
    """Columns of times of which the footer of a file does not show that all are within range.

    Args:
        milliseconds: the columns, in small letters, that are counted in milliseconds.
        others: those that are counted in microseconds, or in days and nanoseconds.
    """

    milliseconds: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()


def names_of(path: str) -> list[str]:
    """Return the names of the columns of a file, as it has them."""
    return list(pq.read_schema(path).names)


def odd_times(path: str) -> OddTimes:
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
            f"The file {path!r} has columns of times beside one of a type that Arrow cannot read, such "
            "as integers of 128 bits; write that column as another type, or leave it out."
        ) from error
    milliseconds, others = set(), set()
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
        elif unit == "INT96" or (
            unit == "microseconds" and not _within(footer, place, FIRST_TIME, 2**63 - 1)
        ):
            others.add(column.name.casefold())
    return OddTimes(frozenset(milliseconds), frozenset(others))


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


def copy_readable(path: str, copy: Path, columns: Collection[str]) -> None:
    """Write columns of a file to another one, in which times out of range are nulls.

    Args:
        path: the file.
        copy: the other one.
        columns: the columns, in small letters.
    """
    with pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if name.casefold() in columns]
        writer = None
        try:
            for batch in file.iter_batches(_ROWS, columns=names):
                table = readable_times(pa.Table.from_batches([batch]))
                writer = writer or pq.ParquetWriter(copy, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()

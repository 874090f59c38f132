"""Parquet columns with large texts, which DuckDB reads from a copy with small row groups.

DuckDB reads up to 2,048 values at a time, with all their pages in memory, so that a few thousand
long texts of one user could end a release. The headers of pages contain their sizes. A copy has
nulls in place of texts of more than :data:`~dpgrain.tables.sources.column_types.LONGEST_LABEL`
bytes, which are missing values anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from dpgrain._lazy_import import lazy_import
from dpgrain.tables.sources.column_types import LONGEST_LABEL

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = lazy_import("pyarrow.parquet")

# Max bytes of the values that DuckDB reads at a time without a copy, a fifth of the smallest
# memory=; and the number of these values.
_MAX_BYTES, _RUN = 16 << 20, 2048
#: Rows per batch of a copy, and bytes of one of its row groups, about.
COPIED_ROWS, _GROUP_BYTES = 128, 4 << 20
# Bytes of a column that Arrow reads ahead.
_AHEAD = 1 << 20
# Bytes of the first read of a page header, which can contain a minimum and a maximum.
_HEADER_BYTES = 1 << 10
# Types of fields of Thrift's compact protocol that are not integers of a variable length.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12


def large_text_columns(path: str) -> frozenset[str]:
    """Return the lower-case names of columns with runs of values that can be large."""
    footer, large = pq.read_metadata(path), set()
    with Path(path).open("rb") as file:
        for index in range(footer.num_columns):
            column = footer.schema.column(index)
            if column.physical_type != "BYTE_ARRAY" or column.path != column.name:
                continue
            groups = range(footer.num_row_groups)
            if any(_is_large(file, footer.row_group(group).column(index)) for group in groups):
                large.add(column.name.casefold())
    return frozenset(large)


def copy_texts(path: str, copy: Path, columns: Collection[str]) -> None:
    """Copy columns (in lower case) with small row groups and null for too long texts."""
    with pq.ParquetFile(path, buffer_size=_AHEAD, pre_buffer=False) as file:
        names = [name for name in file.schema_arrow.names if name.casefold() in columns]
        no_rows = file.schema_arrow.empty_table().select(names).combine_chunks()
        empty = pa.RecordBatch.from_arrays(
            [each.combine_chunks() for each in no_rows.columns], names
        )
        schema = _short_texts(empty).schema
        with pq.ParquetWriter(copy, schema, use_dictionary=False) as writer:
            batches, size = list[pa.RecordBatch](), 0
            for batch in file.iter_batches(COPIED_ROWS, columns=names):
                short = _short_texts(batch)
                batches, size = [*batches, short], size + short.nbytes
                if size > _GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(batches))
                    batches, size = [], 0
            if batches:
                writer.write_table(pa.Table.from_batches(batches))


def _short_texts(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(map(_short, rows.columns)), rows.schema.names)


def _short(column: pa.Array) -> pa.Array:
    """Return a column with null for too long texts, and UUIDs as text."""
    if pa.types.is_fixed_size_binary(column.type):
        # No other fixed-size type is read as text.
        return pa.array(
            [value and str(UUID(bytes=value)) for value in column.to_pylist()], pa.string()
        )
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return column
    long = pc.greater(pc.binary_length(column), LONGEST_LABEL)
    # Copy the short values, because a slice would share the bytes of the long ones.
    return pc.if_else(long, None, column)


def _is_large(file: BinaryIO, chunk: Any) -> bool:
    """Return True if a run of a column chunk's values can be large, by page headers."""
    if chunk.total_uncompressed_size <= _MAX_BYTES:
        return False
    run, values, size = deque[tuple[int, int]](), 0, 0
    try:
        for number, length in _pages(file, chunk):
            run.append((number, length))
            values, size = values + number, size + length
            # A run begins in the first of these pages, and ends in the last.
            while len(run) > 1 and values - run[0][0] - run[-1][0] + 2 > _RUN:
                first = run.popleft()
                values, size = values - first[0], size - first[1]
            if size > _MAX_BYTES:
                return True
    except (IndexError, KeyError, OSError, OverflowError, ValueError):
        # Headers of encrypted pages are unreadable.
        return True
    return False


def _pages(file: BinaryIO, chunk: Any) -> Iterator[tuple[int, int]]:
    """Yield the number of values and the bytes of each page; a dictionary has no values."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        at = min(at, chunk.dictionary_page_offset)
    end = at + chunk.total_compressed_size
    while at < end:
        file.seek(at)
        read = file.read(_HEADER_BYTES)
        while True:
            try:
                header, used = _struct(read, 0)
                break
            except IndexError:
                more = file.read(len(read))
                if not more:
                    raise
                read += more
        values = header.get(5) or header.get(8)
        yield (0 if values is None else values[1]), header[2]
        at += used + header[3]


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a Thrift compact structure, and the index of its end."""
    fields: dict[int, Any] = {}
    field = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            field += step
        else:
            field, at = _zigzag(data, at)
        fields[field], at = _value(data, at, kind)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    """Return a value, None for a skipped one, and the index of its end."""
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind == _STRUCT:
        return _struct(data, at)
    if kind == _BINARY:
        length, at = _varint(data, at)
        if at + length > len(data):
            raise IndexError(length)
        return None, at + length
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    if kind in (_LIST, _SET, _MAP):
        raise ValueError(kind)
    return _zigzag(data, at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned integer with seven bits per byte, and the index of its end."""
    result = shift = 0
    while True:
        result |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return result, at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """Return a signed integer, and the index of its end."""
    result, at = _varint(data, at)
    return (result >> 1) ^ -(result & 1), at

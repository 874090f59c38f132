"""Parquet files as a source; DuckDB reads copies of files with texts or timestamps that end a query."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from dpgrain._lazy_import import lazy_import
from dpgrain._types import BoolArray
from dpgrain.errors import SchemaError, raise_without_context
from dpgrain.tables.arrow_arrays import number_array
from dpgrain.tables.engines.memory import COPIES
from dpgrain.tables.engines.sql import file_list, quoted
from dpgrain.tables.sources.column_names import require_names
from dpgrain.tables.sources.column_types import (
    FIRST_TIME,
    LAST_TIME,
    TEXT,
    TIMES,
    is_readable,
    read_as,
    read_expression,
)
from dpgrain.tables.sources.duckdb_connection import (
    describe_columns,
    schema_reader,
    spill_path,
    translate_errors,
)
from dpgrain.tables.sources.files import FileCache, FileSource, Schemas, file_state
from dpgrain.tables.sources.folders import matches_duckdb
from dpgrain.tables.sources.frames import readable_times
from dpgrain.tables.sources.large_texts import COPIED_ROWS, copy_texts, large_text_columns

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = lazy_import("pyarrow.parquet")


# End of a name that DuckDB has numbered because it occurs twice.
_RENAMED = re.compile(r"_\d+\Z")


@dataclass(frozen=True)
class ParquetFiles(FileSource):
    """Parquet files, each read by its own schema.

    DuckDB must not force one file's types on another: the first value that does not fit would end
    the release, and be quoted.
    """

    @cached_property
    def _footers(self) -> FileCache[dict[str, str]]:
        # Plan one query for each schema: planning takes ten times as long as comparing schemas.
        known: dict[Any, dict[str, str]] = {}

        def footer(path: str) -> dict[str, str]:
            schema = schema_key(path)
            if schema is None:
                return _footer(path)
            if schema not in known:
                known[schema] = _footer(path)
            return known[schema]

        return FileCache(footer)

    @cached_property
    def _unchecked_times(self) -> FileCache[UncheckedTimes]:
        return FileCache(unchecked_times)

    @cached_property
    def _out_of_range_int96(self) -> FileCache[frozenset[str]]:
        return FileCache(out_of_range_int96)

    @cached_property
    def _large_texts(self) -> FileCache[frozenset[str]]:
        return FileCache(large_text_columns)

    def _schemas(self) -> Schemas:
        schemas = {path: self._footers.get(path) for path in self.paths}
        for path, schema in schemas.items():
            if any(read_as(kind) in TIMES for kind in schema.values()):
                self._unchecked_times.get(path)
        names = list(schemas[self.paths[0]])
        folded = {
            path: {column.casefold(): kind for column, kind in schema.items()}
            for path, schema in schemas.items()
        }
        self._require_columns(names, folded)
        return {
            path: {name: each[name.casefold()] for name in names} for path, each in folded.items()
        }

    def _require_columns(self, names: Sequence[str], folded: Schemas) -> None:
        """Raise SchemaError if a file lacks a column of the first one, about the unusual file."""
        lacking = {
            path: missing[0]
            for path, schema in folded.items()
            if (missing := [name for name in names if name.casefold() not in schema])
        }
        if not lacking:
            return
        path, name = next(iter(lacking.items()))
        text = f"The file {path!r} lacks the column {name!r} of {self.paths[0]!r}"
        if 2 * len(lacking) > len(folded):
            text = (
                f"The file {self.paths[0]!r} has a column {name!r}, which {path!r} and others lack"
            )
        raise SchemaError(f"{text}; use the same columns in every file.")

    def _file_columns(self, path: str) -> Iterable[str]:
        return self._footers.get(path)

    def _duckdb_reads_folders(self, files: Mapping[str, str]) -> bool:
        return all(
            path == file and matches_duckdb(path, tuple(self._folder_values[path].items()))
            for path, file in files.items()
        )

    def _reader(self, files: Sequence[str], *, folders: bool) -> str:
        return _parquet_reader(files, folders=folders)

    def _open_files(
        self, connection: duckdb.DuckDBPyConnection, columns: Mapping[str, str], schemas: Schemas
    ) -> dict[str, tuple[str, dict[str, str]]]:
        return {
            path: self._open_file(
                connection,
                path,
                schema,
                {name: columns[name] for name in columns if name in schema},
            )
            for path, schema in schemas.items()
        }

    def _open_file(
        self,
        connection: duckdb.DuckDBPyConnection,
        path: str,
        kinds: Mapping[str, str],
        columns: Mapping[str, str],
    ) -> tuple[str, dict[str, str]]:
        """Return the file or a copy in the spill folder, and column → SQL there."""
        unchecked, out_of_range = UncheckedTimes(), frozenset[str]()
        used = {name.casefold() for name in columns}
        if any(kind in TIMES for kind in columns.values()):
            unchecked = self._unchecked_times.get(path)
            if not used.isdisjoint(unchecked.int96):
                out_of_range = self._out_of_range_int96.get(path)
        large = TEXT in columns.values() and not used.isdisjoint(self._large_texts.get(path))
        timed = large and any(kind in TIMES for kind in columns.values())
        if timed or not used.isdisjoint(unchecked.milliseconds | out_of_range):
            # All times of a copy are microseconds in range.
            copy = partial(copy_valid_times, rows=COPIED_ROWS) if large else copy_valid_times
            path, unchecked = self._copied(connection, path, used, copy), UncheckedTimes()
            kinds = {name: kind if kind in TIMES else kinds[name] for name, kind in columns.items()}
        if large:
            path = self._copied(connection, path, used, copy_texts)
        read = {}
        for name, kind in columns.items():
            in_range = kinds[name] in TIMES and name.casefold() not in unchecked.others
            sql = quoted(name) if in_range else read_expression(quoted(name), kinds[name])
            read[name] = _widen(sql, read_as(kinds[name]), kind)
        return path, read

    def _copied(
        self,
        connection: duckdb.DuckDBPyConnection,
        path: str,
        used: Collection[str],
        write: Callable[[str, Path, Collection[str]], None],
    ) -> str:
        """Return a copy of some columns of a file, made by a function."""
        name = hashlib.sha256(repr((path, file_state(path), sorted(used))).encode()).hexdigest()
        copy = spill_path(connection) / f"{COPIES}{name}.parquet"
        if not copy.exists():
            with translate_errors(self.name):
                write(path, copy, used)
        return str(copy)


def _footer(path: str) -> dict[str, str]:
    """Return column → type of a file; raises SchemaError for equal or undecodable names."""
    try:
        with schema_reader() as connection:
            kinds = describe_columns(connection, _parquet_reader([path]))
    except (RuntimeError, UnicodeError):
        raise_without_context(
            SchemaError(
                f"The file {path!r} has a column name that is not UTF-8 text; rename the column."
            )
        )
    if any(_RENAMED.search(name) for name in kinds):
        require_names(column_names(path), f"The file {path!r}")
    return kinds


def _parquet_reader(paths: Sequence[str], *, folders: bool = False) -> str:
    """Return the SQL of files with one schema, with or without folder columns."""
    # Types guessed from folder names would depend on each of them, and bytes that are not UTF-8
    # would end the release.
    options = f"hive_partitioning={str(folders).lower()}, hive_types_autocast=false"
    return f"read_parquet({file_list(paths)}, {options}{_replace_invalid_utf8()})"


@cache
def _replace_invalid_utf8() -> str:
    """Return DuckDB's option to replace invalid UTF-8; empty for versions without it."""
    with schema_reader() as connection:
        result = connection.sql(
            "SELECT parameters FROM duckdb_functions() WHERE function_name = 'read_parquet'"
        ).fetchall()
    known = any("utf8_validation" in options for (options,) in result)
    return ", utf8_validation='replace'" if known else ""


def _widen(sql: str, kind: str, wider: str) -> str:
    if kind == wider:
        return sql
    # No release can use a column without a common type.
    return f"TRY_CAST({sql} AS {wider})" if is_readable(wider) else "NULL"


# Rows copied per batch.
_ROWS = 1 << 16
# Microseconds in a second.
_SECOND = 10**6


@dataclass(frozen=True)
class UncheckedTimes:
    """Lower-case names of timestamp columns without a range in the footer."""

    milliseconds: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()  # in microseconds, or in days and nanoseconds
    int96: frozenset[str] = frozenset()  # in days and nanoseconds, which no footer describes


def column_names(path: str) -> list[str]:
    """Return the column names of a file."""
    return list(pq.read_schema(path).names)


def schema_key(path: str) -> Hashable | None:
    """Return a key of a file's schema; None if Arrow cannot read the footer."""
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
    """Return True if the footer shows that all values of a column are in [low, high]."""
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

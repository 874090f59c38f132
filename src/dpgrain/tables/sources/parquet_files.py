"""Parquet files as a source: DuckDB reads a copy of a file with values that would end its query."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import duckdb

from dpgrain.errors import SchemaError, raise_without_context
from dpgrain.tables.engines.spill import COPIES
from dpgrain.tables.engines.sql import quoted
from dpgrain.tables.sources.column_names import require_names
from dpgrain.tables.sources.column_sql import file_list
from dpgrain.tables.sources.column_types import TEXT, TIMES, is_readable, read_as, read_expression
from dpgrain.tables.sources.duckdb_connection import spill_path
from dpgrain.tables.sources.files import FileCache, FileSource, Schemas, file_state
from dpgrain.tables.sources.folders import matches_duckdb
from dpgrain.tables.sources.large_texts import COPIED_ROWS, copy_texts, large_text_columns
from dpgrain.tables.sources.parquet_times import (
    UncheckedTimes,
    column_names,
    copy_valid_times,
    out_of_range_int96,
    schema_key,
    unchecked_times,
)
from dpgrain.tables.sources.read_errors import translate_errors
from dpgrain.tables.sources.schemas import describe_columns, schema_reader

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
        with translate_errors(self.name):
            schemas = {path: self._footers.get(path) for path in self.paths}
            for path, schema in schemas.items():
                if any(read_as(kind) in TIMES for kind in schema.values()):
                    self._unchecked_times.get(path)
        names = list(schemas[self.paths[0]])
        return {path: self._renamed(path, names, schema) for path, schema in schemas.items()}

    def _renamed(self, path: str, names: list[str], schema: Mapping[str, str]) -> dict[str, str]:
        """Return a file's schema under the first file's column names, without further columns."""
        folded = {column.casefold(): kind for column, kind in schema.items()}
        if lacking := [column for column in names if column.casefold() not in folded]:
            raise SchemaError(
                f"The file {path!r} lacks the column {lacking[0]!r} of {self.paths[0]!r}; "
                "use the same columns in every file."
            )
        return {column: folded[column.casefold()] for column in names}

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
        """Return the file or a copy in the spill folder, and column → SQL there.

        `kinds` is column → type in the file, `columns` column → type to read it as.
        """
        unchecked, out_of_range = UncheckedTimes(), frozenset[str]()
        used = {name.casefold() for name in columns}
        if any(kind in TIMES for kind in columns.values()):
            with translate_errors(self.name):
                unchecked = self._unchecked_times.get(path)
                if not used.isdisjoint(unchecked.int96):
                    out_of_range = self._out_of_range_int96.get(path)
        large = False
        if TEXT in columns.values():
            with translate_errors(self.name):
                large = not used.isdisjoint(self._large_texts.get(path))
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
    """Return the SQL of files with one schema, with columns from folder names or without."""
    # Types guessed from folder names would depend on each of them, and bytes that are not UTF-8
    # would end the release.
    options = f"hive_partitioning={str(folders).lower()}, hive_types_autocast=false"
    return f"read_parquet({file_list(paths)}, {options}{_replace_invalid_utf8()})"


@cache
def _replace_invalid_utf8() -> str:
    """Return the option that makes DuckDB replace invalid UTF-8; empty for versions without it."""
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

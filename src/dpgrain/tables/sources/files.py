"""Base of file sources, and a cache of facts about files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import duckdb

from dpgrain.errors import SchemaError
from dpgrain.tables.engines.sql import literal, quoted, select_from, select_list
from dpgrain.tables.sources.column_types import TEXT, widest
from dpgrain.tables.sources.duckdb_connection import translate_errors
from dpgrain.tables.sources.folders import Partition

Fact = TypeVar("Fact")
#: File → column → type in that file, under the first file's column names.
Schemas: TypeAlias = Mapping[str, Mapping[str, str]]

# DuckDB's index of a row's file, unless a file has a column of this name.
_FILE_COLUMN = "file_index"


def file_state(path: str) -> tuple[int, int, int]:
    """Return a file's size in bytes, time of last change in ns, and inode."""
    result = Path(path).stat()
    return result.st_size, result.st_mtime_ns, result.st_ino


class FileCache(Generic[Fact]):
    """Facts about files, each computed again when its file changes."""

    def __init__(self, compute: Callable[[str], Fact]) -> None:
        self._compute = compute
        self._facts: dict[str, tuple[tuple[int, int, int], Fact]] = {}

    def get(self, path: str) -> Fact:
        """Return the current fact about a file; raises DataError if the file cannot be read."""
        with translate_errors(f"The file {path!r}"):
            # State first: a file that changes in the meantime is read again by the next call.
            state = file_state(path)
            known = self._facts.get(path)
            if known is None or known[0] != state:
                known = self._facts[path] = (state, self._compute(path))
            return known[1]


@dataclass(frozen=True)
class FileSource(ABC):
    """Files of one type; columns from folder names are text, and files' columns win."""

    paths: tuple[str, ...]
    partitions: tuple[Partition, ...] = ()  # columns that folder names add to each file

    @property
    def name(self) -> str:
        """The file, or the first of several."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"The file {self.paths[0]!r}{more}"

    @property
    def title(self) -> str:
        """The file's name, or the first of several."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{Path(self.paths[0]).name}{more}"

    def columns(self) -> dict[str, str]:
        """Return column name → type at the first call."""
        return dict(self._opened)

    @cached_property
    def _opened(self) -> dict[str, str]:
        return self._columns(self._schemas())

    @cached_property
    def _folder_values(self) -> dict[str, dict[str, str | None]]:
        """File → column → value, from folder names."""
        partitions = self.partitions or ((),) * len(self.paths)
        return {path: dict(each) for path, each in zip(self.paths, partitions, strict=True)}

    def _columns(self, schemas: Schemas) -> dict[str, str]:
        """Return column → type: the files' columns, then columns from folder names."""
        first = schemas[self.paths[0]]
        own = {column: widest([each[column] for each in schemas.values()]) for column in first}
        taken = {column.casefold() for column in own}
        folders = [
            name for name in self._folder_values[self.paths[0]] if name.casefold() not in taken
        ]
        return {**own, **dict.fromkeys(folders, TEXT)}

    def attach(
        self, connection: duckdb.DuckDBPyConnection, used: Collection[str] | None = None
    ) -> str:
        """Return SQL over files, with copies of malformed ones in the spill folder."""
        schemas = self._schemas()
        columns = self._columns(schemas)
        if columns != self._opened:
            raise SchemaError(
                f"{self.name} has different columns than when it was opened; call dg.read again."
            )
        wanted = {name: kind for name, kind in columns.items() if used is None or name in used}
        files = self._open_files(connection, wanted, schemas)
        groups: dict[tuple[str, ...], tuple[dict[str, str], list[str]]] = {}
        for path, (_, read) in files.items():
            alone = path if self._folder_values[path] and self._hides_file_column(path) else ""
            groups.setdefault((alone, *read.values()), (read, []))[1].append(path)
        parts = []
        for read, paths in groups.values():
            folders = [name for name in wanted if name not in read]
            parts.append(
                self._read_together({path: files[path][0] for path in paths}, read, folders)
            )
        if len(parts) == 1:
            return parts[0]
        listed = select_list({column: quoted(column) for column in wanted})
        return f"({' UNION ALL '.join(f'SELECT {listed} FROM {part}' for part in parts)})"

    def _read_together(
        self, files: Mapping[str, str], read: Mapping[str, str], folders: Sequence[str]
    ) -> str:
        """Return the SQL of files with equal columns; `files` is file → itself or its copy."""
        # DuckDB skips whole files if it reads the folder names itself.
        by_duckdb = self._duckdb_reads_folders(files)
        rows = self._reader(list(files.values()), folders=bool(folders) and by_duckdb)
        values = {name: [self._folder_values[path][name] for path in files] for name in folders}
        added = {
            name: quoted(name) if by_duckdb else _value_by_file(values[name]) for name in folders
        }
        return select_from(rows, {**read, **added})

    def _hides_file_column(self, path: str) -> bool:
        """Return True if a column of a file hides DuckDB's column of the file's index."""
        return _FILE_COLUMN in map(str.casefold, self._file_columns(path))

    def _duckdb_reads_folders(self, files: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Return True if DuckDB reads the same columns from these files' folder names."""
        return False

    @abstractmethod
    def _schemas(self) -> Schemas:
        """Return the current schemas of the files."""

    @abstractmethod
    def _file_columns(self, path: str) -> Iterable[str]:
        """Return the columns of a file, including additional ones."""

    @abstractmethod
    def _open_files(
        self, connection: duckdb.DuckDBPyConnection, columns: Mapping[str, str], schemas: Schemas
    ) -> dict[str, tuple[str, dict[str, str]]]:
        """Return file → the file or a copy in the spill folder, and column → SQL there."""

    @abstractmethod
    def _reader(self, files: Sequence[str], *, folders: bool) -> str:
        """Return the SQL of DuckDB's reader of files, with or without folder columns."""


def _value_by_file(values: Sequence[str | None]) -> str:
    """Return the SQL of one value per file, for files read together."""
    listed = ", ".join("NULL" if value is None else literal(value) for value in values)
    index = 1 if len(values) == 1 else f"{_FILE_COLUMN}::BIGINT + 1"
    return f"CAST([{listed}] AS VARCHAR[])[{index}]"

"""Files of paths, patterns and folders, and columns from folder names.

All rows below a folder ``month=2025-01`` have the ``month`` ``2025-01``: the partitions of Hive,
Spark and pyarrow. The values are text; no type is guessed.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path, PurePath
from typing import Any, TypeAlias
from urllib.parse import unquote

from dpgrain import _validate
from dpgrain._files import exists, record_input
from dpgrain.errors import AccessError, ParameterError, SchemaError

PARQUET_ENDINGS = (".parquet", ".pq")
CSV_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
# Folder name value of a null.
_NULL = "__HIVE_DEFAULT_PARTITION__"
# Folder names that DuckDB decodes as this module does.
_PLAIN = re.compile(r"\w+=(?:[\w .:,-]|%[2-7][0-9A-Fa-f])+")
# Folders of table formats with files that also contain deleted rows.
_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
#: Columns and values from folder names; None for null.
Partition: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class FileList:
    """Files of one type."""

    paths: tuple[str, ...]
    partitions: tuple[Partition, ...]

    @property
    def are_csv(self) -> bool:
        """True for CSV files, False for Parquet."""
        return self.paths[0].lower().endswith(CSV_ENDINGS)

    @staticmethod
    def create(patterns: Sequence[str | Path]) -> FileList:
        """List the files of paths, patterns and folders, each once.

        A folder means all files below it, except names that begin with a dot or an underscore.
        """
        listed = [each for pattern in patterns for each in _listed(str(pattern))]
        known = _without_repeats(listed)
        record_input(*known)
        for path in known:
            if not Path(path).suffix and not exists(Path(path)):
                raise AccessError(f"There is no file or folder {path!r}; check the path.")
            if not path.lower().endswith(PARQUET_ENDINGS + CSV_ENDINGS):
                raise ParameterError(
                    f"source {path!r} must end in .parquet, .csv or .csv.gz, or be a folder of "
                    "such files; convert or rename it."
                )
            if not Path(path).is_file():
                raise AccessError(f"The file {path!r} does not exist; check the path.")
            if not os.access(path, os.R_OK):
                raise AccessError(f"The file {path!r} cannot be read; check its permissions.")
        if len({path.lower().endswith(CSV_ENDINGS) for path in known}) > 1:
            raise ParameterError(
                "source must not mix Parquet and CSV files; read one type at a time."
            )
        partitions = {path: read_partition(PurePath(path), known[path]) for path in known}
        require_same_columns(partitions)
        return FileList(tuple(partitions), tuple(partitions.values()))


def read_partition(path: PurePath, root: PurePath) -> Partition:
    """Return the columns from the names of the folders between a root and a file."""
    between = path.parent.parts[len(root.parts) :]
    parted = (name.partition("=") for name in between)
    return tuple(
        (unquote(name), _value(value)) for name, equals, value in parted if equals and name
    )


def matches_duckdb(path: str, partition: Partition) -> bool:
    """Return True if DuckDB, which reads all folder names, reads the same columns."""
    names = [name for name in PurePath(path).parent.parts if "=" in name]
    return len(names) == len(partition) and all(
        _PLAIN.fullmatch(name) and (value is not None or name.endswith(f"={_NULL}"))
        for name, (_, value) in zip(names, partition, strict=True)
    )


def _value(written: str) -> str | None:
    """Return the value in a folder name; None for null or invalid text."""
    try:
        value = unquote(written, errors="strict")
        value.encode()
    except UnicodeError:
        return None
    return None if written == _NULL or "\0" in value else value


def require_same_columns(partitions: dict[str, Partition]) -> None:
    """Reject folder names of files with different columns, or with one column twice."""
    first, partition = next(iter(partitions.items()))
    columns = [name for name, _ in partition]
    for path, other in partitions.items():
        if [name for name, _ in other] != columns:
            raise SchemaError(
                f"The folders of the file {path!r} must name the same columns as those of "
                f"{first!r}; use the same levels of name=value in the same order."
            )
    if len({name.casefold() for name in columns}) < len(columns):
        raise SchemaError(f"The folders of the file {first!r} name a column twice; rename a level.")


def _listed(pattern: str) -> Iterator[tuple[str, PurePath]]:
    """Yield the files of a pattern, each with its root above column folders."""
    try:
        is_file, is_folder = Path(pattern).is_file(), Path(pattern).is_dir()
    except OSError as error:
        raise AccessError(
            f"The file {_validate.describe(pattern)} cannot be read; check the path."
        ) from error
    if is_file:
        yield pattern, PurePath(pattern).parent
        return
    if is_folder:
        yield from ((path, PurePath(pattern)) for path in _below(pattern))
        return
    root, *_ = (
        folder for folder in (PurePath(pattern), *PurePath(pattern).parents)
        if not glob.has_magic(str(folder))
    )  # fmt: skip
    # Path.glob rejects absolute patterns.
    for path in sorted(glob.glob(pattern, recursive=True)) or [pattern]:  # noqa: PTH207
        yield from ((each, root) for each in (_below(path) if Path(path).is_dir() else [path]))


def _below(folder: str) -> list[str]:
    """Return the files below a folder, sorted by name."""
    files: list[str] = []
    seen: set[tuple[int, int]] = set()
    try:
        for parent, folders, names in os.walk(folder, followlinks=True, onerror=_reraise):
            path = Path(parent)
            refuse_versioned_table(folder, ((path.name, name) for name in (*folders, *names)))
            state = path.stat()
            # A link can lead back to a parent folder.
            if (state.st_dev, state.st_ino) in seen:
                folders.clear()
                continue
            seen.add((state.st_dev, state.st_ino))
            folders[:] = sorted(name for name in folders if is_data_file(name))
            files += [str(path / name) for name in sorted(names) if is_data_file(name)]
    except OSError as error:
        raise AccessError(
            f"The folder {folder!r} cannot be listed; check its permissions."
        ) from error
    if not files:
        raise AccessError(f"The folder {folder!r} contains no files; check the path.")
    return files


def is_data_file(name: str) -> bool:
    """Return True if a file or folder belongs to its table, by its name."""
    return not name.startswith((".", "_"))


def _reraise(error: OSError) -> None:
    raise error


def refuse_versioned_table(folder: str, below: Iterable[tuple[str, str]]) -> None:
    """Reject a folder with a (parent, name) of a versioned table."""
    kind = next(filter(None, starmap(_table_format, below)), None)
    if kind is not None:
        raise ParameterError(
            f"source {folder!r} must not be a table of {kind}, because its folder also "
            "contains changed or deleted rows; open it with its own library, and pass the "
            "resulting dataset or Arrow stream.",
            name="source",
        )


def _table_format(parent: str, name: str) -> str | None:
    if parent == "metadata" and name.endswith(".metadata.json"):
        return "Iceberg"
    return _LOGS.get(name) or _LOGS.get(parent)


def _without_repeats(listed: Iterable[tuple[str, PurePath]]) -> dict[str, PurePath]:
    """Return the paths, one for each file: links and ``./`` give a file several."""
    known: dict[Any, tuple[str, PurePath]] = {}
    for path, root in listed:
        result = Path(path)
        state = result.stat() if result.is_file() else None
        key = path if state is None else (state.st_dev, state.st_ino)
        known.setdefault(key, (path, root))
    return dict(known.values())

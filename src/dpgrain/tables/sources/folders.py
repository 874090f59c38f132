"""The files that paths, patterns and folders stand for, and what the names of folders say of rows.

A folder ``month=2025-01`` says of all rows below it that their ``month`` is ``2025-01``, as Hive, Spark
and pyarrow write partitions. Names are text, and no type is guessed from them.
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
from dpgrain._files import is_there, note_read
from dpgrain.errors import DataError, ParameterError, SchemaError

PARQUET_ENDINGS = (".parquet", ".pq")
#: Endings of CSV files.
CSV_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
# Name of a folder of rows without a value.
_NOTHING = "__HIVE_DEFAULT_PARTITION__"
# What DuckDB reads from the name of a folder as it is read here.
_PLAIN = re.compile(r"\w+=(?:[\w .:,-]|%[2-7][0-9A-Fa-f])+")
# Folders beside the files of a table whose files also hold rows that are no longer in it.
_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
#: Column → value that the names of folders say; None where they say that there is none.
Partition: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class FileList:
    """Files of one kind.

    Args:
        paths: the files, at least one.
        partitions: what the names of folders say of each file's rows.
    """

    paths: tuple[str, ...]
    partitions: tuple[Partition, ...]

    @property
    def are_csv(self) -> bool:
        """True for CSV files, False for Parquet."""
        return self.paths[0].lower().endswith(CSV_ENDINGS)

    @staticmethod
    def of(patterns: Sequence[str | Path]) -> FileList:
        """Return the files that paths, patterns and folders stand for, each once.

        Args:
            patterns: the paths. Of a folder all files below it are meant, but those whose names, or
                those of whose folders, begin with a dot or an underscore.

        Raises:
            ParameterError: if files are of another kind, or of several.
            DataError: if there is no such file.
            SchemaError: if the names of folders do not say the same columns of all files.
        """
        listed = [each for pattern in patterns for each in _listed(str(pattern))]
        known = _different(listed)
        note_read(*known)
        for path in known:
            if not Path(path).suffix and not is_there(Path(path)):
                raise DataError(f"There is no file or folder {path!r}; check the path.")
            if not path.lower().endswith(PARQUET_ENDINGS + CSV_ENDINGS):
                raise ParameterError(
                    f"source {path!r} must end in .parquet, .csv or .csv.gz, or be a folder of such "
                    "files; convert or rename it."
                )
            if not Path(path).is_file():
                raise DataError(f"The file {path!r} does not exist; check the path.")
        if len({path.lower().endswith(CSV_ENDINGS) for path in known}) > 1:
            raise ParameterError(
                "source must not mix Parquet and CSV files; read one type at a time."
            )
        partitions = {path: read_partition(PurePath(path), known[path]) for path in known}
        require_same_columns(partitions)
        return FileList(tuple(partitions), tuple(partitions.values()))


def read_partition(path: PurePath, root: PurePath) -> Partition:
    """Return what the names of folders between a root and a file say of its rows.

    Args:
        path: the file.
        root: a folder above it, whose own name is not asked.

    >>> read_partition(PurePath("lake/year=2025/topic=a%2Fb/rows.parquet"), PurePath("lake"))
    (('year', '2025'), ('topic', 'a/b'))
    """
    between = path.parent.parts[len(root.parts) :]
    parted = (name.partition("=") for name in between)
    return tuple(
        (unquote(name), _value(value)) for name, equals, value in parted if equals and name
    )


def is_read_alike(path: str, partition: Partition) -> bool:
    """Return whether DuckDB, which asks the names of all folders of a path, reads the same from them.

    Args:
        path: the file.
        partition: what the names of its folders say.

    >>> is_read_alike("lake/year=2025/rows.parquet", (("year", "2025"),))
    True
    >>> is_read_alike("user=ann/lake/year=2025/rows.parquet", (("year", "2025"),))
    False
    """
    said = [name for name in PurePath(path).parent.parts if "=" in name]
    return len(said) == len(partition) and all(
        _PLAIN.fullmatch(name) and (value is not None or name.endswith(f"={_NOTHING}"))
        for name, (_, value) in zip(said, partition, strict=True)
    )


def _value(written: str) -> str | None:
    """Return the value in the name of a folder; None where it has none that a text can be."""
    try:
        value = unquote(written, errors="strict")
        value.encode()
    except UnicodeError:
        return None
    return None if written == _NOTHING or "\0" in value else value


def require_same_columns(partitions: dict[str, Partition]) -> None:
    """Raise unless the names of folders say the same columns of all files.

    Args:
        partitions: file → what the names of its folders say.

    Raises:
        SchemaError: if they do not, or say one twice.
    """
    first, said = next(iter(partitions.items()))
    columns = [name for name, _ in said]
    for path, other in partitions.items():
        if [name for name, _ in other] != columns:
            raise SchemaError(
                f"The folders of the file {path!r} must name the same columns as those of "
                f"{first!r}; use the same levels of name=value in the same order."
            )
    if len({name.casefold() for name in columns}) < len(columns):
        raise SchemaError(f"The folders of the file {first!r} name a column twice; rename a level.")


def _listed(pattern: str) -> Iterator[tuple[str, PurePath]]:
    """Yield the files that a pattern stands for, each with the folder above which no name is asked."""
    try:
        is_file, is_folder = Path(pattern).is_file(), Path(pattern).is_dir()
    except OSError as error:
        raise DataError(
            f"The file {_validate.said(pattern)} cannot be read; check the path."
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
    # Path.glob takes no absolute pattern.
    for path in sorted(glob.glob(pattern, recursive=True)) or [pattern]:  # noqa: PTH207
        yield from ((each, root) for each in (_below(path) if Path(path).is_dir() else [path]))


def _below(folder: str) -> list[str]:
    """Return the files below a folder, in the order of their names.

    Raises:
        DataError: if it cannot be listed, or holds none.
        ParameterError: if it is a table whose files also hold rows that are no longer in it.
    """
    files: list[str] = []
    seen: set[tuple[int, int]] = set()
    try:
        for place, folders, names in os.walk(folder, followlinks=True, onerror=_raised):
            here = Path(place)
            refuse_versioned_table(folder, ((here.name, name) for name in (*folders, *names)))
            state = here.stat()
            # Links may lead back to a folder above.
            if (state.st_dev, state.st_ino) in seen:
                folders.clear()
                continue
            seen.add((state.st_dev, state.st_ino))
            folders[:] = sorted(name for name in folders if is_data_file(name))
            files += [str(here / name) for name in sorted(names) if is_data_file(name)]
    except OSError as error:
        raise DataError(
            f"The folder {folder!r} cannot be listed; check its permissions."
        ) from error
    if not files:
        raise DataError(f"The folder {folder!r} contains no files; check the path.")
    return files


def is_data_file(name: str) -> bool:
    """Return whether a file or folder below a folder is one of its table's, by its name.

    >>> is_data_file("part-0.parquet"), is_data_file("_SUCCESS"), is_data_file(".part-0.parquet.crc")
    (True, False, False)
    """
    return not name.startswith((".", "_"))


def _raised(error: OSError) -> None:
    raise error


def refuse_versioned_table(folder: str, below: Iterable[tuple[str, str]]) -> None:
    """Refuse a table of a format whose folder also holds files of earlier versions.

    Args:
        folder: the folder.
        below: the name of each file and folder below it, after that of the folder in which it lies.

    Raises:
        ParameterError: if it is such a table.
    """
    kind = next(filter(None, starmap(_format_of, below)), None)
    if kind is not None:
        raise ParameterError(
            f"source {folder!r} must not be a table of {kind}, because its folder also "
            "contains changed or deleted rows; open it with its own library, and pass the "
            "resulting dataset or Arrow stream.",
            name="source",
        )


def _format_of(parent: str, name: str) -> str | None:
    if parent == "metadata" and name.endswith(".metadata.json"):
        return "Iceberg"
    return _LOGS.get(name) or _LOGS.get(parent)


def _different(listed: Iterable[tuple[str, PurePath]]) -> dict[str, PurePath]:
    """Return the paths without those of a file that an earlier one names: its records are there once.

    A file has several names through ``./``, links, and folders that are linked.
    """
    known: dict[Any, tuple[str, PurePath]] = {}
    for path, root in listed:
        result = Path(path)
        state = result.stat() if result.is_file() else None
        key = path if state is None else (state.st_dev, state.st_ino)
        known.setdefault(key, (path, root))
    return dict(known.values())

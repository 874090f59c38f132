"""Parquet files in S3 buckets, read by pyarrow: a folder with its partitions, or objects.

Credentials come from the environment (``AWS_ACCESS_KEY_ID``, a role, ``~/.aws``), never an address.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from dpgrain.errors import (
    DataError,
    DpgrainError,
    ParameterError,
    SchemaError,
    raise_without_context,
)
from dpgrain.tables.sources.column_names import require_names
from dpgrain.tables.sources.folders import (
    PARQUET_ENDINGS,
    Partition,
    is_data_file,
    read_partition,
    refuse_versioned_table,
    require_same_columns,
)

# Footers read in parallel, because each waits for the network.
_FOOTERS = 16
_FORMAT = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))


def open_dataset(addresses: Sequence[str]) -> ds.FileSystemDataset:
    """Open the dataset of all Parquet files at addresses ``s3://bucket/folder``.

    They accept the options of :meth:`pyarrow.fs.FileSystem.from_uri` (``?region=eu-west-1``).
    """
    with _translate_errors():
        files: dict[str, tuple[Any, PurePosixPath]] = {}
        for address in addresses:
            _require_plain(address)
            system, path = fs.FileSystem.from_uri(address)
            for each, root in _listed(system, path):
                files.setdefault(each, (system, root))
        partitions = {
            path: read_partition(PurePosixPath(path), root) for path, (_, root) in files.items()
        }
        require_same_columns({PurePosixPath(path).name: each for path, each in partitions.items()})
        with ThreadPoolExecutor(_FOOTERS) as pool:
            schemas = dict(zip(files, pool.map(_read_schema, files, files.values()), strict=True))
    (name, first), *others = (
        (PurePosixPath(path).name, schema) for path, schema in schemas.items()
    )
    require_names(first.names, f"The file {name!r}")
    for other, schema in others:
        if not schema.equals(first):
            raise SchemaError(
                f"The file {other!r} must have the same columns and types as {name!r}; "
                "write all files the same way."
            )
    own = {column.casefold() for column in first.names}
    folders = [name for name, _ in next(iter(partitions.values())) if name.casefold() not in own]
    fragments = [
        _FORMAT.make_fragment(path, system, _folder_values(partitions[path], folders))
        for path, (system, _) in files.items()
    ]
    schema = pa.schema([*first, *(pa.field(name, pa.string()) for name in folders)])
    return ds.FileSystemDataset(fragments, schema, _FORMAT, fragments[0].filesystem)


def _require_plain(address: str) -> None:
    """Raise ParameterError if an address contains a key or a pattern."""
    location, _, _ = address.partition("?")
    if "@" in location.partition("://")[2].partition("/")[0]:
        raise ParameterError(
            "source must not contain an S3 key; set it in the environment (AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE).",
            name="source",
        )
    if glob.has_magic(location):
        raise ParameterError(
            "source must be a folder or files in S3, not a pattern; pass the folder, and "
            "select rows with where.",
            name="source",
        )


def _listed(system: Any, path: str) -> Iterator[tuple[str, PurePosixPath]]:
    """Yield the files at a path, each with its root above column folders."""
    known = system.get_file_info(path)
    if known.type == fs.FileType.NotFound:
        raise DataError(
            f"S3 has no file or folder {PurePosixPath(path).name!r}; check the address."
        )
    root = PurePosixPath(path)
    if known.is_file:
        files = [(path, root.parent)]
    else:
        below = system.get_file_info(fs.FileSelector(path, recursive=True))
        paths = [PurePosixPath(each.path) for each in below]
        refuse_versioned_table(root.name, ((path.parent.name, path.name) for path in paths))
        files = [
            (each.path, root) for each in below if each.is_file and _is_visible(each.path, root)
        ]
    if not files:
        raise DataError(f"The S3 folder {root.name!r} contains no files; check the address.")
    for each, _ in files:
        if not each.lower().endswith(PARQUET_ENDINGS):
            raise ParameterError(
                f"source {PurePosixPath(each).name!r} must end in .parquet: only Parquet can "
                "be read from S3."
            )
    yield from sorted(files)


def _is_visible(path: str, root: PurePosixPath) -> bool:
    return all(map(is_data_file, PurePosixPath(path).parts[len(root.parts) :]))


def _read_schema(path: str, location: tuple[Any, PurePosixPath]) -> pa.Schema:
    """Return the schema in the footer of a file."""
    return _FORMAT.make_fragment(path, location[0]).physical_schema.remove_metadata()


def _folder_values(partition: Partition, columns: Sequence[str]) -> Any:
    """Return an expression that is true for a file: its columns from folder names."""
    result = pc.scalar(True)
    for name, value in partition:
        if name in columns:
            result &= pc.field(name).is_null() if value is None else pc.field(name) == value
    return result


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Replace exceptions of pyarrow: their text can contain hosts and keys."""
    try:
        yield
    except DpgrainError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        message = (
            "The S3 files cannot be reached; check the address, the region (?region=…) and the "
            "credentials in the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE)."
        )
        raise_without_context(DataError(message))

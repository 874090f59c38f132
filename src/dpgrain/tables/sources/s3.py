"""Parquet files in buckets of S3, which pyarrow reads: a folder, with its partitions, or objects.

Credentials are those of the environment (``AWS_ACCESS_KEY_ID``, a role, ``~/.aws``), never a part of an
address.
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

from dpgrain.errors import DataError, DpgrainError, ParameterError, SchemaError, raise_alone
from dpgrain.tables.sources.column_names import require_names
from dpgrain.tables.sources.folders import (
    PARQUET_ENDINGS,
    Partition,
    is_data_file,
    read_partition,
    refuse_versioned_table,
    require_same_columns,
)

# Footers that are read side by side, each of which waits for the network.
_FOOTERS = 16
_FORMAT = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))


def open_dataset(addresses: Sequence[str]) -> ds.FileSystemDataset:
    """Return the dataset of all Parquet files at some addresses.

    Args:
        addresses: addresses such as ``s3://bucket/folder``, whose options are those of
            :meth:`pyarrow.fs.FileSystem.from_uri` (``?region=eu-west-1``).

    Raises:
        ParameterError: if an address holds a password or a pattern, or is of another kind of file.
        DataError: if nothing is there, or it cannot be reached.
        SchemaError: if files have other columns, or columns of other types, than the first.
    """
    with _reached():
        files: dict[str, tuple[Any, PurePosixPath]] = {}
        for address in addresses:
            _require_plain(address)
            system, path = fs.FileSystem.from_uri(address)
            for each, root in _listed(system, path):
                files.setdefault(each, (system, root))
        partitions = {
            path: read_partition(PurePosixPath(path), root) for path, (_, root) in files.items()
        }
        require_same_columns({PurePosixPath(path).name: said for path, said in partitions.items()})
        with ThreadPoolExecutor(_FOOTERS) as pool:
            schemas = dict(zip(files, pool.map(_schema_of, files, files.values()), strict=True))
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
    held = {column.casefold() for column in first.names}
    said = [name for name, _ in next(iter(partitions.values())) if name.casefold() not in held]
    fragments = [
        _FORMAT.make_fragment(path, system, _says(partitions[path], said))
        for path, (system, _) in files.items()
    ]
    schema = pa.schema([*first, *(pa.field(name, pa.string()) for name in said)])
    return ds.FileSystemDataset(fragments, schema, _FORMAT, fragments[0].filesystem)


def _require_plain(address: str) -> None:
    """Raise where an address holds what must not be shown, or what is not read."""
    place, _, _ = address.partition("?")
    if "@" in place.partition("://")[2].partition("/")[0]:
        raise ParameterError(
            "source must not contain an S3 key; set it in the environment (AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE).",
            name="source",
        )
    if glob.has_magic(place):
        raise ParameterError(
            "source must be a folder or files in S3, not a pattern; pass the folder, and "
            "select rows with where.",
            name="source",
        )


def _listed(system: Any, path: str) -> Iterator[tuple[str, PurePosixPath]]:
    """Yield the files at a place, each with the folder above which no name is asked."""
    known = system.get_file_info(path)
    if known.type == fs.FileType.NotFound:
        raise DataError(
            f"S3 has no file or folder {PurePosixPath(path).name!r}; check the address."
        )
    root = PurePosixPath(path)
    if known.is_file:
        found = [(path, root.parent)]
    else:
        below = system.get_file_info(fs.FileSelector(path, recursive=True))
        paths = [PurePosixPath(each.path) for each in below]
        refuse_versioned_table(root.name, ((path.parent.name, path.name) for path in paths))
        found = [(each.path, root) for each in below if each.is_file and _is_shown(each.path, root)]
    if not found:
        raise DataError(f"The S3 folder {root.name!r} contains no files; check the address.")
    for each, _ in found:
        if not each.lower().endswith(PARQUET_ENDINGS):
            raise ParameterError(
                f"source {PurePosixPath(each).name!r} must end in .parquet: only Parquet can "
                "be read from S3."
            )
    yield from sorted(found)


def _is_shown(path: str, root: PurePosixPath) -> bool:
    return all(map(is_data_file, PurePosixPath(path).parts[len(root.parts) :]))


def _schema_of(path: str, place: tuple[Any, PurePosixPath]) -> pa.Schema:
    """Return the columns of a file, from its footer."""
    return _FORMAT.make_fragment(path, place[0]).physical_schema.remove_metadata()


def _says(partition: Partition, columns: Sequence[str]) -> Any:
    """Return what the folders of a file say of some columns, as an expression that is true there."""
    says = pc.scalar(True)
    for name, value in partition:
        if name in columns:
            says &= pc.field(name).is_null() if value is None else pc.field(name) == value
    return says


@contextmanager
def _reached() -> Iterator[None]:
    """Turn what pyarrow says of a place into one sentence; its own text may name hosts and keys."""
    try:
        yield
    except DpgrainError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        told = (
            "The S3 files cannot be reached; check the address, the region (?region=…) and the "
            "credentials in the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE)."
        )
        raise_alone(DataError(told))

"""Files that are written whole or not at all, and the folder of public tables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgrain._later import later
from dpgrain.errors import DataError, ParameterError

if TYPE_CHECKING:
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as arrow_parquet
else:
    arrow_csv, arrow_parquet = later("pyarrow.csv"), later("pyarrow.parquet")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{str(path)!r} cannot be written; check the folder, its permissions and free space."
        ) from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; that file replaces ``path`` only if all went well.

    Raises:
        DataError: if the file cannot be written.
    """
    with _writing(path), ExitStack() as stack:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix, delete=False
        ) as file:
            part = Path(file.name)
        stack.callback(part.unlink, missing_ok=True)
        yield part
        # A temporary file is readable by its owner only; a release is public.
        part.chmod(0o644)
        part.replace(path)


def on_disk(place: Path) -> None:
    """Return when what was written to a file, or the names in a folder, are on the disk.

    Args:
        place: the file or folder.

    Raises:
        OSError: if they cannot be written.
    """
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_table(table: Any, path: Path) -> None:
    """Write an Arrow table as CSV or Parquet, by the ending of the path.

    Raises:
        DataError: if the file cannot be written.
    """
    with whole_file(path) as part:
        if path.suffix.lower() == ".csv":
            arrow_csv.write_csv(table, part)
        else:
            arrow_parquet.write_table(table, part, compression="zstd")


def check_folder(path: Path) -> None:
    """Raise unless there is a folder at ``path``, or one could be made.

    Raises:
        DataError: if there is none and none can be made.
    """
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if there != path:
        check_writable(there / path.name)
    elif not path.is_dir():
        raise DataError(f"{str(path)!r} is no folder; name a folder for the outputs.")


def make_folder(path: Path) -> None:
    """Make a folder where there is none, with those that it lies in.

    Raises:
        DataError: if it cannot be made.
    """
    with _writing(path):
        path.mkdir(parents=True, exist_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise unless a file could be written at ``path``, so that no release is made in vain.

    Raises:
        DataError: if the file could not be written.
    """
    path = Path(path)
    with _writing(path):
        if path.is_dir():
            raise IsADirectoryError(path)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            pass


def check_outputs(
    outputs: Sequence[Path | None],
    inputs: Sequence[str | Path | None],
    *,
    new: Path | None = None,
) -> None:
    """Refuse outputs that could not be written, or would overwrite an input or another output.

    Args:
        outputs: the files to write.
        inputs: the files that are read.
        new: a folder that is made before anything is written, where there is none yet.

    Raises:
        ParameterError: if two of the files are the same.
        DataError: if an output cannot be written.
    """
    taken = {Path(path).resolve() for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise ParameterError(
                f"{str(path)!r} is already used in this command; name another file."
            )
        taken.add(path.resolve())
        if path.parent != new or path.parent.exists():
            check_writable(path)


def data_folder(*names: str, stated: Path | None = None) -> Path:
    """Return the folder of public tables, which the environment variable ``DPGRAIN_DATA`` names.

    Args:
        names: the files that the folder must hold.
        stated: a folder to use instead of that of the variable.

    Tables are looked for in no other place.

    Raises:
        DataError: if the variable is not set, or a file is missing.
    """
    variable = os.environ.get("DPGRAIN_DATA")
    if stated is None and not variable:
        tables = ", ".join(names) or "the public tables"
        raise DataError(f"DPGRAIN_DATA is not set: let it name the folder that holds {tables}.")
    folder = Path(variable or ".") if stated is None else stated
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"The folder {str(folder)!r} lacks {', '.join(missing)}: let DPGRAIN_DATA name the one "
            "that holds them."
        )
    return folder

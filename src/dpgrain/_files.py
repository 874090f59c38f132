"""Atomic writing of files, checks of inputs and outputs, and the folder of public tables."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain.errors import AccessError, DataError, ParameterError, RefusedError

if TYPE_CHECKING:
    import fcntl

    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as arrow_parquet
else:
    # Windows lacks it.
    fcntl = lazy_import("fcntl")
    arrow_csv, arrow_parquet = lazy_import("pyarrow.csv"), lazy_import("pyarrow.parquet")

# Field of a guarantee file: the SHA-256 hash of the numbers that the guarantee covers.
NUMBERS = "numbers"
#: Field of a guarantee file with the guarantee of all releases of a run together.
TOGETHER = "together"
#: Free space that each output needs before a charge, in bytes: 4 MiB, more than most pages.
SPACE = 4 * 2**20
# Errors of a full disk or quota.
_FULL = {errno.ENOSPC, errno.EDQUOT}
# Errors of the system about a path, which waiting does not repair.
_MISTAKES = {
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT,
    errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip
# Maximum wait for a dry run that tests a lock, and pause between attempts, in seconds.
_PATIENCE_SECONDS, _PAUSE_SECONDS = 5.0, 0.01
# Maximum characters of a path in a message.
_LONGEST_SHOWN = 300
# File suffixes that an HTML page must not have.
_NO_PAGES = (".csv", ".json", ".parquet", ".xlsx", ".pdf", ".png", ".svg")
_Known: TypeAlias = Path | tuple[int, int]

# Temporary files, and the replacement of an existing file by them, at the end of a block.
_Delayed: TypeAlias = list[tuple[ExitStack, Callable[[], None]]]
_delayed: ContextVar[_Delayed | None] = ContextVar("_delayed", default=None)


def exists(path: Path) -> bool:
    """Return whether a file or folder exists; False if the name is too long."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _shorten_path(path: Path) -> str:
    """Return a path for a message, truncated if it is long."""
    return _validate.describe(str(path), _LONGEST_SHOWN)


@contextmanager
def _writing(path: Path, needed: int = 0) -> Iterator[None]:
    """Translate errors of writing a file that needs this many bytes of space."""
    if not _validate.is_utf8(str(path)):
        # Arrow accepts only UTF-8 names, and would reject others after the release.
        raise AccessError(f"{_shorten_path(path)} cannot be written: choose a name in UTF-8.")
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            space = f"{math.ceil(needed / 2**20)} MiB" if needed else "some space"
            raise DataError(
                f"{_shorten_path(path)} cannot be written, because the disk or quota is full; free "
                f"{space}."
            ) from error
        kind = AccessError if error.errno in _MISTAKES else DataError
        raise kind(
            f"{_shorten_path(path)} cannot be written; check the folder, its permissions and "
            "free space."
        ) from error


def check_suffix(
    path: str | Path,
    others: Sequence[str],
    written: str,
    *,
    instead: str = "",
    name: str = "path",
) -> None:
    """Raise ParameterError if a file has the suffix of another format."""
    path = _validate.path(**{name: path})
    if path.suffix.lower() in others:
        raise ParameterError(
            f"{name} {_validate.describe(Path(path).name)} is written as {written}: choose that "
            f"ending{f'; {instead}' if instead else ''}.",
            name=name,
        )


def check_page(path: str | Path | None, *, name: str = "path") -> None:
    """Raise ParameterError if an HTML page would have the suffix of another format."""
    if path is not None:
        check_suffix(path, _NO_PAGES, "an HTML page (.html)", name=name)


@contextmanager
def atomic_write(path: Path, *, promise: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """Yield a temporary path; its file replaces ``path`` when the block succeeds.

    If the process is killed, the guarantee file never belongs to other numbers: the old guarantee is
    removed before the old numbers, and the new one, flushed, renamed before the new numbers.
    """
    _require_file(path)
    with _writing(path), ExitStack() as stack:
        part = stack.enter_context(_temporary_file(path))
        later = _delayed.get()
        # A block may write the temporary file atomically as well.
        before = _delayed.set(None)
        try:
            yield part
        finally:
            _delayed.reset(before)
        guarantee = None
        if promise is not None:
            guarantee = stack.enter_context(_temporary_file(guarantee_path(path)))
            about = {**promise, NUMBERS: file_hash(part)}
            guarantee.write_text(json.dumps(about, ensure_ascii=False), encoding="utf-8")
            for each in (part, guarantee):
                flush_to_disk(each)
        if later is None or not path.exists():
            _replace(path, part, guarantee)
        else:
            later.append((stack.pop_all(), partial(_replace, path, part, guarantee)))


@contextmanager
def replaced_together() -> Iterator[None]:
    """Replace existing files at the end of the block, also after an error; a kill preserves them."""
    waiting: _Delayed = []
    with ExitStack() as stack:
        before = _delayed.set(waiting)
        try:
            yield
        finally:
            _delayed.reset(before)
            # A stack runs its last entry first.
            for temporary, replace in reversed(waiting):
                stack.push(temporary)
                stack.callback(replace)


def _replace(path: Path, part: Path, guarantee: Path | None) -> None:
    """Replace a file and its guarantee by finished ones."""
    guarantee_file = guarantee_path(path)
    with _writing(path):
        # If a new file is missing, this raises before the old ones are removed.
        part.stat()
        if guarantee is not None:
            guarantee.stat()
            _remove(guarantee_file, path)
            guarantee.replace(guarantee_file)
        elif guarantee_file.exists():
            _remove(guarantee_file)
        part.replace(path)


def _require_file(path: Path) -> None:
    """Raise AccessError if the path is a folder or a device."""
    if exists(path) and not path.is_file():
        raise AccessError(
            f"{str(path)!r} is not a regular file, and is not replaced; choose another path."
        )


@contextmanager
def _temporary_file(path: Path) -> Iterator[Path]:
    """Yield a new file in the folder of ``path``, removed at the end unless it was renamed."""
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix, delete=False
    ) as file:
        part = Path(file.name)
    try:
        # A temporary file is readable by its owner only; a release is public.
        part.chmod(0o644)
        yield part
    finally:
        part.unlink(missing_ok=True)


def _remove(*files: Path) -> None:
    """Remove files in this order, and flush each removal to disk before the next."""
    for file in files:
        file.unlink(missing_ok=True)
        flush_to_disk(file.parent)


def guarantee_path(output: Path) -> Path:
    """Return the path of the guarantee file of an output."""
    return output.parent / f"{output.name}.guarantee.json"


def read_guarantee(path: Path) -> dict[str, Any] | None:
    """Return the guarantee stored for a file, as JSON values; None without one."""
    guarantee_file = guarantee_path(path)
    if not exists(guarantee_file):
        return None
    try:
        about = json.loads(guarantee_file.read_text(encoding="utf-8"))
        numbers = about.pop(NUMBERS, None)
        about.pop(TOGETHER, None)
        own = file_hash(path)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(f"{str(path)!r} or its guarantee file cannot be read.") from error
    if numbers is not None and numbers != own:
        raise DataError(
            f"{str(path)!r} has a guarantee file for other numbers, such as after copying or "
            "overwriting: the privacy of these numbers is unknown; find their own guarantee, "
            "or publish again."
        )
    return dict(about)


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_to_disk(place: Path) -> None:
    """Flush the contents of a file, or the names in a folder, to the disk."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_table(table: Any, path: Path) -> None:
    """Write an Arrow table as CSV or Parquet, by the suffix of the path."""
    with atomic_write(path) as part:
        if path.suffix.lower() == ".csv":
            arrow_csv.write_csv(table, part)
        else:
            arrow_parquet.write_table(table, part, compression="zstd")


def check_folder(path: Path) -> None:
    """Raise AccessError unless a folder exists at ``path`` or could be created."""
    existing = next(parent for parent in (path, *path.absolute().parents) if exists(parent))
    if existing != path:
        check_writable(existing / path.name)
    elif not path.is_dir():
        raise AccessError(f"{str(path)!r} is not a folder; choose a folder for the outputs.")


def make_folder(path: Path) -> None:
    """Create a folder with its parents if it does not exist."""
    with _writing(path):
        path.mkdir(parents=True, exist_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise DataError if ``path`` is not writable, before any budget is spent."""
    path = Path(path)
    _require_file(path)
    # The probe has no name, so that a killed process leaves none; a name can be too long.
    longest = path.parent / f".{path.name}.{'x' * 8}{path.suffix}"
    with _writing(path, SPACE), tempfile.TemporaryFile(dir=path.parent) as file:
        with suppress(FileNotFoundError):
            longest.lstat()
        _fill(file.fileno(), SPACE)


def _fill(handle: int, size: int) -> None:
    """Write zeros to a file."""
    zeros = bytes(min(size, SPACE))
    while size > 0:
        size -= os.write(handle, zeros[:size])


@contextmanager
def reserved_space(folder: Path, name: str, size: int) -> Iterator[Callable[[int], None]]:
    """Hold a locked file with this many bytes of space in a folder; yield a function that frees some.

    Raises:
        RefusedError: if another process publishes the release file ``name`` into the folder.
        DataError: if the space is not free.
    """
    path = _lock_path(folder, name)
    handle = _opened_alone(path)
    if handle is None:
        raise _busy(folder, name)
    try:
        # Each output is then tried with its own space.
        with _writing(path, size + SPACE):
            os.ftruncate(handle, 0)
            _fill(handle, size)
            os.fsync(handle)
        yield lambda freed: os.ftruncate(handle, max(os.fstat(handle).st_size - freed, 0))
    finally:
        # The folder may be gone, or a file in its place.
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def reject_locked(folder: Path, name: str) -> None:
    """Raise RefusedError if a process publishes the release file ``name`` into the folder."""
    path = _lock_path(folder, name)
    with _writing(path), suppress(FileNotFoundError), path.open("rb") as file:
        if lock(file.fileno(), shared=True) is False:
            raise _busy(folder, name)


def _lock_path(folder: Path, name: str) -> Path:
    """Return the path of the lock of a release file; raise AccessError if it is a folder or device."""
    path = folder / f".{name}.lock"
    _require_file(path)
    return path


def _busy(folder: Path, name: str) -> RefusedError:
    return RefusedError(
        f"another process is publishing {name!r} into {str(folder)!r}; wait until it has ended."
    )


def _opened_alone(path: Path) -> int | None:
    """Return the handle of a new or abandoned file; None if another process has locked it."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with _writing(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        if lock(handle) is not False:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle
        elif lock(handle, shared=True) is False or time.monotonic() > until:
            os.close(handle)
            return None
        # Its process ended in the meantime and removed it, or a dry run tests the lock.
        os.close(handle)
        time.sleep(_PAUSE_SECONDS)


def lock(handle: int, *, shared: bool = False) -> bool | None:
    """Lock a file or folder; return False if another process has, None if there are no locks."""
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (OSError, ImportError):
        return None
    return True


@dataclass(frozen=True)
class _Used:
    """The input and output files of a command."""

    read: set[_Known] = field(default_factory=set)
    written: set[_Known] = field(default_factory=set)


_used: ContextVar[_Used | None] = ContextVar("_used", default=None)


@contextmanager
def exclusive_files() -> Iterator[None]:
    """Reject, inside the block, files that are both read and written."""
    if _used.get() is not None:
        yield
        return
    before = _used.set(_Used())
    try:
        yield
    finally:
        _used.reset(before)


def record_input(*paths: str | Path) -> None:
    """Record files that are read; raise ParameterError if one is an output of the same command."""
    used = _used.get()
    if used is None:
        return
    for path in map(Path, paths):
        if (known := _known(path)) & used.written:
            raise _used_twice(path)
        used.read.update(known)


def check_outputs(
    outputs: Sequence[Path | None],
    inputs: Sequence[str | Path | None] = (),
    *,
    new: Path | None = None,
) -> None:
    """Raise if an output is not writable, or would overwrite an input or another output."""
    used = _used.get() or _Used()
    taken = used.read.union(*(_known(Path(path)) for path in inputs if path is not None))
    for path in outputs:
        if path is None:
            continue
        if (known := _known(path)) & taken:
            raise _used_twice(path)
        taken |= known
        used.written.update(known)
        if path.parent != new or path.parent.exists():
            check_writable(path)


def output_folders() -> list[str]:
    """Return the folders of the outputs of this command, as absolute paths."""
    used = _used.get() or _Used()
    return folders_of(path for path in used.written if isinstance(path, Path))


def folders_of(paths: Iterable[Path]) -> list[str]:
    """Return the absolute paths of the folders of files, each once."""
    return sorted({str(path.resolve().parent) for path in paths})


def _known(path: Path) -> set[_Known]:
    """Return the identities of a file: its path, and its device and inode if it exists."""
    if "\0" in str(path):
        raise AccessError(f"{str(path)!r} is not a file name.")
    known: set[_Known] = {path.resolve()}
    with suppress(OSError):
        result = path.stat()
        known.add((result.st_dev, result.st_ino))
    return known


def _used_twice(path: Path) -> ParameterError:
    return ParameterError(f"{str(path)!r} is already used in this command; choose another file.")


def data_folder(*names: str, stated: Path | None = None) -> Path:
    """Return the folder of public tables, only from the variable ``DPGRAIN_DATA``."""
    variable = os.environ.get("DPGRAIN_DATA")
    if stated is None and not variable:
        tables = ", ".join(names) or "the public tables"
        raise DataError(f"DPGRAIN_DATA is not set: set it to the folder that contains {tables}.")
    folder = Path(variable or ".") if stated is None else stated
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"The folder {str(folder)!r} lacks {', '.join(missing)}: set DPGRAIN_DATA to "
            "the folder that contains them."
        )
    return folder


def json_values(value: Any) -> Any:
    """Return a value for JSON, in which non-finite numbers are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): json_values(each) for name, each in value.items()}
    return [json_values(each) for each in value] if isinstance(value, list | tuple) else value

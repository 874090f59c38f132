"""Files that are written whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dpgrain.errors import DataError


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
    """Yield a path beside ``path`` to write to; it takes its place only when all went well.

    Raises:
        DataError: if it cannot be written.
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


def check_writable(path: str | Path) -> None:
    """Raise unless a file could be written there: asked before anything is released.

    Raises:
        DataError: if it cannot.
    """
    path = Path(path)
    with _writing(path):
        if path.is_dir():
            raise IsADirectoryError(path)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            pass

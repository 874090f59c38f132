"""Files that are written whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpgrain.errors import DataError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; it takes its place only when all went well.

    Raises:
        DataError: if it cannot be written.
    """
    part: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix, delete=False
        ) as file:
            part = Path(file.name)
        yield part
        # A temporary file is readable by its owner only; a release is public.
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        raise DataError(
            f"{str(path)!r} cannot be written; check the folder, its permissions and free space."
        ) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise unless a file could be written there: asked before anything is released.

    Raises:
        DataError: if it cannot.
    """
    with whole_file(Path(path).with_name(f".{Path(path).name}.check")) as part:
        part.touch()
    Path(path).with_name(f".{Path(path).name}.check").unlink(missing_ok=True)

"""Facts that were found in files, kept for as long as the files stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

Fact = TypeVar("Fact")


def state_of(path: str) -> tuple[int, int, int]:
    """Return the size of a file in bytes, the time of its last change in ns, and its inode."""
    result = Path(path).stat()
    return result.st_size, result.st_mtime_ns, result.st_ino


class KeptFacts(Generic[Fact]):
    """Facts of files, kept until a file changes.

    Args:
        find: the function of a path and of more arguments, always the same for a path.
    """

    def __init__(self, find: Callable[..., Fact]) -> None:
        self._find = find
        self._kept: dict[str, tuple[tuple[int, int, int], Fact]] = {}

    def of(self, path: str, *more: Any) -> Fact:
        """Return the fact of a file as it is now.

        Raises:
            OSError: if there is no such file.
        """
        # The state is asked first: a file that changes meanwhile is looked at again.
        state = state_of(path)
        known = self._kept.get(path)
        if known is None or known[0] != state:
            known = self._kept[path] = (state, self._find(path, *more))
        return known[1]

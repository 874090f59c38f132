"""Pages with code that runs unchanged, and their shown output.

A block of ``python`` runs after the blocks before it; a following block without a language is its
output. A block of ``console`` has commands after ``$ ``, each followed by its output. A line ``…``
matches any lines. A page runs in an empty folder, like a reader's. The environment variable
``DPGRAIN_PAGES=write`` writes the output into the page instead, and saved pictures into
``docs/pictures``.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import textwrap
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
# Generated names, which differ in each run, and times.
_ANEW = re.compile(r"[0-9a-f]{32,}|#[0-9a-f]{8}|\d{4}-\d\d-\d\dT[\d:]+Z")
_NUMBER = re.compile(r"(?<![\w#])-?\d[\d,]*(?:\.\d+)?")
_LONGEST = 100
# Floating-point sums, and printed numbers, may round differently on another machine.
_RELATIVE, _LAST_PLACE = 0.02, 1.5


@dataclass(frozen=True)
class Shown:
    """The shown and the printed output of one block."""

    start: int
    stop: int
    shown: str
    printed: str

    def agrees(self) -> bool:
        """Return whether the page shows what was printed."""
        head, dots, tail = self.shown.partition("…\n")
        if not dots:
            return same(self.shown, self.printed)
        lines = self.printed.splitlines(keepends=True)
        first, last = head.count("\n"), tail.count("\n")
        return same(head, "".join(lines[:first])) and same(
            tail, "".join(lines[len(lines) - last :])
        )

    def renewed(self) -> str:
        """Return the printed output without the lines that the page omits."""
        head, dots, tail = self.shown.partition("…\n")
        lines = self.printed.splitlines(keepends=True)
        if not dots:
            return self.printed
        end = len(lines) - tail.count("\n")
        return "".join([*lines[: head.count("\n")], dots, *lines[end:]])


def same(shown: str, printed: str) -> bool:
    """Return whether two outputs have the same words, and nearly equal numbers."""
    lasting = [_ANEW.sub("anew", text) for text in (shown, printed)]
    words = [_plain(_NUMBER.sub("0", text)) for text in lasting]
    numbers = [_NUMBER.findall(text) for text in lasting]
    return words[0] == words[1] and all(starmap(_near, zip(*numbers, strict=True)))


def _plain(text: str) -> str:
    """Return a text without spaces and table rules, because their lengths depend on numbers."""
    return re.sub(r"[\s─━]+", " ", text).strip()


def _near(one: str, other: str) -> bool:
    left, right = (float(text.replace(",", "")) for text in (one, other))
    places = len(one.partition(".")[2])
    rounding = _LAST_PLACE * 10.0**-places if places else 0.0
    return abs(left - right) <= max(_RELATIVE * abs(left), rounding)


@dataclass
class Bits:
    """Repeatable random bits instead of the operating system's."""

    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(2025))

    def words(self, size: int) -> NDArray[np.uint64]:
        return self.generator.integers(0, 2**64, size=size, dtype=np.uint64)


def run(text: str, command: Callable[..., CompletedProcess[str]]) -> Iterator[Shown]:
    """Run the blocks of a page in the working folder, and yield what they print.

    Args:
        command: runs ``dpgrain``.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = None
    for fence in _FENCE.finditer(text):
        language, code = fence.groups()
        if language == "python":
            buffer = io.StringIO()
            with redirect_stdout(buffer):
                exec(compile(code, "page", "exec"), names)
            printed = wrapped(buffer.getvalue())
        elif language == "" and printed is not None:
            yield Shown(fence.start(2), fence.end(2), code, printed)
            printed = None
        elif language == "console":
            yield from _console(code, fence.start(2), command)


def _console(
    code: str, offset: int, command: Callable[..., CompletedProcess[str]]
) -> Iterator[Shown]:
    for call in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", code, re.M):
        program, *words = shlex.split(call[1].replace("\\\n", " "))
        assert program == "dpgrain", call[1]
        done = command(*words)
        start, stop = offset + call.start(2), offset + call.end(2)
        yield Shown(start, stop, call[2], wrapped(done.stderr + done.stdout))


def wrapped(text: str) -> str:
    """Return a text with the lines of its prose as long as a page shows them."""
    lines = []
    for line in text.splitlines():
        lines += textwrap.wrap(line, _LONGEST) if len(line) > _LONGEST else [line]
    return "".join(f"{line}\n" for line in lines)


def renewed(text: str, blocks: list[Shown]) -> str:
    """Return a page with the output of this run."""
    for block in reversed(blocks):
        text = text[: block.start] + block.renewed() + text[block.stop :]
    return text


def keep_pictures(folder: Path) -> None:
    """Copy what a page has drawn to the pictures of the site."""
    PICTURES.mkdir(exist_ok=True)
    for path in folder.glob("*.png"):
        shutil.copy(path, PICTURES / path.name)

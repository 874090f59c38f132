"""Mistakes in a file of releases, which are all collected before any of them is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from dpgrain._validate import said
from dpgrain.errors import DpgrainError, ParameterError, SchemaError

# Names at least as alike as this are offered as what was meant.
_ALIKE = 0.6


@dataclass
class Mistakes:
    """The mistakes of one file, in the order in which they were found.

    Args:
        path: the file.
    """

    path: Path
    lines: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def of(self, place: str) -> bool:
        """Return whether there are any in a table of the file."""
        return any(line.startswith(place) for line in self.lines)

    def add(self, place: str, sentence: str) -> None:
        """Note a mistake.

        Args:
            place: the table of the file, such as ``"[table]"``; empty for no table.
            sentence: the rest of the sentence: key, value and remedy.
        """
        line = f"{place} {sentence}".strip()
        if line not in self.lines:
            self.lines.append(line)

    def unknown(self, place: str, name: object, known: Iterable[str], noun: str) -> str:
        """Note a name that nobody knows, and return the known one that is most like it, if any is.

        Args:
            place: the table of the file.
            name: the name.
            known: the names that there are.
            noun: the words for what it should be, such as ``"a key of [table]"``.
        """
        listed = list(known)
        near = get_close_matches(str(name).casefold(), listed, 1, _ALIKE)
        remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(listed)}."
        self.add(place, f"{said(name)} is not {noun}; {remedy}")
        return near[0] if near else ""

    def caught(self, place: str, error: DpgrainError) -> str:
        """Note an error of the library, and return the key that it is about; empty if it names none."""
        name = error.name if isinstance(error, ParameterError | SchemaError) else ""
        self.add(place, str(error))
        return name

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Note an error of the library that ends what is done inside."""
        try:
            yield
        except DpgrainError as error:
            self.caught(place, error)

    def tell(self) -> None:
        """Raise all mistakes as one error, a line each, if there are any.

        Raises:
            ParameterError: if there are mistakes.
        """
        if not self.lines:
            return
        count = len(self.lines)
        head = f"{str(self.path)!r} has {count} mistake{'' if count == 1 else 's'}"
        lines = "".join(f"\n  {line}" for line in self.lines)
        raise ParameterError(f"{head}; nothing was read or charged:{lines}")

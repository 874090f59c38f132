"""Mistakes in a file of releases, which are all collected before any of them is reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from dpgrain._formatting import quantity, shorten
from dpgrain._validate import describe
from dpgrain.errors import DataError, DpgrainError, ParameterError, SchemaError
from dpgrain.releases.spelling import spelled_in_file

# Names at least as alike as this are offered as what was meant.
_ALIKE = 0.6
# Letters of the name of a table of the file, at most.
_LONGEST_PLACE = 80


@dataclass
class Mistakes:
    """The mistakes of one file, in the order in which they were found.

    Args:
        path: the file.
        lines: a line for each.
        kinds: the errors that they are, each by itself.
    """

    path: Path
    lines: list[str] = field(default_factory=list)
    kinds: set[type[DpgrainError]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def of(self, place: str) -> bool:
        """Return whether there are any in a table of the file."""
        return any(line.startswith(place) for line in self.lines)

    def add(self, place: str, sentence: str, kind: type[DpgrainError] = ParameterError) -> None:
        """Note a mistake.

        Args:
            place: the table of the file, such as ``"[table]"``; empty for no table.
            sentence: the rest of the sentence: key, value and remedy.
            kind: the error that it is.
        """
        self.kinds.add(kind)
        line = f"{shorten(place, _LONGEST_PLACE)} {sentence}".strip()
        if line not in self.lines:
            self.lines.append(line)

    def unknown(
        self,
        place: str,
        name: object,
        known: Iterable[str],
        noun: str,
        kind: type[DpgrainError] = ParameterError,
    ) -> str:
        """Note a name that nobody knows, and return the known one that is most like it, if any is.

        Args:
            place: the table of the file.
            name: the name.
            known: the names that there are.
            noun: the words for what it should be, such as ``"a key of [table]"``.
            kind: the error that it is.
        """
        listed = list(known)
        near = get_close_matches(str(name).casefold(), listed, 1, _ALIKE)
        remedy = f"did you mean {near[0]}?" if near else f"use one of {', '.join(listed)}."
        self.add(place, f"{describe(name)} is not {noun}; {remedy}", kind)
        return near[0] if near else ""

    def no_column(
        self, place: str, name: object, known: Iterable[str], noun: str = "a column of the table"
    ) -> str:
        """Note a column that the table has not, and return the one that is most like it, if any is."""
        return self.unknown(place, name, known, noun, SchemaError)

    def caught(self, place: str, error: DpgrainError) -> str:
        """Note an error of the library, and return the key that it is about; empty if it names none."""
        name = error.name if isinstance(error, ParameterError | SchemaError) else ""
        kinds = (DataError, SchemaError)
        kind = next((each for each in kinds if isinstance(error, each)), ParameterError)
        self.add(place, spelled_in_file(str(error)), kind)
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
            ParameterError: if the file has to be written otherwise.
            DataError: if it is right, and a file that it names cannot be used.
            SchemaError: if it is right but for columns that the table has not.
        """
        if not self.lines:
            return
        kind = next(k for k in (ParameterError, DataError, SchemaError) if k in self.kinds)
        had = (
            "cannot be run" if kind is DataError else f"has {quantity(len(self.lines), 'mistake')}"
        )
        lines = "".join(f"\n  {line}" for line in self.lines)
        raise kind(f"{str(self.path)!r} {had}; nothing was read or charged:{lines}")

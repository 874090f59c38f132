"""Errors in a release file, collected and raised together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar, NoReturn

from dpgrain._formatting import quantity, shorten
from dpgrain._validate import describe
from dpgrain.errors import AccessError, DataError, DpgrainError, ParameterError, SchemaError
from dpgrain.releases.toml_names import toml_spelling

# Smallest similarity of a suggested name.
_ALIKE = 0.6
# Names of the same options on the command line and in Python.
_OTHER_NAMES = {
    "derive": "columns",
    "with_days": "days",
    "path": "source",
    "file": "source",
    "quantile": "q",
    "quantiles": "q",
}
# Longest shown name of a table, in characters.
_LONGEST_PLACE = 80


@dataclass
class ValidationErrors:
    """The errors in one file, in order."""

    path: Path
    lines: list[str] = field(default_factory=list)
    kinds: set[type[DpgrainError]] = field(default_factory=set)
    # Name of the table, such as visits for [tables.visits]; empty for [table].
    table: str = ""
    #: True if errors are raised at once.
    immediate: ClassVar[bool] = False

    def __bool__(self) -> bool:
        return bool(self.lines)

    def of_table(self, name: str) -> ValidationErrors:
        """Return the same errors, where [table] has another name."""
        return replace(self, table=name)

    def any_in(self, place: str) -> bool:
        """Return True if a table of the file has errors."""
        return any(line.startswith(self._named(place)) for line in self.lines)

    def _named(self, text: str) -> str:
        return text.replace("[table", f"[tables.{self.table}") if self.table else text

    def add(self, place: str, sentence: str, kind: type[DpgrainError] = ParameterError) -> None:
        """Add an error: the table, such as "[table]", and a sentence with key, value and remedy."""
        self.kinds.add(kind)
        line = self._named(f"{shorten(place, _LONGEST_PLACE)} {sentence}".strip())
        if line not in self.lines:
            self.lines.append(line)

    def add_unknown(
        self,
        place: str,
        name: object,
        known: Iterable[str],
        noun: str,
        kind: type[DpgrainError] = ParameterError,
    ) -> str:
        """Add an unknown name, such as "a key of [table]", and return the most similar known one."""
        listed = list(known)
        text = str(name).casefold()
        near = get_close_matches(_OTHER_NAMES.get(text, text), listed, 1, _ALIKE)
        remedy = f"did you mean {near[0]}?" if near else f"use one of {', '.join(listed)}."
        self.add(place, f"{describe(name)} is not {noun}; {remedy}", kind)
        return near[0] if near else ""

    def add_missing_column(
        self, place: str, name: object, known: Iterable[str], noun: str = "a column of the table"
    ) -> str:
        """Add a missing column, and return the most similar one."""
        return self.add_unknown(place, name, known, noun, SchemaError)

    def add_error(self, place: str, error: DpgrainError) -> str:
        """Add an exception, and return its key, or an empty text."""
        name = error.name if isinstance(error, ParameterError | SchemaError) else ""
        kinds = (AccessError, DataError, SchemaError)
        kind = next((each for each in kinds if isinstance(error, each)), ParameterError)
        self.add(place, toml_spelling(str(error)), kind)
        return name

    @contextmanager
    def collecting(self, place: str) -> Iterator[None]:
        """Add an exception that is raised inside."""
        try:
            yield
        except DpgrainError as error:
            self.add_error(place, error)

    def raise_all(self) -> None:
        """Raise all errors as one, a line each."""
        if not self.lines:
            return
        # A retry repairs nothing if one mistake of several is permanent.
        kind = next(iter(self.kinds)) if len(self.kinds) == 1 else ParameterError
        had = (
            "cannot be run"
            if issubclass(kind, DataError)
            else f"has {quantity(len(self.lines), 'mistake')}"
        )
        lines = "".join(f"\n  {line}" for line in self.lines)
        raise kind(f"{str(self.path)!r} {had}; nothing was read or charged:{lines}")


class ImmediateErrors(ValidationErrors):
    """The errors of a command, which are raised at once."""

    immediate = True

    def add(self, place: str, sentence: str, kind: type[DpgrainError] = ParameterError) -> None:  # noqa: ARG002
        """Raise an error."""
        raise kind(sentence)

    def add_error(self, place: str, error: DpgrainError) -> NoReturn:  # noqa: ARG002
        """Raise an error."""
        raise error

    @contextmanager
    def collecting(self, place: str) -> Iterator[None]:  # noqa: ARG002
        """Do nothing."""
        yield

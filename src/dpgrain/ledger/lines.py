"""The lines of a ledger, each with the hash of the one before.

The lines are the ledger. All else in its file is made of them, and can be made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from dpgrain import _validate
from dpgrain.errors import DataError, ParameterError

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Line:
    """One line, as it is stored.

    Args:
        number: the number of the line, from 0 on.
        hash: the SHA-256 of the body, in hexadecimal.
        body: JSON that names the number, the hash of the line before, the time and what is noted.
    """

    number: int
    hash: str
    body: str

    @staticmethod
    def after(last: Line | None, at: str, kind: str, **noted: Any) -> Line:
        """Make the next line after another.

        Args:
            last: the line before; None for the first.
            at: the time by this machine's clock, which is a note: nothing depends on it.
            kind: the kind of line.
            noted: what the line holds.

        >>> first = Line.after(None, "2026-01-01T00:00:00Z", "ledger", name="visits")
        >>> second = Line.after(first, "2026-01-02T00:00:00Z", "release")
        >>> second.number, second.values["before"] == first.hash
        (1, True)
        """
        number = 0 if last is None else last.number + 1
        values = {"number": number, "before": "" if last is None else last.hash, "at": at}
        body = json.dumps(
            {**values, "kind": kind, **noted},
            ensure_ascii=True,
            allow_nan=False,
            separators=(",", ":"),
        )
        return Line(number, _hash(body), body)

    @cached_property
    def values(self) -> dict[str, Any]:
        """The fields of the body.

        Raises:
            DataError: if the body is not what this ledger writes.
        """
        try:
            values = _validate.parse_json(self.body, "a line of a ledger")
        except ParameterError as error:
            raise _broken(self.number, "is not valid JSON") from error
        if not isinstance(values, dict):
            raise _broken(self.number, "is not a line of a ledger")
        return values

    def field(self, name: str) -> Any:
        """Return a field that a line of this kind has.

        Args:
            name: the field.

        Raises:
            DataError: if the line has none.
        """
        if name not in self.values:
            raise _broken(self.number, f"has no field {name!r}")
        return self.values[name]

    def several(self, name: str) -> list[Any]:
        """Return the parts of a field, which is a list; none where there is no such field.

        Args:
            name: the field.

        Raises:
            DataError: if the field is no list.
        """
        found = self.values.get(name, [])
        if not isinstance(found, list):
            raise _broken(self.number, f"has no list in its field {name!r}")
        return found

    def optional(self, name: str, kind: type[Kind]) -> Kind | None:
        """Return a field, or None where there is none.

        Args:
            name: the field.
            kind: what it is.

        Raises:
            DataError: if the field is of another kind.
        """
        found = self.values.get(name)
        if found is not None and type(found) is not kind:
            raise _broken(self.number, f"has an invalid field {name!r}")
        return found

    def check(self, number: int, before: str | None = None) -> None:
        """Check the line by itself, and against the one before where that is known.

        Args:
            number: the number that the line must have.
            before: the hash of the line before.

        Raises:
            DataError: if the line is not the one that was written.
        """
        if self.hash != _hash(self.body):
            raise _broken(number, "does not match its hash")
        # Both are looked up as they are written, since reading the JSON of all lines takes long.
        if self.number != number or not self.body.startswith(f'{{"number":{number},"before":"'):
            raise _broken(number, "is missing")
        if before is not None and not self.body.startswith(_begin(number, before)):
            raise _broken(number, "does not follow the previous line")


def checked(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield lines in their order from the first on, each checked against the one before.

    Raises:
        DataError: if the chain breaks, with the number of the line where it does.
    """
    before = ""
    for number, line in enumerate(lines):
        line.check(number, before)
        before = line.hash
        yield line


def _begin(number: int, before: str) -> str:
    """Return the text with which the body of a line begins."""
    return f'{{"number":{number},"before":"{before}",'


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _broken(number: int, how: str) -> DataError:
    return DataError(
        f"line {number:,} of the ledger {how}: the file was changed or damaged; do not "
        "replace it by an older copy, and treat every promise in it as fully spent."
    )

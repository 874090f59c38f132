"""Lines of a ledger, each with the hash of the previous line.

The lines are the ledger. Everything else in its file is derived from them and can be rebuilt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from dpgrain import _validate
from dpgrain.errors import AccessError, ParameterError

#: Remedy for a damaged ledger.
AFTER_DAMAGE = (
    "do not replace it by an older copy, and treat every promise in it as fully spent: the promises "
    "of a new ledger are added to them"
)
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class StoredLine:
    """One stored line: its number (from 0), the SHA-256 of the body, and the body.

    The body is JSON with the number, the hash of the previous line, the time and further fields.
    """

    number: int
    hash: str
    body: str

    @staticmethod
    def after(last: StoredLine | None, at: str, kind: str, **noted: Any) -> StoredLine:
        """Create the line after ``last``; ``at``, this machine's time, is not checked."""
        number = 0 if last is None else last.number + 1
        values = {"number": number, "before": "" if last is None else last.hash, "at": at}
        body = json.dumps(
            {**values, "kind": kind, **noted},
            ensure_ascii=True,
            allow_nan=False,
            separators=(",", ":"),
        )
        return StoredLine(number, _hash(body), body)

    @cached_property
    def values(self) -> dict[str, Any]:
        """Fields of the body."""
        try:
            values = _validate.parse_json(self.body, "a line of a ledger")
        except ParameterError as error:
            raise _broken(self.number, "is not valid JSON") from error
        if not isinstance(values, dict):
            raise _broken(self.number, "is not a line of a ledger")
        return values

    def field(self, name: str) -> Any:
        """Return a required field; raise DataError if it is missing."""
        if name not in self.values:
            raise _broken(self.number, f"has no field {name!r}")
        return self.values[name]

    def list_field(self, name: str) -> list[Any]:
        """Return a field that contains a list, empty if missing; reject other types."""
        value = self.values.get(name, [])
        if not isinstance(value, list):
            raise _broken(self.number, f"has no list in its field {name!r}")
        return value

    def optional_field(self, name: str, kind: type[Kind]) -> Kind | None:
        """Return a field of a type, or None if it is missing; raise DataError for other types."""
        value = self.values.get(name)
        if value is not None and type(value) is not kind:
            raise _broken(self.number, f"has an invalid field {name!r}")
        return value

    def check(self, number: int, before: str | None = None) -> None:
        """Check the number and hash of the line, and the hash of the previous one if it is known."""
        if self.hash != _hash(self.body):
            raise _broken(number, "does not match its hash")
        # Compare text, because parsing the JSON of all lines is slow.
        if self.number != number or not self.body.startswith(f'{{"number":{number},"before":"'):
            raise _broken(number, "is missing")
        if before is not None and not self.body.startswith(_prefix(number, before)):
            raise _broken(number, "does not follow the previous line")


def check_chain(lines: Iterable[StoredLine]) -> Iterator[StoredLine]:
    """Yield lines in order, each checked against the previous one."""
    before = ""
    for number, line in enumerate(lines):
        line.check(number, before)
        before = line.hash
        yield line


def _prefix(number: int, before: str) -> str:
    """Return the beginning of the body of a line."""
    return f'{{"number":{number},"before":"{before}",'


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _broken(number: int, how: str) -> AccessError:
    return AccessError(
        f"line {number:,} of the ledger {how}: the file was changed or damaged; {AFTER_DAMAGE}."
    )

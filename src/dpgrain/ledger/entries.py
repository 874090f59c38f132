"""The lines of a ledger as frozen objects, for readers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpgrain.ledger.accounts import Charged
from dpgrain.ledger.lines import StoredLine
from dpgrain.ledger.promise import LastingPromise
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.receipt import Receipt


@dataclass(frozen=True)
class LedgerEntry:
    """One line of a ledger: its beginning, a promise, or a release.

    Args:
        ledger: the id of the ledger.
        name: the name of the ledger.
        line: the line as it is stored.
    """

    ledger: str
    name: str
    line: StoredLine

    @property
    def number(self) -> int:
        """The number of the line."""
        return self.line.number

    @property
    def kind(self) -> str:
        """The kind of line: ``"ledger"``, ``"promise"`` or ``"release"``."""
        return str(self.line.field("kind"))

    @property
    def at(self) -> str:
        """The time (UTC) by the writing machine's clock; nothing depends on it."""
        return str(self.line.field("at"))

    @property
    def receipt(self) -> Receipt:
        """The receipt carried by a release of this line."""
        return Receipt(self.ledger, self.name, self.line.number, self.line.hash)

    @cached_property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The guarantees of the releases charged by the line; none for other lines."""
        return tuple(map(Guarantee.from_dict, self.line.list_field("releases")))

    @property
    def private(self) -> bool:
        """False where a release of this line had a seed, so that its noise can be predicted."""
        # Guarantees of many lines take long to read, and this is asked of all of them.
        return all(
            isinstance(one, dict) and one.get("private", False)
            for one in self.line.list_field("releases")
        )

    @property
    def mark(self) -> str:
        """The mark given to the line by the caller; empty without one."""
        return str(self.line.values.get("mark", ""))

    @cached_property
    def promise(self) -> LastingPromise | None:
        """The promise that the line makes; None for other lines."""
        result = self.line.values.get("promise")
        return None if result is None else LastingPromise.from_dict(result)

    @property
    def renews(self) -> int | None:
        """The line of the promise that this one renews; None for other lines."""
        return self.line.optional_field("renews", int)

    @cached_property
    def charged(self) -> tuple[Charged, ...]:
        """The charges of the line to each promise."""
        return tuple(map(Charged.from_dict, self.line.list_field("charged")))

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain JSON values, with its hash."""
        return {**self.line.values, "hash": self.line.hash}


#: Words for a release whose noise can be predicted.
SEEDED = "NOT PRIVATE: seeded noise"
# Lines that are named, at most.
_NAMED = 5


def seed_note(entries: Iterable[LedgerEntry]) -> str:
    """Say which lines charge releases that had a seed; empty if none does.

    Args:
        entries: the lines of a ledger.
    """
    numbers = [f"{entry.number:,}" for entry in entries if not entry.private]
    if not numbers:
        return ""
    more = f" and {len(numbers) - _NAMED:,} more" if len(numbers) > _NAMED else ""
    lines = "line" if len(numbers) == 1 else "lines"
    return (
        f"{SEEDED} in {lines} {', '.join(numbers[:_NAMED])}{more}, so these releases "
        "have no guarantee."
    )

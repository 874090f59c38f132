"""Lines of a ledger as frozen objects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpgrain.ledger.accounts import Charged
from dpgrain.ledger.lasting_promise import LastingPromise
from dpgrain.ledger.lines import StoredLine
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.receipt import Receipt


@dataclass(frozen=True)
class LedgerEntry:
    """One line of a ledger: its header, a promise or a release.

    Args:
        ledger: the id of the ledger.
        name: the name of the ledger.
        line: the stored line.
    """

    ledger: str
    name: str
    line: StoredLine

    @property
    def number(self) -> int:
        """Number of the line."""
        return self.line.number

    @property
    def kind(self) -> str:
        """Type of line: ``"ledger"``, ``"promise"``, ``"release"``, ``"moved"`` (the last line of a
        ledger that another place continues) or ``"continued"`` (the line after it there).
        """
        return str(self.line.field("kind"))

    @property
    def at(self) -> str:
        """Time (UTC) on the clock of the writing machine, for information only."""
        return str(self.line.field("at"))

    @property
    def receipt(self) -> Receipt:
        """Receipt that the releases of this line carry."""
        return Receipt(self.ledger, self.name, self.line.number, self.line.hash)

    @cached_property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Guarantees of the releases that the line charges; empty for other lines."""
        return tuple(map(Guarantee.from_dict, self.line.list_field("releases")))

    @property
    def private(self) -> bool:
        """False if a release of this line had a seed, so that its noise can be predicted."""
        # Parsing the guarantees of many lines is slow, and this is needed for every line.
        return all(
            isinstance(one, dict) and one.get("private", False)
            for one in self.line.list_field("releases")
        )

    @property
    def mark(self) -> str:
        """Mark that the caller gave the line; empty without one."""
        return str(self.line.values.get("mark", ""))

    @cached_property
    def promise(self) -> LastingPromise | None:
        """Promise that the line makes; None for other lines."""
        result = self.line.values.get("promise")
        return None if result is None else LastingPromise.from_dict(result)

    @property
    def renews(self) -> int | None:
        """Line of the promise that this one renews; None for other lines."""
        return self.line.optional_field("renews", int)

    @cached_property
    def charged(self) -> tuple[Charged, ...]:
        """Charges of the line, one per affected promise."""
        return tuple(map(Charged.from_dict, self.line.list_field("charged")))

    def to_dict(self) -> dict[str, Any]:
        """Return the line as JSON values, with its hash."""
        return {**self.line.values, "hash": self.line.hash}

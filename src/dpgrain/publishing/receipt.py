"""Receipts: the line of a ledger with the charge of a release."""

from __future__ import annotations

from dataclasses import dataclass

from dpgrain import _validate


@dataclass(frozen=True)
class Receipt:
    """The line of a ledger with the charge of a release, by which anybody can find it again.

    Args:
        ledger: the id of the ledger, which a renamed file keeps.
        name: the name of the ledger.
        number: the number of the line.
        hash: the hash of the line, which stands for all lines before it as well.

    >>> print(Receipt("5f2c…", "visits", 12, "9a41…"))
    line 12 of ledger 'visits' (id 5f2c…, hash 9a41…)
    """

    ledger: str
    name: str
    number: int
    hash: str

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        _validate.integer(minimum=0, number=self.number)

    def __str__(self) -> str:
        return f"line {self.number:,} of ledger {self.name!r} (id {self.ledger}, hash {self.hash})"

"""Receipts: the lines of ledgers that charged a release, and their collection in a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dpgrain import _fields, _validate


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
        _fields.check(self)
        _validate.integer(minimum=0, number=self.number)

    def __str__(self) -> str:
        return f"line {self.number:,} of ledger {self.name!r} (id {self.ledger}, hash {self.hash})"


# All of the process collect here, whichever thread publishes.
_collections: list[list[Receipt]] = []


def record_receipt(receipt: Receipt) -> None:
    """Show the receipt of a newly charged line to whoever collects receipts."""
    for each in _collections:
        each.append(receipt)


@contextmanager
def collected_receipts() -> Iterator[list[Receipt]]:
    """Yield a list for the receipts of all lines charged inside.

    >>> with collected_receipts() as receipts:
    ...     record_receipt(Receipt("5f2c…", "visits", 12, "9a41…"))
    >>> receipts[0].number
    12
    """
    receipts: list[Receipt] = []
    _collections.append(receipts)
    try:
        yield receipts
    finally:
        _collections[:] = [each for each in _collections if each is not receipts]

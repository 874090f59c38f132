"""Receipts: the lines of ledgers that charged a release, and their collection in a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dpgrain import _validate


@dataclass(frozen=True)
class Receipt:
    """The line of a ledger with the charge of a release."""

    ledger: str  # id, which does not change with the file name
    name: str
    number: int  # of the line
    hash: str  # of the line; covers all earlier lines

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        _validate.integer(minimum=0, number=self.number)

    def __str__(self) -> str:
        return f"line {self.number:,} of ledger {self.name!r} (id {self.ledger}, hash {self.hash})"


# Shared by all threads of the process.
_collections: list[list[Receipt]] = []


def record_receipt(receipt: Receipt) -> None:
    """Add the receipt of a new charge to all open lists."""
    for each in _collections:
        each.append(receipt)


@contextmanager
def collected_receipts() -> Iterator[list[Receipt]]:
    """Yield a list that receives the receipts of all charges inside."""
    receipts: list[Receipt] = []
    _collections.append(receipts)
    try:
        yield receipts
    finally:
        _collections[:] = [each for each in _collections if each is not receipts]

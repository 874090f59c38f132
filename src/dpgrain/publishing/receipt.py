"""Receipts: the line of a ledger in which a release was charged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dpgrain import _fields, _validate


@dataclass(frozen=True)
class Receipt:
    """The line of a ledger in which a release was charged, by which anybody can find it again.

    Args:
        ledger: the id of the ledger, which a renamed file keeps.
        name: the name of the ledger.
        number: the number of the line.
        hash: the hash of the line, which stands for all lines before it as well.

    >>> print(Receipt("5f2c…", "visits", 12, "9a41…"))
    Line 12 of the ledger 'visits' (id 5f2c…, hash 9a41…).
    """

    ledger: str
    name: str
    number: int
    hash: str

    def __post_init__(self) -> None:
        _fields.check(self)
        _validate.integer(minimum=0, number=self.number)

    def __str__(self) -> str:
        return f"Line {self.number:,} of the ledger {self.name!r} (id {self.ledger}, hash {self.hash})."


# Whoever runs a program asks for all receipts of the process, whichever thread publishes.
_collections: list[list[Receipt]] = []


def collect(receipt: Receipt) -> None:
    """Show the receipt of a line that was charged now to whoever collects them."""
    for each in _collections:
        each.append(receipt)


@contextmanager
def collected() -> Iterator[list[Receipt]]:
    """Yield a list that gets the receipts of all lines that are charged inside.

    >>> with collected() as receipts:
    ...     collect(Receipt("5f2c…", "visits", 12, "9a41…"))
    >>> receipts[0].number
    12
    """
    receipts: list[Receipt] = []
    _collections.append(receipts)
    try:
        yield receipts
    finally:
        _collections[:] = [each for each in _collections if each is not receipts]

"""Receipts: the lines of ledgers that charged a release, and their collection in a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def recorded(is_written: Callable[[Receipt], bool]) -> Iterator[Callable[[Receipt], None]]:
    """Yield a function that adds the receipt of a charge to all open lists before it is written.

    After an error the receipt is removed; after a signal only if the charge is surely not written,
    because a signal can arrive when the charge is on the disk.
    """
    made: list[Receipt] = []

    def record(receipt: Receipt) -> None:
        made.append(receipt)
        for each in _collections:
            each.append(receipt)

    try:
        yield record
    except BaseException as error:
        charged = bool(made) and not isinstance(error, Exception)
        if charged:
            # A ledger that cannot be read now may have the charge.
            with suppress(Exception):
                charged = any(map(is_written, made))
        if not charged:
            for each in _collections:
                each[:] = [one for one in each if one not in made]
        raise


@contextmanager
def collected_receipts() -> Iterator[list[Receipt]]:
    """Yield a list that receives the receipts of all charges inside."""
    receipts: list[Receipt] = []
    _collections.append(receipts)
    try:
        yield receipts
    finally:
        _collections[:] = [each for each in _collections if each is not receipts]

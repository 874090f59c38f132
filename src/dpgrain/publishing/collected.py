"""Receipts of what a process charges, for whoever runs it to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgrain.publishing.receipt import Receipt

# All of the process collect here, whichever thread publishes.
_collections: list[list[Receipt]] = []


def collect(receipt: Receipt) -> None:
    """Show the receipt of a newly charged line to whoever collects receipts."""
    for each in _collections:
        each.append(receipt)


@contextmanager
def collected() -> Iterator[list[Receipt]]:
    """Yield a list for the receipts of all lines charged inside.

    >>> from dpgrain.publishing.receipt import Receipt
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

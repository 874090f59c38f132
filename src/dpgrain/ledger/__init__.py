"""Ledgers: what is published about people over months, charged durably before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.ledger.entries import LedgerEntry
    from dpgrain.ledger.lasting_promise import LastingPromise
    from dpgrain.ledger.ledger import Ledger
    from dpgrain.ledger.window import AnyDays, AnyHours

__all__ = ["AnyDays", "AnyHours", "LastingPromise", "Ledger", "LedgerEntry"]

lazy_package(
    __name__,
    {
        "dpgrain.ledger.entries": ("LedgerEntry",),
        "dpgrain.ledger.ledger": ("Ledger",),
        "dpgrain.ledger.lasting_promise": ("LastingPromise",),
        "dpgrain.ledger.window": ("AnyDays", "AnyHours"),
    },
)

"""Stores of ledgers: a file, or a database."""

from __future__ import annotations

from pathlib import Path

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain.ledger.stores.protocol import Store

_POSTGRES = ("postgres://", "postgresql://")

sqlite = lazy_import("dpgrain.ledger.stores.sqlite")
postgres = lazy_import("dpgrain.ledger.stores.postgres")


def store_at(place: str | Path) -> Store:
    """Return the store at a place, which may be empty.

    ``place`` is a file, or the address of a PostgreSQL database.

    >>> store_at("visits.ledger").name
    'visits.ledger'
    """
    made: Store
    if isinstance(place, str) and place.startswith(_POSTGRES):
        made = postgres.PostgresStore(place)
    else:
        made = sqlite.SqliteStore(_validate.path(place=place))
    return made

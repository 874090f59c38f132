"""Stores of ledgers: a file, or a database."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain.errors import ParameterError
from dpgrain.ledger.stores.store_protocol import Store

_POSTGRES = ("postgres://", "postgresql://")
# Prefix of an environment variable that contains the place, such as an address with a password.
_VARIABLE = "env:"
# An address in another form, which is not shown because it may contain a password.
_ADDRESS = re.compile(r"://|password\s*=", re.IGNORECASE)

sqlite = lazy_import("dpgrain.ledger.stores.sqlite_store")
postgres = lazy_import("dpgrain.ledger.stores.postgres_store")


def store_at(place: str | Path) -> Store:
    """Return the store at a file or PostgreSQL address, or ``env:`` variable with one."""
    store: Store
    if isinstance(place, str) and place.startswith(_VARIABLE):
        name = place.removeprefix(_VARIABLE)
        place = os.environ.get(name, "")
        if not place:
            raise ParameterError(
                f"place must name an environment variable that is set, not {name!r}; set it to a "
                "file or a PostgreSQL address.",
                name="place",
            )
    if isinstance(place, str) and place.startswith(_POSTGRES):
        store = postgres.PostgresStore(place)
    elif isinstance(place, str) and _ADDRESS.search(place):
        raise ParameterError(
            "place must be a file or an address that begins with postgresql://, not another address.",
            name="place",
        )
    else:
        store = sqlite.SqliteStore(_validate.path(place=place))
    return store

"""An in-memory database, for rebuilding the accounts of a ledger and comparing them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from dpgrain.ledger.stores.protocol import Transaction
from dpgrain.ledger.stores.sql import TABLES, SqlTransaction


@contextmanager
def memory_transaction() -> Iterator[Transaction]:
    """Yield a transaction on an empty database that exists until exit."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for table in TABLES:
            connection.execute(table)
        yield SqlTransaction(connection.execute)

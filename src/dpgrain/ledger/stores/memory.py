"""A page in memory, for making the accounts of a ledger anew and comparing them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from dpgrain.ledger.stores.protocol import Transaction
from dpgrain.ledger.stores.sql import TABLES, SqlTransaction


@contextmanager
def memory_transaction() -> Iterator[Transaction]:
    """Yield an empty page that is gone when it is left."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for table in TABLES:
            connection.execute(table)
        yield SqlTransaction(connection.execute)

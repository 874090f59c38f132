"""A database of PostgreSQL for tests of its rows, and tables in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from tests.ledger import cases

_names = itertools.count()


def missing() -> str:
    """Return the missing requirements of these tests, or an empty string."""
    try:
        import adbc_driver_postgresql  # noqa: F401
    except ImportError:
        return "needs adbc-driver-postgresql: pip install 'dpgrain[sql]'"
    return "" if cases.has_server() else "needs a server: apt-get install postgresql"


@dataclass(frozen=True)
class Database:
    address: str

    def run(self, *statements: str) -> list[Any]:
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            for each in statements:
                done = connection.execute(each)
            return done.fetchall() if done.description else []

    def holding(self, rows: pa.Table) -> str:
        """Return the name of a new table with these rows."""
        from adbc_driver_postgresql import dbapi

        name = f"rows_{next(_names)}"
        with (
            dbapi.connect(self.address, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.adbc_ingest(name, rows, mode="create")
        return name

    def other(self, user: str = "", database: str = "") -> str:
        """Return the address for another user, or of another database."""
        scheme, _, rest = self.address.partition("//")
        place = rest.partition("@")[2].partition("/")[0]
        return f"{scheme}//{user or 'dpgrain'}@{place}/{database or 'postgres'}"


@contextmanager
def database() -> Iterator[Database]:
    with cases.server() as address:
        yield Database(address)

"""Connections of stores that report when they wait, so that a paused actor can continue."""

from __future__ import annotations

import sqlite3
from importlib.util import find_spec
from typing import Any

import pytest
from tests.interleaving import Interleaving


def tell_who_waits(pair: Interleaving, patch: pytest.MonkeyPatch) -> None:
    """Make each connection of a store that finds a lock let the other actor continue."""
    _tell_of_sqlite(pair, patch)
    _tell_of_postgres(pair, patch)


def _tell_of_sqlite(pair: Interleaving, patch: pytest.MonkeyPatch) -> None:
    class Waiting(sqlite3.Connection):
        def __init__(self, place: str, *, timeout: float = 5.0, **more: Any) -> None:
            super().__init__(place, timeout=0.0, **more)
            self.patience = timeout

        def execute(self, statement: str, *words: Any) -> sqlite3.Cursor:
            pair.touch(statement)
            while True:
                try:
                    return super().execute(statement, *words)
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                        raise
                    if not pair.wait():
                        super().execute(f"PRAGMA busy_timeout = {int(1000 * self.patience)}")

    usual = sqlite3.connect
    patch.setattr(sqlite3, "connect", lambda *a, **more: usual(*a, factory=Waiting, **more))


def _tell_of_postgres(pair: Interleaving, patch: pytest.MonkeyPatch) -> None:
    if find_spec("psycopg") is None:
        return
    import psycopg

    class Waiting(psycopg.Connection[Any]):
        def execute(self, statement: Any, *words: Any, **more: Any) -> Any:  # type: ignore[override]
            pair.touch(str(statement))
            if not str(statement).startswith("LOCK"):
                return super().execute(statement, *words, **more)
            # A statement that fails ends its transaction, up to a savepoint.
            super().execute("SAVEPOINT waiting")
            super().execute("SET LOCAL lock_timeout = 1")
            while True:
                try:
                    return super().execute(statement, *words, **more)
                except psycopg.errors.LockNotAvailable:
                    super().execute("ROLLBACK TO SAVEPOINT waiting")
                    super().execute("SET LOCAL lock_timeout = 1")
                    if not pair.wait():
                        super().execute("SET LOCAL lock_timeout = 0")

    patch.setattr(psycopg, "connect", Waiting.connect)

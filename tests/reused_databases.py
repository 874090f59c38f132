"""Databases of DuckDB that the releases of a process use one after the other.

Opening a database takes 20 milliseconds of a processor, half of a small release. Effort 1 opens one
for releases at the same time; all other runs, and tests of opening, open one per release.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from threading import Lock

import duckdb

from dpgrain.tables.engines.memory import Memory, open_database, prepare

# Most databases that wait; each has threads.
_MOST = 4


@dataclass(frozen=True)
class _Used:
    """A database, and the connection of its last release."""

    memory: Memory
    database: duckdb.DuckDBPyConnection
    last: duckdb.DuckDBPyConnection

    @property
    def is_free(self) -> bool:
        try:
            self.last.query_progress()
        except duckdb.ConnectionException:
            return True
        return False

    def is_empty(self, folder: str) -> bool:
        """Whether a release left no attached file, and move the spill folder."""
        try:
            # DuckDB refuses if the last release spilled.
            self.database.execute(f"SET temp_directory = '{folder}'")
            left = self.database.execute("SELECT count(*) FROM duckdb_databases()").fetchall()
        except duckdb.Error:
            return False
        # In memory, of the system, and temporary; an engine creates only temporary tables, which end
        # with their connection.
        return left == [(3,)]


_used: list[_Used] = []
_lock = Lock()
# A child has no threads of its parent's databases.
os.register_at_fork(before=_used.clear)


def connect(memory: Memory, folder: str) -> duckdb.DuckDBPyConnection:
    """Open a connection to an unused database, as ``dpgrain.tables.engines.memory.connect``."""
    with _lock:
        database = None
        for each in [each for each in _used if each.memory == memory and each.is_free]:
            _used.remove(each)
            if each.is_empty(folder):
                database = each.database
                break
        if database is None:
            database = open_database(memory, folder)
        connection = database.cursor()
        _used.append(_Used(memory, database, connection))
        del _used[:-_MOST]
    return prepare(connection, memory)

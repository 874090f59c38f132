"""One connection per process; a forked process starts without one.

No connection is open during a fork. SQLite stores the locks of a process in memory: a forked
process would mistake its parent's locks for its own, and lose them, and its writes, when the parent
closes.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar


class _Closed(Protocol):
    def close(self) -> None:
        """Close the connection."""


Connection = TypeVar("Connection", bound=_Closed)


class Connections(Generic[Connection]):
    """Connection of this process, opened on first use and reopened if it is gone."""

    def __init__(
        self, opened: Callable[[], Connection], gone: Callable[[Connection], bool] = lambda _: False
    ) -> None:
        self._opened, self._gone = opened, gone
        # A forked process must neither use nor close inherited connections, so they are stored.
        self._inherited: list[Connection | None] = []
        self._connection: Connection | None = None
        self._user: int | None = None
        self._renew()
        _all.add(self)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Enter with the connection, exclusively for one thread."""
        if self._pid != os.getpid():
            self._renew()
        with self._lock:
            if self._connection is None or self._gone(self._connection):
                self._connection = self._opened()
                weakref.finalize(self, _close, self._connection, self._pid)
            self._user = threading.get_ident()
            try:
                yield self._connection
            finally:
                self._user = None

    def close(self) -> None:
        """Close the connection of this process."""
        if self._pid == os.getpid():
            with self._lock:
                self._shut()

    def before_fork(self) -> Callable[[], None] | None:
        """Close the connection, and keep it closed until the returned function is called.

        Waits for another thread that uses it. If this thread uses it, returns None and leaves it
        open.
        """
        if self._pid != os.getpid() or self._user == threading.get_ident():
            return None
        lock = self._lock
        lock.acquire()
        self._shut()
        return lock.release

    def _shut(self) -> None:
        """Close the connection; the caller has its lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _renew(self) -> None:
        """Start without a connection, also in a forked process."""
        self._inherited.append(self._connection)
        self._connection = None
        # Replace the lock first: another thread that sees this process id must not wait for a lock
        # that was taken before the fork.
        self._lock = threading.Lock()
        self._pid = os.getpid()


# Connections of this process, and the functions that release them after a fork.
_all: weakref.WeakSet[Connections[Any]] = weakref.WeakSet()
_release_locks: list[Callable[[], None]] = []


def _before_fork() -> None:
    for each in list(_all):
        if (release := each.before_fork()) is not None:
            _release_locks.append(release)


def _after_fork() -> None:
    while _release_locks:
        _release_locks.pop()()


# Also release the locks in the forked process, where connections use new ones.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _close(connection: _Closed, pid: int) -> None:
    """Close an unreferenced connection in the process that opened it."""
    if os.getpid() == pid:
        connection.close()

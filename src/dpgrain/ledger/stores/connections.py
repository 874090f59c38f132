"""One connection for each process; a forked process begins without any.

None is open while a process is forked. SQLite keeps in memory which locks a process holds: a forked one
would take those of its parent for its own, and lose them, and what it writes, when the parent closes.
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
    """The connection of this process, which is opened when it is first used, and again when it is gone.

    Args:
        opened: the function that opens one.
        gone: whether one was closed by the other side.
    """

    def __init__(
        self, opened: Callable[[], Connection], gone: Callable[[Connection], bool] = lambda _: False
    ) -> None:
        self._opened, self._gone = opened, gone
        # What a forked process inherits must be neither used nor closed there, so that it is kept.
        self._inherited: list[Connection | None] = []
        self._connection: Connection | None = None
        self._user: int | None = None
        self._renew()
        _all.add(self)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Enter with the connection, which one thread has at a time."""
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
        """Close this process's connection."""
        if self._pid == os.getpid():
            with self._lock:
                self._shut()

    def before_fork(self) -> Callable[[], None] | None:
        """Close the connection, and keep it closed until what is returned is called.

        Another thread that has it is waited for; where this one does, it is left, and None returned.
        """
        if self._pid != os.getpid() or self._user == threading.get_ident():
            return None
        lock = self._lock
        lock.acquire()
        self._shut()
        return lock.release

    def _shut(self) -> None:
        """Close the connection, whose lock is held."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _renew(self) -> None:
        """Begin without a connection, also in a process that was forked."""
        self._inherited.append(self._connection)
        self._connection = None
        # The lock comes first: another thread that finds this process's number must not wait for
        # a lock that was held when the process was forked.
        self._lock = threading.Lock()
        self._pid = os.getpid()


# All connections of this process, and what lets them be opened again after a fork.
_all: weakref.WeakSet[Connections[Any]] = weakref.WeakSet()
_held: list[Callable[[], None]] = []


def _before_fork() -> None:
    for each in list(_all):
        if (release := each.before_fork()) is not None:
            _held.append(release)


def _after_fork() -> None:
    while _held:
        _held.pop()()


# Locks are let go in the forked process, too; what uses them there takes new ones.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _close(connection: _Closed, pid: int) -> None:
    """Close a connection that nobody has any more, in the process that opened it."""
    if os.getpid() == pid:
        connection.close()

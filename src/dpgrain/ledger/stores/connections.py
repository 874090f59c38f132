"""One connection for each process: one that is forked begins without any."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


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
        self._renew()

    @contextmanager
    def at_hand(self) -> Iterator[Connection]:
        """Enter with the connection, which one thread has at a time."""
        if self._pid != os.getpid():
            self._renew()
        with self._lock:
            if self._connection is None or self._gone(self._connection):
                self._connection = self._opened()
                weakref.finalize(self, _close, self._connection, self._pid)
            yield self._connection

    def close(self) -> None:
        """Close this process's connection."""
        if self._pid == os.getpid():
            with self._lock:
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


def _close(connection: _Closed, pid: int) -> None:
    """Close a connection that nobody has any more, in the process that opened it."""
    if os.getpid() == pid:
        connection.close()

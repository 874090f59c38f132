"""The region that arrays were read from: guarantees of what is made of them say it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dpgrain.partitions import Partition
from dpgrain.regions import EVERYTHING, Region


@dataclass(frozen=True)
class Origin:
    """The public facts of the rows that arrays hold.

    Args:
        scope: the region of the records that were read.
        partition: the partition into elements, where it is known as facts.
    """

    scope: Region = EVERYTHING
    partition: Partition | None = None


_origin: ContextVar[Origin] = ContextVar("origin", default=Origin())  # noqa: B039 - it is frozen


def origin() -> Origin:
    """Return where the arrays come from that this thread publishes something of."""
    return _origin.get()


@contextmanager
def arrays_of(scope: Region, partition: Partition | None = None) -> Iterator[None]:
    """Let guarantees of releases inside say that arrays hold the records of a region alone.

    Args:
        scope: the region of the records that were read.
        partition: the partition into elements, where it is known as facts.

    >>> with arrays_of(EVERYTHING):
    ...     origin().scope.everything
    True
    """
    token = _origin.set(Origin(scope, partition))
    try:
        yield
    finally:
        _origin.reset(token)

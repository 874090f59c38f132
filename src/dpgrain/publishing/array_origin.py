"""Public facts of the rows in arrays, for guarantees of releases of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dpgrain.partitions import Partition
from dpgrain.provenance import Provenance
from dpgrain.publishing.facts import Fact
from dpgrain.regions import EVERYTHING, Region


@dataclass(frozen=True)
class ArrayOrigin:
    """The public facts about the rows of arrays.

    Args:
        scope: the region of the records that were read.
        partition: the partition into elements, where it is known as facts.
        provenance: where the rows come from; arrays that no table was read into are as given.
        made: facts about how the rows were derived from those that were read.
    """

    scope: Region = EVERYTHING
    partition: Partition | None = None
    provenance: Provenance = "as given"
    made: tuple[Fact, ...] = ()


_origin: ContextVar[ArrayOrigin] = ContextVar("origin", default=ArrayOrigin())  # noqa: B039 - it is frozen


def current_origin() -> ArrayOrigin:
    """Return the origin of the arrays in the release of this thread."""
    return _origin.get()


@contextmanager
def array_origin(facts: ArrayOrigin) -> Iterator[None]:
    """Let guarantees of releases inside state the origin of the rows in arrays.

    Args:
        facts: what is public of these rows.

    >>> with array_origin(ArrayOrigin(provenance="table")):
    ...     current_origin().provenance
    'table'
    """
    token = _origin.set(facts)
    try:
        yield
    finally:
        _origin.reset(token)

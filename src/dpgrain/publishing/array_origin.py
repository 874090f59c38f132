"""Public facts about the rows in arrays, for the guarantees of releases from them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dpgrain.publishing.facts import Fact
from dpgrain.scope.partitions import Partition
from dpgrain.scope.provenance import Provenance
from dpgrain.scope.regions import EVERYTHING, Region


@dataclass(frozen=True)
class ArrayOrigin:
    """The public facts about the rows of arrays.

    Args:
        scope: the region of the records.
        partition: the partition into elements; None if unknown.
        provenance: the origin of the rows; "as given" unless they were read from a table.
        facts: facts about the derivation of the rows.
    """

    scope: Region = EVERYTHING
    partition: Partition | None = None
    provenance: Provenance = "as given"
    facts: tuple[Fact, ...] = ()


_origin: ContextVar[ArrayOrigin] = ContextVar("origin", default=ArrayOrigin())  # noqa: B039 - it is frozen


def current_origin() -> ArrayOrigin:
    """Return the origin of the arrays in the current release of this thread."""
    return _origin.get()


@contextmanager
def array_origin(facts: ArrayOrigin) -> Iterator[None]:
    """Set the origin of the rows in arrays for the guarantees of releases inside.

    >>> with array_origin(ArrayOrigin(provenance="table")):
    ...     current_origin().provenance
    'table'
    """
    token = _origin.set(facts)
    try:
        yield
    finally:
        _origin.reset(token)

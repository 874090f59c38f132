"""Public facts of the rows in arrays, for guarantees of releases of them."""

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
class Origin:
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


_origin: ContextVar[Origin] = ContextVar("origin", default=Origin())  # noqa: B039 - it is frozen


def origin() -> Origin:
    """Return the origin of the arrays in the release of this thread."""
    return _origin.get()


@contextmanager
def arrays_of(facts: Origin) -> Iterator[None]:
    """Let guarantees of releases inside state the origin of the rows in arrays.

    Args:
        facts: what is public of these rows.

    >>> with arrays_of(Origin(provenance="table")):
    ...     origin().provenance
    'table'
    """
    token = _origin.set(facts)
    try:
        yield
    finally:
        _origin.reset(token)

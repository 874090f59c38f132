"""Origins: public facts about the rows in arrays, and the process that pickled an object.

Processes of a pool may have been started before a budget was opened, so their environment does not
show it. A copy sent to them does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dpgrain.errors import ParameterError
from dpgrain.publishing.budget import is_open
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.process import open_place
from dpgrain.scope.partitions import Partition
from dpgrain.scope.provenance import Provenance
from dpgrain.scope.regions import EVERYTHING, Region


@dataclass(frozen=True)
class ArrayOrigin:
    """The public facts about the rows of arrays."""

    scope: Region = EVERYTHING
    partition: Partition | None = None  # into elements
    provenance: Provenance = "as given"
    facts: tuple[Fact, ...] = ()


_origin: ContextVar[ArrayOrigin] = ContextVar("origin", default=ArrayOrigin())  # noqa: B039 - it is frozen


def current_origin() -> ArrayOrigin:
    """Return the origin of the arrays in the current release of this thread."""
    return _origin.get()


@contextmanager
def array_origin(facts: ArrayOrigin) -> Iterator[None]:
    """Set the origin of the rows in arrays for the guarantees of releases inside."""
    token = _origin.set(facts)
    try:
        yield
    finally:
        _origin.reset(token)


_REMEDY = (
    "use it in the process that created it, as with n_jobs=None or in threads, or create a new one"
)


@dataclass(frozen=True)
class PickleOrigin:
    """The process of the original, with its open budget and ledger."""

    process: int
    budget: bool
    ledger: str | None  # hash of the address, which may contain a password

    @staticmethod
    def current(before: PickleOrigin | None = None) -> PickleOrigin | None:
        """Return the origin of a copy created now; ``before`` if no budget or ledger is open."""
        budget, ledger = is_open(), _name()
        if not budget and ledger is None:
            return before
        return PickleOrigin(os.getpid(), budget, ledger)

    def check(self) -> None:
        """Raise ParameterError in a process that would not charge the open budget or ledger."""
        if self.process == os.getpid():
            return
        if self.budget:
            raise ParameterError(
                "this model was sent here while a budget was open in another process, "
                f"which is not charged for releases here; {_REMEDY}."
            )
        if self.ledger not in (None, _name()):
            raise ParameterError(
                "this model was sent here while a ledger was open in another process, "
                "which is not open here, because this process was started before; open it here, "
                f"end this process and start another, {_REMEDY}."
            )


def _name() -> str | None:
    """Return a hash of the address of the open ledger; None if none is open."""
    place = open_place()
    return None if place is None else hashlib.sha256(place.encode()).hexdigest()

"""The mark of a copy for another process: a budget or ledger was open at its origin.

Pools keep their processes, so that one may have been started before a budget was opened, of which its
environment shows nothing. A copy that was sent there does.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from dpgrain.errors import ParameterError
from dpgrain.publishing.budget import is_open
from dpgrain.publishing.ledgers import open_place

_REMEDY = (
    "use it in the process that created it, as with n_jobs=None or in threads, or create a new one"
)


@dataclass(frozen=True)
class PickleOrigin:
    """The origin of a copy, and the charges due there.

    Args:
        process: the number of the process.
        budget: whether a budget was open.
        ledger: a hash of the place of the ledger that was open, which may hold a password; None if none
            was.

    >>> PickleOrigin.from_here() is None
    True
    >>> PickleOrigin(os.getpid(), budget=True, ledger=None).check()
    """

    process: int
    budget: bool
    ledger: str | None

    @staticmethod
    def from_here(before: PickleOrigin | None = None) -> PickleOrigin | None:
        """Return the mark of a copy made now.

        Args:
            before: what the copied has taken along, which is kept where nothing is open.
        """
        budget, ledger = is_open(), _name()
        if not budget and ledger is None:
            return before
        return PickleOrigin(os.getpid(), budget, ledger)

    def check(self) -> None:
        """Refuse a fit of a copy in a process that does not charge what was open where it was made.

        Raises:
            ParameterError: if it would not be charged.
        """
        if self.process == os.getpid():
            return
        if self.budget:
            raise ParameterError(
                "this model or query was sent here while a budget was open in another process, "
                f"which is not charged for releases here; {_REMEDY}."
            )
        if self.ledger not in (None, _name()):
            raise ParameterError(
                "this model or query was sent here while a ledger was open in another process, "
                "which is not open here, because this process was started before; open it here, "
                f"end this process and start another, {_REMEDY}."
            )


def _name() -> str | None:
    """Return a hash of the place of the open ledger; None if none is open."""
    place = open_place()
    return None if place is None else hashlib.sha256(place.encode()).hexdigest()

"""The open ledger of this process, or of the place where the process was started.

A ledger is a file or a database, so that all processes share it. One that is started while a ledger is
open inherits its place by an environment variable, and charges what it publishes as well.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import Protocol

from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.receipt import Receipt

# A process that is started while a ledger is open finds the place of the ledger here.
_PLACE_VARIABLE = "DPGRAIN_LEDGER"
# The module whose class ``Ledger`` opens a ledger that was inherited.
_HOME = "dpgrain.ledger.ledger"


class Charging(Protocol):
    """The ledger as publishing calls it."""

    @property
    def place(self) -> str:
        """The file or database of the ledger, as another process can open it."""

    def charge(self, *guarantees: Guarantee, mark: str = "", again: bool = True) -> Receipt:
        """Charge releases durably, or refuse them."""

    def contains(self, receipt: Receipt) -> bool:
        """Return whether a release was charged in a line of this ledger."""


class _Slot:
    """The place of the open ledger: one for the whole process, so that no thread is outside of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ledger: Charging | None = None
        self.outer: str | None = None


_slot = _Slot()


def _renew_lock() -> None:
    # Another thread may have held the lock when the process was forked.
    _slot.lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def enter(ledger: Charging) -> None:
    """Charge all releases of this process, and of processes started by it, to a ledger from now on.

    Raises:
        ParameterError: if another ledger is open, here or where this process was started.
    """
    with _slot.lock:
        inherited = os.environ.get(_PLACE_VARIABLE)
        if _slot.ledger is not None or inherited not in (None, ledger.place):
            # The address in the variable may hold a password, and is not shown.
            stated = _slot.ledger is None or _slot.outer is not None
            already = (
                f"{_PLACE_VARIABLE} points to another ledger, which is open for this whole "
                "process; unset that variable, or use the same ledger"
                if stated
                else "a ledger is already open; close it before opening another"
            )
            raise ParameterError(
                f"{already}, because one ledger must contain all releases about these people."
            )
        _slot.ledger, _slot.outer = ledger, inherited
        os.environ[_PLACE_VARIABLE] = ledger.place


def leave(ledger: Charging) -> None:
    """Charge releases no longer to this ledger."""
    with _slot.lock:
        if _slot.ledger is not ledger:
            return
        _slot.ledger = None
        if _slot.outer is None:
            os.environ.pop(_PLACE_VARIABLE, None)


def open_place() -> str | None:
    """Return the place of the ledger to which this process charges, None if it charges to none."""
    return os.environ.get(_PLACE_VARIABLE)


def open_ledger() -> Charging | None:
    """Return the open ledger, None if none is open.

    Raises:
        DpgrainError: if the ledger that was open where this process was started cannot be opened.
    """
    with _slot.lock:
        place = os.environ.get(_PLACE_VARIABLE)
        if _slot.ledger is None and place is not None:
            # The ledger stays open until the process ends, as whoever started the process asked for.
            _slot.outer = place
            _slot.ledger = import_module(_HOME).Ledger(place)
        return _slot.ledger

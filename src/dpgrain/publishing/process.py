"""The open ledger and budgets of this process, and of the process that started it.

A ledger is a file or a database that all processes share. A process started while a ledger is open
inherits its address in an environment variable, and charges its releases to it. A budget is used in
one process only, because a copy would be spent a second time.
"""

from __future__ import annotations

import os
import secrets
import threading
from importlib import import_module
from typing import Protocol

from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.receipt import Receipt

# Inherited by processes started while a budget is open.
_MARK_VARIABLE = "DPGRAIN_BUDGET_OPEN"


class _Process:
    """The state of this process."""

    def __init__(self) -> None:
        self.open = 0
        self.forked = False
        self.marks: set[str] = set()


_process = _Process()


def mark_open() -> str:
    """Set and return a mark for processes started from now on: a budget is open here."""
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    _process.marks.add(mark)
    _process.open += 1
    os.environ[_MARK_VARIABLE] = mark
    return mark


def mark_closed(mark: str) -> None:
    """Remove the mark, unless another has replaced it."""
    _process.open -= 1
    if os.environ.get(_MARK_VARIABLE) == mark:
        del os.environ[_MARK_VARIABLE]


def check_process(opened_by: int | None) -> None:
    """Reject a process forked or started while a budget was open in another one."""
    mark = os.environ.get(_MARK_VARIABLE)
    copied = _process.forked or (opened_by is not None and opened_by != os.getpid())
    if copied or (mark is not None and mark not in _process.marks):
        raise ParameterError(
            "this process was started while a budget was open in another one, which would not be "
            "charged for releases here; publish in the process that opened the budget, in any "
            "number of threads."
        )


def check_creator(creator: int, what: str = "budget") -> None:
    """Raise ParameterError for a copy in another process than the one that created the original."""
    if creator != os.getpid():
        raise ParameterError(
            f"this {what} is a copy from another process, and each copy would spend all of it; "
            "publish in the process that created it, in any number of threads."
        )


def _after_fork_in_child() -> None:
    # The child has its parent's marks, so only this hook, which runs first, can detect the fork.
    _process.forked = _process.forked or _process.open > 0


os.register_at_fork(after_in_child=_after_fork_in_child)


# Address of the ledger for processes started while it is open.
_PLACE_VARIABLE = "DPGRAIN_LEDGER"
# Module of the class ``Ledger``, which opens an inherited ledger.
_HOME = "dpgrain.ledger.ledger"


class OpenLedger(Protocol):
    """The interface of a ledger for publishing."""

    @property
    def place(self) -> str:
        """The file or database of the ledger, as an address for other processes."""

    def charge(self, *guarantees: Guarantee, mark: str = "", again: bool = True) -> Receipt:
        """Charge releases durably, or raise RefusedError."""

    def rehearse(self, *guarantees: Guarantee, mark: str = "", again: bool = True) -> None:
        """Raise the errors that a charge would raise now."""

    def contains(self, receipt: Receipt) -> bool:
        """Return whether a receipt is of this ledger."""


class _LedgerSlot:
    """The open ledger: one for the whole process, so it covers all threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ledger: OpenLedger | None = None
        self.outer: str | None = None


_slot = _LedgerSlot()


def _renew_lock() -> None:
    # Another thread may have held the lock when the process was forked.
    _slot.lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def enter(ledger: OpenLedger) -> None:
    """Charge all releases of this process, and of processes that it starts, to a ledger."""
    with _slot.lock:
        inherited = os.environ.get(_PLACE_VARIABLE)
        if _slot.ledger is not None or inherited not in (None, ledger.place):
            # The address in the variable may contain a password, so it is not shown.
            inherits = _slot.ledger is None or _slot.outer is not None
            already = (
                f"{_PLACE_VARIABLE} points to another ledger, which is open for this whole "
                "process; unset that variable, or use the same ledger"
                if inherits
                else "a ledger is already open; close it before opening another"
            )
            raise ParameterError(
                f"{already}, because one ledger must contain all releases about these people."
            )
        _slot.ledger, _slot.outer = ledger, inherited
        os.environ[_PLACE_VARIABLE] = ledger.place


def leave(ledger: OpenLedger) -> None:
    """Stop charging releases to this ledger."""
    with _slot.lock:
        if _slot.ledger is not ledger:
            return
        _slot.ledger = None
        if _slot.outer is None:
            os.environ.pop(_PLACE_VARIABLE, None)


def open_place() -> str | None:
    """Return the address of the open ledger; None if none is open."""
    return os.environ.get(_PLACE_VARIABLE)


def open_ledger() -> OpenLedger | None:
    """Return the open ledger; None if none is open."""
    with _slot.lock:
        place = os.environ.get(_PLACE_VARIABLE)
        if _slot.ledger is None and place is not None:
            # An inherited ledger stays open until the process ends.
            _slot.outer = place
            _slot.ledger = import_module(_HOME).Ledger(place)
        return _slot.ledger

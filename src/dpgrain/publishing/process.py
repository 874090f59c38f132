"""Checks that a budget is used in one process only, because a copy would be spent a second time."""

from __future__ import annotations

import os
import secrets

from dpgrain.errors import ParameterError

# Inherited by processes started while a budget is open.
_MARK_VARIABLE = "DPGRAIN_BUDGET_OPEN"


class _Process:
    """The state of this process.

    Attributes:
        open: the number of open budgets, one or none.
        forked: True if this process was forked while a budget was open.
        marks: the marks set by this process.
    """

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
    """Raise ParameterError in a process forked or started while a budget was open in another one.

    ``opened_by`` is the process that opened the current budget; None without one.
    """
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

"""Checks that a budget stays in its process: a copy in another one would be spent a second time."""

from __future__ import annotations

import os
import secrets

from dpgrain.errors import ParameterError

# A process that is started while a budget is open inherits this variable from its parent.
_MARK_VARIABLE = "DPGRAIN_BUDGET_OPEN"


class _Process:
    """The facts about this process.

    Attributes:
        open: the number of budgets that are open here, one or none.
        forked: True if this process is a copy that was made while a budget was open.
        marks: the marks that this process has set itself.
    """

    def __init__(self) -> None:
        self.open = 0
        self.forked = False
        self.marks: set[str] = set()


_process = _Process()


def mark_open() -> str:
    """Mark, for processes started from now on, that a budget is open here, and return the mark."""
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    _process.marks.add(mark)
    _process.open += 1
    os.environ[_MARK_VARIABLE] = mark
    return mark


def mark_closed(mark: str) -> None:
    """Take the mark away, unless another has replaced it."""
    _process.open -= 1
    if os.environ.get(_MARK_VARIABLE) == mark:
        del os.environ[_MARK_VARIABLE]


def check_process(opened_by: int | None) -> None:
    """Refuse to publish in a process started while a budget was open elsewhere.

    Args:
        opened_by: the process that opened the budget in force here; None if none is.

    Raises:
        ParameterError: in a forked or spawned process.
    """
    mark = os.environ.get(_MARK_VARIABLE)
    copied = _process.forked or (opened_by is not None and opened_by != os.getpid())
    if copied or (mark is not None and mark not in _process.marks):
        raise ParameterError(
            "this process was started while a budget was open in another one, which would not be "
            "charged for releases here; publish in the process that opened the budget, in any "
            "number of threads."
        )


def check_creator(made_by: int, what: str = "budget") -> None:
    """Refuse a copy, in another process, of what may be spent once.

    Args:
        made_by: the process that made it.
        what: its name, in words; a budget may be open or closed.

    Raises:
        ParameterError: in another process.
    """
    if made_by != os.getpid():
        raise ParameterError(
            f"this {what} is a copy from another process, and each copy would spend all of it; "
            "publish in the process that created it, in any number of threads."
        )


def _after_fork_in_child() -> None:
    # The child has its parent's marks, so that only this hook, which runs first, can distinguish it.
    _process.forked = _process.forked or _process.open > 0


os.register_at_fork(after_in_child=_after_fork_in_child)

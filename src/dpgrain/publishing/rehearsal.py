"""A release up to where it would be charged: what it would promise, with nothing read or spent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee


class _Rehearsed(BaseException):
    """Ends a rehearsal; no handler of errors may take it for one."""

    def __init__(self, guarantee: Guarantee) -> None:
        super().__init__()
        self.guarantee = guarantee


# Each thread rehearses by itself.
_rehearsal = threading.local()
# How many plans are rehearsed: what a plan's function starts in other threads must not publish.
_plans: list[int] = []


def rehearsed(release: Callable[[], Any], *, plan: bool = False) -> Guarantee:
    """What a release would promise: it runs up to where it would be charged.

    Args:
        release: makes one release, in this thread.
        plan: whether it belongs to a plan: no other thread publishes meanwhile.

    Raises:
        ParameterError: if it makes none, or refuses a parameter.

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> table = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> found = rehearsed(lambda: count(table, unit=User(), epsilon=1.0, delta=1e-6, clip=5.0))
    >>> round(found.epsilon(), 6)
    1.0
    """
    outer, _rehearsal.on = rehearsing(), True
    if plan:
        _plans.append(threading.get_ident())
    try:
        release()
    except _Rehearsed as ended:
        return ended.guarantee
    finally:
        _rehearsal.on = outer
        if plan:
            _plans.remove(threading.get_ident())
    raise ParameterError("plan must hold functions that make one release each; one made none.")


def end_rehearsal(guarantee: Guarantee) -> None:
    """Stop here if this is a rehearsal.

    Args:
        guarantee: what the release would promise.
    """
    if rehearsing():
        raise _Rehearsed(guarantee)


def rehearsing() -> bool:
    """Whether this thread rehearses a release."""
    return getattr(_rehearsal, "on", False)


def refuse_beside_a_plan() -> None:
    """Refuse to publish in another thread while a plan is rehearsed.

    Raises:
        ParameterError: then; what a plan's function starts elsewhere would be published for real.
    """
    if _plans:
        raise ParameterError(
            "a plan is rehearsed in another thread, and nothing is published meanwhile: its functions "
            "must make their release in the thread that opens the budget."
        )

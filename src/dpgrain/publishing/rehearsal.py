"""Rehearsals: a release runs up to its charge, to tell its guarantee with nothing read or spent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.publishing.expected import Expected
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.planned import Planned


@dataclass(frozen=True)
class Rehearsal:
    """What a release tells before anything is read or charged.

    Args:
        guarantee: the guarantee that it would have.
        expected: the error to expect; None where public numbers do not tell it.
    """

    guarantee: Guarantee
    expected: Expected | None = None


class _Rehearsed(BaseException):
    """The end of a rehearsal, which is no Exception, so that no handler of errors catches it."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        super().__init__()
        self.rehearsal = rehearsal


# Each thread has rehearsals of its own.
_rehearsal = threading.local()
# The threads that rehearse a plan. While there are any, releases in other threads are refused, since
# a plan's function may have started them.
_plans: list[int] = []


def rehearsed(release: Callable[[], Any], *, plan: bool = False) -> Guarantee:
    """Run a release up to where it would be charged, and return the guarantee that it would have.

    Args:
        release: a function that makes one release, in this thread.
        plan: True if the release belongs to a plan: no other thread publishes meanwhile.

    Raises:
        ParameterError: if the function makes no release, or refuses a parameter.
    """
    return rehearsal(release, plan=plan).guarantee


def planned_guarantee(item: Any) -> Guarantee:
    """Return the guarantee of a planned release: stated, that of a query's plan, or of a rehearsal.

    Args:
        item: a guarantee, a query, or a function without arguments that makes one release.

    Raises:
        ParameterError: if it is neither, or the function refuses a parameter.
    """
    if isinstance(item, Guarantee):
        return item
    if isinstance(plan := getattr(item, "plan", None), Planned):
        return plan.guarantee
    if callable(item):
        return rehearsed(item, plan=True)
    raise ParameterError(
        "plan must hold queries, functions without arguments that make one release each, or "
        f"guarantees, not {type(item).__name__}."
    )


def rehearsal(release: Callable[[], Any], *, plan: bool = False) -> Rehearsal:
    """Run a release up to where it would be charged, and return what it tells by then.

    Args:
        release: a function that makes one release, in this thread.
        plan: True if the release belongs to a plan: no other thread publishes meanwhile.

    Raises:
        ParameterError: if the function makes no release, or refuses a parameter.

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> table = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> found = rehearsal(lambda: count(table, unit=User(), epsilon=1.0, delta=1e-6, clip=5.0))
    >>> round(found.guarantee.epsilon(), 6), str(found.expected)
    (1.0, '± 21.1')
    """
    outer, _rehearsal.on = rehearsing(), True
    if plan:
        _plans.append(threading.get_ident())
    try:
        release()
    except _Rehearsed as ended:
        return ended.rehearsal
    finally:
        _rehearsal.on = outer
        if plan:
            _plans.remove(threading.get_ident())
    raise ParameterError("plan must hold functions that make one release each; one made none.")


def end_rehearsal(guarantee: Guarantee, expected: Expected | None = None) -> None:
    """End the rehearsal that runs in this thread, if one does.

    Args:
        guarantee: what the release would promise.
        expected: the error to expect, where that is known.
    """
    if rehearsing():
        raise _Rehearsed(Rehearsal(guarantee, expected))


def rehearsing() -> bool:
    """Return True if this thread rehearses a release."""
    return getattr(_rehearsal, "on", False)


def refuse_beside_a_plan() -> None:
    """Refuse to publish in another thread while a plan is rehearsed.

    Raises:
        ParameterError: while a plan is rehearsed, since a release that its function starts in another
            thread would be published for real.
    """
    if _plans:
        raise ParameterError(
            "a plan is rehearsed in another thread, and nothing is published meanwhile: its functions "
            "must make their release in the thread that opens the budget."
        )

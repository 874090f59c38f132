"""Work on tiles side by side, each in one thread.

A product of one tile is too small to be divided: the threads of a BLAS would wait for each other longer
than they work, and much longer where the machine has other work to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the work on each item, in the order of the items, in as many threads as BLAS may use.

    Args:
        work: a function that may run in several threads at once.
        items: what it is called with, one after the other or side by side.

    >>> side_by_side(abs, [-1, 2])
    [1, 2]
    """
    blas = _blas()
    threads = max((library.num_threads for library in blas.lib_controllers), default=1)
    with blas.limit(limits=1):
        if threads == 1 or len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(threads, len(items))) as pool:
            return list(pool.map(work, items))


@cache
def _blas() -> Any:
    """Return the BLAS libraries of this process; to find them takes some milliseconds."""
    return ThreadpoolController().select(user_api="blas")

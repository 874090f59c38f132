"""Parallel computation on tiles, each in one thread.

The product of one tile is too small to divide: the threads of a BLAS would spend more time waiting
for each other than computing, especially on a busy machine.
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
    """Apply a function to all items in parallel, and return the results in order.

    The number of threads is the number that BLAS may use.

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
    """Return the BLAS libraries of this process; cached, because the search is slow."""
    return ThreadpoolController().select(user_api="blas")

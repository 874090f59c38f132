"""Times of work, for benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """Return how long the work takes."""
    return wall_and_processor(work)[0]


def wall_and_processor(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall seconds and the processor seconds that the work takes."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor

"""Memory of tensors on a processor, counted by PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import torch


def peak_bytes(step: Callable[[], Any]) -> int:
    """Return the most bytes that a step allocates at a time, and its results."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds, profile_memory=True) as profile:
        results = step()
    events = profile.profiler.kineto_results.experimental_event_tree()
    del results
    sizes = [size for _time, size in sorted(_allocations(events))]
    return max(accumulate(sizes), default=0)


def _allocations(events: Any) -> Iterator[tuple[int, int]]:
    """Yield the times of allocations and their bytes, which are negative for released memory."""
    for event in events:
        kind, details = event.typed
        if kind == torch._C._profiler._EventType.Allocation:
            yield event.start_time_ns, details.alloc_size
        yield from _allocations(event.children)

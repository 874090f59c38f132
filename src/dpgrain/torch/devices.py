"""Choice between the code paths of CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpgrain.torch.library import torch

# GPU versions (compute capability) with half as many units for double as for single precision.
_QUICK_IN_DOUBLE = frozenset(((6, 0), (7, 0), (8, 0), (9, 0)))


def is_gpu(tensor: Any) -> bool:
    """Return True if a tensor is on a GPU, where few large operations are fast."""
    return bool(tensor.device.type != "cpu")


def is_quick_in_double(tensor: Any) -> bool:
    """Return True if double-precision products cost at most twice as much as single."""
    if tensor.device.type == "cpu":
        return True
    return torch.cuda.get_device_capability(tensor.device) in _QUICK_IN_DOUBLE


def has_grouped_products(tensor: Any) -> bool:
    """Return True if products of groups of rows have one kernel."""
    if tensor.device.type == "cpu":
        return True
    return bool(tensor.is_cuda and torch.cuda.get_device_capability(tensor.device) >= (8, 0))


def buffer_bytes(tensor: Any) -> int:
    """Return the maximum size of all blocks' gradients: a quarter of a GPU's memory.

    On a CPU it is 0, because sums without these gradients are faster.
    """
    if not tensor.is_cuda:
        return 0
    return int(torch.cuda.get_device_properties(tensor.device).total_memory) // 4


def current_stream(tensor: Any) -> Any:
    """Return the stream of a GPU on which operations run now; None on other devices."""
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None


def copied(numbers: Sequence[int], kind: str, device: Any) -> Any:
    """Copy integers to a device without waiting for its earlier work."""
    tensor = torch.from_numpy(np.array(numbers, dtype=kind))
    if device.type == "cpu":
        return tensor
    # Only a copy from pinned memory is asynchronous.
    return tensor.pin_memory().to(device, non_blocking=True)

"""Global random generators, used by networks and data sets, such as for dropout."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpgrain.torch.library import torch


@contextmanager
def seeded_randomness(seed: int) -> Iterator[Callable[[], bool]]:
    """Seed and later restore all global generators; yield a check for drawn numbers."""
    plain, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - what modules may use
    # PyTorch warns if there are several devices, unless they are listed.
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        began = _state()
        try:
            yield lambda: _state() != began
        finally:
            random.setstate(plain)
            np.random.set_state(numbers)  # noqa: NPY002


def _state() -> bytes:
    """Return the state of the global generators of this process."""
    numbers = np.random.get_state(legacy=True)  # noqa: NPY002
    drawn = [torch.get_rng_state(), *device_rng_states()]
    return pickle.dumps((random.getstate(), numbers, [state.numpy() for state in drawn]))


def device_rng_states() -> list[Any]:
    """Return the states of PyTorch's generators on GPUs, in the order of devices."""
    result: list[Any] = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return result


def restore_device_rng(states: Sequence[Any]) -> None:
    """Restore the generators of GPUs, one per state."""
    for device, state in zip(range(torch.cuda.device_count()), states, strict=False):
        torch.cuda.set_rng_state(state, device)


def reseed_from_os() -> None:
    """Re-seed all global generators on every device from the operating system."""
    torch.seed()
    random.seed()
    np.random.seed()  # noqa: NPY002

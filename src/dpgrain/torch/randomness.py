"""The common generators, from which networks and data sets draw: dropout, shuffled or cut pictures."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpgrain.torch.library import torch


@contextmanager
def randomness_from(seed: int) -> Iterator[Callable[[], bool]]:
    """Begin all common generators with a seed, and leave them as they were.

    Yields:
        a function that returns whether any number was drawn by now.

    Args:
        seed: the seed.
    """
    plain, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - what modules may use
    # Of several devices PyTorch warns, unless they are named.
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
    """Return where the common generators of this process stand."""
    numbers = np.random.get_state(legacy=True)  # noqa: NPY002
    drawn = [torch.get_rng_state(), *on_devices()]
    return pickle.dumps((random.getstate(), numbers, [state.numpy() for state in drawn]))


def on_devices() -> list[Any]:
    """Return where the common generators of PyTorch on GPUs stand, in the order of devices."""
    result: list[Any] = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return result


def go_on_on_devices(states: Sequence[Any]) -> None:
    """Let the common generators on GPUs go on, as far as there are as many of them.

    Args:
        states: what :func:`on_devices` has returned.
    """
    for device, state in zip(range(torch.cuda.device_count()), states, strict=False):
        torch.cuda.set_rng_state(state, device)


def randomness_that_nobody_knows() -> None:
    """Begin all common generators anew, on every device, with seeds of the operating system."""
    torch.seed()
    random.seed()
    np.random.seed()  # noqa: NPY002

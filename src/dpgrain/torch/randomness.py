"""The common generators, from which networks and data sets draw: dropout, shuffled or cut pictures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dpgrain.torch.library import torch


@contextmanager
def randomness_from(seed: int) -> Iterator[None]:
    """Begin all common generators with a seed, and leave them as they were."""
    plain, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - what modules may use
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(numbers)  # noqa: NPY002


def randomness_that_nobody_knows() -> None:
    """Begin all common generators anew, on every device, with seeds of the operating system."""
    torch.seed()
    random.seed()
    np.random.seed()  # noqa: NPY002

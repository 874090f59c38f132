"""Sources of random bits: the operating system for releases, a seed for tests."""

from __future__ import annotations

import os
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain.errors import ParameterError

RandomState: TypeAlias = "int | np.random.Generator | None"


class Source(Protocol):
    """A stream of independent uniform bits."""

    @property
    def private(self) -> bool:
        """True if nobody can predict the bits, so that a release made from them is private."""

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw ``size`` independent uniform 64-bit words."""


class SystemSource:
    """The operating system's cryptographic generator.

    >>> SystemSource().words(3).shape
    (3,)
    """

    private = True

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw ``size`` independent uniform 64-bit words."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


class SeededSource:
    """A reproducible generator for tests and research; releases made with it are not private.

    Args:
        seed: a whole number, or a NumPy generator, which is advanced.

    >>> bool((SeededSource(7).words(4) == SeededSource(7).words(4)).all())
    True
    """

    private = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._generator = np.random.default_rng(seed)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw ``size`` independent uniform 64-bit words."""
        return self._generator.integers(0, 2**64, size=size, dtype=np.uint64)


def source_of(random_state: RandomState) -> Source:
    """Return the operating system's source for None, and a seeded one otherwise.

    Args:
        random_state: None, a whole number ≥ 0, or a NumPy generator, which is advanced.

    Raises:
        ParameterError: if ``random_state`` is neither None, a whole number ≥ 0 nor a generator.
    """
    if random_state is None:
        return SystemSource()
    if isinstance(random_state, np.random.Generator):
        return SeededSource(random_state)
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise ParameterError(
            f"random_state must be None, a whole number or a NumPy Generator, not {random_state!r}.",
            name="random_state",
        )
    if random_state < 0:
        raise ParameterError(
            f"random_state must be at least 0, not {random_state!r}.", name="random_state"
        )
    return SeededSource(int(random_state))

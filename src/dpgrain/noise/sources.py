"""Sources of random bits: the operating system for releases, a seed for tests."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain.errors import ParameterError

RandomState: TypeAlias = int | np.random.Generator | None

# NumPy's generators by the name in their states.
_GENERATORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.MT19937,
        np.random.Philox,
        np.random.SFC64,
    )
}


class RandomSource(Protocol):
    """Protocol of a stream of independent uniform bits."""

    @property
    def private(self) -> bool:
        """True if the bits are unpredictable, so that releases with them are private."""

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
    """Reproducible generator for tests and research, without privacy.

    Args:
        seed: an integer of at least 0, or a NumPy generator, which is advanced.

    Raises:
        ParameterError: if the seed is neither.

    >>> bool((SeededSource(7).words(4) == SeededSource(7).words(4)).all())
    True
    """

    private = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        is_seed = not isinstance(seed, bool) and isinstance(seed, Integral | np.random.Generator)
        if not is_seed or (isinstance(seed, Integral) and int(seed) < 0):
            # NumPy also accepts lists, and a list that contains itself crashes the process.
            raise ParameterError(
                "seed must be an integer of at least 0 or a NumPy Generator, not "
                f"{_validate.describe(seed)}.",
                name="seed",
            )
        self._generator = np.random.default_rng(seed)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw ``size`` independent uniform 64-bit words."""
        return self._generator.integers(0, 2**64, size=size, dtype=np.uint64)

    def state(self) -> str:
        """Return the state of the generator as JSON, for :meth:`from_state`.

        >>> source = SeededSource(7)
        >>> again = SeededSource.from_state(source.state())
        >>> bool((source.words(4) == again.words(4)).all())
        True
        """
        return json.dumps(self._generator.bit_generator.state, default=np.ndarray.tolist)

    @staticmethod
    def from_state(state: str) -> SeededSource:
        """Return a source that resumes from the state of another one.

        Args:
            state: a result of :meth:`state`.

        Raises:
            ParameterError: if the state is not a state of one of NumPy's generators.
        """
        try:
            values = json.loads(state)
            bits = _GENERATORS[values["bit_generator"]]()
            bits.state = values
            _check_position(bits.state)
        except _validate.MISFIT_ERRORS as error:
            raise ParameterError("state must be a state returned by SeededSource.state.") from error
        return SeededSource(np.random.Generator(bits))


def _check_position(state: Mapping[str, Any]) -> None:
    """Raise if a state points outside its buffer, where NumPy would read out of bounds."""
    drawn = {
        "MT19937": (state["state"].get("pos", 0), 624),
        "Philox": (state.get("buffer_pos", 0), 4),
    }
    place, end = drawn.get(state["bit_generator"], (0, 0))
    if not 0 <= place <= end:
        raise ValueError


def random_bits(source: RandomSource, size: int) -> NDArray[np.uint64]:
    """Draw (size,) words that are published, or that decide nothing about a release."""
    return source.words(size)


def resolve_source(source: RandomSource | None) -> RandomSource:
    """Return the given source of random bits, or the operating system's for None."""
    if source is None:
        return SystemSource()
    if not callable(getattr(source, "words", None)):
        raise ParameterError(
            f"source must be a source of dpgrain.noise, not {_validate.describe(source)}.",
            name="source",
        )
    return source


def random_source(random_state: RandomState) -> RandomSource:
    """Return the operating system's source for None, else a source with the seed."""
    if random_state is None:
        return SystemSource()
    if isinstance(random_state, np.random.Generator):
        return SeededSource(random_state)
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise ParameterError(
            "random_state must be None, an integer or a NumPy Generator, not "
            f"{_validate.describe(random_state)}.",
            name="random_state",
        )
    if random_state < 0:
        raise ParameterError(
            f"random_state must be at least 0, not {_validate.describe(random_state)}.",
            name="random_state",
        )
    return SeededSource(int(random_state))

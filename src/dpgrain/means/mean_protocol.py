"""Interface of private means: rounds of noisy means with one accounting event.

A mean is calibrated once, for all rounds, and is immutable: it contains only public numbers. Data
and randomness are passed as arguments. :meth:`Mean.start` begins a run, which rejects more rounds
than the event covers. Callers use this interface only, and never check the type of a mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Event
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource
from dpgrain.numerics.row_clipping import clipped
from dpgrain.publishing.facts import Fact
from dpgrain.units import Level, Trust

if TYPE_CHECKING:
    from dpgrain.inputs import numbers
else:
    # Arrays do not need the code that reads tables.
    numbers = lazy_import("dpgrain.inputs.numbers")

Drawn: TypeAlias = NDArray[np.intp]
#: Function of the vectors of blocks, (blocks, dimension), that maps each row separately.
Rule: TypeAlias = Callable[[FloatArray], FloatArray]


class Contributions(Protocol):
    """Vectors of blocks for one round, before clipping.

    A block is the data of one privacy unit. A block with a non-finite vector is treated as zero.
    """

    @property
    def blocks(self) -> int:
        """Number of blocks."""

    @property
    def dimension(self) -> int:
        """Length of the vectors of blocks."""

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """Add the blocks' vectors, each clipped to norm ``clip``.

        Args:
            clip: the clipping bound, in l2 norm.
            drawn: the sorted indices of sampled blocks; all by default.

        Returns:
            (dimension,)
        """

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """Return the blocks' vectors, (blocks, dimension), for means that compare them."""


@runtime_checkable
class Distributed(Protocol):
    """Interface of contributions on many machines, which return integer sums."""

    def in_steps(self, clip: float, step: float, centre: FloatArray | None = None) -> IntArray:
        """Add vectors of all blocks, clipped around ``centre``, on a grid, (dimension,)."""


@runtime_checkable
class DistributedGradients(Distributed, Protocol):
    """Interface of gradients of blocks on many machines, with their norms for a fit."""

    def in_bins(self) -> IntArray:
        """Count the blocks by the norms of their vectors, like a histogram of norms."""


@runtime_checkable
class DistributedVectors(Distributed, Protocol):
    """Interface of users' vectors on many machines, with their distances from a centre."""

    def mapped(self, rule: Rule) -> Contributions:
        """Apply a rule with public numbers to the vectors, which stay in their place."""

    def count_by_radius(self, centre: FloatArray, radii: FloatArray) -> IntArray:
        """Count vectors by the first ascending radius that contains them, (radii + 1,)."""


class Rounds(Protocol):
    """One run of a mean, with its round counter and shared state."""

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of the last round's mean."""

    @property
    def radius(self) -> float:
        """Distance from the last round's centre within which a vector counts in full."""

    def estimate(self, contributions: Contributions) -> FloatArray:
        """Return the noisy mean of one round, (dimension,).

        Raises:
            ParameterError: if all accounted-for rounds are over.
            RunEnded: if the run has published that it stops.
        """


class CountedRounds(ABC):
    """Run with a limited number of rounds; subclasses implement one round.

    Args:
        mean: its public numbers.

    >>> from dpgrain.means import ClippedMean
    >>> from dpgrain.noise import SystemSource
    >>> from dpgrain.noise.noisy_sums import add_gaussian_noise
    >>> class Summed(CountedRounds):
    ...     def _round(self, contributions):
    ...         clipped = contributions.clipped_sum(1.0)
    ...         return add_gaussian_noise(clipped, 1.0, 2.0, SystemSource()) / 1000
    >>> run = Summed(ClippedMean(1.0, 2.0, n_users=1000, rounds=1))
    >>> run.estimate(Vectors(np.full((1000, 2), 0.5))).round(1).tolist()
    [0.5, 0.5]
    """

    def __init__(self, mean: Mean) -> None:
        self._public, self._done = mean, 0

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of the last round's mean."""
        return self._public.noise_sd

    @property
    def radius(self) -> float:
        """Distance from the last round's centre within which a vector counts in full."""
        return self._public.reach

    def estimate(self, contributions: Contributions) -> FloatArray:
        """Return the noisy mean of one round, (dimension,).

        Raises:
            ParameterError: if all accounted-for rounds are over.
            RunEnded: if the run has published that it stops.
        """
        if self._done >= self._public.rounds:
            raise ParameterError(
                f"rounds = {self._public.rounds} are over, because no further round was accounted "
                "for; calibrate for more rounds."
            )
        self._done += 1
        return self._round(contributions)

    @abstractmethod
    def _round(self, contributions: Contributions) -> FloatArray:
        """Run one round, which is already accounted for."""


class Mean(Protocol):
    """Private mean of one vector per block, over a fixed number of rounds.

    Formal guarantee: all rounds together cost :attr:`event`, for any data, even if each round's
    contributions depend on results of earlier rounds.
    """

    @property
    def event(self) -> Event:
        """Accounting event of all rounds together."""

    @property
    def rounds(self) -> int:
        """Maximum number of published means."""

    @property
    def n_users(self) -> int:
        """Public number of users in the population."""

    @property
    def level(self) -> Level:
        """Level of the privacy unit of a block."""

    @property
    def reach(self) -> float:
        """Approximate norm of vectors that the mean distinguishes."""

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise of each coordinate of a mean."""

    @property
    def trust(self) -> Trust:
        """Party with access to data."""

    @property
    def fresh(self) -> bool:
        """True if each round uses different users, by their index in the population."""

    @property
    def compares(self) -> bool:
        """True if users are compared, so that the population must include all users."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts behind the mean."""

    def start(self, source: RandomSource, owners: NDArray[Any] | None = None) -> Rounds:
        """Start a run.

        Args:
            source: the source of randomness.
            owners: (blocks,) the user of each block; required if users are sampled.
        """


class Central:
    """Base of a curator's means, which use all users in any round, uncompared.

    >>> Central().trust, Central().fresh, Central().compares
    ('central', False, False)
    """

    @property
    def trust(self) -> Trust:
        """Party with access to data: a curator."""
        return "central"

    @property
    def fresh(self) -> bool:
        """True if each round uses different users, by their index in the population."""
        return False

    @property
    def compares(self) -> bool:
        """True if users are compared, so that the population must include all users."""
        return False


class Vectors:
    """Contributions from an array.

    Args:
        vectors: (blocks, dimension). Non-finite rows, and rows of a list with another length, are
            treated as zero.
        dimension: the length of a row; required for a list.

    Raises:
        ParameterError: if it is not a two-dimensional array of numbers, or is a list without a
            dimension.

    >>> vectors = [[3.0, 4.0], [0.0, 1.0], [float("nan"), 1.0], [2.0]]
    >>> Vectors(vectors, dimension=2).clipped_sum(1.0).round(3).tolist()
    [0.6, 1.8]
    """

    def __init__(self, vectors: ArrayLike, *, dimension: int | None = None) -> None:
        if isinstance(vectors, list | tuple):
            if dimension is None:
                raise ParameterError(
                    "dimension is required for a list of vectors, because rows of different "
                    "lengths would decide it; or pass an array, which has a shape."
                )
            vectors = numbers.numeric_array(vectors, dimension, name="vectors")
        array = np.asarray(vectors)
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise ParameterError(
                f"vectors must be numbers of shape (blocks, dimension), not {array.shape} of "
                f"{array.dtype}."
            )
        # C order: sums along a row must not depend on the number of rows.
        array = array.astype(np.float64, order="C")
        self._vectors = np.where(np.isfinite(array).all(axis=1)[:, None], array, 0.0)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self._vectors)

    @property
    def dimension(self) -> int:
        """Length of the vectors of blocks."""
        return int(self._vectors.shape[1])

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """Return the blocks' vectors."""
        return self._vectors if drawn is None else self._vectors[drawn]

    def mapped(self, rule: Rule) -> Vectors:
        """Apply a rule to the vectors.

        Args:
            rule: the rule, which maps each row separately.
        """
        return Vectors(rule(self._vectors))

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """Add the clipped vectors."""
        total: FloatArray = clipped(self.vectors(drawn), clip).sum(axis=0)
        return total

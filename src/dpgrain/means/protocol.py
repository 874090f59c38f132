"""The contract of every private mean: contributions in, a noisy mean per round out, one event for all.

A mean is calibrated once, for all rounds, and is frozen: it holds public numbers only. Data and
randomness come in as arguments. :meth:`Mean.start` begins a run, which refuses more rounds than were
accounted for. Whoever uses a mean asks it, and never what kind of mean it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._clipping import clipped
from dpgrain._later import later
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Event
from dpgrain.errors import ParameterError
from dpgrain.noise import Source
from dpgrain.units import Level, Trust

if TYPE_CHECKING:
    from dpgrain.inputs import numbers
else:
    # Arrays need not load what reads tables.
    numbers = later("dpgrain.inputs.numbers")

Drawn: TypeAlias = NDArray[np.intp]
#: A function of the vectors of blocks, (blocks, dimension), that makes a row of each row alone.
Rule: TypeAlias = Callable[[FloatArray], FloatArray]


class Contributions(Protocol):
    """The blocks' vectors for one round, not yet clipped.

    A block is the data of one privacy unit. A block whose vector is not finite counts as zero.
    """

    @property
    def blocks(self) -> int:
        """The number of blocks."""

    @property
    def dimension(self) -> int:
        """The length of the vectors of blocks."""

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """Add the blocks' vectors, each scaled down to norm ``clip`` if it is longer.

        Args:
            clip: the clipping bound, l2.
            drawn: the sorted indices of the blocks that count; all by default.

        Returns:
            (dimension,)
        """

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """Return the blocks' vectors, (number of blocks, dimension), for means that compare them."""


@runtime_checkable
class Distributed(Protocol):
    """Contributions of blocks on many machines, from which sums of whole numbers come here."""

    def in_steps(self, clip: float, step: float, centre: FloatArray | None = None) -> IntArray:
        """Add up the clipped vectors of all blocks, each truncated to a grid, (dimension,).

        Args:
            clip: the clipping bound, l2, of a block's distance to the centre.
            step: the step of the grid.
            centre: (dimension,) a public point; 0 by default.
        """


@runtime_checkable
class DistributedGradients(Distributed, Protocol):
    """Gradients of blocks on many machines, with their lengths for a fit."""

    def in_bins(self) -> IntArray:
        """Count the blocks by the lengths of their vectors, as a histogram of norms does."""


@runtime_checkable
class DistributedVectors(Distributed, Protocol):
    """Vectors of users on many machines, with their distances from a centre for looks."""

    def mapped(self, rule: Rule) -> Contributions:
        """Return what a rule makes of the vectors, which stay where they are.

        Args:
            rule: the rule, from public numbers.
        """

    def by_radius(self, centre: FloatArray, radii: FloatArray) -> IntArray:
        """Count the vectors by the first radius that holds them, and at the end the others.

        Args:
            centre: (dimension,) a public point.
            radii: the radii, rising.

        Returns:
            (radii + 1,)
        """


class Rounds(Protocol):
    """One run of a mean, with a count of rounds and what they share."""

    @property
    def noise_sd(self) -> float:
        """The standard deviation of the noise of each coordinate of the last round's mean."""

    @property
    def radius(self) -> float:
        """The distance from the last round's centre up to which a vector counts in full."""

    def estimate(self, contributions: Contributions) -> FloatArray:
        """Return the noisy mean of one round, (dimension,).

        Raises:
            ParameterError: if all rounds that were accounted for are over.
            RunEnded: if the run has published that it stops.
        """


class CountedRounds(ABC):
    """A run with a limit on rounds, as accounted for; a mean says how one round goes.

    Args:
        mean: its public numbers.

    >>> from dpgrain.means import ClippedMean
    >>> from dpgrain.noise import SystemSource
    >>> from dpgrain.noise.sums import noised
    >>> class Summed(CountedRounds):
    ...     def _round(self, contributions):
    ...         return noised(contributions.clipped_sum(1.0), 1.0, 2.0, SystemSource()) / 1000
    >>> run = Summed(ClippedMean(1.0, 2.0, n_users=1000, rounds=1))
    >>> run.estimate(Vectors(np.full((1000, 2), 0.5))).round(1).tolist()
    [0.5, 0.5]
    """

    def __init__(self, mean: Mean) -> None:
        self._public, self._done = mean, 0

    @property
    def noise_sd(self) -> float:
        """The standard deviation of the noise of each coordinate of the last round's mean."""
        return self._public.noise_sd

    @property
    def radius(self) -> float:
        """The distance from the last round's centre up to which a vector counts in full."""
        return self._public.reach

    def estimate(self, contributions: Contributions) -> FloatArray:
        """Return the noisy mean of one round, (dimension,).

        Raises:
            ParameterError: if all rounds that were accounted for are over.
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
        """Make one round, which was accounted for."""


class Mean(Protocol):
    """A private mean of one vector per block, over a number of rounds fixed beforehand.

    Formal guarantee: all rounds together cost :attr:`event`, for any data, also where each round's
    contributions depend on what earlier rounds published.
    """

    @property
    def event(self) -> Event:
        """The accountant's event for all rounds together."""

    @property
    def rounds(self) -> int:
        """The largest number of published means."""

    @property
    def n_users(self) -> int:
        """The public size of the roster."""

    @property
    def level(self) -> Level:
        """The level of the unit whose data a block is."""

    @property
    def reach(self) -> float:
        """The length, roughly, of vectors that the mean distinguishes."""

    @property
    def noise_sd(self) -> float:
        """The standard deviation of the noise of each coordinate of a mean."""

    @property
    def trust(self) -> Trust:
        """The party with access to data."""

    @property
    def fresh(self) -> bool:
        """True where each round asks users of its own, by their places in the roster."""

    @property
    def compares(self) -> bool:
        """True where users are compared, so that the roster must hold all who are there."""

    @property
    def facts(self) -> tuple[str, ...]:
        """The public facts behind the mean, in words."""

    def start(self, source: Source, owners: NDArray[Any] | None = None) -> Rounds:
        """Begin a run.

        Args:
            source: where randomness comes from.
            owners: (blocks,): the user whose data each block is; needed where users are drawn.
        """


class Central:
    """The common answers of a curator's means: they ask anybody in any round and compare nobody.

    >>> Central().trust, Central().fresh, Central().compares
    ('central', False, False)
    """

    @property
    def trust(self) -> Trust:
        """The party with access to data: a curator."""
        return "central"

    @property
    def fresh(self) -> bool:
        """True where each round asks users of its own, by their places in the roster."""
        return False

    @property
    def compares(self) -> bool:
        """True where users are compared, so that the roster must hold all who are there."""
        return False


class Vectors:
    """Contributions from an array.

    Args:
        vectors: (blocks, dimension). Rows that are not finite count as zero, as rows of a list do that
            have another length.
        dimension: the length of a row, which must be stated for a list.

    Raises:
        ParameterError: if it is not a two-dimensional array of numbers, or a list whose dimension is
            not stated.

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
            vectors = numbers.cells(vectors, dimension, name="vectors")
        array = np.asarray(vectors)
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise ParameterError(
                f"vectors must be numbers of shape (blocks, dimension), not {array.shape} of "
                f"{array.dtype}."
            )
        # Row by row in memory: sums along a row must not depend on how many rows there are.
        array = array.astype(np.float64, order="C")
        self._vectors = np.where(np.isfinite(array).all(axis=1)[:, None], array, 0.0)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self._vectors)

    @property
    def dimension(self) -> int:
        """The length of the vectors of blocks."""
        return int(self._vectors.shape[1])

    def vectors(self, drawn: Drawn | None = None) -> FloatArray:
        """Return the blocks' vectors."""
        return self._vectors if drawn is None else self._vectors[drawn]

    def mapped(self, rule: Rule) -> Vectors:
        """Return what a rule makes of the vectors.

        Args:
            rule: the rule, which makes a row of each row alone.
        """
        return Vectors(rule(self._vectors))

    def clipped_sum(self, clip: float, drawn: Drawn | None = None) -> FloatArray:
        """Add the clipped vectors."""
        total: FloatArray = clipped(self.vectors(drawn), clip).sum(axis=0)
        return total

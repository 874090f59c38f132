"""The charge of a release: the only access to its rows and its noise."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, NoReturn, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain._types import BoolArray, FloatArray, IndexArray, IntArray
from dpgrain.accounting import (
    AdaptiveSelection,
    ApproximateDP,
    BoundedRange,
    Compose,
    Event,
    ExponentialMechanism,
    Parallel,
    SelectBest,
    Selection,
    TruncatedGeometric,
)
from dpgrain.accounting.events.additive import Additive
from dpgrain.errors import DataError, ParameterError
from dpgrain.noise import RandomSource
from dpgrain.noise.choice import uniform_below
from dpgrain.noise.distributions import raise_scale
from dpgrain.noise.exponential import permute_and_flip
from dpgrain.noise.gumbel import gumbel_order
from dpgrain.noise.sums import with_gaussian, with_truncated_geometric
from dpgrain.publishing.best_of_runs import best_run
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.process import check_creator

Opened = TypeVar("Opened", covariant=True)
Result = TypeVar("Result")

# Note on the error of an unreadable source.
_STAYS_CHARGED = (
    "Nothing was published; a budget or a ledger that was charged for it stays charged."
)
# Name of a charge in the error of a forked process.
_NAME = "charge of a release"


class Openable(Protocol[Opened]):
    """Rows of any source, such as a table."""

    def open_engine(self) -> AbstractContextManager[Opened]:
        """Open the rows for reading."""


class Charge:
    """The right to open rows and draw noise for one release; only :func:`publish` creates it.

    Each part of the charged event is a ticket for one draw. The scale of a draw is the scale of the
    part, times a radius computed from public numbers and earlier draws, so nothing is drawn with less
    noise, or more often, than was charged. Tickets expire with the release. A forked process draws and
    publishes nothing.

    Args:
        guarantee: the charged guarantee, with the receipts of ledgers.
        source: the source of randomness.
        within: the charge that includes this one, and with which it ends; None for a release.

    >>> from dpgrain.accounting import Gaussian
    >>> from dpgrain.noise import SeededSource
    >>> part = Gaussian(3.0)
    >>> told = Guarantee("user", "", "zero_out", 1e-6, part)
    >>> with Charge(told, SeededSource(1)) as charge:
    ...     noisy = charge.noisy(part, np.zeros(2, dtype=np.int64), 2.0**20)
    ...     charge.noisy(part, np.zeros(2, dtype=np.int64), 2.0**20)
    Traceback (most recent call last):
    RuntimeError: Gaussian has no charged draws left.
    """

    def __init__(
        self, guarantee: Guarantee, source: RandomSource, *, within: Charge | None = None
    ) -> None:
        self._guarantee = guarantee
        self._within = within
        self._source = source
        self._left = tickets(guarantee.event)
        self._lock = threading.Lock()
        self._over = False
        self._made_by = os.getpid()

    @property
    def guarantee(self) -> Guarantee:
        """The charged guarantee, to be published."""
        return self._guarantee

    @property
    def left(self) -> Counter[Event]:
        """The remaining tickets: part of the event → number of draws."""
        return +self._left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> Literal[False]:
        self._over = True
        if kind is None:
            self._check_process()
        if isinstance(error, DataError) and self._within is None:
            error.add_note(_STAYS_CHARGED)
        return False

    # -- rows --

    def open(self, rows: Openable[Opened]) -> AbstractContextManager[Opened]:
        """Open rows for reading, such as those of a table."""
        self._check_open()
        return rows.open_engine()

    def read(self, read: Callable[[], Result]) -> Result:
        """Read a caller's rows, such as the labels of an array, by calling ``read``."""
        self._check_open()
        return read()

    # -- noise --

    def noisy(self, part: Additive, sums: NDArray[Any], radius: ArrayLike = 1.0) -> NDArray[Any]:
        """Add the noise of a part to sums of integers, of any shape.

        ``radius`` is the largest norm of the contribution of one block, for all sums or each sum.
        """
        self._take(part)
        scale = part.noise_multiplier * np.broadcast_to(np.ravel(radius), sums.size)
        return with_noise(part, sums, scale, self._source)

    def select(
        self,
        part: Selection | AdaptiveSelection,
        sums: IntArray,
        radius: float,
        step: float,
    ) -> tuple[IntArray, BoolArray]:
        """Add noise to (V,) weighted counts of users, and compare them with the threshold.

        Args:
            part: the part of the event.
            sums: (V,) the counts, in steps; in a second round, only of its items.
            radius: the weight 1, in steps.
            step: a step, as a fraction of the weight 1.

        Returns:
            (V,) noisy counts in steps, and whether each reaches the threshold.
        """
        self._take(part)
        # One step higher, because rounding of the noise can raise a count by half a step.
        threshold = math.ceil(part.threshold / step) + 1
        scale = np.full(sums.size, part.noise_multiplier * radius)
        noisy = with_gaussian(sums, raise_scale(scale), source=self._source)
        if isinstance(part, AdaptiveSelection):
            # The first round counted all users of these items. Dropping zeros would reveal who adds to
            # an item again.
            return noisy, noisy >= threshold
        # Never select an item without contributions: a block may contain any number of unused items,
        # and among many zeros some would pass the threshold by chance.
        return noisy, (sums > 0) & (noisy >= threshold)

    def truncated(self, part: TruncatedGeometric, counts: IntArray) -> tuple[IntArray, BoolArray]:
        """Add truncated geometric noise to (V,) counts of users, and return which items pass."""
        self._take(part)
        noisy = with_truncated_geometric(counts, part.rate, part.cutoff, source=self._source)
        # The noisy count of an item without users is at most the cutoff and never passes.
        return noisy, (counts > 0) & (noisy > part.cutoff)

    def order(
        self, part: ExponentialMechanism | BoundedRange, scores: IntArray, radius: float = 1.0
    ) -> IndexArray:
        """Select the indices of the largest of (V,) scores by one-shot Gumbel noise, best first.

        The part has their number; ``radius`` is the sensitivity of a score to one block.
        """
        self._take(part)
        return gumbel_order(scores, order_scale(part, radius), part.count, source=self._source)

    def flip(self, part: ApproximateDP, scores: IntArray, radius: float = 1.0) -> int:
        """Select the index of a large one of (V,) scores by permute-and-flip.

        The ε of the part is for scores that all change in one direction; ``radius`` is the sensitivity
        of a score to one block.
        """
        self._take(part)
        return permute_and_flip(scores, flip_scale(part, radius), source=self._source)

    def lend(self, part: Event) -> RandomSource:
        """Return the source of randomness for a mechanism that is responsible for its own draws.

        ``part`` is the event of the mechanism, such as a run of many rounds or a custom estimate.
        """
        self._take(part)
        return _Lent(self._source, self._made_by) if self._source.private else self._source

    def one_of(self, part: Event, event: Event) -> Charge:
        """Return a charge for one of the parallel mechanisms of a part, with its event."""
        if event != part and not (isinstance(part, Parallel) and event in part.events):
            raise RuntimeError(f"{type(event).__name__} is not part of the charge.")
        self._take(part)
        return Charge(replace(self._guarantee, event=event), self._source, within=self)

    def best_of(
        self, part: SelectBest, count: int, run: Callable[[int, Charge], tuple[float, Result]]
    ) -> Result:
        """Run random candidates a random number of times, and return the best result.

        Args:
            part: the part of the event, with the event of one run.
            count: the number of candidates.
            run: the function for one run of a candidate with a separate charge; it returns a score and
                a result.
        """
        self._take(part)
        inner = part.events if isinstance(part.events, tuple) else (part.events,)
        event = inner[0] if len(inner) == 1 else Compose(inner)
        one = replace(self._guarantee, event=event)

        def drawn(source: RandomSource) -> tuple[float, Result]:
            (index,) = uniform_below(np.array([count]), source=source).tolist()
            with Charge(one, source, within=self) as charge:
                return run(index, charge)

        best = best_run(drawn, part, self._source)
        assert best is not None  # noqa: S101 - the number of runs of choices is never 0
        return best[1]

    # -- tickets --

    def _take(self, part: Event) -> None:
        self._check_open()
        with self._lock:
            wanted = tickets(part)
            if not wanted <= self._left:
                raise RuntimeError(f"{type(part).__name__} has no charged draws left.")
            self._left -= wanted

    def _check_process(self) -> None:
        check_creator(self._made_by, _NAME)

    def _check_open(self) -> None:
        self._check_process()
        if self._over:
            raise RuntimeError(
                "the release is complete, so its charge cannot be opened or drawn from again."
            )
        if self._within is not None:
            self._within._check_open()

    def __reduce__(self) -> NoReturn:
        raise ParameterError("a Charge cannot be copied: both copies would draw the same noise.")

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce__()


class _Lent:
    """The source of randomness of a mechanism, limited to the process that created the charge."""

    private = True

    def __init__(self, source: RandomSource, made_by: int) -> None:
        self._source, self._made_by = source, made_by

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw ``size`` independent uniform 64-bit words."""
        check_creator(self._made_by, _NAME)
        return self._source.words(size)


def order_scale(part: ExponentialMechanism | BoundedRange, radius: float = 1.0) -> float:
    """Return the noise scale of :meth:`Charge.order`, rounded up."""
    return part.scale if radius == 1 else float(raise_scale(raise_scale(part.scale * radius)))


def flip_scale(part: ApproximateDP, radius: float = 1.0) -> float:
    """Return the noise scale of :meth:`Charge.flip`, rounded up."""
    # Rounds the division towards more noise.
    scale = (1 / part.guaranteed_epsilon) * (1 + 2.0**-50)
    return float(raise_scale(raise_scale(scale * radius)))


def tickets(event: Event) -> Counter[Event]:
    """Return the number of draws of each part of an event, at any depth of composition.

    >>> from dpgrain.accounting import Gaussian, Laplace
    >>> tickets(Gaussian(1.0) + Laplace(2.0) + Gaussian(1.0))[Gaussian(1.0)]
    2
    """
    if event.parts == (event,):
        return Counter([event])
    return sum((tickets(part) for part in event.parts), Counter())


def with_noise(
    event: Additive, sums: NDArray[Any], scale: FloatArray | float, source: RandomSource
) -> NDArray[Any]:
    """Add the noise of an event to sums of integers, with at least this scale, for all or each."""
    return event.law.add_noise(sums, raise_scale(scale), source=source)

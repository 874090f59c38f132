"""The charge of a release: the only way to its rows and to its noise."""

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
from dpgrain.accounting.events.noise import Additive
from dpgrain.errors import DataError, ParameterError
from dpgrain.noise import Source
from dpgrain.noise.choice import uniform_below
from dpgrain.noise.exponential import permute_and_flip
from dpgrain.noise.gumbel import gumbel_order
from dpgrain.noise.laws import raised
from dpgrain.noise.sums import with_gaussian, with_truncated_geometric
from dpgrain.publishing.best_of_runs import best_run
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.process import check_creator

Opened = TypeVar("Opened", covariant=True)
Result = TypeVar("Result")

# What stands below the error of a source that could not be read.
_STAYS = "Nothing was published; a budget or a ledger that was charged for it stays charged."
# Words for a charge in the refusal of a forked process.
_CALLED = "charge of a release"


class Openable(Protocol[Opened]):
    """Openable in some place, such as a table."""

    def open_engine(self) -> AbstractContextManager[Opened]:
        """Open them for reading."""


class Charge:
    """The right to open rows and to draw noise for one release; made by :func:`publish` alone.

    Each part of the event that was charged is a ticket for one draw. The scale of a draw is the part's
    own, times a radius that follows from public numbers and earlier draws; nothing is drawn with less
    noise, or more often, than was charged. Tickets that are left when the release is made are void.
    A process that is forked meanwhile draws nothing and publishes nothing.

    Args:
        guarantee: what was charged, with the receipts of ledgers.
        source: where noise comes from.
        within: the charge of which this one draws a part, and with which it ends.

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
        self, guarantee: Guarantee, source: Source, *, within: Charge | None = None
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
        """The charged guarantee, which is to be published."""
        return self._guarantee

    @property
    def left(self) -> Counter[Event]:
        """The tickets left: part of the event → number of draws."""
        return +self._left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> Literal[False]:
        self._over = True
        if kind is None:
            self._check_process()
        if isinstance(error, DataError) and self._within is None:
            error.add_note(_STAYS)
        return False

    # -- rows --

    def open(self, rows: Openable[Opened]) -> AbstractContextManager[Opened]:
        """Open rows for reading.

        Args:
            rows: the rows, such as a table.
        """
        self._check_open()
        return rows.open_engine()

    def read(self, read: Callable[[], Result]) -> Result:
        """Read a caller's rows, such as labels of an array.

        Args:
            read: the function that reads them.
        """
        self._check_open()
        return read()

    # -- noise --

    def noisy(self, part: Additive, sums: NDArray[Any], radius: ArrayLike = 1.0) -> NDArray[Any]:
        """Add noise of a part's law to sums of integers.

        Args:
            part: the part of the event.
            sums: the sums, of any shape.
            radius: the largest norm of what one block adds, one number or one for each sum.
        """
        self._take(part)
        scale = part.noise_multiplier * np.broadcast_to(np.ravel(radius), sums.size)
        return with_noise(part, sums, scale, self._source)

    def named(
        self,
        part: Selection | AdaptiveSelection,
        sums: IntArray,
        radius: float,
        step: float,
    ) -> tuple[IntArray, BoolArray]:
        """Add noise to weighted counts of holders, and return which items may be named.

        Args:
            part: the part of the event.
            sums: (V,) the counts, in steps; in a second round, those of items that go on.
            radius: the weight 1, in steps.
            step: a step, as a part of the weight 1.

        Returns:
            (V,) noisy counts in steps, and whether each reaches the threshold.
        """
        self._take(part)
        # One step up: rounding the noise may carry a count half a step over.
        threshold = math.ceil(part.threshold / step) + 1
        scale = np.full(sums.size, part.noise_multiplier * radius)
        noisy = with_gaussian(sums, raised(scale), source=self._source)
        if isinstance(part, AdaptiveSelection):
            # Whoever holds an item that goes on was counted, whether or not they give to it again: to
            # leave out zeros here would show who does.
            return noisy, noisy >= threshold
        # Never an item to which nobody adds: a block may hold any number of items beyond those that
        # take part, and enough zeros would pass the threshold now and then.
        return noisy, (sums > 0) & (noisy >= threshold)

    def truncated(self, part: TruncatedGeometric, counts: IntArray) -> tuple[IntArray, BoolArray]:
        """Add truncated geometric noise to counts of holders, and return which items may be named.

        Args:
            part: the part of the event.
            counts: (V,) the counts.
        """
        self._take(part)
        noisy = with_truncated_geometric(counts, part.rate, part.cutoff, source=self._source)
        # An item that nobody holds is at most the cutoff away from 0 and never passes.
        return noisy, (counts > 0) & (noisy > part.cutoff)

    def order(
        self, part: ExponentialMechanism | BoundedRange, scores: IntArray, radius: float = 1.0
    ) -> IndexArray:
        """Choose the largest scores by one-shot Gumbel noise; the best first.

        Args:
            part: the part of the event, which says how many are chosen.
            scores: (V,) the scores.
            radius: how far one block moves a score.
        """
        self._take(part)
        return gumbel_order(scores, order_scale(part, radius), part.count, source=self._source)

    def flip(self, part: ApproximateDP, scores: IntArray, radius: float = 1.0) -> int:
        """Choose a large score by permute-and-flip.

        Args:
            part: the part of the event, whose ε pays for scores that all move one way.
            scores: (V,) the scores.
            radius: how far one block moves a score.
        """
        self._take(part)
        return permute_and_flip(scores, flip_scale(part, radius), source=self._source)

    def lend(self, part: Event) -> Source:
        """Return the source of noise for a mechanism with its own draws.

        Args:
            part: the part of the event, or several parts composed, which is the mechanism's own: it
                answers for its draws, as an estimate of the caller's does, or a run of many rounds.
        """
        self._take(part)
        return _Lent(self._source, self._made_by) if self._source.private else self._source

    def one_of(self, part: Event, event: Event) -> Charge:
        """Return a charge for one of the mechanisms of which a part bills the worst.

        Args:
            part: the part of the event: what one mechanism draws, or what several in parallel do.
            event: the event of the one that runs.
        """
        if event != part and not (isinstance(part, Parallel) and event in part.events):
            raise RuntimeError(f"{type(event).__name__} is not part of the charge.")
        self._take(part)
        return Charge(replace(self._guarantee, event=event), self._source, within=self)

    def best_of(
        self, part: SelectBest, count: int, run: Callable[[int, Charge], tuple[float, Result]]
    ) -> Result:
        """Run random candidates a random number of times; keep the best result.

        Args:
            part: the part of the event, which says what one run draws.
            count: the number of candidates.
            run: makes one run of a candidate, with a charge of its own; returns score and result.
        """
        self._take(part)
        inner = part.events if isinstance(part.events, tuple) else (part.events,)
        event = inner[0] if len(inner) == 1 else Compose(inner)
        one = replace(self._guarantee, event=event)

        def drawn(source: Source) -> tuple[float, Result]:
            (index,) = uniform_below(np.array([count]), source=source).tolist()
            with Charge(one, source, within=self) as charge:
                return run(index, charge)

        best = best_run(drawn, part, self._source)
        assert best is not None  # noqa: S101 - the law of the number of runs of choices is never 0
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
        check_creator(self._made_by, _CALLED)

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
    """The source of noise of a mechanism with its own draws, in the process of its charge alone.

    Args:
        source: where noise comes from.
        made_by: the process of the charge.
    """

    private = True

    def __init__(self, source: Source, made_by: int) -> None:
        self._source, self._made_by = source, made_by

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw ``size`` independent uniform 64-bit words."""
        check_creator(self._made_by, _CALLED)
        return self._source.words(size)


def order_scale(part: ExponentialMechanism | BoundedRange, radius: float = 1.0) -> float:
    """Return the scale of the noise of :meth:`Charge.order`, rounded up.

    Args:
        part: the part of the event.
        radius: how far one block moves a score.
    """
    return part.scale if radius == 1 else float(raised(raised(part.scale * radius)))


def flip_scale(part: ApproximateDP, radius: float = 1.0) -> float:
    """Return the scale of the noise of :meth:`Charge.flip`, rounded up.

    Args:
        part: the part of the event.
        radius: how far one block moves a score.
    """
    # The division is rounded; err towards more noise.
    scale = (1 / part.guaranteed_epsilon) * (1 + 2.0**-50)
    return float(raised(raised(scale * radius)))


def tickets(event: Event) -> Counter[Event]:
    """Return how often each part of an event may be drawn, however deep it is composed.

    Args:
        event: the event of a release.

    >>> from dpgrain.accounting import Gaussian, Laplace
    >>> tickets(Gaussian(1.0) + Laplace(2.0) + Gaussian(1.0))[Gaussian(1.0)]
    2
    """
    if event.parts == (event,):
        return Counter([event])
    return sum((tickets(part) for part in event.parts), Counter())


def with_noise(
    event: Additive, sums: NDArray[Any], scale: FloatArray | float, source: Source
) -> NDArray[Any]:
    """Add noise of an event's law to sums of integers, never below the scale.

    Args:
        event: the event.
        sums: the sums.
        scale: the scale of the noise, one number or one per sum.
        source: where noise comes from.
    """
    return event.law.add_noise(sums, raised(scale), source=source)

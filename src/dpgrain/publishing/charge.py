"""The charge of a release: the only access to its rows and its noise."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Literal, Protocol, Self, TypeVar

import numpy as np

from dpgrain.accounting import Compose, Event, Parallel, SelectBest
from dpgrain.errors import DataError
from dpgrain.noise import RandomSource
from dpgrain.noise.choice import uniform_below
from dpgrain.publishing.draws import CountedSource, Draws, best_run
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


class Charge(Draws):
    """The right to open rows and draw noise for one release, created by :func:`publish`.

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
        super().__init__(guarantee.event, source)
        # The charged guarantee, to be published.
        self.guarantee = guarantee
        self._within = within
        self._over = False
        self._check_process = partial(check_creator, os.getpid(), _NAME)

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
        """Open rows for reading, such as a table's."""
        self._check_open()
        return rows.open_engine()

    def read(self, read: Callable[[], Result]) -> Result:
        """Read a caller's rows, such as the labels of an array, by calling ``read``."""
        self._check_open()
        return read()

    # -- noise --

    def rounds(self, part: Event, n: int | None = None, *, outlives: bool = False) -> CountedSource:
        """Return the draws of a part, such as a run of many rounds or a custom estimate.

        Args:
            part: the event of the mechanism, which states the number and the scale of its draws.
            n: the remaining rounds of a resumed run, at most those of the event; None for all.
            outlives: True for a training run, which continues after the release in this process.
        """
        self._take(part)
        check = self._check_process if outlives else self._check_open
        return CountedSource(part, self._source, check, n)

    def one_of(self, part: Event, event: Event) -> Charge:
        """Return a charge for one of the parallel mechanisms of a part, with its event."""
        if event != part and not (isinstance(part, Parallel) and event in part.events):
            raise RuntimeError(f"{type(event).__name__} is not part of the charge.")
        self._take(part)
        return Charge(replace(self.guarantee, event=event), self._source, within=self)

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
        one = replace(self.guarantee, event=event)

        def drawn(source: RandomSource) -> tuple[float, Result]:
            (index,) = uniform_below(np.array([count]), source=source).tolist()
            with Charge(one, source, within=self) as charge:
                return run(index, charge)

        best = best_run(drawn, part, self._source)
        assert best is not None  # noqa: S101 - the number of runs of choices is never 0
        return best[1]

    def _check_open(self) -> None:
        self._check_process()
        if self._over:
            raise RuntimeError(
                "the release is complete, so its charge cannot be opened or drawn from again."
            )
        if self._within is not None:
            self._within._check_open()


class Curator:
    """The right to open rows without a charge, and without noise or a release."""

    def open(self, rows: Openable[Opened]) -> AbstractContextManager[Opened]:
        """Open rows for reading, such as a table."""
        return rows.open_engine()

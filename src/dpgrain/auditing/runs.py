"""Runs of a query on other rows than its own, with and without noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dpgrain._types import BoolArray, IndexArray, IntArray
from dpgrain.accounting import (
    AdaptiveSelection,
    ApproximateDP,
    BoundedRange,
    Event,
    ExponentialMechanism,
    Laplace,
    SelectBest,
    Selection,
    TruncatedGeometric,
)
from dpgrain.auditing.worst_case_tables import NeighbourTables, replace_rows
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource, SeededSource, SystemSource
from dpgrain.publishing.charge import Charge, Openable, Opened, Result
from dpgrain.publishing.draws import CountedSource, GaussianNoise
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.query import Query

# Seed of draws in a run without noise, such as a secret.
_SEED = 0


@dataclass(frozen=True, eq=False)
class Ticket:
    """One draw of a run: a method of a charge, with its arguments and its answer."""

    method: str
    part: Any
    sums: NDArray[Any]
    rest: tuple[Any, ...]
    answer: Any


class AuditCharge(Charge):
    """Charge of an audit, which opens only the given rows and charges nothing."""

    def __init__(
        self, guarantee: Guarantee, source: RandomSource, rows: pa.Table, engine: str = ""
    ) -> None:
        super().__init__(guarantee, source)
        self._rows = rows
        self._engine = engine
        self.drawn: list[Ticket] = []
        self.unrecorded = False

    def open(self, rows: Openable[Opened]) -> AbstractContextManager[Opened]:
        """Open the given rows instead of a table's."""
        self._check_open()
        table: Any = rows
        if not hasattr(table, "source"):
            self._refuse("opens rows outside a table")
        engine = self._engine or table.engine
        replaced = replace(table, source=replace_rows(table.source, self._rows), engine=engine)
        opened: AbstractContextManager[Opened] = replaced.open_engine()
        return opened

    def read(self, read: Callable[[], Result]) -> Result:  # noqa: ARG002 - it is not read
        """Reject reading a caller's rows."""
        self._refuse("reads rows of arrays")

    def rounds(self, part: Event, n: int | None = None, *, outlives: bool = False) -> CountedSource:
        """Return the unrecorded draws of a mechanism of many rounds."""
        self.unrecorded = True
        return super().rounds(part, n, outlives=outlives)

    def one_of(self, part: Event, event: Event) -> Charge:  # noqa: ARG002 - it is not made
        """Reject a nested charge."""
        self._refuse("runs one of several mechanisms")

    def best_of(
        self,
        part: SelectBest,  # noqa: ARG002
        count: int,  # noqa: ARG002
        run: Callable[[int, Charge], tuple[float, Result]],  # noqa: ARG002
    ) -> Result:
        """Reject nested runs."""
        self._refuse("keeps the best of several runs")

    def _refuse(self, why: str) -> NoReturn:
        raise ParameterError(f"query must be audited manually, because it {why}.", name="query")

    # -- recorded draws --

    def noisy(
        self, part: GaussianNoise | Laplace, sums: NDArray[Any], radius: ArrayLike = 1.0
    ) -> NDArray[Any]:
        """Add noise to sums, and record both."""
        answer: NDArray[Any] = self._record("noisy", part, sums, (radius,))
        return answer

    def select(
        self, part: Selection | AdaptiveSelection, sums: IntArray, radius: float, step: float
    ) -> tuple[IntArray, BoolArray]:
        """Select items, and record the sums."""
        answer: tuple[IntArray, BoolArray] = self._record("select", part, sums, (radius, step))
        return answer

    def truncated(self, part: TruncatedGeometric, counts: IntArray) -> tuple[IntArray, BoolArray]:
        """Select items, and record the counts."""
        answer: tuple[IntArray, BoolArray] = self._record("truncated", part, counts, ())
        return answer

    def order(
        self, part: ExponentialMechanism | BoundedRange, scores: IntArray, radius: float = 1.0
    ) -> IndexArray:
        """Choose an order, and record the scores."""
        answer: IndexArray = self._record("order", part, scores, (radius,))
        return answer

    def flip(self, part: ApproximateDP, scores: IntArray, radius: float = 1.0) -> int:
        """Choose one candidate, and record the scores."""
        answer: int = self._record("flip", part, scores, (radius,))
        return answer

    def _record(self, method: str, part: Any, sums: NDArray[Any], rest: tuple[Any, ...]) -> Any:
        answer = self._answer(method, part, sums, rest)
        self.drawn.append(Ticket(method, part, np.array(sums), rest, answer))
        return answer

    def _answer(self, method: str, part: Any, sums: NDArray[Any], rest: tuple[Any, ...]) -> Any:
        """Draw like a release."""
        return getattr(Charge, method)(self, part, sums, *rest)


class NoiselessCharge(AuditCharge):
    """Charge that answers without noise, or with the answers of another run."""

    def __init__(
        self,
        guarantee: Guarantee,
        rows: pa.Table,
        engine: str = "",
        like: Sequence[Ticket] | None = None,
    ) -> None:
        super().__init__(guarantee, SeededSource(_SEED), rows, engine)
        self._like = like

    def _answer(self, method: str, part: Any, sums: NDArray[Any], rest: tuple[Any, ...]) -> Any:
        self._take(part)
        place = len(self.drawn)
        if self._like is not None and place < len(self._like):
            other = self._like[place]
            if other.part == part and other.sums.shape == np.shape(sums):
                return other.answer
        return _noiseless_answer(method, part, np.array(sums), rest)


def _noiseless_answer(method: str, part: Any, sums: NDArray[Any], rest: tuple[Any, ...]) -> Any:
    """Return the answer of a draw without noise."""
    match method:
        case "noisy":
            return sums
        case "select":
            return sums, (sums > 0) & (sums * rest[1] >= part.threshold)
        case "truncated":
            return sums, sums > part.cutoff
        case "order":
            return np.argsort(-sums, kind="stable")[: part.count]
    return int(np.argmax(sums))


@dataclass(frozen=True, eq=False)
class NeighbourRuns:
    """Draws of two runs on neighbouring rows with the same history of answers."""

    pair: NeighbourTables
    draws: tuple[tuple[Ticket, Ticket], ...]
    has_hidden_draws: bool  # a mechanism draws its own, unrecorded noise


def run_on_neighbours(
    query: Query[Any], guarantee: Guarantee, pair: NeighbourTables, engine: str = ""
) -> NeighbourRuns:
    """Run a query without noise on two neighbours, with the answers of the first."""
    with NoiselessCharge(guarantee, pair.one, engine) as one:
        query.run(one)
    with NoiselessCharge(guarantee, pair.other, engine, one.drawn) as other:
        query.run(other)
    if [each.part for each in one.drawn] != [each.part for each in other.drawn]:
        raise ParameterError(
            "query must be audited manually, because its number of draws depends on rows.",
            name="query",
        )
    draws = tuple(zip(one.drawn, other.drawn, strict=True))
    return NeighbourRuns(pair, draws, one.unrecorded or other.unrecorded)


def noisy_run(
    query: Query[Any], guarantee: Guarantee, rows: pa.Table, source: RandomSource | None = None
) -> list[Ticket]:
    """Run a query with its noise on given rows, and return its draws."""
    with AuditCharge(guarantee, SystemSource() if source is None else source, rows) as charge:
        query.run(charge)
    return charge.drawn

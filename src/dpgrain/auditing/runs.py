"""Runs of a query on other rows than its own, and scores of their draws.

A score is the log-likelihood ratio of an outcome on two neighbours, if the noise has its named
distribution. A bound from the frequencies of scores above a threshold is valid for any
distribution: the named distribution affects only how large the bound is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dpgrain._types import BoolArray, FloatArray, IndexArray, IntArray
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
from dpgrain.noise.exponential import permutes_and_flips
from dpgrain.noise.gumbel import gumbel_orders
from dpgrain.publishing.charge import Charge, Openable, Opened, Result
from dpgrain.publishing.draws import CountedSource, GaussianNoise, flip_scale, order_scale
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


# -- scores --

# Range of a score around its means, in standard deviations.
_FAR = 9.0


@dataclass(frozen=True, eq=False)
class Draw:
    """Draw on two neighbours, restricted to the sums that differ."""

    one: Ticket
    other: Ticket
    stretch: float = 1.0  # multiplies the distance of the sums

    @property
    def comparable(self) -> bool:
        """True if both neighbours have the same number of sums in the same order."""
        return self.one.sums.shape == self.other.sums.shape

    @property
    def _choice(self) -> bool:
        return self.one.method in ("order", "flip")

    @cached_property
    def changed(self) -> NDArray[np.intp]:
        """Indices of sums that differ, or of all candidates of a choice."""
        if not self.comparable or self._choice:
            return np.arange(self.one.sums.size)
        return np.flatnonzero(self.one.sums.ravel() != self.other.sums.ravel())

    @property
    def differs(self) -> bool:
        """True if any sum differs."""
        if not self.comparable:
            return True
        return bool((self.one.sums != self.other.sums).any())

    @cached_property
    def scale(self) -> FloatArray:
        """Named noise scale of each sum that differs."""
        part, rest = self.one.part, self.one.rest
        if self.one.method == "truncated":
            return np.full(self.changed.size, 1 / part.rate)
        radius = np.broadcast_to(np.ravel(rest[0]), self.one.sums.size)[self.changed]
        if self.one.method == "order":
            return np.asarray(part.scale * radius, dtype=np.float64)
        if self.one.method == "flip":
            return np.asarray(radius / part.guaranteed_epsilon, dtype=np.float64)
        return np.asarray(part.noise_multiplier * radius, dtype=np.float64)

    @cached_property
    def sums(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sums of both neighbours for the draw."""
        other = self.other.sums.ravel()
        if not self.comparable:
            return self.one.sums.ravel(), other
        one, other = self.one.sums.ravel()[self.changed], other[self.changed]
        if self.stretch != 1:
            apart = np.rint(self.stretch * (one - other).astype(np.float64))
            one = np.asarray(other + apart.astype(one.dtype))
        return one, other

    @cached_property
    def difference(self) -> FloatArray:
        """Difference of the sums in noise scales; empty if they are not comparable."""
        if not self.comparable:
            return np.zeros(0)
        one, other = self.sums
        return np.asarray((one - other).astype(np.float64) / self.scale)

    @property
    def reach(self) -> float:
        """Range of the score, on both sides of 0."""
        size = np.abs(self.difference)
        if not self.comparable:
            return float(self.one.sums.size + self.other.sums.size)
        if self._gaussian:
            squares = float((size**2).sum())
            return squares / 2 + _FAR * float(np.sqrt(squares))
        count = self.one.part.count if self.one.method == "order" else 1
        return float(size.sum()) if not self._choice else float(count * size.max(initial=0.0))

    @property
    def _gaussian(self) -> bool:
        if self.one.method == "noisy":
            return bool(self.one.part.law.name == "gaussian")
        return self.one.method == "select"

    @property
    def width(self) -> int:
        """Random numbers per draw."""
        return max(self.sums[0].size, self.sums[1].size)

    def scores(
        self, on_one: bool, count: int, guarantee: Guarantee, source: RandomSource
    ) -> FloatArray:
        """Draw on one of the neighbours, and return the scores."""
        sums = self.sums[0 if on_one else 1]
        if self._choice:
            return self._choice_scores(sums, count, source)
        with Charge(replace(guarantee, event=self._event), source) as charge:
            tiled = np.tile(sums, count)
            answer = getattr(charge, self.one.method)(self.one.part, tiled, *self._rest(count))
        return self._noise_scores(answer, (count, sums.size))

    @property
    def _event(self) -> Any:
        return self.one.part

    def _rest(self, count: int) -> tuple[Any, ...]:
        """Return the other arguments of the draw, with one radius per sum."""
        if self.one.method != "noisy":
            return self.one.rest
        radius = np.broadcast_to(np.ravel(self.one.rest[0]), self.one.sums.size)[self.changed]
        return (np.tile(radius, count),)

    def _choice_scores(self, sums: NDArray[Any], count: int, source: RandomSource) -> FloatArray:
        """Return the scores of choices, drawn together by the sampler of the release."""
        part, rest = self.one.part, self.one.rest
        if self.one.method == "order":
            chosen = gumbel_orders(sums, order_scale(part, *rest), part.count, count, source=source)
        else:
            flips = permutes_and_flips(sums, flip_scale(part, *rest), count, source=source)
            chosen = flips[:, None]
        return np.asarray(self.difference[chosen].sum(axis=1))

    def _noise_scores(self, answer: Any, shape: tuple[int, int]) -> FloatArray:
        """Return the score of each draw."""
        if not self.comparable:
            return np.asarray(answer[1].reshape(shape).sum(axis=1), dtype=np.float64)
        if self.one.method == "noisy":
            seen = answer.reshape(shape)
        else:
            noisy, passed = (part.reshape(shape) for part in answer)
            seen = np.where(passed, noisy, self._floor)
        one, other = self.sums
        from_one, from_other = (
            (seen - sums).astype(np.float64) / self.scale for sums in (one, other)
        )
        if self._gaussian:
            return np.asarray((from_other**2 - from_one**2).sum(axis=1) / 2)
        return np.asarray((np.abs(from_other) - np.abs(from_one)).sum(axis=1))

    @property
    def _floor(self) -> int:
        """Value that represents the count of an unselected item."""
        part = self.one.part
        if self.one.method == "truncated":
            return int(part.cutoff)
        return int(part.threshold / self.one.rest[1])


def differing_draws(twins: NeighbourRuns, stretch: float = 1.0) -> list[Draw]:
    """Return the draws in which neighbours differ; ``stretch`` divides the noise."""
    draws = [Draw(one, other, stretch) for one, other in twins.draws]
    return [draw for draw in draws if draw.differs]


def loss_by_noise(draws: Sequence[Draw]) -> tuple[float, float]:
    """Return the cost of draws for the named noise: μ and a pure ε."""
    mu, pure = 0.0, 0.0
    for draw in draws:
        if not draw.comparable:
            continue
        if draw._gaussian:
            mu += float((draw.difference**2).sum())
        elif draw._choice:
            size = draw.difference
            count = draw.one.part.count if draw.one.method == "order" else 1
            pure += count * (max(0.0, float(size.max())) - min(0.0, float(size.min())))
        else:
            pure += float(np.abs(draw.difference).sum())
    return float(np.sqrt(mu)), pure

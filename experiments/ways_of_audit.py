"""Three ways to bound the ε of a mechanism from below, for whatever ``dg.audit`` refuses.

A way makes the mechanism for an ε that it is told, and bounds its true ε. A bound that passes the claim
of another ε shows what the audit would have seen: noise for more than is claimed.

- :class:`OneRun`: one run with many canaries in it, as in ``dg.audit_training``.
- :class:`OnNeighbours`: the draws of a query of arrays, on neighbours that are stated: the query runs
  on both without noise, and its noise is drawn as in ``dg.audit``.
- :class:`WholeRuns`: whole runs on two neighbours, each with a score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dpgrain.auditing import AuditLine, Canaries
from dpgrain.auditing.epsilon_bounds import ScoreCounts
from dpgrain.auditing.noise_scores import differing_draws
from dpgrain.auditing.runs import NeighbourRuns, NoiselessCharge
from dpgrain.auditing.training_audit import one_run
from dpgrain.auditing.verdict import Bound
from dpgrain.auditing.worst_case_tables import NeighbourTables
from dpgrain.noise import SystemSource
from dpgrain.publishing.charge import Charge, Result
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.query import Query
from dpgrain.units import Relation

Array: TypeAlias = NDArray[np.float64]
# Factors by which more ε may be spent than is claimed, of which the smallest that shows is named.
FACTORS = (1.1, 1.2, 1.5, 2.0, 3.0, 4.0, 8.0)
# Draws that are scored at a time.
_BATCH = 1 << 16


@dataclass(frozen=True)
class Size:
    """How much is drawn for a bound.

    Args:
        canaries: the canaries of a run.
        draws: draws on each of two neighbours.
        runs: whole runs on each of two neighbours.
        confidence: the probability with which all bounds of one line hold.
    """

    canaries: int = 2000
    draws: int = 200_000
    runs: int = 2000
    confidence: float = 0.99


class Way(Protocol):
    """A way to audit a mechanism."""

    @property
    def said(self) -> str:
        """What was looked at, in a word or two."""

    @property
    def tries(self) -> int:
        """How many audits of an excess are made, of which more than half must show it."""

    def line(self, epsilon: float, size: Size) -> tuple[float, AuditLine]:
        """Return a δ, and what is claimed of ε at that δ beside lower bounds on ε.

        Args:
            epsilon: what the mechanism is asked for.
            size: how much is drawn.
        """


def audited(way: Way, epsilon: float, size: Size) -> tuple[float, AuditLine]:
    """Audit a mechanism, and find the smallest excess that the same audit would have seen.

    Args:
        way: the way.
        epsilon: the ε that the mechanism is asked for.
        size: how much is drawn.

    Returns:
        The δ, and the line.
    """
    delta, line = way.line(epsilon, size)
    if line.verdict == "violated":
        return delta, line

    def shows(factor: float) -> bool:
        bounds = (_largest(way.line(factor * epsilon, size)[1]) for _ in range(way.tries))
        return sum(bound > line.claim for bound in bounds) > way.tries / 2

    low, high = 0, len(FACTORS)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(FACTORS[middle]) else (middle + 1, high)
    seen = FACTORS[low] if low < len(FACTORS) else float("inf")
    free, named = (replace(bound, seen=seen) for bound in (line.free, line.named))
    return delta, replace(line, free=free, named=named)


def _largest(line: AuditLine) -> float:
    return max(bound.epsilon or 0.0 for bound in (line.free, line.named))


@dataclass(frozen=True)
class OneRun:
    """One run with canaries in it.

    Args:
        train: a function of the canaries that are there and an ε, as for ``dg.audit_training``.
        records: the records of each canary.
        elements: the canaries of each user.
    """

    train: Callable[[Canaries, float], tuple[ArrayLike, Guarantee]]
    records: int = 1
    elements: int = 1
    said = "one run"
    # Of few canaries the bound differs from run to run.
    tries = 3

    def line(self, epsilon: float, size: Size) -> tuple[float, AuditLine]:
        """Return what the canaries show."""
        _, delta, line = one_run(
            lambda rows: self.train(rows, epsilon),
            size.canaries,
            self.records,
            self.elements,
            None,
            size.confidence,
            SystemSource(),
        )
        return delta, line


@dataclass(frozen=True)
class OnNeighbours:
    """Draws of a query of arrays, on two neighbours.

    Args:
        made: a function of an ε that returns the query of the rows with a unit, and that of the rows
            without it, or with another in its place.
        delta: the δ at which ε is bounded, as for :class:`WholeRuns`.
        relation: how the neighbours differ.
    """

    made: Callable[[float], tuple[Query[Any], Query[Any]]]
    delta: float = 0.0
    relation: Relation = "zero_out"
    said = "draws"
    tries = 1

    def line(self, epsilon: float, size: Size) -> tuple[float, AuditLine]:
        """Return what the query's own noise shows, drawn on the sums of both."""
        one, other = (query.settled() for query in self.made(epsilon))
        guarantee, source = one.plan.guarantee, SystemSource()
        draws, found = differing_draws(_twins(one, other, guarantee)), ScoreCounts.empty()
        reach = sum(draw.reach for draw in draws)
        for first in range(0, size.draws, _BATCH):
            count = min(_BATCH, size.draws - first)
            one_seen, other_seen = (
                np.asarray(sum(draw.scores(there, count, guarantee, source) for draw in draws))
                for there in (True, False)
            )
            found = found.add_scores(one_seen, other_seen, reach)
        free = found.bound(self.delta, 1 - size.confidence)
        claim = guarantee.epsilon(self.delta, relation=self.relation)
        return self.delta, AuditLine(1, self.relation, claim, Bound(free), Bound(None))


@dataclass(frozen=True)
class WholeRuns:
    """Whole runs of a mechanism on two neighbours, each with a score of what it published.

    Args:
        scores: a function of an ε and a number of runs, which returns (runs,) scores with a unit, as
            many without it, and the promise. Scores are larger where the unit is there.
        delta: the δ at which ε is bounded. A promise holds at every δ, and at a large one few runs
            come near to what it claims.
        times: how many times as many runs are made as of other mechanisms: more where they are cheap.
        relation: how the neighbours differ.
    """

    scores: Callable[[float, int], tuple[Array, Array, Guarantee]]
    delta: float = 0.0
    times: float = 1
    relation: Relation = "zero_out"
    said = "runs"
    tries = 1

    def line(self, epsilon: float, size: Size) -> tuple[float, AuditLine]:
        """Return what the scores show."""
        one, other, guarantee = self.scores(epsilon, round(self.times * size.runs))
        free = free_epsilon(one, other, self.delta, 1 - size.confidence)
        claim = guarantee.epsilon(self.delta, relation=self.relation)
        return self.delta, AuditLine(1, self.relation, claim, Bound(free), Bound(None))


def free_epsilon(one: Array, other: Array, delta: float, alpha: float) -> float:
    """Return a lower bound on ε from scores, whatever their laws are.

    Args:
        one: (runs,) scores of one neighbour, for which large ones speak.
        other: (runs,) scores of the other.
        delta: the δ.
        alpha: the probability with which the bound may be wrong.

    Of the first half of the scores, every other one, a threshold is made; the bounds of Clopper and
    Pearson are of the second half.
    """
    middle = float(np.median(np.concatenate([one[::2], other[::2]])))
    reach = max(float(np.abs(scores[::2] - middle).max()) for scores in (one, other))
    counted = ScoreCounts.empty().add_scores(one - middle, other - middle, reach or 1.0)
    return counted.bound(delta, alpha)


class _OfArrays(NoiselessCharge):
    """A charge of an audit that reads the rows of the query itself, which are made up."""

    def read(self, read: Callable[[], Result]) -> Result:
        """Read them, as for a release."""
        return Charge.read(self, read)


def _twins(one: Query[Any], other: Query[Any], guarantee: Guarantee) -> NeighbourRuns:
    """Run both queries without noise, the second with the answers of the first."""
    no_rows = pa.table({})
    with _OfArrays(guarantee, no_rows) as first:
        one.run(first)
    with _OfArrays(guarantee, no_rows, like=first.drawn) as second:
        other.run(second)
    if first.unrecorded or second.unrecorded:
        raise TypeError("a mechanism of this query draws its own noise: take whole runs.")
    pairs = tuple(zip(first.drawn, second.drawn, strict=True))
    return NeighbourRuns(
        NeighbourTables(no_rows, no_rows, "stated rows"), pairs, has_hidden_draws=False
    )

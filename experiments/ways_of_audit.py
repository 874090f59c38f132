"""Three ways to bound the ε of a mechanism from below, for queries outside ``dg.audit``.

A way builds the mechanism for a given ε, and bounds its true ε. A bound that exceeds the claim
of another ε shows what the audit would have seen: noise for more than is claimed.

- :class:`OneRun`: one run with many canaries, like ``dg.audit_training``.
- :class:`OnNeighbours`: the draws of a query of arrays, on explicit neighbours: the query runs on
  both without noise, and its noise is drawn like in ``dg.audit``.
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
from dpgrain.auditing.runs import NeighbourRuns, NoiselessCharge, differing_draws
from dpgrain.auditing.training_audit import one_run
from dpgrain.auditing.verdict import Bound
from dpgrain.auditing.worst_case_tables import NeighbourTables
from dpgrain.noise import SystemSource
from dpgrain.publishing.charge import Charge, Result
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.query import Query
from dpgrain.units import Relation

Array: TypeAlias = NDArray[np.float64]
# Factors of overspent ε; the smallest detected one is reported.
FACTORS = (1.1, 1.2, 1.5, 2.0, 3.0, 4.0, 8.0)
# Largest number of draws scored at once.
_BATCH = 1 << 16


@dataclass(frozen=True)
class Size:
    """How much is drawn for a bound.

    Args:
        confidence: the joint confidence of all bounds of one line.
    """

    canaries: int = 2000
    draws: int = 200_000
    runs: int = 2000
    confidence: float = 0.99


class Way(Protocol):
    """A way to audit a mechanism."""

    @property
    def said(self) -> str:
        """The size of the audit, in a word or two."""

    @property
    def tries(self) -> int:
        """Number of audits of an excess; more than half must detect it."""

    def line(self, epsilon: float, size: Size) -> tuple[float, AuditLine]:
        """Return a δ, and the claimed ε at that δ with lower bounds on ε."""


def audited(way: Way, epsilon: float, size: Size) -> tuple[float, AuditLine]:
    """Audit a mechanism, and find the smallest excess that the same audit would have seen.

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
    """

    train: Callable[[Canaries, float], tuple[ArrayLike, Guarantee]]
    records: int = 1
    elements: int = 1
    said = "one run"
    # With few canaries the bound varies between runs.
    tries = 3

    def line(self, epsilon: float, size: Size) -> tuple[float, AuditLine]:
        """Return the bounds from the canaries."""
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
        made: a function of an ε that returns the query of the rows with a unit, and the query
            without it, or with another one instead.
        delta: the δ of the bounds on ε, as for :class:`WholeRuns`.
    """

    made: Callable[[float], tuple[Query[Any], Query[Any]]]
    delta: float = 0.0
    relation: Relation = "zero_out"
    said = "draws"
    tries = 1

    def line(self, epsilon: float, size: Size) -> tuple[float, AuditLine]:
        """Return the bounds from the query's own noise, drawn on the sums of both."""
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
    """Whole runs of a mechanism on two neighbours, each with a score of its result.

    Args:
        scores: a function of an ε and a number of runs, which returns (runs,) scores with a unit,
            the same number without it, and the guarantee. Scores are larger with the unit.
        delta: the δ of the bounds on ε. A guarantee is valid at every δ, and at a large one few
            runs approach its claim.
        times: multiple of the usual number of runs: more if they are cheap.
    """

    scores: Callable[[float, int], tuple[Array, Array, Guarantee]]
    delta: float = 0.0
    times: float = 1
    relation: Relation = "zero_out"
    said = "runs"
    tries = 1

    def line(self, epsilon: float, size: Size) -> tuple[float, AuditLine]:
        """Return the bounds from the scores."""
        one, other, guarantee = self.scores(epsilon, round(self.times * size.runs))
        free = free_epsilon(one, other, self.delta, 1 - size.confidence)
        claim = guarantee.epsilon(self.delta, relation=self.relation)
        return self.delta, AuditLine(1, self.relation, claim, Bound(free), Bound(None))


def free_epsilon(one: Array, other: Array, delta: float, alpha: float) -> float:
    """Return a lower bound on ε from scores of any distribution.

    Args:
        one: (runs,) scores of one neighbour, indicated by large values.
        other: (runs,) scores of the other.
        alpha: error probability of the bound.

    Every other score of the first half determines a threshold; the bounds of Clopper and Pearson
    use the second half.
    """
    middle = float(np.median(np.concatenate([one[::2], other[::2]])))
    reach = max(float(np.abs(scores[::2] - middle).max()) for scores in (one, other))
    counted = ScoreCounts.empty().add_scores(one - middle, other - middle, reach or 1.0)
    return counted.bound(delta, alpha)


class _OfArrays(NoiselessCharge):
    """A charge of an audit that reads the query's synthetic rows itself."""

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

"""Audits of a caller's mechanism, from its own draws on neighbours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._formatting import quantity
from dpgrain._types import FloatArray
from dpgrain.auditing.epsilon_bounds import BINS, ScoreCounts
from dpgrain.auditing.verdict import Audit, AuditLine, Bound
from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import RELATIONS, Relation

#: Members of a mechanism, for messages.
MEMBERS = "guarantee, neighbours(units, relation) and draw(data, count)"
# Draws that choose the thresholds, and draws at a time; even, so that both halves are equal.
_PILOT = 10_000
# δ at which a claimed curve is drawn.
_DELTAS = tuple(10.0**-power for power in (0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10))
# Units that differ in a test whether half of the noise would be detected.
_TWICE = 2


@runtime_checkable
class Mechanism(Protocol):
    """A mechanism of one's own, for :func:`dpgrain.audit`.

    >>> from dataclasses import dataclass
    >>> from dpgrain import audit
    >>> from dpgrain.accounting import Contribution, Laplace
    >>> noise = np.random.default_rng(1)
    >>> @dataclass(frozen=True)
    ... class NoisyCount:
    ...     guarantee: Guarantee
    ...     scale: float
    ...     def neighbours(self, units, relation):
    ...         return (0, units) if relation == "zero_out" else None
    ...     def draw(self, data, count):
    ...         return data + noise.laplace(scale=self.scale, size=count)
    >>> event = Laplace(1.0, Contribution("user", "shared", "one", norm="l1"))
    >>> promise = Guarantee("user", "", "zero_out", 0.0, event)
    >>> audit(NoisyCount(promise, 1.0), units=[1], draws=100_000).verdict
    'kept'
    >>> audit(NoisyCount(promise, 0.5), units=[1], draws=100_000).verdict
    'violated'
    """

    @property
    def guarantee(self) -> Guarantee:
        """Claimed guarantee."""

    def neighbours(self, units: int, relation: Relation) -> tuple[Any, Any] | None:
        """Return the two data sets that are easiest to distinguish; None if there are none.

        Args:
            units: the number of changed units.
            relation: whether they are removed or replaced.
        """

    def draw(self, data: Any, count: int) -> ArrayLike:
        """Return one number for each of ``count`` independent runs on a data set, (count,).

        Args:
            data: a data set of :meth:`neighbours`.
            count: the number of runs.
        """


def audit_mechanism(
    mechanism: Mechanism, units: Sequence[int], *, draws: int, seconds: float, confidence: float
) -> Audit:
    """Audit a mechanism by its draws, for every number of units and relation.

    Formal guarantee: with probability ``confidence``, every bound is at most the ε of the numbers
    that :meth:`Mechanism.draw` returns on the neighbours, if its runs are independent.
    """
    guarantee = mechanism.guarantee
    if not isinstance(guarantee, Guarantee):
        raise ParameterError(
            f"query must have a Guarantee as guarantee, not {_validate.describe(guarantee)}; see "
            "docs/tutorials/own-mechanisms.md.",
            name="query",
        )
    run = _MechanismRun(mechanism, guarantee, draws)
    wanted = list(product(sorted(units), RELATIONS))
    left = time.monotonic() + seconds
    lines, claimed = list[AuditLine](), list[tuple[tuple[float, float], ...]]()
    for place, (count, relation) in enumerate(wanted):
        each = (left - time.monotonic()) / (len(wanted) - place)
        line = run.line(count, relation, (1 - confidence) / len(wanted), each)
        if line is not None:
            lines.append(line)
            claimed.append(claimed_curve(guarantee, count, relation))
    return Audit(
        guarantee.level,
        guarantee.delta,
        confidence,
        tuple(lines),
        tuple(claimed),
        run.most,
        notes=tuple(run.notes),
    )


def claimed_curve(
    guarantee: Guarantee, units: int, relation: Relation
) -> tuple[tuple[float, float], ...]:
    """Return a claim as pairs (δ, ε)."""
    return tuple(
        (delta, guarantee.epsilon(delta, units=units, relation=relation)) for delta in _DELTAS
    )


@dataclass
class _MechanismRun:
    """Execution of one audit of a mechanism."""

    mechanism: Mechanism
    guarantee: Guarantee
    draws: int
    most: int = 0
    notes: list[str] = field(default_factory=list)

    def line(
        self, units: int, relation: Relation, alpha: float, seconds: float
    ) -> AuditLine | None:
        """Return the result for some units; None if nothing is claimed or differs."""
        claim = self.guarantee.epsilon(units=units, relation=relation)
        pair = self.mechanism.neighbours(units, relation)
        if claim == float("inf") or pair is None:
            why = "no neighbours" if pair is None else "no claim"
            self.notes.append(f"Not audited for {quantity(units, 'unit')} ({relation}): {why}.")
            return None
        delta = self.guarantee.delta
        counts = self._count(pair, seconds / 2)
        self.most = max(self.most, counts.draws)
        bound, seen = counts.bound(delta, alpha), None
        if bound > claim:
            seen = 1.0
        elif (far := self.mechanism.neighbours(_TWICE * units, relation)) is not None:
            # Half of the noise is as easy to detect as twice the units.
            found = self._count(far, seconds / 2).bound(delta, alpha)
            # If the neighbours do not differ at all, neither do they with half of the noise.
            seen = float(_TWICE) if found > claim and bound > 0 else float("inf")
        return AuditLine(
            units, relation, claim, Bound(bound, seen), Bound(None), curve=counts.curve()
        )

    def _count(self, pair: tuple[Any, Any], seconds: float) -> ScoreCounts:
        """Draw on both neighbours, and count the numbers by thresholds of the first draws."""
        until, counts = time.monotonic() + seconds, ScoreCounts.empty()
        pilot = [self._numbers(data, _PILOT) for data in pair]
        self._check_fresh(pair[0], pilot[0])
        edges = np.unique(np.concatenate(pilot))
        edges = edges[np.unique(np.linspace(0, len(edges) - 1, BINS - 1).astype(int))]
        # Larger numbers are more likely on the first of the two.
        one, other = pair if pilot[0].mean() >= pilot[1].mean() else pair[::-1]
        while counts.draws < self.draws:
            count = min(_PILOT, self.draws - counts.draws)
            places = [
                np.searchsorted(edges, self._numbers(data, count), side="right")
                for data in (one, other)
            ]
            scores = [place / (BINS / 2) - 1 for place in places]
            counts = counts.add_scores(scores[0], scores[1], 1.0)
            if time.monotonic() > until:
                break
        return counts

    def _check_fresh(self, data: Any, first: FloatArray) -> None:
        """Reject a mechanism that repeats its random numbers."""
        if first.min() < first.max() and np.array_equal(first, self._numbers(data, first.size)):
            raise ParameterError(
                "query must draw new random numbers in each call, but two calls returned the same; "
                "create the generator once, outside of draw.",
                name="query",
            )

    def _numbers(self, data: Any, count: int) -> FloatArray:
        """Return the numbers of independent runs."""
        try:
            numbers = np.asarray(self.mechanism.draw(data, count), dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.zeros(0)
        if numbers.shape != (count,):
            raise ParameterError(
                f"query must draw one number for each of {count:,} runs, of shape (count,); map "
                "vectors to the coordinate in which the neighbours differ.",
                name="query",
            )
        if np.isnan(numbers).any():
            raise ParameterError(
                "query must not draw NaN, which has no order; return a number of its own for this "
                "outcome, such as −inf.",
                name="query",
            )
        return np.nan_to_num(numbers)

"""``dg.audit``: empirical lower bound on the ε of a query, from its own noise."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain._formatting import quantity
from dpgrain.accounting import Event, Selection, TruncatedGeometric
from dpgrain.auditing.epsilon_bounds import ScoreCounts, largest_noise, named_epsilon
from dpgrain.auditing.mechanism import MEMBERS, Mechanism, audit_mechanism, claimed_curve
from dpgrain.auditing.runs import (
    Draw,
    NeighbourRuns,
    Ticket,
    differing_draws,
    loss_by_noise,
    noisy_run,
    run_on_neighbours,
)
from dpgrain.auditing.verdict import Audit, AuditLine, Bound
from dpgrain.auditing.worst_case_tables import (
    NeighbourTables,
    base_source,
    neighbour_tables,
    query_table,
)
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomSource, RandomState
from dpgrain.noise.sources import random_source
from dpgrain.publishing.draws import tickets
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.query import Query
from dpgrain.tables.engines.memory import load_rows
from dpgrain.units import RELATIONS, Relation

# Tested factors between assumed and actual noise; the smallest detectable one is reported.
_FACTORS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 3.0, 4.0, 8.0, 16.0)
# Numbers drawn at a time.
_BATCH_NUMBERS = 1 << 19
# Maximum share of the time for whole runs.
_SHARE_OF_RUNS = 0.2
# Maximum draws of a line in 60 seconds: more change the bound by less than its third digit.
_MOST_DRAWS = 4_000_000
# Tests of noise factors per line: bisection of _FACTORS.
_HALVINGS = 4


def audit(
    query: Query[Any] | Mechanism,
    *,
    units: Sequence[int] = (1, 2, 4),
    seconds: float = 60.0,
    draws: int = _MOST_DRAWS,
    runs: int = 200,
    confidence: float = 0.99,
    rows: Literal["made up", "curator"] = "made up",
    random_state: RandomState = None,
) -> Audit:
    """Compute lower bounds on the ε of a query, and compare them with its claim.

    Args:
        query: a query of a table, such as ``dpgrain.count.query(…)``. Nothing is published or
            charged, and its rows are read only if ``rows="curator"``. Or a mechanism of your own,
            with the members of :class:`dpgrain.auditing.Mechanism`; it draws its own noise, and has
            only free bounds.
        units: the numbers of changed units of one user; for whole users, the numbers of users.
        seconds: the approximate duration; the bounds are valid for any duration. The initial search
            for the worst neighbours is never interrupted: if it takes most of this time, there are
            few draws and the bounds are weak.
        draws: the maximum number of noise draws on each neighbour of a line.
        runs: the maximum number of whole runs.
        confidence: the probability with which all bounds are valid together, over the audit's own
            draws.
        rows: ``"made up"`` for synthetic rows from the schema and public facts, or ``"curator"``
            for neighbours that share the real rows. In this case the bounds depend on them: they
            are **not private**.
        random_state: a seed for tests, for an audit of predictable noise.

    Returns:
        the audit; when printed, it has a line for each number of units and each relation.

    Raises:
        ParameterError: if an argument is out of range, or the query requires a manual audit.

    The query runs without noise on worst-case neighbours, which yields the sums and the radius of
    each noisy step (ticket). The ticket's noise is then drawn on both, along their difference. A
    bound above the claim refutes the claim. A bound below it proves nothing, but the audit reports
    which error it would have detected. Guarantee: with probability ``confidence``, every *free*
    bound is at most the ε of the draws in the tested history of answers, for any noise
    distribution; and so is every *named* bound, if the noise has the named distribution at some
    scale. Source: docs/tutorials/audits.md.

    >>> import pyarrow as pa
    >>> from dpgrain import User, audit, count, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> asked = count.query(visits, unit=User(), epsilon=1.0, delta=1e-6, clip=5.0)
    >>> found = audit(asked, units=[1], seconds=10, draws=200_000, random_state=1)
    >>> found.verdict, all(0.5 < line.free.epsilon < line.claim for line in found.lines)
    ('kept', True)
    """
    seconds = _validate.positive(seconds=seconds)
    draws = _validate.integer(minimum=2, draws=draws)
    runs = _validate.integer(minimum=1, runs=runs)
    confidence = _validate.fraction(confidence=confidence)
    _validate.one_of(("made up", "curator"), rows=rows)
    units_to_try = _validate.integers(minimum=1, units=units)
    if not units_to_try:
        raise ParameterError(
            "units must have at least one number of units, such as (1, 2, 4).", name="units"
        )
    if not isinstance(query, Query):
        _check_mechanism(query, rows, random_state)
        return audit_mechanism(
            query,
            list(dict.fromkeys(units_to_try)),
            draws=draws,
            seconds=seconds,
            confidence=confidence,
        )
    table = query_table(query)
    real = load_rows(base_source(table.source)) if rows == "curator" else None
    settled = query.settled()
    work = _AuditRun(
        settled, draws, runs, random_source(random_state), real, time.monotonic(), seconds
    )
    return work.run(list(dict.fromkeys(units_to_try)), confidence)


def _check_mechanism(mechanism: Any, rows: str, random_state: RandomState) -> None:
    """Reject objects that are no mechanisms, and arguments that they do not use."""
    if isinstance(mechanism, type) or not isinstance(mechanism, Mechanism):
        raise ParameterError(
            f"query must be a query, such as dpgrain.count.query(…), or a mechanism with {MEMBERS}, "
            f"not {_validate.describe(mechanism)}; see docs/tutorials/own-mechanisms.md.",
            name="query",
        )
    for name, stated in (("rows", rows != "made up"), ("random_state", random_state is not None)):
        if stated:
            raise ParameterError(
                f"{name} must be omitted for a mechanism of your own, because it chooses its own "
                "neighbours and noise.",
                name=name,
            )


@dataclass
class _AuditRun:
    """Execution of one audit; ``real`` are the real rows, or None for synthetic ones."""

    query: Query[Any]
    draws: int
    max_runs: int
    source: RandomSource
    real: pa.Table | None
    started: float
    seconds: float
    draws_done: int = 0
    runs: int = 0
    notes: list[str] = field(default_factory=list)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of the query."""
        return self.query.plan.guarantee

    def run(self, units: Sequence[int], confidence: float) -> Audit:
        """Audit all lines; all bounds are valid with probability ``confidence``."""
        worst = list(self._worst_neighbours(units))
        # One bound on the noise for all named bounds, and a free bound per line.
        alpha = (1 - confidence) / (len(worst) + 1)
        ratio = self._ratio(worst[0][2], alpha) if worst else float("inf")
        lines, claimed = [], []
        for place, (count, relation, twins) in enumerate(worst):
            left = self.started + self.seconds - time.monotonic()
            lines.append(
                self._line(count, relation, twins, alpha, ratio, left / (len(worst) - place))
            )
            claimed.append(claimed_curve(self.guarantee, count, relation))
        return Audit(
            self.guarantee.level,
            self.guarantee.delta,
            confidence,
            tuple(lines),
            tuple(claimed),
            self.draws_done,
            self.runs,
            self.real is not None,
            tuple(self.notes),
        )

    def _worst_neighbours(
        self, units: Sequence[int]
    ) -> Iterator[tuple[int, Relation, NeighbourRuns]]:
        """Yield the neighbours with the highest cost of the named noise, for each line."""
        others, like = _count_other_users(self.guarantee.event), dict[Relation, str]()
        unclaimed = dict[int, list[Relation]]()
        for count, relation in itertools.product(sorted(units), RELATIONS):
            if self._claim(count, relation) == float("inf"):
                unclaimed.setdefault(count, []).append(relation)
                continue
            # The worst type of neighbours for the fewest units is also used for more.
            tried = neighbour_tables(
                self.query, count, relation, others, real=self.real, like=like.get(relation, "")
            )
            worst = max(map(self._run_pair, tried), key=self._cost, default=None)
            if worst is None:
                self._note(
                    f"Not audited for {quantity(count, 'unit')}: one person's units must be in "
                    "different cells, and the synthetic rows have fewer cells."
                )
                continue
            like[relation] = worst.pair.description
            yield count, relation, run_on_neighbours(self.query, self.guarantee, worst.pair)
        if unclaimed:
            listed = "; ".join(
                f"{quantity(count, 'unit')} ({', '.join(relations)})"
                for count, relations in unclaimed.items()
            )
            self._note(f"Nothing is claimed for {listed}.")

    def _run_pair(self, pair: NeighbourTables) -> NeighbourRuns:
        """Return the runs on a pair; DuckDB reads synthetic rows, for any engine of the table."""
        engine = "duckdb" if self.real is None else ""
        return run_on_neighbours(self.query, self.guarantee, pair, engine)

    def _cost(self, twins: NeighbourRuns) -> tuple[float, int]:
        """Return the cost of noise with the named distribution on neighbours."""
        draws = differing_draws(twins)
        mu, pure = loss_by_noise(draws)
        return named_epsilon(mu, 0.0, 1e-12) + pure, sum(not each.comparable for each in draws)

    def _claim(self, count: int, relation: Relation) -> float:
        """Return the claimed ε; for one unit, at most the requested ε."""
        claim = self.guarantee.epsilon(units=count, relation=relation)
        promise = self.query.promise
        same = count == 1 and relation == promise.relation
        return min(claim, promise.epsilon) if same else claim

    def _line(
        self,
        count: int,
        relation: Relation,
        twins: NeighbourRuns,
        alpha: float,
        ratio: float,
        left: float,
    ) -> AuditLine:
        """Compute the bounds of one line."""
        claim, delta = self._claim(count, relation), self.guarantee.delta
        mu, pure = loss_by_noise(differing_draws(twins))
        named, public = Bound(None), self.real is None
        if not twins.has_hidden_draws and not any(draw.differs for draw in differing_draws(twins)):
            return AuditLine(
                count, relation, claim, named, named, twins.pair.description if public else ""
            )
        if ratio < float("inf") and not (mu and pure):
            bounds = {f: named_epsilon(f * mu / ratio, f * pure / ratio, delta) for f in _FACTORS}
            seen = next((f for f in _FACTORS if bounds[f] > claim), float("inf"))
            named = Bound(named_epsilon(mu / ratio, pure / ratio, delta), seen if public else None)
        free, curve = Bound(None), ScoreCounts.empty()
        if twins.has_hidden_draws:
            self._note("A mechanism of this query draws its own noise, so there is no free bound.")
        else:
            curve = self._count_scores(differing_draws(twins), left / (_HALVINGS + 1))
            bound = curve.bound(delta, alpha)
            power = 1.0 if bound > claim else None
            if public and power is None:
                power = self._detectable_factor(twins, claim, alpha, left)
            free = Bound(bound, power if public else None)
            self.draws_done = max(self.draws_done, curve.draws)
        pair = twins.pair.description if public else ""
        return AuditLine(count, relation, claim, free, named, pair, curve.curve() if public else ())

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _detectable_factor(
        self, twins: NeighbourRuns, claim: float, alpha: float, left: float
    ) -> float:
        """Return the smallest factor of a noise error that the free bound detects."""
        low, high = 0, len(_FACTORS)
        while low < high:
            middle = (low + high) // 2
            drawn = self._count_scores(
                differing_draws(twins, _FACTORS[middle]), left / (_HALVINGS + 1)
            )
            shows = drawn.bound(self.guarantee.delta, alpha) > claim
            low, high = (low, middle) if shows else (middle + 1, high)
        return _FACTORS[low] if low < len(_FACTORS) else float("inf")

    def _count_scores(self, draws: Sequence[Draw], left: float) -> ScoreCounts:
        """Draw on both neighbours, and count the scores."""
        counts, until = ScoreCounts.empty(), time.monotonic() + left
        if not draws:
            return counts
        width, reach = sum(draw.width for draw in draws), sum(draw.reach for draw in draws)
        batch = max(2, _BATCH_NUMBERS // max(width, 1))
        while counts.draws < self.draws:
            count = min(batch, self.draws - counts.draws)
            scores = [
                np.asarray(
                    sum(draw.scores(one, count, self.guarantee, self.source) for draw in draws)
                )
                for one in (True, False)
            ]
            counts = counts.add_scores(scores[0], scores[1], reach)
            if time.monotonic() > until:
                break
        return counts

    def _ratio(self, twins: NeighbourRuns, alpha: float) -> float:
        """Return an upper bound on the noise scale of whole runs ÷ the named scale."""
        gaussian, laplace = list[float](), list[float]()
        until = time.monotonic() + self.seconds * _SHARE_OF_RUNS
        if twins.has_hidden_draws or any(one.method != "noisy" for one, _ in twins.draws):
            self._note("Some draws have no named noise distribution, so there is no named bound.")
            return float("inf")
        while self.runs < self.max_runs and time.monotonic() < until:
            for ticket in noisy_run(self.query, self.guarantee, twins.pair.one, self.source):
                known = gaussian if ticket.part.law.name == "gaussian" else laplace
                known.extend(_scaled_noise(ticket))
            self.runs += 1
        return largest_noise(gaussian, laplace, alpha)


def _scaled_noise(ticket: Ticket) -> list[float]:
    """Return the noise of a draw, in units of its named scale."""
    radius = np.broadcast_to(np.ravel(ticket.rest[0]), ticket.sums.size)
    noise = (ticket.answer - ticket.sums).ravel().astype(np.float64)
    return list((noise / (ticket.part.noise_multiplier * radius)).tolist())


def _count_other_users(event: Event) -> int:
    """Return the number of users with an item that selects it even without noise."""
    least = 0.0
    for part in tickets(event):
        if isinstance(part, Selection):
            # A user's weight can be on all participating items.
            least = max(least, part.threshold * np.sqrt(4.0))
        elif isinstance(part, TruncatedGeometric):
            least = max(least, part.cutoff)
    return int(np.ceil(least)) + 5 if least else 0

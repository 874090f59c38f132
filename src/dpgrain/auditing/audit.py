"""``dg.audit``: an empirical lower bound on the ε of a query, from its own noise on neighbours."""

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
from dpgrain._wording import counted
from dpgrain.accounting import Event, Selection, TruncatedGeometric
from dpgrain.auditing.bounds import Counted, largest_noise, named_epsilon
from dpgrain.auditing.neighbours import Pair, pairs, replaced, table_of
from dpgrain.auditing.runs import Ticket, Twins, noisy_run, twins_of
from dpgrain.auditing.scores import Draw, draws_of, named_loss
from dpgrain.auditing.verdict import Audit, Bound, Line
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState, Source
from dpgrain.noise.sources import source_of
from dpgrain.publishing.charge import tickets
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.query import Query
from dpgrain.tables.engines.whole import whole
from dpgrain.units import RELATIONS, Relation

# Factors by which noise may be too small, of which the smallest that shows is named.
_FACTORS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 3.0, 4.0, 8.0, 16.0)
# Numbers that are drawn at a time.
_BATCH_NUMBERS = 1 << 19
# Share of the time that whole runs take at most.
_SHARE_OF_RUNS = 0.2
# Draws of a line in 60 seconds, at most: more move the bound by less than its third digit.
_MOST_DRAWS = 4_000_000
# Tests of a factor of the noise, for each line: of _FACTORS, by halving.
_HALVINGS = 4
# δ at which a claimed curve is drawn.
_DELTAS = tuple(10.0**-power for power in (0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10))


def audit(
    query: Query[Any],
    *,
    units: Sequence[int] = (1, 2, 4),
    seconds: float = 60.0,
    draws: int = _MOST_DRAWS,
    runs: int = 200,
    confidence: float = 0.99,
    rows: Literal["made up", "curator"] = "made up",
    random_state: RandomState = None,
) -> Audit:
    """Bound the ε of a query from below, and compare it with what the query claims.

    Args:
        query: a query of a table, such as ``dpgrain.count.query(…)``. Nothing is published or charged,
            and its rows are not read unless ``rows`` says so.
        units: for how many units of one person; for whole users, for how many users.
        seconds: how long it may take, roughly; the bounds hold however long it takes. The search for
            the worst neighbours, which comes first, is never cut short: where it takes most of this,
            few draws are made, and bounds are weak.
        draws: how often the noise is drawn on each neighbour of a line, at most.
        runs: how many whole runs are made, at most.
        confidence: the probability with which all bounds hold together, over the audit's own draws.
        rows: ``"made up"`` from the schema and what is public, or ``"curator"`` for neighbours that
            have the real rows in common. The bounds then depend on them: they are **not private**.
        random_state: a seed, for tests: an audit of noise that can be predicted.

    Returns:
        The audit; printed, it has a line for each number of units and each relation.

    Raises:
        ParameterError: if an argument is out of range, or the query must be audited by hand.

    The query runs without noise on worst-case neighbours, which shows the sums and the radius that each
    ticket of its charge gets. The ticket's own noise is then drawn on both, along their difference.
    A bound above the claim refutes it. One below proves nothing, but says which error it would have
    shown. Guarantee: with probability ``confidence`` every *free* bound is at most the ε of the draws
    in the history of answers that was run, whatever the law of the noise; and every *named* one, if
    noise has the named law at some scale. Source: docs/tutorials/audits.md.

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
    asked = _validate.integers(minimum=1, units=units)
    if not asked:
        raise ParameterError(
            "units must have at least one number of units, such as (1, 2, 4).", name="units"
        )
    table = table_of(query)
    real = whole(replaced(table.source)) if rows == "curator" else None
    settled = query.settled()
    work = _Work(settled, draws, runs, source_of(random_state), real, time.monotonic(), seconds)
    return work.done(list(dict.fromkeys(asked)), confidence)


@dataclass
class _Work:
    """One audit.

    Args:
        query: the query.
        draws: the most draws of a line.
        most_runs: the most whole runs.
        source: where noise comes from.
        real: the real rows; None where rows are made up.
        begun: the time at which it began, on the monotonic clock.
        seconds: how long it may take.
    """

    query: Query[Any]
    draws: int
    most_runs: int
    source: Source
    real: pa.Table | None
    begun: float
    seconds: float
    made: int = 0
    runs: int = 0
    notes: list[str] = field(default_factory=list)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The promise of the query."""
        return self.query.plan.guarantee

    def done(self, units: Sequence[int], confidence: float) -> Audit:
        """Audit all lines.

        Args:
            units: the numbers of units.
            confidence: the probability with which all bounds hold.
        """
        worst = list(self._worst(units))
        # One bound on the noise of all named bounds, and a free bound for each line.
        alpha = (1 - confidence) / (len(worst) + 1)
        ratio = self._ratio(worst[0][2], alpha) if worst else float("inf")
        lines, claimed = [], []
        for place, (count, relation, twins) in enumerate(worst):
            left = self.begun + self.seconds - time.monotonic()
            lines.append(
                self._line(count, relation, twins, alpha, ratio, left / (len(worst) - place))
            )
            claimed.append(self._curve(count, relation))
        return Audit(
            self.guarantee.level,
            self.guarantee.delta,
            confidence,
            tuple(lines),
            tuple(claimed),
            self.made,
            self.runs,
            self.real is not None,
            tuple(self.notes),
        )

    def _worst(self, units: Sequence[int]) -> Iterator[tuple[int, Relation, Twins]]:
        """Return for each line the neighbours on which the named noise would cost most."""
        others, like = _enough_others(self.guarantee.event), dict[Relation, str]()
        for count, relation in itertools.product(sorted(units), RELATIONS):
            if self._claim(count, relation) == float("inf"):
                self._note(f"Nothing is claimed for {counted(count, 'unit')}, {relation}.")
                continue
            # What is worst of the fewest units is taken to be worst of more.
            tried = pairs(
                self.query, count, relation, others, real=self.real, like=like.get(relation, "")
            )
            worst = max(map(self._searched, tried), key=self._cost, default=None)
            if worst is None:
                self._note(
                    f"Not audited for {counted(count, 'unit')}: those of one person are to lie in "
                    "as many cells, and rows that are made up lie in fewer."
                )
                continue
            like[relation] = worst.pair.said
            yield count, relation, twins_of(self.query, self.guarantee, worst.pair)

    def _searched(self, pair: Pair) -> Twins:
        """Return the runs on a pair, read by the engine that is quickest on few rows."""
        engine = "in_memory" if self.real is None else ""
        return twins_of(self.query, self.guarantee, pair, engine)

    def _cost(self, twins: Twins) -> tuple[float, int]:
        """Return what noise of the named law would cost on neighbours."""
        draws = draws_of(twins)
        mu, pure = named_loss(draws)
        return named_epsilon(mu, 0.0, 1e-12) + pure, sum(not each.comparable for each in draws)

    def _claim(self, count: int, relation: Relation) -> float:
        """Return the ε that is claimed, which for one unit is at most what was asked for."""
        claim = self.guarantee.epsilon(units=count, relation=relation)
        promise = self.query.promise
        same = count == 1 and relation == promise.relation
        return min(claim, promise.epsilon) if same else claim

    def _line(
        self, count: int, relation: Relation, twins: Twins, alpha: float, ratio: float, left: float
    ) -> Line:
        """Bound one line."""
        claim, delta = self._claim(count, relation), self.guarantee.delta
        mu, pure = named_loss(draws_of(twins))
        named, public = Bound(None), self.real is None
        if not twins.unseen and not any(draw.apart for draw in draws_of(twins)):
            return Line(count, relation, claim, named, named, twins.pair.said if public else "")
        if ratio < float("inf") and not (mu and pure):
            bounds = {f: named_epsilon(f * mu / ratio, f * pure / ratio, delta) for f in _FACTORS}
            seen = next((f for f in _FACTORS if bounds[f] > claim), float("inf"))
            named = Bound(named_epsilon(mu / ratio, pure / ratio, delta), seen if public else None)
        free, curve = Bound(None), Counted.none()
        if twins.unseen:
            self._note(
                "A mechanism of this query draws its own noise, which is not bounded freely."
            )
        else:
            curve = self._counted(draws_of(twins), left / (_HALVINGS + 1))
            bound = curve.bound(delta, alpha)
            power = 1.0 if bound > claim else None
            if public and power is None:
                power = self._seen(twins, claim, alpha, left)
            free = Bound(bound, power if public else None)
            self.made = max(self.made, curve.draws)
        pair = twins.pair.said if public else ""
        return Line(count, relation, claim, free, named, pair, curve.curve() if public else ())

    def _note(self, said: str) -> None:
        if said not in self.notes:
            self.notes.append(said)

    def _seen(self, twins: Twins, claim: float, alpha: float, left: float) -> float:
        """Return the smallest factor of too little noise that the free bound shows."""
        low, high = 0, len(_FACTORS)
        while low < high:
            middle = (low + high) // 2
            drawn = self._counted(draws_of(twins, _FACTORS[middle]), left / (_HALVINGS + 1))
            shows = drawn.bound(self.guarantee.delta, alpha) > claim
            low, high = (low, middle) if shows else (middle + 1, high)
        return _FACTORS[low] if low < len(_FACTORS) else float("inf")

    def _counted(self, draws: Sequence[Draw], left: float) -> Counted:
        """Draw on both neighbours, and count the scores."""
        found, until = Counted.none(), time.monotonic() + left
        if not draws:
            return found
        width, reach = sum(draw.width for draw in draws), sum(draw.reach for draw in draws)
        batch = max(2, _BATCH_NUMBERS // max(width, 1))
        while found.draws < self.draws:
            count = min(batch, self.draws - found.draws)
            scores = [
                np.asarray(
                    sum(draw.scores(one, count, self.guarantee, self.source) for draw in draws)
                )
                for one in (True, False)
            ]
            found = found.with_scores(scores[0], scores[1], reach)
            if time.monotonic() > until:
                break
        return found

    def _ratio(self, twins: Twins, alpha: float) -> float:
        """Bound the scale of the noise of whole runs from above, in scales that it is named with."""
        gaussian, laplace = list[float](), list[float]()
        until = time.monotonic() + self.seconds * _SHARE_OF_RUNS
        if twins.unseen or any(one.way != "noisy" for one, _ in twins.draws):
            self._note("No law is named for all draws of this query: it has no named bound.")
            return float("inf")
        while self.runs < self.most_runs and time.monotonic() < until:
            for ticket in noisy_run(self.query, self.guarantee, twins.pair.one, self.source):
                known = gaussian if ticket.part.law.name == "gaussian" else laplace
                known.extend(_noise_of(ticket))
            self.runs += 1
        return largest_noise(gaussian, laplace, alpha)

    def _curve(self, count: int, relation: Relation) -> tuple[tuple[float, float], ...]:
        """Return (δ, ε) of the claim."""
        claim = self.guarantee
        return tuple(
            (delta, claim.epsilon(delta, units=count, relation=relation)) for delta in _DELTAS
        )


def _noise_of(ticket: Ticket) -> list[float]:
    """Return the noise of a draw, in the scales that it is named with."""
    radius = np.broadcast_to(np.ravel(ticket.rest[0]), ticket.sums.size)
    noise = (ticket.answer - ticket.sums).ravel().astype(np.float64)
    return list((noise / (ticket.part.noise_multiplier * radius)).tolist())


def _enough_others(event: Event) -> int:
    """Return how many people must hold an item for it to be named without noise."""
    least = 0.0
    for part in tickets(event):
        if isinstance(part, Selection):
            # A person's weight may lie on all items that take part.
            least = max(least, part.threshold * np.sqrt(4.0))
        elif isinstance(part, TruncatedGeometric):
            least = max(least, part.cutoff)
    return int(np.ceil(least)) + 5 if least else 0

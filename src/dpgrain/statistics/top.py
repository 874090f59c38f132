"""Publication of the items that most users have (``dg.top``), with or without a public list."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from dpgrain import _validate
from dpgrain._progress import Progress
from dpgrain.accounting import (
    AdaptiveSelection,
    Contribution,
    Event,
    Selection,
    TruncatedGeometric,
    calibrate_gaussian,
    calibrate_truncated_geometric,
)
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Plan, Promise, Query, in_budget, publishes
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.release_plan import Expected, compose, present
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.statistics.plan import plan_selection, selection_delta
from dpgrain.statistics.release_metadata import Clip
from dpgrain.statistics.run import NoisySums, groups_in_data, select_and_count
from dpgrain.statistics.statistic import TOP
from dpgrain.statistics.sums_query import SumsQuery
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.per_user import depends_on_users
from dpgrain.tables.table import UserTable
from dpgrain.tables.user_sums import UserContributions
from dpgrain.units import Record, Relation, Unit

Method = Literal["auto", "adaptive", "gaussian", "truncated", "laplace", "gumbel"]
_METHODS = ("auto", "adaptive", "gaussian", "truncated", "laplace", "gumbel")
# Default maximum number of items of a unit in one selection round.
_MAX_ITEMS = 200


@publishes
def top(
    table: UserTable,
    item: str | Sequence[str],
    *,
    k: int | None = None,
    unit: Unit,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    relation: Relation = "zero_out",
    domain: Any = None,
    method: Method = "auto",
    counts: bool = True,
    clip: float | Literal["auto"] | AutoClip = "auto",
    max_items: int | None = None,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Query[Histogram]:
    """Publish the items that most people have.

    The most frequent item comes first. Each unit counts once per item, regardless of its records.
    If cells are not items, a user counts once in each cell with the item.

    Args:
        table: table from :func:`dpgrain.read`.
        item: the column of items, or several, whose combinations are items.
        k: number of items; by default, no limit. All public items, or all that pass the selection,
            are then published.
        unit: privacy unit: ``Record()``, ``Element(by)`` or ``User()``.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: the promised δ, in (0, 1), such as 1e-6; 0 requires a public domain.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        domain: the public list of items. By default, items are selected privately. For several
            columns, a mapping or tuples, as for :func:`dpgrain.histogram`.
        method: selection method; ``auto`` is the best by public numbers. Inside a budget, this is
            Gaussian noise.

            - unknown items: ``"truncated"`` adds truncated geometric noise to every count and
              publishes items and counts above a threshold that a single user cannot reach (optimal,
              and best if a unit has one item, as in ``Element(item)``); ``"gaussian"`` selects by
              weighted counts, |W|^(−1/2) for each of the |W| items of a unit, and spends the rest
              of the budget on counts (best if a unit has several items); ``"adaptive"``, for whole
              users, selects in two rounds, and the second transfers weight to items that the first
              neither selected nor ruled out (best if a user has many items);
            - public items: ``"gaussian"`` or ``"laplace"`` noise on every count; ``"gumbel"``
              selects the best ``k`` by one-shot Gumbel noise, at a cost that is independent of the
              number of items of a unit, and spends the rest of the budget on counts (best with
              ``k`` if a unit has several).
        counts: publish counts of unknown items selected with Gaussian noise. False spends the whole
            budget on the selection; estimates are then the weighted counts of the (first) round.
        clip: the clipping bound of a unit's items, a number or ``auto``. It limits their norm in
            counts after a selection.
        max_items: the maximum number of items of one unit in the selection; by default 200, or more
            in two rounds if the noise of the first can distinguish more. A record has one.
        random_state: seed, for tests and research. The release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        A :class:`~dpgrain.Histogram` of counts, largest first. Counts of items just above a
        threshold are overestimated, because they were selected.

    Raises:
        ParameterError, SchemaError, DataError: as :func:`dpgrain.histogram`.

    Formal guarantee: (ε, δ)-DP for one unit under the relation, for every table. Source:
    element-level paper, eq. (7); docs/theory, "Unknown domains" and "Names in two rounds".

    >>> import pyarrow as pa
    >>> from dpgrain import Element, read
    >>> words = read(pa.table({"who": list(range(50)), "word": ["yo"] * 49 + ["bro"]}), user="who")
    >>> release = top(words, "word", unit=Element("word"), epsilon=1, delta=1e-6)
    >>> release.items.to_pylist()
    ['yo']
    """
    _validate.one_of(_METHODS, method=method)
    if k is not None:
        k = _validate.integer(minimum=1, k=k)
    promise = Promise.of(unit, epsilon, delta, relation, share)
    pure = method in ("auto", "gumbel") and promise.delta == 0 and domain is not None
    if method == "laplace" and domain is None:
        raise ParameterError(
            "domain is required with method='laplace'; without a list of items use "
            "method='truncated' or method='gaussian'.",
            name="domain",
        )
    counts = _validate.boolean(counts=counts)
    laplace = method == "laplace" or pure
    if not laplace:
        promise.require_delta(
            "delta must be above 0, such as 1e-6, except with a public domain= and Laplace or "
            "Gumbel noise."
        )
    query = TopQuery.of(
        TOP, table, item, promise=promise, clip=clip,
        noise="laplace" if laplace else "gaussian", domain=domain,
        max_items=_MAX_ITEMS if max_items is None else max_items, k=k,
        random_state=random_state, progress=progress,
    )  # fmt: skip
    if not query.keys:
        raise ParameterError("item must be at least one column.", name="item")
    if isinstance(unit, Record) and table.user is not None:
        # Users are counted, not records: each pair of user and item is a block that any of its
        # records can add or remove, without effect on other blocks.
        pairs = UnitBlocks("element", of=query.keys[0], key=0, alone=True, of_records=True)
        query = replace(query, blocks=pairs, rule=1.0 if clip == "auto" else query.rule)
    if query.domain.selected:
        return _unknown(query, max_items, method, counts)
    return _known(query, method, counts)


@dataclass(frozen=True, eq=False, repr=False)
class TopQuery(SumsQuery[Histogram]):
    """Query for the k largest counts of units per item; None for all."""

    k: int | None = None

    def release(self, measured: NoisySums) -> Histogram:
        """Return the counts, largest first."""
        return self._largest(measured.as_histogram())

    def _largest(self, release: Histogram) -> Histogram:
        """Return the k largest counts, largest first."""
        return release.largest(self.k or len(release)) if len(release) else release

    @property
    def _one_item(self) -> bool:
        """True if each block has one item."""
        return self.blocks.alone or self.blocks.block == "record"

    def _as(self, kind: type[_UnknownItemsQuery]) -> _UnknownItemsQuery:
        """Return the query of another method of selection with the same parameters."""
        return kind(**{each.name: getattr(self, each.name) for each in fields(self)})


def _known(query: TopQuery, method: Method, counts: bool) -> TopQuery:
    """Return the query for counts of public items."""
    if method in ("truncated", "adaptive"):
        raise ParameterError(f"method={method!r} is for unknown items; omit domain.")
    if not counts:
        raise ParameterError("counts=False is for unknown items; leave out domain=.")
    # One element of a per-user table may move a person between items.
    moves = depends_on_users(query.table) and query.blocks.block == "element"
    if method == "gumbel" and moves:
        raise ParameterError(
            "method='gumbel' requires unit=User() for a per-user table; or use method='gaussian'.",
            name="method",
        )
    if method == "gumbel":
        if query.k is None:
            raise ParameterError("method='gumbel' requires k, the number of items to choose.")
        items = 0 if query.public is None else int((query.public[1].codes >= 0).sum())
        return replace(query, best=min(query.k, items))
    if _may_choose_noise(method) and query.k is not None and not moves and not _one_count(query):
        # The selection costs the same for units with many items, and only selected items are
        # clipped.
        return _known(query, "gumbel", counts)
    if _may_choose_noise(method) and query.noise == "gaussian" and _one_count(query):
        # For one count each, the noise with the smaller deviation is better for all data.
        other = replace(query, noise="laplace", promise=replace(query.promise, delta=0.0))
        return other if other.events.std_error < query.events.std_error else query
    return query


def _may_choose_noise(method: Method) -> bool:
    """Return True outside of budgets, which need Gaussian noise for shares of μ²."""
    return method == "auto" and not in_budget()


def _one_count(query: TopQuery) -> bool:
    """Return True if each block is one count, with equal norms and bound 1."""
    return query.contribution.coordinates == "one" or query.contribution.block == "record"


def _unknown(
    query: TopQuery, stated: int | None, method: Method, counts: bool
) -> TopQuery | _UnknownItemsQuery:
    """Return the query that selects unknown items and counts them."""
    if method in ("laplace", "gumbel"):
        raise ParameterError(f"method={method!r} requires a public domain; pass domain=.")
    users = query.blocks.block == "user"
    if method == "adaptive" and not users:
        raise ParameterError(
            "method='adaptive' requires unit=User(), because it selects items of whole users; or "
            "use method='gaussian'.",
            name="method",
        )
    most = 1 if query._one_item or query.max_items is None else query.max_items
    if query.domain.public:
        if method in ("truncated", "adaptive") or not counts:
            raise ParameterError(
                "domain must be public for all columns or for none with method='truncated', "
                "method='adaptive' or counts=False."
            )
        method = "gaussian"
    if method == "truncated" or (_may_choose_noise(method) and _truncated_is_better(query, counts)):
        return query._as(TruncatedQuery)
    # A unit with one item has no weight to transfer.
    if method == "adaptive" or (method == "auto" and users and most > 1):
        least = query.max_items if query.blocks.one_row else stated
        query = replace(query, adaptive=True, max_items=least)
    return query if counts else query._as(NamesQuery)


# Cached, because the choice between mechanisms and the release both need the event.
_calibrated = lru_cache(maxsize=64)(calibrate_truncated_geometric)


def _holder_contribution(query: TopQuery) -> Contribution:
    """Return the contribution of a block to counts of units per item."""
    return query.blocks.contribution("l2", single=query.blocks.alone)


def _truncated_event(query: TopQuery) -> TruncatedGeometric:
    promise = query.promise
    return _calibrated(
        promise.epsilon,
        promise.delta,
        contribution=_holder_contribution(query),
        max_items=1 if query._one_item or query.max_items is None else query.max_items,
        relation=promise.relation,
        unit=promise.plain_unit,
    )


def _weighted(query: TopQuery) -> tuple[Selection, AdaptiveSelection | None]:
    """Return the selection by weighted counts with the whole budget, in 1 or 2 rounds."""
    contribution, promise = _holder_contribution(query), query.promise
    leak = selection_delta(promise.level) * promise.delta
    noise = calibrate_gaussian(
        promise.epsilon,
        promise.delta - leak,
        contribution=contribution,
        relation=promise.relation,
        unit=promise.plain_unit,
    ).noise_multiplier
    most = 1 if query._one_item else query.max_items
    return plan_selection(noise, leak, most, contribution, promise, adaptive=query.adaptive)


def _truncated_is_better(query: TopQuery, counts: bool) -> bool:
    """Return True if truncated noise publishes items with fewer users at even odds."""
    try:
        event = _truncated_event(query)
    except ParameterError:
        # The contribution of a unit to unclipped counts is unbounded.
        return False
    gaussian = query.events.select if counts else _weighted(query)[0]
    assert isinstance(gaussian, Selection)  # noqa: S101 - unknown items are selected by a threshold
    return bool(event.cutoff + 1 <= gaussian.threshold * math.sqrt(event.max_items))


class _UnknownItemsQuery(TopQuery):
    """Query that selects and counts unknown items at once."""

    def _build_plan(
        self, parts: Mapping[str, Event], facts: Sequence[Fact], expected: Expected
    ) -> Plan:
        guarantee = self.guarantee(compose(parts), facts)
        return Plan(guarantee, self.table.n_users, expected=expected, parts=parts)

    @contextmanager
    def _opened(self, charge: Charge) -> Iterator[UserContributions]:
        """Read the contributions to all items in the data."""
        with charge.open(self.table) as engine, Progress(2, self.progress) as progress:
            progress.stage("Listing items")
            groups = groups_in_data(engine, self.blocks, self.keys)
            cells = self.blocks.cells(groups, public=False)
            data = UserContributions(engine, self.blocks, groups, cells)
            progress.stage("Counting users")
            yield data


class TruncatedQuery(_UnknownItemsQuery):
    """Items and counts at once, by truncated noise on every count."""

    @property
    def event(self) -> TruncatedGeometric:
        """Noise of the counts."""
        return _truncated_event(self)

    @property
    def _sd(self) -> float:
        decay = math.exp(-self.event.rate)
        return math.sqrt(2 * decay) / (1 - decay)

    @property
    def plan(self) -> Plan:
        """Noise of the counts, and the smallest published count."""
        event = self.event
        facts = [Fact("threshold", (event.cutoff,))]
        if not self._one_item:
            facts.append(Fact("items-of-a-unit", (event.max_items,)))
        expected = Expected(self._sd, threshold=event.cutoff + 1)
        return self._build_plan({"counts": event}, facts, expected)

    def run(self, charge: Charge) -> Histogram:
        """Count the units with each item, and publish items above the threshold."""
        with self._opened(charge) as data:
            groups = data.dictionary.groups
            sums = data.holders(max_items=None if self._one_item else self.event.max_items)
        noisy, passed = charge.truncated(self.event, sums)
        size = int(passed.sum())
        release = Histogram(
            groups.filter(passed),
            noisy[passed].astype(np.float64),
            np.full(size, self._sd),
            np.ones(size),
            charge.guarantee,
            replace(
                self.metadata,
                noise="truncated geometric",
                clip=Clip(1.0, "item", takes=not self._one_item),
                max_items=self.event.max_items,
            ),
            "geometric",
        )
        return self._largest(_sorted(release))


class NamesQuery(_UnknownItemsQuery):
    """Items and weighted counts, for the whole budget."""

    @cached_property
    def rounds(self) -> tuple[Selection, AdaptiveSelection | None]:
        """Noise and threshold of each round."""
        return _weighted(self)

    @property
    def plan(self) -> Plan:
        """Noise of the weighted counts, and the smallest published count."""
        first, again = self.rounds
        facts = [
            Fact("items-of-a-unit", (first.max_items,)),
            Fact("weighted-threshold", (first.threshold,)),
        ]
        if again is not None:
            facts.append(Fact("two-rounds"))
        expected = Expected(first.noise_multiplier, threshold=first.threshold)
        return self._build_plan(
            present({"selection": first, "second selection": again}), facts, expected
        )

    def run(self, charge: Charge) -> Histogram:
        """Add up the weights per item, and publish items above the threshold."""
        first, again = self.rounds
        with self._opened(charge) as data:
            counts, passed = select_and_count(data, first, charge, again)
            groups = data.dictionary.groups
        size = int(passed.sum())
        release = Histogram(
            groups.filter(passed),
            counts[passed],
            np.full(size, first.noise_multiplier),
            np.ones(size),
            charge.guarantee,
            # A unit with more items than the limit contributes only to the first ones.
            replace(self.metadata, each="share", clip=Clip(1.0, "item"), max_items=first.max_items),
            "gaussian",
        )
        return self._largest(_sorted(release))


def _sorted(release: Histogram) -> Histogram:
    """Sort a release by item, so that the order of ties does not depend on the table."""
    if not len(release):
        return release
    by_name = release.groups.order()
    return replace(release, groups=release.groups.take(by_name), estimate=release.estimate[by_name])

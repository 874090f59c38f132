"""Publication of the items that most users have (``dg.top``), with or without a public list."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Self

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
from dpgrain.publishing import Charge, Planned, Promise, Query, in_budget, publishes
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.release_plan import Expected
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.histogram import as_histogram
from dpgrain.statistics.plan import plan_selection, selection_delta
from dpgrain.statistics.release import Histogram
from dpgrain.statistics.release_metadata import Clip
from dpgrain.statistics.request import Request
from dpgrain.statistics.run import NoisySums, SumsQuery, groups_in_data, select_and_count
from dpgrain.statistics.statistic import TOP
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.per_user import whole_user_source
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

    The most frequent item comes first. Each unit counts once per item, regardless of its number of
    records. (If the cell is another column than the item, a user counts once in each cell with the
    item.)

    Args:
        item: the column of items, or several columns, whose combinations are items.
        k: the number of items to publish; by default all public items, or all that pass the
            selection.
        delta: the promised δ, in (0, 1), such as 1e-6; 0 requires a public domain.
        domain: the public list of items. By default, items are selected privately. For several
            columns, a mapping or tuples, as for :func:`dpgrain.histogram`.
        method: the selection method; ``auto`` takes the best one by public numbers only, which
            inside a budget is Gaussian noise.

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
    request = Request.of(
        TOP,
        table,
        item,
        promise=promise,
        clip=clip,
        noise="laplace" if laplace else "gaussian",
        domain=domain,
        max_items=_MAX_ITEMS if max_items is None else max_items,
        indicator=True,
    )
    if not request.keys:
        raise ParameterError("item must be at least one column.", name="item")
    if isinstance(unit, Record) and table.user is not None:
        # Users are counted, not records: each pair of user and item is a block that any of its
        # records can add or remove, without effect on other blocks.
        pairs = UnitBlocks("element", of=request.keys[0], key=0, alone=True, of_records=True)
        request = replace(request, blocks=pairs, rule=1.0 if clip == "auto" else request.rule)
    query = (
        _unknown(request, max_items, method, counts, k)
        if request.domain.selected
        else _known(request, method, counts, k)
    )
    return replace(query, random_state=random_state, progress=progress)


def _largest(release: Histogram, k: int | None) -> Histogram:
    """Return the k largest counts, largest first; all counts if k is None."""
    return release.largest(len(release) if k is None else k) if len(release) else release


def _counted(request: Request, k: int | None) -> SumsQuery[Histogram]:
    """Return the query for noisy counts that keeps the k largest."""

    def made(measured: NoisySums) -> Histogram:
        return _largest(as_histogram(measured, request.noise), k)

    return SumsQuery(request, made)


def _known(request: Request, method: Method, counts: bool, k: int | None) -> SumsQuery[Histogram]:
    """Return the query for counts of public items."""
    if method in ("truncated", "adaptive"):
        raise ParameterError(f"method={method!r} is for unknown items; omit domain.")
    if not counts:
        raise ParameterError("counts=False is for unknown items; leave out domain=.")
    # One element of a per-user table may move a person between items.
    moves = whole_user_source(request.table) is not None and request.blocks.block == "element"
    if method == "gumbel" and moves:
        raise ParameterError(
            "method='gumbel' requires unit=User() for a per-user table; or use method='gaussian'.",
            name="method",
        )
    if method == "gumbel":
        if k is None:
            raise ParameterError("method='gumbel' requires k, the number of items to choose.")
        items = 0 if request.public is None else int((request.public[1].codes >= 0).sum())
        request = replace(request, best=min(k, items))
    elif _may_choose_noise(method) and k is not None and not moves and not _one_count(request):
        # The selection costs the same for units with many items, and only selected items are
        # clipped.
        return _known(request, "gumbel", counts, k)
    elif _may_choose_noise(method) and request.noise == "gaussian" and _one_count(request):
        # For one count each, the noise with the smaller deviation is better for all data.
        other = replace(request, noise="laplace", promise=request.promise.pure())
        if other.plan.std_error < request.plan.std_error:
            request = other
    return _counted(request, k)


def _may_choose_noise(method: Method) -> bool:
    """Return True outside of budgets, which need Gaussian noise: their shares are shares of μ²."""
    return method == "auto" and not in_budget()


def _one_count(request: Request) -> bool:
    """Return True if each block is one count: both norms are then equal, and its bound is 1."""
    return request.contribution.coordinates == "one" or request.contribution.block == "record"


def _unknown(
    request: Request, stated: int | None, method: Method, counts: bool, k: int | None
) -> SumsQuery[Histogram] | TruncatedQuery | NamesQuery:
    """Return the query that selects unknown items and counts them."""
    if method in ("laplace", "gumbel"):
        raise ParameterError(f"method={method!r} requires a public domain; pass domain=.")
    users = request.blocks.block == "user"
    if method == "adaptive" and not users:
        raise ParameterError(
            "method='adaptive' requires unit=User(), because it selects items of whole users; or "
            "use method='gaussian'.",
            name="method",
        )
    alone = request.blocks.alone or request.blocks.block == "record"
    most = 1 if alone or request.max_items is None else request.max_items
    if request.domain.public:
        if method in ("truncated", "adaptive") or not counts:
            raise ParameterError(
                "domain must be public for all columns or for none with method='truncated', "
                "method='adaptive' or counts=False."
            )
        method = "gaussian"
    if method == "truncated" or (
        _may_choose_noise(method) and _truncated_is_better(request, most, counts)
    ):
        return TruncatedQuery(request, None if alone else most, k)
    # A unit with one item has no weight to transfer.
    if method == "adaptive" or (method == "auto" and users and most > 1):
        least = request.max_items if request.blocks.one_row else stated
        request = replace(request, adaptive=True, max_items=least)
    if counts:
        return _counted(request, k)
    return NamesQuery(request, 1 if alone else request.max_items, k)


# Cached, because the choice between mechanisms and the release both need the event.
_calibrated = lru_cache(maxsize=64)(calibrate_truncated_geometric)


def _holder_contribution(request: Request) -> Contribution:
    """Return the contribution of a block to counts of units per item."""
    alone = request.blocks.alone
    return request.blocks.contribution(items=None, cells=None, single=alone, norm="l2")


def _truncated_event(request: Request, most: int) -> TruncatedGeometric:
    promise = request.promise
    return _calibrated(
        promise.epsilon,
        promise.delta,
        contribution=_holder_contribution(request),
        max_items=most,
        relation=promise.relation,
        unit=promise.plain_unit,
    )


def _weighted(request: Request, most: int | None) -> tuple[Selection, AdaptiveSelection | None]:
    """Return the selection by weighted counts with the whole budget, in one round or two."""
    contribution, promise = _holder_contribution(request), request.promise
    leak = selection_delta(promise.level) * promise.delta
    noise = calibrate_gaussian(
        promise.epsilon,
        promise.delta - leak,
        contribution=contribution,
        relation=promise.relation,
        unit=promise.plain_unit,
    ).noise_multiplier
    return plan_selection(noise, leak, most, contribution, promise, adaptive=request.adaptive)


def _truncated_is_better(request: Request, most: int, counts: bool) -> bool:
    """Return True if truncated noise publishes items with fewer users at even odds."""
    try:
        event = _truncated_event(request, most)
    except ParameterError:
        # The contribution of a unit to unclipped counts is unbounded.
        return False
    gaussian = request.plan.select if counts else _weighted(request, most)[0]
    assert isinstance(gaussian, Selection)  # noqa: S101 - unknown items are selected by a threshold
    return bool(event.cutoff + 1 <= gaussian.threshold * math.sqrt(most))


@dataclass(frozen=True, repr=False)
class _UnknownItemsQuery(Query[Histogram]):
    """Query that selects and counts unknown items at once.

    Args:
        request: the request.
        most: the maximum number of items of one unit; None if a unit has one.
        k: the number of selected items to publish; None for all.
        random_state: a seed, for tests and research.
        progress: show progress.
    """

    request: Request
    most: int | None
    k: int | None
    random_state: RandomState = None
    progress: bool | None = None

    @property
    def promise(self) -> Promise:
        """Guarantee of the request."""
        return self.request.promise

    def _with(self, promise: Promise) -> Self:
        return replace(self, request=replace(self.request, promise=promise))

    def _planned(self, event: Event, facts: Sequence[Fact], expected: Expected) -> Planned:
        request = self.request
        guarantee = request.guarantee(event, facts)
        return Planned(guarantee, request.table.n_users, expected=expected)

    @contextmanager
    def _opened(self, charge: Charge) -> Iterator[UserContributions]:
        """Read the contributions to all items in the data."""
        request = self.request
        with charge.open(request.table) as engine, Progress(2, self.progress) as shown:
            shown.stage("Listing items")
            held = groups_in_data(engine, request.blocks, request.keys)
            cells = request.blocks.cells(held, public=False)
            data = UserContributions(engine, request.blocks, held, cells)
            shown.stage("Counting users")
            yield data


@dataclass(frozen=True, repr=False)
class TruncatedQuery(_UnknownItemsQuery):
    """Items and counts at once, by truncated noise on every count."""

    @property
    def event(self) -> TruncatedGeometric:
        """Noise of the counts."""
        return _truncated_event(self.request, 1 if self.most is None else self.most)

    @property
    def _sd(self) -> float:
        decay = math.exp(-self.event.rate)
        return math.sqrt(2 * decay) / (1 - decay)

    @property
    def plan(self) -> Planned:
        """Noise of the counts, and the smallest published count."""
        event = self.event
        facts = [Fact("threshold", (event.cutoff,))]
        if self.most is not None:
            facts.append(Fact("items-of-a-unit", (self.most,)))
        return self._planned(event, facts, Expected(self._sd, threshold=event.cutoff + 1))

    def run(self, charge: Charge) -> Histogram:
        """Count the units with each item, and publish items above the threshold."""
        with self._opened(charge) as data:
            groups = data.dictionary.groups
            sums = data.holders(max_items=self.most)
        noisy, passed = charge.truncated(self.event, sums)
        size = int(passed.sum())
        release = Histogram(
            groups.filter(passed),
            noisy[passed].astype(np.float64),
            np.full(size, self._sd),
            np.ones(size),
            charge.guarantee,
            replace(
                self.request.asked(),
                noise="truncated geometric",
                clip=Clip(1.0, "item", takes=self.most is not None),
                max_items=self.most,
            ),
            "geometric",
        )
        return _largest(_sorted(release), self.k)


@dataclass(frozen=True, repr=False)
class NamesQuery(_UnknownItemsQuery):
    """Items and weighted counts, for the whole budget."""

    @cached_property
    def rounds(self) -> tuple[Selection, AdaptiveSelection | None]:
        """Noise and threshold of each round."""
        return _weighted(self.request, self.most)

    @property
    def plan(self) -> Planned:
        """Noise of the weighted counts, and the smallest published count."""
        first, again = self.rounds
        facts = [
            Fact("items-of-a-unit", (first.max_items,)),
            Fact("weighted-threshold", (first.threshold,)),
        ]
        if again is not None:
            facts.append(Fact("two-rounds"))
        expected = Expected(first.noise_multiplier, threshold=first.threshold)
        return self._planned(first if again is None else first + again, facts, expected)

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
            replace(
                self.request.asked(),
                each="share",
                clip=Clip(1.0, "item"),
                max_items=first.max_items,
            ),
            "gaussian",
        )
        return _largest(_sorted(release), self.k)


def _sorted(release: Histogram) -> Histogram:
    """Sort a release by item, so that the order of ties does not depend on the table."""
    if not len(release):
        return release
    by_name = release.groups.order()
    return replace(
        release,
        groups=release.groups.take(by_name),
        estimate=release.estimate[by_name],
    )

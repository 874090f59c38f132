"""``dg.top`` publishes the items that most users have, known beforehand or not."""

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
from dpgrain.statistics.asked import Clip
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.histogram import as_histogram
from dpgrain.statistics.plan import selecting, selection_delta
from dpgrain.statistics.release import Histogram
from dpgrain.statistics.request import Request
from dpgrain.statistics.run import Measured, SumsQuery, held_groups, named
from dpgrain.statistics.statistic import TOP
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.per_user import whole_user_source
from dpgrain.tables.table import UserTable
from dpgrain.tables.user_sums import UserContributions
from dpgrain.units import Record, Relation, Unit

Method = Literal["auto", "adaptive", "gaussian", "truncated", "laplace", "gumbel"]
_METHODS = ("auto", "adaptive", "gaussian", "truncated", "laplace", "gumbel")
# Items of a unit that take part where one round selects, at most, unless that is stated.
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

    The most frequent comes first. Each unit counts once for each item that it holds, however often.
    (Where the cell is another column than the item, a user counts once in each cell that holds it.)

    Args:
        item: the column of items, or several: then each combination is an item.
        k: the number of items to publish; all that are known or pass without it.
        delta: the promised δ, in (0, 1), such as 1e-6. 0 is right only for a public domain.
        domain: the public list of items. Without one they are selected privately. Of several columns a
            mapping or tuples, as for :func:`dpgrain.histogram`.
        method: how items are chosen; ``auto`` takes what is best by public numbers alone. Inside a
            budget that is Gaussian noise.

            - unknown items: ``"truncated"`` adds truncated geometric noise to every count and publishes
              name and count of those above a threshold no lone holder reaches (the optimal rule; best
              where a unit holds one item, as in ``Element(item)``); ``"gaussian"`` selects by weighted
              counts, |W|^(−1/2) for each of the |W| items of a unit, and publishes their counts
              with the rest of the budget (best where a unit holds several); ``"adaptive"``, for whole
              users, does so in two rounds, of which the second turns weight to items that the first
              neither named nor found hopeless (best where a user holds many);
            - public items: ``"gaussian"`` or ``"laplace"`` noise on every count; ``"gumbel"`` chooses
              the best ``k`` by one-shot Gumbel noise, at a cost that does not depend on how many items
              a unit holds, and counts them with the rest of the budget (best where ``k`` is given and a
              unit holds several).
        counts: count unknown items that Gaussian noise selected. False spends all on selecting;
            estimates are then the weighted counts, of two rounds those of the first.
        clip: the clipping bound of a unit's items, a number or ``auto``. It bounds their norm where
            they are counted after selection.
        max_items: the number of items of one unit that take part in selecting, at most; by default
            200, and in two rounds more where the noise of the first can tell more apart. A record has
            one.

    Returns:
        A :class:`~dpgrain.Histogram` of counts, largest first. Counts of items that barely passed a
        threshold are high by selection.

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
        # Users are counted, not records: each pair of user and item is a block, in which any record
        # may tip the balance, and which makes room for no other.
        pairs = UnitBlocks("element", of=request.keys[0], key=0, alone=True, of_records=True)
        request = replace(request, blocks=pairs, rule=1.0 if clip == "auto" else request.rule)
    query = (
        _unknown(request, max_items, method, counts, k)
        if request.domain.selected
        else _known(request, method, counts, k)
    )
    return replace(query, random_state=random_state, progress=progress)


def _largest(release: Histogram, k: int | None) -> Histogram:
    """Return the k largest counts, largest first; all of them where k is None."""
    return release.largest(len(release) if k is None else k) if len(release) else release


def _counted(request: Request, k: int | None) -> SumsQuery[Histogram]:
    """Return the query for noisy counts of which the k largest are kept."""

    def made(measured: Measured) -> Histogram:
        return _largest(as_histogram(measured, request.noise), k)

    return SumsQuery(request, made)


def _known(request: Request, method: Method, counts: bool, k: int | None) -> SumsQuery[Histogram]:
    """Return the query for counts of public items."""
    if method in ("truncated", "adaptive"):
        raise ParameterError(f"method={method!r} is for unknown items; omit domain.")
    if not counts:
        raise ParameterError("counts=False requires unknown items and method='gaussian'.")
    # One element of a table of people may move a person from an item to another.
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
    elif _chosen_here(method) and k is not None and not moves and not _one_count(request):
        # A unit may hold many items; choosing costs the same, and only chosen items are clipped.
        return _known(request, "gumbel", counts, k)
    elif _chosen_here(method) and request.noise == "gaussian" and _one_count(request):
        # One count each: the law with the smaller deviation is better, whatever the data.
        other = replace(request, noise="laplace", promise=request.promise.pure())
        if other.plan.std_error < request.plan.std_error:
            request = other
    return _counted(request, k)


def _chosen_here(method: Method) -> bool:
    """Return whether any law may be taken: in a budget only the Gaussian, as shares are of μ²."""
    return method == "auto" and not in_budget()


def _one_count(request: Request) -> bool:
    """Return whether each block is one count, so that both norms clip it alike and 1 is its bound."""
    return request.contribution.coordinates == "one" or request.contribution.block == "record"


def _unknown(
    request: Request, stated: int | None, method: Method, counts: bool, k: int | None
) -> SumsQuery[Histogram] | TruncatedQuery | NamesQuery:
    """Return the query for counts of items that are selected first, or at once.

    ``stated`` is the number of items of one unit that take part, where that was stated.
    """
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
        _chosen_here(method) and _truncated_is_better(request, most, counts)
    ):
        return TruncatedQuery(request, None if alone else most, k)
    # Who has one item can turn no weight from it to another.
    if method == "adaptive" or (method == "auto" and users and most > 1):
        least = request.max_items if request.blocks.one_row else stated
        request = replace(request, adaptive=True, max_items=least)
    if counts:
        return _counted(request, k)
    return NamesQuery(request, 1 if alone else request.max_items, k)


# A choice between mechanisms asks for an event, and the release that follows asks for it again.
_calibrated = lru_cache(maxsize=64)(calibrate_truncated_geometric)


def _of_holders(request: Request) -> Contribution:
    """Return how blocks enter the counts of who holds an item."""
    alone = request.blocks.alone
    return request.blocks.contribution(items=None, cells=None, single=alone, norm="l2")


def _truncated_event(request: Request, most: int) -> TruncatedGeometric:
    promise = request.promise
    return _calibrated(
        promise.epsilon,
        promise.delta,
        contribution=_of_holders(request),
        max_items=most,
        relation=promise.relation,
        unit=promise.plain_unit,
    )


def _weighted(request: Request, most: int | None) -> tuple[Selection, AdaptiveSelection | None]:
    """Selecting by weighted counts with the whole budget, in one round or in two."""
    contribution, promise = _of_holders(request), request.promise
    leak = selection_delta(promise.level) * promise.delta
    noise = calibrate_gaussian(
        promise.epsilon,
        promise.delta - leak,
        contribution=contribution,
        relation=promise.relation,
        unit=promise.plain_unit,
    ).noise_multiplier
    return selecting(noise, leak, most, contribution, promise, adaptive=request.adaptive)


def _truncated_is_better(request: Request, most: int, counts: bool) -> bool:
    """Return whether fewer holders, each with ``most`` items, publish an item with odds of a half."""
    try:
        event = _truncated_event(request, most)
    except ParameterError:
        # Nothing bounds what a unit changes in counts that are not clipped.
        return False
    gaussian = request.plan.select if counts else _weighted(request, most)[0]
    assert isinstance(gaussian, Selection)  # noqa: S101 - unknown items are selected by a threshold
    return bool(event.cutoff + 1 <= gaussian.threshold * math.sqrt(most))


@dataclass(frozen=True, repr=False)
class _HeldQuery(Query[Histogram]):
    """Items of those that anybody holds, named and counted at once.

    Args:
        request: what is asked for.
        most: the largest number of items of one unit that take part; None where a unit has one.
        k: how many of the items that pass are published; None for all.
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
        """The promise of the request."""
        return self.request.promise

    def _with(self, promise: Promise) -> Self:
        return replace(self, request=replace(self.request, promise=promise))

    def _planned(self, event: Event, facts: Sequence[Fact], expected: Expected) -> Planned:
        request = self.request
        guarantee = request.guarantee(event, facts)
        return Planned(guarantee, request.table.n_users, expected=expected)

    @contextmanager
    def _opened(self, charge: Charge) -> Iterator[UserContributions]:
        """The counts of all items that anybody holds."""
        request = self.request
        with charge.open(request.table) as engine, Progress(2, self.progress) as shown:
            shown.stage("Listing items")
            held = held_groups(engine, request.blocks, request.keys)
            cells = request.blocks.cells(held, public=False)
            data = UserContributions(engine, request.blocks, held, cells)
            shown.stage("Counting holders")
            yield data


@dataclass(frozen=True, repr=False)
class TruncatedQuery(_HeldQuery):
    """Names and counts at once, by truncated noise on every count."""

    @property
    def event(self) -> TruncatedGeometric:
        """The noise of the counts."""
        return _truncated_event(self.request, 1 if self.most is None else self.most)

    @property
    def _sd(self) -> float:
        decay = math.exp(-self.event.rate)
        return math.sqrt(2 * decay) / (1 - decay)

    @property
    def plan(self) -> Planned:
        """The noise of the counts, and the count that is named."""
        event = self.event
        facts = [Fact("threshold", (event.cutoff,))]
        if self.most is not None:
            facts.append(Fact("items-of-a-unit", (self.most,)))
        return self._planned(event, facts, Expected(self._sd, threshold=event.cutoff + 1))

    def run(self, charge: Charge) -> Histogram:
        """Count the holders of each item, and name those that pass."""
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
            ),
            "geometric",
        )
        return _largest(_sorted(release), self.k)


@dataclass(frozen=True, repr=False)
class NamesQuery(_HeldQuery):
    """Names and weighted counts, for the whole promise."""

    @cached_property
    def rounds(self) -> tuple[Selection, AdaptiveSelection | None]:
        """The noise of the counts, and the threshold, of each round."""
        return _weighted(self.request, self.most)

    @property
    def plan(self) -> Planned:
        """The noise of the weighted counts, and the count that is named."""
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
        """Add up the weights of each item's holders, and name those that pass."""
        first, again = self.rounds
        with self._opened(charge) as data:
            counts, passed = named(data, first, charge, again)
            groups = data.dictionary.groups
        size = int(passed.sum())
        release = Histogram(
            groups.filter(passed),
            counts[passed],
            np.full(size, first.noise_multiplier),
            np.ones(size),
            charge.guarantee,
            # A unit with more items than the limit adds its share to the first of them only.
            replace(self.request.asked(), each="share", clip=Clip(1.0, "item")),
            "gaussian",
        )
        return _largest(_sorted(release), self.k)


def _sorted(release: Histogram) -> Histogram:
    """Order a release by names, and then by counts, so that ties show nothing of the table."""
    if not len(release):
        return release
    by_name = release.groups.order()
    return replace(
        release,
        groups=release.groups.take(by_name),
        estimate=release.estimate[by_name],
    )

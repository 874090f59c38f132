"""Query for noisy sums: checked public parameters, and the plan derived from them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from dpgrain import _validate
from dpgrain._types import IntArray
from dpgrain.accounting import (
    Contribution,
    Event,
    ExponentialMechanism,
    Selection,
    calibrate_bounded_range,
)
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.noise.additive_noise import noise_by_name
from dpgrain.publishing import Charge, Plan, Promise, Query, in_budget
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.release_plan import Expected, Times
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.plan import (
    MANY_COORDINATES,
    SELECTION_SHARE,
    TOP_SHARE,
    ItemChoice,
    SumsDesign,
    SumsNoise,
    calibrate_sums,
    clip_rule,
    guarantee_of,
)
from dpgrain.statistics.ranges import AutoRange
from dpgrain.statistics.release import Release
from dpgrain.statistics.release_metadata import Clip, Each, Over, ReleaseMetadata
from dpgrain.statistics.run import NoisySums, noisy_sums
from dpgrain.statistics.statistic import Statistic
from dpgrain.statistics.values import Measure
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.domain import GroupDomain, public_domain
from dpgrain.tables.engines.per_user import depends_on_users, derivation_facts, per_user_source
from dpgrain.tables.groups import GroupCells, Groups
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.table import UserTable
from dpgrain.units import Element, Law

#: The columns to group by: none, one or several.
By: TypeAlias = str | Sequence[str] | None
Published = TypeVar("Published", bound=Release)


@dataclass(frozen=True, eq=False, repr=False)
class SumsQuery(Query[Published]):
    """Query for a statistic of noisy sums; a subclass per statistic, with its options."""

    statistic: Statistic
    table: UserTable
    keys: tuple[str, ...]  # columns of a record's group; none for one number in total
    value: str | None  # None for counts of records
    measure: Measure
    bounds: tuple[float, float] | AutoRange | None  # None if not needed
    promise: Promise
    blocks: UnitBlocks  # clipped as a whole
    domain: GroupDomain
    rule: float | AutoClip  # bound, or the rule that chooses bounds
    noise: Law
    max_items: int | None  # of a unit in the selection; None, in two rounds, as the first shows
    best: int | None = None  # number of public groups selected by one-shot Gumbel noise
    adaptive: bool = False  # selection in two rounds
    estimate_clipping: bool = False  # also counts values outside of bounds
    distance: str | None = None  # for pairs, the column that is 0 within both ranges
    random_state: RandomState = None
    progress: bool | None = None

    #: True for releases that show the share of clipped units.
    shows_clipping: ClassVar[bool] = False

    @classmethod
    def of(
        cls,
        statistic: Statistic,
        table: UserTable,
        by: Any,
        *,
        promise: Promise,
        clip: Any = "auto",
        noise: Law | Literal["auto"] = "gaussian",
        domain: Any = None,
        value: str | None = None,
        measure: Measure | None = None,
        bounds: Any = None,
        max_items: int = 1000,
        **options: Any,
    ) -> Self:
        """Check parameters and schema without reading rows; ``options``: other fields."""
        if not isinstance(table, UserTable):
            reject_table(table, statistic.name)
        max_items = _validate.integer(minimum=1, max_items=max_items)
        table = table.with_expressions(by, value, getattr(promise.unit, "by", None))
        keys, unit = key_columns(table, by, "item" if statistic.has_items else "by"), promise.unit
        rule = clip_rule(clip)
        if measure is not None and clip == "auto":
            rule = measure.clip
        if value is None and measure is not None:
            raise ParameterError("value must be a column of numbers, not None.", name="value")
        measure = measure or Measure()
        if value is not None:
            table.require_numbers([value], "value")
            people = per_user_source(table)
            if isinstance(bounds, AutoRange) and people is not None and people.is_count(value):
                bounds = replace(bounds, smallest=max(bounds.smallest, 1.0), signed=False)
        blocks = UnitBlocks.for_unit(unit, table, keys)
        if statistic.holders and blocks.alone and clip == "auto":
            # One count of 1.
            rule = 1.0
        query = cls(
            statistic,
            table,
            keys,
            value,
            measure,
            bounds,
            promise,
            blocks,
            public_domain(domain, blocks, table, keys),
            rule,
            "gaussian",
            # Who has one row has one item.
            1 if blocks.one_row else max_items,
            **options,
        )
        if isinstance(noise, str) and noise == "auto":
            return query._with_better_noise()
        return query._with_noise(noise)

    def _with_noise(self, noise: Law) -> Self:
        """Return the query with a noise distribution."""
        query = replace(self, noise=noise, promise=self.promise.under(noise))
        least, measure = query.record_norm, self.measure
        if isinstance(self.rule, AutoClip):
            if self.blocks.has_one_row and least is not None:
                # Nothing to choose where it is known what a record adds.
                query = replace(query, rule=least)
        elif (
            # A record's coordinates are cut off one by one, which bounds their norm only then.
            self.blocks.block == "record"
            and measure.corners > 1
            and not measure.net
            and least is not None
            and self.rule < least
        ):
            raise ParameterError(
                f"clip must be at least {least:.6g} for Record(), the norm of one record's "
                "contribution; omit clip.",
                name="clip",
            )
        if self.domain.selected and noise_by_name(noise).pure:
            raise ParameterError(
                "domain is required with Laplace noise, which a release without delta uses, "
                "because unknown items are selected with Gaussian noise; pass domain, or pass "
                "delta without noise='laplace'.",
                name="domain",
            )
        return query

    def _with_better_noise(self) -> Self:
        """Return the query with the noise distribution of smaller worst-case disadvantage.

        Proof: docs/theory/sums.md, "The choice of noise". Elements, unknown groups and budgets use
        Gaussian noise, because of its better curve over k, and because shares are shares of μ².
        """
        if self.promise.delta == 0:
            return self._with_noise("laplace")
        gaussian = self._with_noise("gaussian")
        if isinstance(self.promise.unit, Element) or gaussian.public is None or in_budget():
            return gaussian
        laplace = self._with_noise("laplace")
        # The norms of one record are known for both distributions.
        coordinates = 1 if self.blocks.has_one_row else laplace.events.items or 1
        less = coordinates**0.25 * laplace.events.std_error < gaussian.events.std_error
        return laplace if less else gaussian

    @abstractmethod
    def release(self, measured: NoisySums) -> Published:
        """Return the release of noisy sums: free post-processing."""

    @property
    def plan(self) -> Plan:
        """All parts, calibrated from public numbers only."""
        return Plan(
            self.guarantee(self.events.event, self.plan_facts),
            self.table.n_users,
            self.contribution.cells or 1,
            self.expected,
            parts=self.events.parts,
            groups=1 if self.public is None else len(self.public[0]),
        )

    def run(self, charge: Charge) -> Published:
        """Compute the sums, add noise, and build the release."""
        measured = noisy_sums(self, charge)
        release = self.release(measured)
        return release if measured.seen else release.unknown()

    @property
    def everyone(self) -> int | None:
        """Public number of people, if people without records count 0."""
        people = per_user_source(self.table)
        if self.keys or self.value is None or people is None:
            return None
        return self.table.n_users if people.is_zero_without_rows(self.value) else None

    @property
    def norm(self) -> Literal["l2", "l1"]:
        """Clipped norm."""
        return noise_by_name(self.noise).norm

    @property
    def record_norm(self) -> float | None:
        """Largest norm of one record's contribution; None if unknown."""
        return self.measure.record_norm(self.norm)

    def noisy_coordinates(self, sizes: IntArray) -> IntArray:
        """Return the number of coordinates that add noise to a cell, approximately, (K,)."""
        measure = self.measure
        return (sizes // measure.corners) ** (2 if measure.ratio else 1) * measure.noisy

    def netted(self, sums: IntArray) -> IntArray:
        """Return the released coordinates of (V·corners,) sums, (V, C)."""
        rows = sums.reshape(-1, self.measure.corners)
        return rows[:, :1] - rows[:, 1:] if self.measure.net else rows

    @property
    def is_clipped(self) -> bool:
        """True if clipping may have an effect: blocks may exceed the bound."""
        longest: float | None = None
        if self.statistic.holders and self.blocks.alone:
            longest = 1.0
        elif self.blocks.has_one_row:
            longest = self.record_norm
        return isinstance(self.rule, AutoClip) or longest is None or longest > self.rule

    @property
    def counts_clipped(self) -> bool:
        """True if part of the budget counts clipped units."""
        wanted = self.estimate_clipping or isinstance(self.rule, AutoClip)
        return self.shows_clipping and self.is_clipped and wanted

    @property
    def counts_outside(self) -> bool:
        """True if part of the budget counts values outside of the bounds or range."""
        if isinstance(self.bounds, AutoRange):
            # Other ranges clamp nothing, or are chosen from the counts of a tree.
            return self.measure.power is not None
        stated = self.bounds is not None or self.distance is not None
        return self.estimate_clipping and stated

    @cached_property
    def public(self) -> tuple[Groups, GroupCells] | None:
        """Groups and their cells, if public."""
        if self.domain.selected:
            return None
        groups = self.domain.groups()
        return groups, self.blocks.cells(groups, public=True)

    @cached_property
    def selection_blocks(self) -> tuple[UserTable, UnitBlocks]:
        """Table and blocks for the keys with privately selected values."""
        return self.blocks.for_keys(self.domain.selected, self.table)

    @cached_property
    def range_blocks(self) -> tuple[UserTable, UnitBlocks]:
        """Table and blocks for the choice of one range for all groups."""
        return self.blocks.for_keys((), self.table)

    @cached_property
    def contribution(self) -> Contribution:
        """Contribution of a block to the sums."""
        items, cells, single = None, None, self.blocks.alone
        # The selected items are an outcome, and the guarantee must not depend on them.
        if self.public is not None and self.best is None:
            _, result = self.public
            items = int((result.codes >= 0).sum()) * self.measure.corners
            if self.blocks.key is not None:
                cells = int(result.sizes.size)
                single = bool((result.sizes == 1).all())
        if self.blocks.partition is not None and not self.table.scope.everything:
            inside = self.blocks.partition.cells_in(self.table.scope)
            cells = min((n for n in (cells, inside) if n is not None), default=None)
        single = single and self.measure.corners == 1
        contribution = self.blocks.contribution(self.norm, items=items, cells=cells, single=single)
        if self.measure.net:
            return replace(contribution, coordinates="signed")
        return contribution

    @cached_property
    def events(self) -> SumsNoise:
        """Calibrated noise of all parts, from public numbers only."""
        if self.best is None:
            return calibrate_sums(self.design, self.promise)
        promise = self.promise
        unit, relation, part = promise.plain_unit, promise.relation, promise.delta / 2
        chosen: ItemChoice = calibrate_bounded_range(
            promise.epsilon / 2, part, count=self.best, level=promise.level, relation=relation
        )
        if depends_on_users(self.table):
            # Removing one record may move the person's row to another item.
            chosen = ExponentialMechanism(chosen.scale, one_way=True, count=chosen.count)
        # Largest ε of the counts for which both parts meet the guarantee.
        low, high = 0.0, promise.epsilon
        for _ in range(50):
            middle = (low + high) / 2
            counts = calibrate_sums(self.design, replace(promise, epsilon=middle, delta=part))
            event = chosen + counts.event
            fits = event.epsilon(promise.delta, relation=relation, unit=unit) <= promise.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return replace(
            calibrate_sums(self.design, replace(promise, epsilon=low, delta=part)),
            select=chosen,
            epsilon=promise.epsilon,
            delta=promise.delta,
        )

    @cached_property
    def design(self) -> SumsDesign:
        """Parts of the release, before their noise is calibrated."""
        select, alone = None, False
        if self.domain.selected:
            _, blocks = self.selection_blocks
            alone = blocks.alone or blocks.block == "record"
            select = blocks.contribution(self.norm, single=blocks.alone)
        chosen, rows = isinstance(self.bounds, AutoRange), None
        if chosen or self.counts_outside:
            _, blocks = self.range_blocks
            rows = blocks.contribution(self.norm)
        items = None
        if self.public is not None:
            items = self.best or int((self.public[1].codes >= 0).sum()) * self.measure.corners
        known = self.record_norm
        if self.measure.net or depends_on_users(self.table):
            # One record may change the whole row of its person.
            known = None
        return SumsDesign(
            self.contribution,
            self.noise,
            self.rule,
            select=select,
            select_items=1 if alone else self.max_items,
            adaptive=self.adaptive,
            ranges=rows if chosen else None,
            range_share=self.bounds.share if isinstance(self.bounds, AutoRange) else 0.0,
            outside=rows if self.counts_outside else None,
            items=items,
            record_value=known,
            select_share=TOP_SHARE if self.statistic.holders else SELECTION_SHARE,
            # Ratios need the sizes of groups.
            align_from=2 * self.measure.corners if self.measure.ratio else MANY_COORDINATES,
            count_clipped=self.counts_clipped,
        )

    @property
    def expected(self) -> Expected:
        """Expected noise of each estimate, from public numbers only."""
        sd, times, measure = self.events.std_error, list[Times](), self.measure
        if isinstance(self.rule, AutoClip):
            times.append("bounds")
        if isinstance(self.bounds, tuple):
            sd *= measure.unit_value(*self.bounds)
        elif measure.of_ranks or self.bounds is None:
            sd *= measure.unit_value(0.0, 1.0)
        else:
            times.append("range")
        if measure.ratio:
            times.append("ranks" if measure.of_ranks else "records")
        select = self.events.select
        named_from = select.threshold if isinstance(select, Selection) else None
        return Expected(sd, tuple(times), named_from, self._counted)

    @property
    def _counted(self) -> str:
        """Noun for the summed things: numbers in a column, units, or rows."""
        if self.statistic.holders:
            return "holders"
        summed = self.statistic.weighted or self.statistic.signed
        if summed and self.value is not None:
            return self.value
        return "records" if self._over == "records" else "people"

    def guarantee(self, event: Event, facts: Sequence[Fact]) -> Guarantee:
        """Return the guarantee of a release with this event; other facts come first."""
        every = []
        if self.public is not None and self.keys:
            every.append(Fact("items", (len(self.public[0]),)))
        every += [
            Fact("values", (len(values), key))
            for key, values in self.domain.public.items()
            if self.domain.selected
        ]
        if self.blocks.named:
            elements = self.blocks.elements
            every.append(Fact("partition" if elements is None else f"partition-{elements.missing}"))
        if self.blocks.max_elements is not None:
            every.append(Fact("elements-used", (self.blocks.max_elements,)))
        if self.table.n_users is not None:
            every.append(Fact("enrolled-users", (self.table.n_users,)))
        every += [*derivation_facts(self.table), *facts]
        return guarantee_of(self.promise, self.blocks, self.table, event, every)

    @property
    def plan_facts(self) -> list[Fact]:
        """Public facts of selection and clipping."""
        facts, events = [], self.events
        if isinstance(events.select, Selection) and events.select.max_items > 1:
            facts.append(Fact("selected-items", (events.select.max_items, events.select.level)))
        if events.again is not None:
            facts.append(Fact("two-rounds"))
        if isinstance(events.select, ItemChoice):
            facts.append(Fact("best-items", (events.select.count,)))
        if self.statistic.has_edges and self.bounds is None:
            kind = "thresholds" if self.statistic.stepped else "edges"
            facts.append(Fact(kind, (self.measure.corners - 1, self.value or "")))
        if self.measure.pair:
            facts.append(Fact("clamped-pair", self.measure.pair))
        if isinstance(self.bounds, tuple):
            facts.append(Fact("clamped-numbers", self.bounds))
        elif isinstance(self.bounds, AutoRange):
            facts.append(Fact("chosen-range", (events.share_of(events.ranges),)))
        if events.outside is not None:
            facts.append(Fact("counted-outside", (events.share_of(events.outside),)))
        if isinstance(self.rule, AutoClip):
            share = events.share_of(events.scales, events.bounds, events.scaled, events.pool)
            kind = "chosen-bounds" if events.pool is None else "shared-bounds"
            kind = kind if events.scales is None else "scaled-bounds"
            facts.append(Fact(kind, (self.rule.low, self.rule.high, share)))
        else:
            facts.append(self._bound_fact(self.rule))
        if events.clipped is not None:
            facts.append(Fact("clipped-units", (events.share_of(events.clipped),)))
        return facts

    def _bound_fact(self, rule: float) -> Fact:
        """Return the public fact of a stated bound, or of the most that a unit adds."""
        signed, scale = self.statistic.signed, 1.0
        if signed and isinstance(self.bounds, tuple):
            # Sums are clipped in units of the largest magnitude.
            scale = max(map(abs, self.bounds))
        if not self.is_clipped and not (signed and isinstance(self.bounds, AutoRange)):
            return Fact("unclipped", (self.promise.level, rule * scale))
        if scale == 1.0:
            return Fact("clipping-bound", (rule,))
        return Fact("scaled-bound", (rule, scale, rule * scale))

    @property
    def metadata(self) -> ReleaseMetadata:
        """Public facts of the query that its release stores."""
        each: Each = "holder" if self.statistic.holders else "record"
        over: Literal["release", "cell"] = "release" if self.events.one_bound else "cell"
        people = per_user_source(self.table)
        items, cells = None, None
        if self.public is not None:
            groups, cells_of = self.public
            items = len(groups) if self.keys else None
            several = self.blocks.key is not None and not self.blocks.alone
            cells = int(cells_of.sizes.size) if several else None
        return ReleaseMetadata.of(
            self.statistic,
            self.table,
            self.promise,
            self.blocks,
            self.noise,
            by=self.keys,
            value=self.value,
            pair=self.measure.pair,
            each=each,
            bounds=self.bounds if isinstance(self.bounds, tuple) else None,
            public_items=items,
            selected=self.domain.selected,
            clip=Clip(
                None if isinstance(self.rule, AutoClip) else self.rule, over, self.is_clipped
            ),
            cells=cells,
            counts_clipped=self.counts_clipped,
            over=self._over,
            meanings=() if people is None else people.meanings((*self.keys, self.value)),
        )

    @property
    def _over(self) -> Over:
        """Rows that estimates cover."""
        if self.everyone is not None:
            return "everyone"
        people = per_user_source(self.table)
        # A person may have one row in each of several groups, which are separate if they are keys.
        return "people" if people is not None and set(people.by) <= set(self.keys) else "records"


def key_columns(table: UserTable, by: Any, role: str = "by") -> tuple[str, ...]:
    """Return the columns to group by; messages name ``role``."""
    keys = () if by is None else (by,) if isinstance(by, str) else by
    if not isinstance(keys, tuple | list):
        raise ParameterError(
            f"by must be a column, a list of columns or None, not {_validate.describe(by)}.",
            name="by",
        )
    for key in keys:
        table.require_key(key, role if len(keys) == 1 else "by")
    if len(set(keys)) < len(keys):
        raise ParameterError(f"by must list different columns, not {list(keys)!r}.", name="by")
    return tuple(keys)

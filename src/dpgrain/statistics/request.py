"""Request for one release: checked public parameters, and the plan derived from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

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
from dpgrain.noise.additive import noise_by_name
from dpgrain.publishing import Promise, in_budget
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.release_plan import Expected, Times
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.plan import (
    MANY_COORDINATES,
    SELECTION_SHARE,
    TOP_SHARE,
    ItemChoice,
    Plan,
    clip_rule,
    make_plan,
)
from dpgrain.statistics.ranges import AutoRange
from dpgrain.statistics.release_metadata import Asked, Clip, Each, Over
from dpgrain.statistics.statistic import Statistic
from dpgrain.statistics.values import Measure
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.dictionary import GroupCells
from dpgrain.tables.domain import GroupDomain, public_domain
from dpgrain.tables.engines.per_user import (
    derivation_facts,
    known_user_count,
    per_user_source,
    whole_user_source,
)
from dpgrain.tables.groups import Groups
from dpgrain.tables.shared_table import reject_table
from dpgrain.tables.split import Split
from dpgrain.tables.table import UserTable
from dpgrain.units import Element, Law

#: The columns to group by: none, one or several.
By: TypeAlias = str | Sequence[str] | None


@dataclass(frozen=True)
class Request:
    """Public parameters of one release; built by :meth:`of`.

    Args:
        statistic: the statistic.
        table: the table.
        keys: the columns that define a record's group; none for one number in total.
        value: the numeric column; None for counts of records.
        measure: the measure of the numbers.
        bounds: the range of the numbers, or the rule that chooses it; None if not needed.
        promise: the unit, relation, ε and δ, or the budget share that defines them.
        blocks: the blocks, which are clipped as a whole.
        domain: the public part of the domain.
        rule: the clipping bound, or the rule that chooses bounds.
        noise: the noise distribution.
        max_items: the maximum number of groups of one unit in the selection; None, in two rounds,
            for the number that the first can distinguish.
        indicator: True if a unit counts at most 1 per group.
        best: the number of public groups selected by one-shot Gumbel noise; None for all.
        adaptive: True for a selection of unknown items in two rounds.
    """

    statistic: Statistic
    table: UserTable
    keys: tuple[str, ...]
    value: str | None
    measure: Measure | None
    bounds: tuple[float, float] | AutoRange | None
    promise: Promise
    blocks: UnitBlocks
    domain: GroupDomain
    rule: float | AutoClip
    noise: Law
    max_items: int | None
    indicator: bool = False
    best: int | None = None
    adaptive: bool = False

    @staticmethod
    def of(
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
        indicator: bool = False,
    ) -> Request:
        """Check all parameters and the schema, without reading rows.

        Raises:
            ParameterError: if a parameter is wrong.
            SchemaError: if a column is missing or of the wrong type.
        """
        if not isinstance(table, UserTable):
            reject_table(table, statistic.name)
        if isinstance(noise, str) and noise == "auto":
            return _under_better_law(
                partial(
                    Request.of,
                    statistic,
                    table,
                    by,
                    promise=promise,
                    clip=clip,
                    domain=domain,
                    value=value,
                    measure=measure,
                    bounds=bounds,
                    max_items=max_items,
                    indicator=indicator,
                ),
                promise,
            )
        max_items = _validate.integer(minimum=1, max_items=max_items)
        table = table.with_expressions(by, value, getattr(promise.unit, "by", None))
        keys, unit = key_columns(table, by, "item" if statistic.of_items else "by"), promise.unit
        promise, rule = promise.under(noise), clip_rule(clip)
        if value is None and measure is not None:
            raise ParameterError("value must be a column of numbers, not None.", name="value")
        if value is not None:
            table.require_numbers([value], "value")
            people = per_user_source(table)
            if isinstance(bounds, AutoRange) and people is not None and people.is_count(value):
                bounds = replace(bounds, smallest=max(bounds.smallest, 1.0), signed=False)
        blocks = UnitBlocks.of_unit(unit, table, keys)
        norm = noise_by_name(noise).norm
        if clip == "auto" and measure is not None:
            rule = measure.clip
        if blocks.of_one_row and isinstance(rule, AutoClip):
            # Nothing to choose where it is known what a record adds.
            known = 1.0 if measure is None else measure.record_norm.get(norm)
            rule = rule if known is None else known
        if blocks.block == "record" and measure is not None and measure.corners > 1:
            least = measure.record_norm[norm]
            if not isinstance(rule, AutoClip) and rule < least and not measure.net:
                # A record's coordinates are cut off one by one, which bounds their norm only then.
                raise ParameterError(
                    f"clip must be at least {least:.6g} for Record(), the norm of one record's "
                    "contribution; omit clip.",
                    name="clip",
                )
        if indicator and blocks.alone and clip == "auto":
            # One count of 1.
            rule = 1.0
        request = Request(
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
            noise,
            # Who has one row has one item.
            1 if blocks.one_row else max_items,
            indicator,
        )
        if request.domain.selected and noise_by_name(noise).pure:
            raise ParameterError(
                "domain is required with Laplace noise, which a release without delta uses, "
                "because unknown items are selected with Gaussian noise; pass domain, or pass "
                "delta without noise='laplace'.",
                name="domain",
            )
        return request

    @property
    def everyone(self) -> int | None:
        """Public number of people, if people without records count 0.

        They do for a total over all people of a value that is 0 without rows.
        """
        return None if self.keys else known_user_count(self.table, self.value)

    @property
    def norm(self) -> Literal["l2", "l1"]:
        """Clipped norm."""
        return noise_by_name(self.noise).norm

    @property
    def corners(self) -> int:
        """Number of coordinates of each group."""
        return 1 if self.measure is None else self.measure.corners

    @property
    def ratio(self) -> bool:
        """True if each group's sums are divided by its count."""
        return self.measure is not None and self.measure.ratio

    @property
    def net(self) -> bool:
        """True if a group's second coordinate is subtracted from its first before noise."""
        return self.measure is not None and self.measure.net

    def noisy_coordinates(self, sizes: IntArray) -> IntArray:
        """Return the number of coordinates that add noise to a cell, approximately, (K,)."""
        groups = sizes // self.corners
        if self.measure is None:
            return groups
        return groups ** (2 if self.measure.ratio else 1) * self.measure.noisy

    def netted(self, sums: IntArray) -> IntArray:
        """Return the released coordinates of (V·corners,) sums, (V, C)."""
        rows = sums.reshape(-1, self.corners)
        return rows[:, :1] - rows[:, 1:] if self.net else rows

    @property
    def takes(self) -> bool:
        """True if clipping may have an effect: blocks may exceed the bound."""
        longest = math.inf
        if self.indicator and self.blocks.alone:
            longest = 1.0
        elif self.blocks.of_one_row:
            known = {self.norm: 1.0} if self.measure is None else self.measure.record_norm
            longest = known.get(self.norm, math.inf)
        return isinstance(self.rule, AutoClip) or longest > self.rule

    @property
    def presence(self) -> Split | None:
        """Split that counts records with a number, for the selection of items."""
        return None if self.measure is None else self.measure.presence

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
            items = int((result.codes >= 0).sum()) * self.corners
            if self.blocks.key is not None:
                cells = int(result.sizes.size)
                single = bool((result.sizes == 1).all())
        if self.blocks.partition is not None and not self.table.scope.everything:
            inside = self.blocks.partition.cells_in(self.table.scope)
            cells = min((n for n in (cells, inside) if n is not None), default=None)
        contribution = self.blocks.contribution(
            items=items, cells=cells, single=single and self.corners == 1, norm=self.norm
        )
        if self.net:
            return replace(contribution, coordinates="signed")
        return contribution

    @cached_property
    def plan(self) -> Plan:
        """All parts, calibrated from public numbers only."""
        if self.best is None:
            return self._planned(self.promise)
        promise = self.promise
        unit, relation, part = promise.plain_unit, promise.relation, promise.delta / 2
        chosen: ItemChoice = calibrate_bounded_range(
            promise.epsilon / 2, part, count=self.best, level=promise.level, relation=relation
        )
        if whole_user_source(self.table) is not None:
            # Removing one record may move the person's row to another item.
            chosen = ExponentialMechanism(chosen.scale, one_way=True, count=chosen.count)
        # Largest ε of the counts for which both parts meet the guarantee.
        low, high = 0.0, promise.epsilon
        for _ in range(50):
            middle = (low + high) / 2
            event = chosen + self._planned(replace(promise, epsilon=middle, delta=part)).event
            kept = event.epsilon(promise.delta, relation=relation, unit=unit) <= promise.epsilon
            low, high = (middle, high) if kept else (low, middle)
        return replace(
            self._planned(replace(promise, epsilon=low, delta=part)),
            select=chosen,
            epsilon=promise.epsilon,
            delta=promise.delta,
        )

    def _planned(self, promise: Promise) -> Plan:
        select, alone = None, False
        if self.domain.selected:
            _, blocks = self.selection_blocks
            alone = blocks.alone or blocks.block == "record"
            select = blocks.contribution(
                items=None, cells=None, single=blocks.alone, norm=self.norm
            )
        ranges = None
        if isinstance(self.bounds, AutoRange):
            _, blocks = self.range_blocks
            ranges = blocks.contribution(items=None, cells=None, single=False, norm=self.norm)
        items = None
        if self.public is not None:
            items = self.best or int((self.public[1].codes >= 0).sum()) * self.corners
        known = 1.0 if self.measure is None else self.measure.record_norm.get(self.norm)
        if self.net or whole_user_source(self.table) is not None:
            # One record may change the whole row of its person.
            known = None
        return make_plan(
            self.contribution,
            promise=promise,
            noise=self.noise,
            clip=self.rule,
            select=select,
            select_items=1 if alone else self.max_items,
            adaptive=self.adaptive,
            ranges=ranges,
            range_share=self.bounds.share if isinstance(self.bounds, AutoRange) else 0.0,
            items=items,
            record_value=known,
            select_share=TOP_SHARE if self.indicator else SELECTION_SHARE,
            # Ratios need the sizes of groups.
            align_from=2 * self.corners if self.ratio else MANY_COORDINATES,
        )

    @property
    def expected(self) -> Expected:
        """Expected noise of each estimate, from public numbers only."""
        sd, times = self.plan.std_error, list[Times]()
        if isinstance(self.rule, AutoClip):
            times.append("bounds")
        measure = self.measure
        if measure is not None and isinstance(self.bounds, tuple):
            sd *= measure.stands_for(*self.bounds)
        elif measure is not None and (measure.of_ranks or self.bounds is None):
            sd *= measure.stands_for(0.0, 1.0)
        elif isinstance(self.bounds, AutoRange):
            times.append("range")
        if measure is not None and measure.ratio:
            times.append("ranks" if measure.of_ranks else "records")
        select = self.plan.select
        named_from = select.threshold if isinstance(select, Selection) else None
        return Expected(sd, tuple(times), named_from, self._counted)

    @property
    def _counted(self) -> str:
        """Noun for the summed things: numbers in a column, units, or rows."""
        if self.indicator:
            return "holders"
        summed = self.statistic.weighted or self.statistic.signed
        return self.value if summed and self.value is not None else self.asked().rows

    def guarantee(self, event: Event, facts: Sequence[Fact]) -> Guarantee:
        """Return the guarantee of a release with this event."""
        return Guarantee(
            self.promise.level,
            self.blocks.named,
            self.promise.relation,
            self.promise.delta,
            event,
            (*self._facts_of_scope, *facts),
            user=self.table.user or "",
            scope=self.table.scope,
            partition=self.blocks.partition,
            provenance=self.table.provenance,
        )

    @property
    def _facts_of_scope(self) -> list[Fact]:
        """Public facts of domain, partition and population."""
        facts = []
        if self.public is not None and self.keys:
            facts.append(Fact("items", (len(self.public[0]),)))
        facts += [
            Fact("values", (len(values), key))
            for key, values in self.domain.public.items()
            if self.domain.selected
        ]
        if self.blocks.named:
            elements = self.blocks.elements
            facts.append(Fact("partition" if elements is None else f"partition-{elements.missing}"))
        if self.blocks.max_elements is not None:
            facts.append(Fact("elements-used", (self.blocks.max_elements,)))
        if self.table.n_users is not None:
            facts.append(Fact("enrolled-users", (self.table.n_users,)))
        return [*facts, *derivation_facts(self.table)]

    @property
    def facts_of_plan(self) -> list[Fact]:
        """Public facts of selection and clipping."""
        facts, plan = [], self.plan
        if isinstance(plan.select, Selection) and plan.select.max_items > 1:
            facts.append(Fact("selected-items", (plan.select.max_items, plan.select.level)))
        if plan.again is not None:
            facts.append(Fact("two-rounds"))
        if isinstance(plan.select, ItemChoice):
            facts.append(Fact("best-items", (plan.select.count,)))
        if self.statistic.of_parts and self.bounds is None and self.measure is not None:
            kind = "thresholds" if self.statistic.stepped else "edges"
            facts.append(Fact(kind, (self.measure.corners - 1, self.value or "")))
        if isinstance(self.bounds, tuple):
            facts.append(Fact("clamped-numbers", self.bounds))
        elif isinstance(self.bounds, AutoRange):
            facts.append(Fact("chosen-range", (plan.share_of(plan.ranges),)))
        if isinstance(self.rule, AutoClip):
            share = plan.share_of(plan.bounds, plan.pool)
            kind = "chosen-bounds" if plan.pool is None else "shared-bounds"
            facts.append(Fact(kind, (self.rule.low, self.rule.high, share)))
        else:
            facts.append(self._fact_of_bound(self.rule))
        return facts

    def _fact_of_bound(self, rule: float) -> Fact:
        """Return the public fact of a stated bound, or of the most that a unit adds."""
        signed, scale = self.statistic.signed, 1.0
        if signed and isinstance(self.bounds, tuple):
            # Sums are clipped in units of the largest magnitude.
            scale = max(map(abs, self.bounds))
        if not self.takes and not (signed and isinstance(self.bounds, AutoRange)):
            return Fact("unclipped", (self.promise.level, rule * scale))
        if scale == 1.0:
            return Fact("clipping-bound", (rule,))
        return Fact("scaled-bound", (rule, scale, rule * scale))

    def asked(self) -> Asked:
        """Return the request in the form that releases store."""
        each: Each = "holder" if self.indicator else "record"
        over: Literal["release", "cell"] = "release" if self.plan.one_bound else "cell"
        public, people = self.public is not None, per_user_source(self.table)
        return Asked(
            self.statistic,
            title=self.table.source.title,
            by=self.keys,
            value=self._value_text,
            each=each,
            bounds=self.bounds if isinstance(self.bounds, tuple) else None,
            public_items=len(self.public[0]) if self.public is not None and self.keys else None,
            selected=() if public else self.domain.selected,
            clip=Clip(None if isinstance(self.rule, AutoClip) else self.rule, over, self.takes),
            unit=self.promise.level,
            elements=self.blocks.named,
            cell="" if self.blocks.partition is None else self.blocks.partition.cell,
            cells=self._public_cells,
            max_elements=self.blocks.max_elements,
            relation=self.promise.relation,
            epsilon=self.promise.epsilon,
            delta=self.promise.delta,
            noise=self.noise,
            user=self.table.user,
            n_users=self.table.n_users,
            over=self._over,
            meanings=() if people is None else people.meanings((*self.keys, self.value)),
        )

    @property
    def _public_cells(self) -> int | None:
        """Number of public cells of several items; None if it is unknown."""
        if self.public is None or self.blocks.key is None or self.blocks.alone:
            return None
        return int(self.public[1].sizes.size)

    @property
    def _value_text(self) -> str | None:
        """Numeric column; a pair of columns with their ranges."""
        if self.value is None or not self.statistic.paired:
            return self.value
        return self.table.derived[self.value].text

    @property
    def _over(self) -> Over:
        """Rows that estimates cover."""
        if self.everyone is not None:
            return "everyone"
        people = per_user_source(self.table)
        # A person may have one row in each of several groups, which are separate if they are keys.
        return "people" if people is not None and set(people.by) <= set(self.keys) else "records"


def _under_better_law(ask: Callable[..., Request], promise: Promise) -> Request:
    """Return the request with the noise distribution of smaller worst-case disadvantage.

    The l1 norm of a block on C coordinates is 1 to √C times its l2 norm. Laplace noise is
    calibrated to the l1 norm and Gaussian noise to the l2 norm, so the smaller noise depends on the
    data. The choice minimises the worst-case loss against the other: Laplace noise if C^¼ times its
    standard deviation is below the Gaussian one. Elements use Gaussian noise, which has a much
    better curve over k, and so do unknown groups and budgets, whose shares are shares of μ².
    """
    if promise.delta == 0:
        return ask(noise="laplace")
    gaussian = ask(noise="gaussian")
    if isinstance(promise.unit, Element) or gaussian.public is None or in_budget():
        return gaussian
    laplace = ask(noise="laplace")
    # The norms of one record are known for both distributions.
    coordinates = 1 if laplace.blocks.of_one_row else laplace.plan.items or 1
    less = coordinates**0.25 * laplace.plan.std_error < gaussian.plan.std_error
    return laplace if less else gaussian


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

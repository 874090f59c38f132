"""Counts and sums of records with several owners: a Lipschitz extension, and noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dpgrain import _validate
from dpgrain._formatting import shorten
from dpgrain._progress import Progress
from dpgrain._types import FloatArray, IntArray
from dpgrain.accounting import Contribution, Event, calibrate
from dpgrain.accounting.calibration import calibrate_additive
from dpgrain.accounting.events.additive import ADDITIVE, Additive
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.noise.additive_noise import noise_by_name
from dpgrain.publishing import Charge, Plan, Promise, Query, in_budget
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.release_plan import Expected, compose, present
from dpgrain.shared_records.extension import BoundSearch, extension
from dpgrain.statistics.bounds import AutoClip
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.statistics.intervals import at_least
from dpgrain.statistics.plan import clip_rule, grid_bits, guarantee_of, noise_sd
from dpgrain.statistics.release_metadata import Clip, ReleaseMetadata
from dpgrain.statistics.statistic import Statistic
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.domain import GroupDomain, public_domain
from dpgrain.tables.engines.kernel import Grid
from dpgrain.tables.engines.per_user import derivation_facts
from dpgrain.tables.groups import Groups
from dpgrain.tables.shared_table import SharedTable
from dpgrain.units import Law, Record

# Default share of ε for the choice of bounds.
_SEARCH_SHARE = 0.4


@dataclass(frozen=True, eq=False, repr=False)
class SharedQuery(Query[Histogram]):
    """Query for counts or sums of records with several owners."""

    statistic: Statistic
    table: SharedTable
    promise: Promise
    blocks: UnitBlocks  # bounded blocks of a person: cells, or all records
    domain: GroupDomain
    rule: float | AutoClip  # bound on a person's records, or the rule that chooses it
    each: tuple[float, ...] | None  # (K,) stated bounds of groups; the rule is then their norm
    noise: Law
    value: str | None = None  # None if all records count 1
    counted: bool = False  # each record with a number counts 1
    limits: tuple[float, float] | None = (
        None  # public range, low ≥ 0; the bound is in units of high
    )
    nonnegative: bool = False  # set negative estimates to 0
    random_state: RandomState = None
    progress: bool | None = None

    @staticmethod
    def of(
        statistic: Statistic,
        table: SharedTable,
        by: str | Sequence[str] | None,
        *,
        promise: Promise,
        clip: Any,
        noise: Law | Literal["auto"],
        domain: Any,
        value: str | None = None,
        **options: Any,
    ) -> SharedQuery:
        """Check all parameters and the schema, without reading rows; ``options`` are other fields."""
        if isinstance(promise.unit, Record):
            raise ParameterError(
                "unit must be User() or Element(by) for records of several owners, because "
                "Record() ignores owners; to protect single records, read the table without "
                "user=.",
                name="unit",
            )
        keys = _keys(by)
        table = table.with_expressions(*keys, value)
        rows = table.rows
        for key in keys:
            rows.require_key(key, "by")
            _require_no_owner(table, key)
        if value is not None:
            rows.require_numbers([value], "weight" if statistic.has_items else "value")
        blocks = _blocks(promise.unit, table, keys)
        cells = public_domain(domain, blocks, rows, keys)
        if cells.selected:
            raise ParameterError(
                f"domain is required for {keys[0]!r} of records with several owners, because the "
                "number of people with an item can change by any amount when one person leaves; "
                "pass a public list of items.",
                name="domain",
            )
        own = _stated_bounds(clip, table, cells) if isinstance(clip, Mapping) else None
        rule = clip_rule(clip) if own is None else max(own)
        if isinstance(rule, AutoClip) and blocks.block == "user" and len(cells.groups()) > 1:
            raise ParameterError(
                "clip is required for several groups of whole users; pass the l2 norm (l1 with "
                "Laplace noise) of a person's contribution, shared equally by the "
                f"groups, or pass unit=Element({keys[0]!r}) to choose bounds privately.",
                name="clip",
            )
        if isinstance(rule, AutoClip) and rule.ratio is not None:
            raise ParameterError(
                "ratio must be omitted for records of several owners, because bounds are doubled.",
                name="clip",
            )

        def under(law: Law) -> SharedQuery:
            bound = rule
            if own is not None and blocks.block == "user":
                bound = math.fsum(own) if noise_by_name(law).norm == "l1" else math.hypot(*own)
            return SharedQuery(
                statistic, table, promise.under(law), blocks, cells, bound, own, law, value, **options
            )  # fmt: skip

        if noise != "auto":
            return under(noise)
        if promise.delta == 0:
            return under("laplace")
        gaussian = under("gaussian")
        if blocks.block == "element" or in_budget():
            return gaussian
        laplace = under("laplace")
        count = len(cells.groups())
        less = count**0.25 * noise_sd(laplace.sums) < noise_sd(gaussian.sums)
        return laplace if less else gaussian

    # -- public numbers --

    @cached_property
    def groups(self) -> Groups:
        """Public groups, each of them a cell."""
        return self.domain.groups()

    @cached_property
    def search(self) -> BoundSearch | None:
        """Private choice of bounds; None for stated bounds."""
        if not isinstance(self.rule, AutoClip):
            return None
        promise = self.promise
        share = _SEARCH_SHARE if self.rule.share is None else self.rule.share
        search = BoundSearch.create(
            share * promise.epsilon, self.rule.low, self.rule.high,
            level=promise.level, relation=promise.relation,
        )  # fmt: skip
        # At this number of people, the noise of the sums grows as fast as clipping decreases.
        return replace(search, people=noise_sd(self._sums(search)))

    @cached_property
    def sums(self) -> Additive:
        """Noise of the sums."""
        return self._sums(self.search)

    def _sums(self, search: BoundSearch | None) -> Additive:
        promise, kind = self.promise, ADDITIVE[self.noise]
        options: dict[str, Any] = {"relation": promise.relation, "unit": promise.plain_unit}
        if search is None:
            return calibrate_additive(
                kind, promise.epsilon, promise.delta, contribution=self.contribution, **options
            )
        event = search.event
        if noise_by_name(self.noise).pure:
            left = promise.epsilon - event.epsilon(None, **options)
            left = max(left, 0.0) * (1 - 1e-12)
            return calibrate_additive(kind, left, 0.0, contribution=self.contribution, **options)
        calibration = calibrate(
            lambda noise: event + kind(noise, self.contribution),
            promise.epsilon,
            promise.delta,
            **options,
        )
        return kind(calibration.parameter, self.contribution)

    @cached_property
    def contribution(self) -> Contribution:
        """Contribution of a unit to the sums: one number per cell, if removed or replaced."""
        norm = noise_by_name(self.noise).norm
        if self.blocks.block == "element":
            return Contribution("element", "disjoint", "one", norm, cells=len(self.groups))
        return Contribution("user", "shared", "one", norm)

    @property
    def parts(self) -> dict[str, Event]:
        """Parts of the release by name."""
        bounds = None if self.search is None else self.search.event
        return present({"bounds": bounds, "sums": self.sums})

    @property
    def plan(self) -> Plan:
        """All parts, calibrated from public numbers only."""
        return Plan(
            self._guarantee(),
            self.table.n_users,
            self.contribution.cells or 1,
            self._expected(),
            parts=self.parts,
            groups=len(self.groups),
        )

    def _expected(self) -> Expected:
        sd = noise_sd(self.sums)
        if isinstance(self.rule, AutoClip):
            return Expected(sd * self._scale, ("bounds",), None, self._of)
        return Expected(sd * self.rule * self._scale, (), None, self._of)

    @property
    def _scale(self) -> float:
        """Number represented by 1 in bounds."""
        return 1.0 if self.limits is None else self.limits[1]

    @property
    def _of(self) -> str:
        return "records" if self.value is None or self.counted else self.value

    def _guarantee(self) -> Guarantee:
        table, promise = self.table, self.promise
        facts = []
        if self.groups.names:
            facts.append(Fact("items", (len(self.groups),)))
        if table.n_users is not None:
            facts.append(Fact("enrolled-users", (table.n_users,)))
        facts += derivation_facts(table.rows)
        facts.append(Fact("owners", (table.user,)))
        if self.each is not None:
            listed = shorten(", ".join(f"{one:,.6g}" for one in self.each), 200)
            facts.append(Fact("bounds", (listed,)))
        elif self.search is None:
            assert isinstance(self.rule, float | int)  # noqa: S101 - chosen bounds have a search
            facts.append(Fact("bound", (self.rule,)))
        else:
            epsilon = self.search.event.epsilon(relation=promise.relation)
            facts.append(Fact("doubled-bound", (self.search.low, self.search.doublings, epsilon)))
        event = compose(self.parts)
        return guarantee_of(promise, self.blocks, table.rows, event, facts, user=table.user)

    def _metadata(self) -> ReleaseMetadata:
        element = self.blocks.block == "element"
        return ReleaseMetadata.of(
            self.statistic,
            self.table.rows,
            self.promise,
            self.blocks,
            self.noise,
            by=self.groups.names,
            value=self.value,
            bounds=self.limits,
            public_items=len(self.groups) if self.groups.names else None,
            clip=Clip(
                None if isinstance(self.rule, AutoClip) else self.rule,
                "cell" if element else "release",
            ),
            user=self.table.user,
            n_users=self.table.n_users,
        )

    # -- the release --

    def run(self, charge: Charge) -> Histogram:
        """Read the rows, choose bounds, compute the extension, and add noise."""
        groups, unit = self.groups, self._scale
        with charge.open(self.table.rows) as engine, Progress(4, self.progress) as progress:
            progress.stage("Reading")
            pairs = self.table.pairs(engine, groups, self.value)
            if self.counted:
                pairs = replace(pairs, number=None)
            if self.limits is not None and pairs.number is not None:
                pairs = replace(pairs, number=np.clip(pairs.number, *self.limits) / unit)
            bounds = self._stated
            if self.search is not None:
                progress.stage("Choosing bounds")
                chosen = self.search.find(pairs, charge.rounds(self.search.event))
                bounds = self.search.bounds(chosen)
            progress.stage("Bounding what people share")
            grid = _IntegerBounds.create(bounds, self.sums, together=self.blocks.block == "user")
            twice = extension(pairs.within(grid.bound, grid.step))
            progress.stage("Adding noise")
            noisy = charge.noisy(self.sums, twice, grid.radius)
        step = grid.step / 2 * unit
        estimate, sd = noisy * step, noise_sd(self.sums) * grid.radius * step
        least = at_least(estimate, sd, self.noise)
        release = Histogram(
            groups, estimate, sd, unit * bounds, charge.guarantee, self._metadata(), self.noise,
            at_least=least,
        )  # fmt: skip
        return release.without_negatives() if self.nonnegative else release

    @property
    def _stated(self) -> FloatArray:
        """Stated bound of each group, (K,); groups share the norm of whole users equally."""
        if isinstance(self.rule, AutoClip):
            return np.ones(len(self.groups))
        if self.each is not None:
            return np.array(self.each)
        count = 1 if self.blocks.block == "element" else len(self.groups)
        each = count if noise_by_name(self.noise).norm == "l1" else math.sqrt(count)
        return np.full(len(self.groups), self.rule / each)


@dataclass(frozen=True, eq=False)
class _IntegerBounds:
    """Bounds in integer steps."""

    step: FloatArray  # (K,)
    bound: IntArray  # (K,) in steps, rounded down
    radius: FloatArray  # (K,) largest change by one unit, in half steps

    @staticmethod
    def create(bounds: FloatArray, sums: Additive, *, together: bool) -> _IntegerBounds:
        """Return the bounds in steps; ``together`` if a unit may change all numbers."""
        bits = grid_bits(sums.noise_multiplier)
        # Numbers that one unit changes together have equal steps, those of the largest bound.
        step = Grid(np.full(bounds.size, bounds.max()) if together else bounds, bits).step
        bound = np.floor(bounds / step).astype(np.int64)
        moved = 2 * bound
        radius = moved.astype(np.float64)
        if together and moved.size > 1:
            squares = sum(int(each) ** 2 for each in moved)
            norm = (
                math.isqrt(squares - 1) + 1 if sums.contribution.norm == "l2" else int(moved.sum())
            )
            radius = np.full(moved.size, float(norm))
        return _IntegerBounds(step, bound, radius)


def _keys(by: str | Sequence[str] | None) -> tuple[str, ...]:
    keys = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    if len(keys) > 1 or not all(isinstance(key, str) for key in keys):
        raise ParameterError(
            "by must be one column or None for records of several owners, not "
            f"{_validate.describe(by)}; combine several columns into one with derive.",
            name="by",
        )
    return keys


def _stated_bounds(
    stated: Mapping[Any, float], table: SharedTable, domain: GroupDomain
) -> tuple[float, ...]:
    """Return the stated bounds of all groups, in their order."""
    keys = domain.keys
    if not keys:
        raise ParameterError("clip must be one bound if there is only one group.", name="clip")
    by_key = {
        table.rows.label_key(label, keys[0], "clip names"): clip_rule(bound)
        for label, bound in stated.items()
    }
    bounds = [by_key.pop(item, None) for item in domain.groups().columns[0].to_pylist()]
    if None in bounds or by_key:
        raise ParameterError(
            "clip must contain a bound for each item of the domain and for no other, not "
            f"{_validate.describe(stated)}.",
            name="clip",
        )
    numbers = [bound for bound in bounds if isinstance(bound, float)]
    if len(numbers) < len(bounds):
        raise ParameterError(
            "clip must contain numbers; omit it to choose bounds privately.", name="clip"
        )
    return tuple(numbers)


def _require_no_owner(table: SharedTable, key: str) -> None:
    """Raise if groups are people, because a record's content defines its group."""
    if table.rows.data_column(key) in table.owners:
        raise ParameterError(
            f"by must not be {key!r}, a column of owners, because a record's group must not "
            "depend on its owners; choose another column.",
            name="by",
        )


def _blocks(unit: Any, table: SharedTable, keys: tuple[str, ...]) -> UnitBlocks:
    """Return the bounded blocks: whole users, or elements that are groups."""
    # Blocks see the first column of owners as the user id.
    owned = replace(table.rows, user=table.owners[0])
    if getattr(unit, "max_elements", None) is not None:
        raise ParameterError(
            "max_elements must be omitted for records of several owners, because one person's "
            "dropped elements would affect the elements of others; use User() or Element(by).",
            name="unit",
        )
    blocks = UnitBlocks.for_unit(unit, owned, keys)
    if blocks.block == "element" and not blocks.alone:
        column = keys[0] if keys else "a column"
        raise ParameterError(
            f"unit must be Element(by) of the column to group by, such as Element({column!r}), "
            "for records of several owners, because each group is then an element; use User() "
            "for other cases.",
            name="unit",
        )
    return blocks

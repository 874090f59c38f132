"""Promises of ledgers: unit, window, relation, ε and δ, with caps fixed at creation.

A plan of a promise contains releases fixed in advance, composed exactly, each published at most
once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from dpgrain import _validate
from dpgrain._formatting import powers, rounded_up
from dpgrain.accounting import Loss
from dpgrain.errors import ParameterError
from dpgrain.ledger.window import Meeting, TimeWindow
from dpgrain.publishing.budget import planned_guarantee
from dpgrain.publishing.caps import Caps
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.prices import Price, neighbours_for_unit, price_for_unit
from dpgrain.publishing.query import Query
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import Region
from dpgrain.units import (
    LEVELS,
    PLAIN_UNITS,
    RELATIONS,
    Element,
    Level,
    Record,
    Relation,
    Unit,
    User,
)


@lru_cache(maxsize=64)
def plan_loss(
    plan: tuple[Guarantee, ...], level: Level, cells: Partition | None, relation: Relation
) -> Loss:
    """Return the loss of all planned releases for a promised unit that all affect."""
    return sum((_loss(each, level, cells, relation) for each in plan), Loss())


def _loss(guarantee: Guarantee, level: Level, cells: Partition | None, relation: Relation) -> Loss:
    """Return the loss of one planned release for one promised unit."""
    neighbours = neighbours_for_unit(guarantee, level, cells, relation)
    loss = guarantee.event.loss(neighbours.units, neighbours.relation, neighbours.unit)
    pairs = [pair for way in loss.alternatives for pair, _ in way.pairs]
    # A replacement can remove data from one release and add data to another, which mixes the orders
    # of neighbours. A symmetric pair of distributions is valid in both orders.
    if neighbours.relation == "replace" and any(pair.swapped != pair for pair in pairs):
        raise ParameterError(
            f"plan must not contain {type(guarantee.event).__name__} if data are replaced, "
            "because its loss differs between the two orders of neighbours; omit it, and it is "
            "charged when it is published."
        )
    return loss


def scope_key(guarantee: Guarantee) -> Any:
    """Return a key that is equal for releases that affect the same units of the same records."""
    return (
        guarantee.level,
        guarantee.elements,
        guarantee.relation,
        guarantee.user,
        guarantee.partition,
        guarantee.scope,
    )


def split_planned(
    plan: Sequence[Guarantee], guarantees: Iterable[Guarantee], taken: Collection[int]
) -> tuple[dict[int, Guarantee], list[Guarantee]]:
    """Split releases into planned ones, by index in the plan, and charged ones.

    A release is planned if its event, units, users, partition, relation and region equal an unused
    release of the plan, whose index is not ``taken``.
    """
    free = defaultdict[Any, list[int]](list)
    for place in reversed(range(len(plan))):
        if place not in taken:
            free[scope_key(plan[place]), plan[place].event].append(place)
    planned, others = dict[int, Guarantee](), []
    for one in guarantees:
        if places := free.get((scope_key(one), one.event)):
            planned[places.pop()] = one
        else:
            others.append(one)
    return planned, others


# Factor that reduces caps with a plan, so that they are valid on machines with other rounding.
_LESS = 1 - 1e-6
# Default share of δ for delta mass without a plan: a release that selects names uses half of its δ.
_LEAK_SHARE = 0.51


@dataclass(frozen=True)
class LastingPromise:
    """A promise for all releases charged to a ledger, by any process at any time.

    Args:
        level: the privacy unit, ``"record"``, ``"element"`` or ``"user"``.
        partition: the public partition into elements; None for other units.
        window: the protected time window of a person; None protects all times.
        relation: the neighbouring relation.
        epsilon: the promised ε of all releases together.
        delta: the promised δ of all releases together.
        caps: the total price per unit, fixed at creation.
        plan: the guarantees of releases fixed at creation. Each can be published once without a
            charge; every unit is assumed to be affected by all of them.

    Raises:
        ParameterError: if a value is out of range, unit, partition and window contradict each
            other, or the caps exceed the promise; :meth:`of` computes valid caps.

    Formal guarantee: everything charged to the promise is (ε, δ)-DP for each unit, for adaptively
    chosen releases. Source: docs/theory, "Ledgers".

    >>> promise = LastingPromise.of(User(), 1.0, 1e-6)
    >>> round(promise.caps.mu, 4), str(promise)
    (0.2289, 'ε = 1, δ = 10⁻⁶ per user, for records of any time (zero_out)')
    """

    level: Level
    partition: Partition | None
    window: TimeWindow | None
    relation: Relation
    epsilon: float
    delta: float
    caps: Price
    plan: tuple[Guarantee, ...] = ()

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        _validate.positive(epsilon=self.epsilon)
        _validate.delta(allow_zero=True, delta=self.delta)
        for name, cap in asdict(self.caps).items():
            _validate.non_negative(**{name: cap})
        if (self.level == "element") != (self.partition is not None):
            raise ParameterError(
                "partition must be passed for elements and omitted otherwise; the level is "
                f"{self.level}."
            )
        if self.window and self.level == "record":
            raise ParameterError(
                "window is for users and elements: a record has one timestamp, so its promise "
                "without a window is the same."
            )
        if self.window and self.partition and self.partition.rule(self.window.column):
            raise ParameterError(
                f"window uses {self.window.column!r}, which already defines the elements; "
                "omit one of them."
            )
        if not _delta(self.whole, self.epsilon) <= self.delta:
            raise ParameterError(
                "caps must not exceed the promise; create it with LastingPromise.of()."
            )

    @staticmethod
    def of(
        unit: Unit,
        epsilon: float,
        delta: float = 0.0,
        *,
        relation: Relation = "zero_out",
        window: TimeWindow | None = None,
        pure: float | None = None,
        leak: float | None = None,
        plan: Iterable[Query[Any] | Callable[[], Any] | Guarantee] = (),
    ) -> LastingPromise:
        """Create a promise from a privacy unit, ε and δ.

        Args:
            unit: the privacy unit; elements by a column, a list of columns, or a
                :class:`~dpgrain.scope.partitions.Partition`, such as the days of a timestamp.
            epsilon: the promised ε of all releases together.
            delta: the promised δ of all releases together.
            relation: the neighbouring relation.
            window: the protected time window of a person, such as ``AnyDays(30, "day")`` or
                ``AnyHours(720, "at")``; by default all times.
            pure: the part of ε reserved for releases without Gaussian noise; by default none, or
                all of ε if δ = 0.
            leak: the part of δ reserved for delta mass; by default 51%, so that one release that
                selects names fits at this δ, or a tenth with a plan.
            plan: releases fixed in advance, each as a query, a function without arguments that
                returns one, or its guarantee; ``dg.plan_releases(path).guarantees`` are those of a
                release file. They are composed exactly. Each may be published once, in any order,
                or not at all; the caps are the remainder of the promise.

        Raises:
            ParameterError: if a parameter is out of range, or the plan exceeds the promise.

        >>> print(LastingPromise.of(Element("day"), 1.0, 1e-6).partition)
        'day'
        """
        _validate.one_of(RELATIONS, relation=relation)
        level, partition = _unit(unit)
        nothing = LastingPromise(level, partition, window, relation, epsilon, delta, Price())
        return nothing.renewed(epsilon, delta, pure=pure, leak=leak, plan=plan)

    @property
    def unit(self) -> Unit:
        """Privacy unit of the level, without a partition."""
        return PLAIN_UNITS[self.level]

    def price(
        self, guarantee: Guarantee, room: Price | None = None, meeting: Meeting = "any"
    ) -> Price:
        """Return the price of a release for each unit that it affects.

        Args:
            guarantee: the guarantee of the release.
            room: the remaining price below the caps, if known.
            meeting: the selected windows among those that overlap the region of the release. For
                windows that contain all of it, the window makes no difference.

        Raises:
            ParameterError: if the contribution of one unit to the release is unbounded.

        Formal guarantee: that of :func:`~dpgrain.publishing.prices.price_for_unit`.
        """
        cells = self.partition if meeting == "whole" else self.cells
        return price_for_unit(guarantee, *self._promised_unit(cells), self.caps, room)

    def _promised_unit(self, cells: Partition | None) -> tuple[Level, Partition | None, Relation]:
        """Return the promised unit with some cells, in the form that prices and losses take."""
        return self.level if cells is None else "element", cells, self.relation

    @property
    def cells(self) -> Partition | None:
        """Partition into promised units, with windows as one rule; None without any."""
        rules = () if self.partition is None else self.partition.rules
        if self.window is not None:
            rules = (*rules, self.window.rule)
        return Partition(rules) if rules else None

    def meetings(self, scope: Region) -> tuple[Meeting, ...]:
        """Return the selections of windows that pay different prices for a release of a region."""
        if self.window is None:
            return ("any",)
        return self.window.meetings(scope.side(self.window.column))

    def reach(self, scope: Region) -> Region:
        """Return the region of the promised units that a release affects.

        Args:
            scope: the region of the records that the release reads.

        Sides of columns that do not define promised units are dropped, because a unit can have
        records on both sides.
        """
        if self.level == "record":
            return scope
        public = Region() if self.partition is None else self.partition.whole_cells(scope)
        side = None if self.window is None else scope.side(self.window.column)
        return public if side is None else Region((*public.sides, side))

    def renewed(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        pure: float | None = None,
        leak: float | None = None,
        plan: Iterable[Query[Any] | Callable[[], Any] | Guarantee] = (),
    ) -> LastingPromise:
        """Return a promise for the same units, with the parameters of :meth:`of`.

        Args:
            epsilon: the promised ε of all releases together.
            delta: the promised δ of all releases together.
            pure: the part of ε reserved for releases without Gaussian noise.
            leak: the part of δ reserved for delta mass.
            plan: releases fixed in advance.

        Raises:
            ParameterError: as for :meth:`of`.
        """
        epsilon = _validate.positive(epsilon=epsilon)
        delta = _validate.delta(allow_zero=True, delta=delta)
        listed = _validate.sequence(plan=plan)
        planned = tuple(replace(planned_guarantee(item), receipts=()) for item in listed)
        if leak is None and not planned:
            leak = _LEAK_SHARE * delta
        caps = Caps.with_defaults(epsilon, delta, pure, leak, self._loss(planned)).price
        if planned:
            caps = replace(caps, mu=caps.mu * _LESS)
        return replace(self, epsilon=epsilon, delta=delta, caps=caps, plan=planned)

    @property
    def whole(self) -> Caps:
        """Caps and plan, with the promised privacy curve."""
        return Caps(self.caps, self._loss(self.plan))

    def _loss(self, plan: tuple[Guarantee, ...]) -> Loss:
        """Return the privacy loss of a plan for each promised unit."""
        return plan_loss(plan, *self._promised_unit(self.cells))

    def together(self, *earlier: LastingPromise) -> Caps:
        """Return caps and plans of this promise and of the renewed ones; all may be spent.

        Args:
            earlier: the renewed promises.

        Formal guarantee: the result dominates everything charged to these promises, if none of them
        was chosen from results of another. Source: docs/theory, "Ledgers".
        """
        wholes = [each.whole for each in (self, *earlier)]
        return Caps(
            sum((one.price for one in wholes), Price()),
            sum((one.planned for one in wholes), Loss()),
        )

    def __str__(self) -> str:
        unit = f"user and cell of {self.partition}" if self.level == "element" else self.level
        when = f", in {self.window}" if self.window else ""
        if self.level == "user" and not self.window:
            when = ", for records of any time"
        planned = f", {len(self.plan)} planned" if self.plan else ""
        return (
            f"ε = {rounded_up(self.epsilon)}, δ = {powers(self.delta)} per {unit}{when} "
            f"({self.relation}{planned})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the promise as JSON values, with the plan only if it has one."""
        values = asdict(replace(self, plan=()))
        values["partition"] = None if self.partition is None else self.partition.to_dict()
        values["plan"] = [each.to_dict() for each in self.plan]
        return values if self.plan else {name: values[name] for name in values if name != "plan"}

    @staticmethod
    def from_dict(values: Any) -> LastingPromise:
        """Read a promise from :meth:`to_dict`.

        Args:
            values: the JSON values.

        Raises:
            ParameterError: if a field is missing, unknown or wrong.
        """
        return _validate.read_fields(LastingPromise, values, "a promise")


@lru_cache(maxsize=64)
def _delta(caps: Caps, epsilon: float) -> float:
    """Return the δ of caps and a plan at ε; cached, because composition is slow."""
    return caps.delta(epsilon)


def _unit(unit: Any) -> tuple[Level, Partition | None]:
    """Return the level of a unit, and the partition into elements."""
    if not isinstance(unit, Record | Element | User) or unit.level not in LEVELS:
        raise ParameterError(
            f"unit must be Record(), Element(by) or User(), not {_validate.describe(unit)}."
        )
    if isinstance(unit, User) and unit.max_elements is not None:
        raise ParameterError(
            "unit must be User() without max_elements: a ledger protects whole users, and each "
            "release may limit what it uses of them."
        )
    if not isinstance(unit, Element):
        return unit.level, None
    if isinstance(unit.by, Partition):
        return unit.level, unit.by
    by = [unit.by] if isinstance(unit.by, str) else unit.by
    if not isinstance(by, list | tuple) or not by or not all(isinstance(one, str) for one in by):
        raise ParameterError(
            "unit must be Element of a column, or of a list of columns, not "
            f"{_validate.describe(unit)}: a ledger cannot store mappings and functions; add a "
            "column of cells with with_cells()."
        )
    return unit.level, Partition(tuple(map(Rule, by)))

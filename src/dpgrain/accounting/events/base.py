"""Events: immutable, printable descriptions of releases, separate from their cost.

An event answers for every privacy unit through one method, ``cost(neighbours)``, which returns a
:class:`~dpgrain.accounting.losses.loss.Loss`. A new type of event is a frozen dataclass with this
method; the base class supplies JSON, composition and the curve.
"""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, overload

import numpy as np

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.losses.curves import GroupCurve, WorstCurve
from dpgrain.accounting.losses.loss import Loss
from dpgrain.errors import ParameterError
from dpgrain.scope.regions import Region
from dpgrain.units import LEVELS, PLAIN_UNITS, RELATIONS, Level, Relation, Unit, User, unit_level

# Max nesting depth of events, because they are processed recursively.
_MOST_LEVELS = 40
_TOO_DEEP = f"events must be nested at most {_MOST_LEVELS} deep; compose them side by side."


@dataclass(frozen=True)
class Neighbours:
    """Two neighbouring data sets, which differ in ``units`` units of one person.

    Args:
        units: the number of records or elements of one person, or of users.
        relation: the neighbouring relation.
        unit: the unit that changes.
        max_elements: the maximum number of elements of a person; None if unknown.

    The ``cost`` of an event is the privacy loss between them.

    >>> from dpgrain import User
    >>> Neighbours(2, "replace", User(), None).steps("user", "zero_out")
    4
    """

    units: int
    relation: Relation
    unit: Unit
    max_elements: int | None

    @property
    def level(self) -> Level:
        """The type of the changed unit: record, element or user."""
        return self.unit.level

    def move(self, contribution: Contribution) -> float:
        """Return the change of a sum, in clipping bounds."""
        return contribution.sensitivity(self.units, self.relation, self.unit)

    def steps(self, level: Level, relation: Relation) -> float:
        """Return the number of changes of one protected unit between the two data sets.

        Args:
            level: the protected unit.
            relation: the relation of its protection.
        """
        # Removing and then adding takes two steps of zero_out, and one of replace.
        both = 1 if relation == "replace" else 2
        if self.level == level:
            return self.units * (both if self.relation == "replace" else 1)
        if level == "user":
            # The person's data change at once, even if several of the person's parts change.
            return both
        if self.level == "record":
            # The data inside an element become other data. A replaced record may affect two
            # elements.
            return self.units * (2 if self.relation == "replace" else 1) * both
        elements = self.unit.max_elements if isinstance(self.unit, User) else None
        if level == "element" and elements is not None:
            # A replaced user may leave M cells and enter M others.
            return self.units * elements * (2 if self.relation == "replace" else 1)
        return math.inf


class Event(ABC):
    """A publication, described by public numbers only.

    >>> from dpgrain.accounting import Gaussian, Laplace
    >>> event = Gaussian(5.0, count=3) + Laplace(10.0)
    >>> [round(event.epsilon(1e-6, units=units), 2) for units in (1, 2, 3)]
    [1.61, 2.4, 3.06]
    >>> Event.from_dict(event.to_dict()) == event
    True
    """

    _kinds: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls) -> None:
        Event._kinds[cls.__name__] = cls
        ranges = getattr(cls, "__post_init__", None)

        def checked(self: Event) -> None:
            _validate.check_fields(self)
            if ranges is not None:
                ranges(self)

        # Validate fields before any use, also in a subclass without its own checks.
        cls.__post_init__ = checked  # type: ignore[attr-defined]

    @property
    @abstractmethod
    def level(self) -> Level:
        """The protected unit of the event, and the default unit of queries."""

    @property
    def parts(self) -> tuple[Event, ...]:
        """The events of a composed event; otherwise only this event."""
        return (self,)

    @property
    def _depth(self) -> int:
        """The nesting depth of events in this one."""
        inner = getattr(self, "events", ())
        return 1 + max(event._depth for event in inner) if inner else 0

    @abstractmethod
    def cost(self, neighbours: Neighbours) -> Loss:
        """Return the privacy loss between two neighbouring data sets."""

    def loss(
        self,
        units: int = 1,
        relation: Relation = "zero_out",
        unit: Unit | None = None,
        max_elements: int | None = None,
    ) -> Loss:
        """Return the privacy loss of ``units`` units of one person.

        Args:
            units: the number of units of one person that change; for ``User``, the number of users.
            relation: ``"zero_out"`` or ``"replace"``.
            unit: the unit that changes; by default the event's own.
            max_elements: a condition: the loss is for people with at most this many elements.

        Raises:
            ParameterError: if an argument is out of range.
        """
        _validate.one_of(RELATIONS, relation=relation)
        units = _validate.integer(minimum=1, units=units)
        self._check_kind()
        unit = PLAIN_UNITS[self.level] if unit is None else unit
        level = unit_level(unit, "user")
        if max_elements is not None:
            most = _validate.integer(minimum=1, max_elements=max_elements)
            if level == "element":
                units = min(units, most)
            elif isinstance(unit, User):
                stated = most if unit.max_elements is None else min(most, unit.max_elements)
                unit = User(max_elements=stated)
        cost = self.cost(Neighbours(units, relation, unit, max_elements))
        if not isinstance(cost, Loss):
            raise ParameterError(
                f"cost of {type(self).__name__} must return a Loss, such as Loss(pure=0.5), not "
                f"{cost!r}."
            )
        return cost

    def _check_kind(self) -> None:
        """Reject a custom event that could not be compared, serialised or queried."""
        kind = type(self)
        if kind.__module__.startswith("dpgrain."):
            # The library's events are frozen, and composed events of several levels have no single
            # level.
            return
        level = str(self.level)
        if not getattr(getattr(kind, "__dataclass_params__", None), "frozen", False):
            raise ParameterError(
                f"{kind.__name__} must be a frozen dataclass, like every event; put "
                "@dataclass(frozen=True) above the class."
            )
        if level not in LEVELS:
            raise ParameterError(
                f"level of {kind.__name__} must be 'record', 'element' or 'user', not {level!r}."
            )

    @overload
    def epsilon(
        self,
        delta: float | None = None,
        *,
        units: int = 1,
        relation: Relation | None = None,
        unit: Unit | None = None,
        max_elements: int | None = None,
        bounds: Literal[False] = False,
    ) -> float: ...

    @overload
    def epsilon(
        self,
        delta: float | None = None,
        *,
        units: int = 1,
        relation: Relation | None = None,
        unit: Unit | None = None,
        max_elements: int | None = None,
        bounds: Literal[True],
    ) -> tuple[float, float]: ...

    def epsilon(
        self,
        delta: float | None = None,
        *,
        units: int = 1,
        relation: Relation | None = None,
        unit: Unit | None = None,
        max_elements: int | None = None,
        bounds: bool = False,
    ) -> float | tuple[float, float]:
        """Return the smallest ε at δ for ``units`` units of one person.

        Args:
            delta: the δ; optional if the event is pure.
            units: the number of units of one person; computed from the effect of k units on the
                sum, never by multiplying ε.
            relation: ``"zero_out"`` (default) or ``"replace"``.
            unit: the unit that changes; by default the event's own.
            max_elements: a condition: the ε is for people with at most this many elements.
            bounds: True to return (lower, upper) around the exact ε of the accountant's bound
                instead; the upper one is guaranteed.

        Raises:
            ParameterError: if a parameter is out of range, or δ is needed and missing.
        """
        relation = "zero_out" if relation is None else relation
        bounds = _validate.boolean(bounds=bounds)
        loss = self.loss(units, relation, unit, max_elements)
        if delta is None:
            if not loss.is_pure:
                raise ParameterError(
                    "delta is required, such as 1e-6, because no finite ε is known for this "
                    "event at δ = 0."
                )
            delta = 0.0
        delta = _validate.delta(allow_zero=True, delta=delta)
        return loss.bounds(delta) if bounds else loss.epsilon(delta)

    def delta(
        self,
        epsilon: float,
        *,
        units: int = 1,
        relation: Relation | None = None,
        unit: Unit | None = None,
        max_elements: int | None = None,
    ) -> float:
        """Return the smallest δ at ε for ``units`` units of one person.

        Args:
            epsilon: the ε, at least 0.
            units: the number of units of one person.
            relation: ``"zero_out"`` (default) or ``"replace"``.
            unit: the unit that changes; by default the event's own.
            max_elements: a condition: the δ is for people with at most this many elements.

        Raises:
            ParameterError: if a parameter is out of range.
        """
        relation = "zero_out" if relation is None else relation
        loss = self.loss(units, relation, unit, max_elements)
        return loss.delta(_validate.non_negative(epsilon=epsilon))

    def profile(
        self,
        epsilons: Sequence[float],
        *,
        units: int = 1,
        relation: Relation = "zero_out",
        unit: Unit | None = None,
        max_elements: int | None = None,
    ) -> FloatArray:
        """Return the privacy profile: δ at each of several ε.

        Args:
            epsilons: (n,) values of ε, at least 0.
            units: the number of units of one person.
            relation: the neighbouring relation.
            unit: the unit that changes; by default the event's own.
            max_elements: a condition: the profile is for people with at most this many elements.

        Raises:
            ParameterError: if a parameter is out of range.

        >>> from dpgrain.accounting import Gaussian
        >>> Gaussian(4.0).profile([0.0, 1.0, 2.0]).round(6)
        array([9.9476e-02, 3.0000e-06, 0.0000e+00])
        """
        loss = self.loss(units, relation, unit, max_elements)
        checked = [_validate.non_negative(epsilons=x) for x in _validate.numbers(epsilons=epsilons)]
        return np.array([loss.delta(x) for x in checked])

    def tradeoff(
        self,
        alphas: Sequence[float],
        *,
        units: int = 1,
        relation: Relation = "zero_out",
        unit: Unit | None = None,
        max_elements: int | None = None,
    ) -> FloatArray:
        """Return the f-DP curve: the smallest type II error at each type I error.

        Args:
            alphas: (n,) type I errors, in [0, 1].
            units: the number of units of one person.
            relation: the neighbouring relation.
            unit: the unit that changes; by default the event's own.
            max_elements: a condition: the curve is for people with at most this many elements.

        Raises:
            ParameterError: if a parameter is out of range.

        The curve is a lower bound. It is exact for only a Gaussian part, Φ(Φ⁻¹(1−α)−μ); otherwise
        it comes from the profile: the largest, over ε, of 1 − δ(ε) − e^ε α and e^{−ε}(1 − δ(ε) −
        α), on a grid of ε. Source: Dong, Roth & Su 2022, eq. (5), Prop. 2.12.

        >>> from dpgrain.accounting import Gaussian
        >>> Gaussian(1.0).tradeoff([0.05, 0.5]).round(4)
        array([0.7405, 0.1587])
        """
        checked = [_validate.probability(alphas=x) for x in _validate.numbers(alphas=alphas)]
        return self.loss(units, relation, unit, max_elements).tradeoff(np.array(checked))

    def __add__(self, other: Event) -> Compose:
        if not isinstance(other, Event):
            return NotImplemented
        return Compose(self.parts + other.parts)

    def beside(self, other: Event | None) -> Event:
        """Compose the event with another one under the same promise, if there is one.

        >>> from dpgrain.accounting import Gaussian
        >>> Gaussian(4.0).beside(None) == Gaussian(4.0)
        True
        """
        return self if other is None else self + other

    def __radd__(self, other: object) -> Event:
        # The function `sum` starts with 0.
        return self if other == 0 else NotImplemented

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain JSON values."""
        values: dict[str, Any] = {"event": type(self).__name__}
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, Contribution):
                value = {k: _finite(v) for k, v in value.to_dict().items()}
            elif isinstance(value, tuple):
                value = [
                    x.to_dict() if isinstance(x, Event | Region) else _finite(x) for x in value
                ]
            values[item.name] = _finite(value)
        return values

    def to_json(self) -> str:
        """Return the event as JSON text."""
        return json.dumps(self.to_dict())

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Event:
        """Read the event described by :meth:`to_dict`.

        Raises:
            ParameterError: if the type of event is unknown, or a field is missing, unknown or
                invalid.
        """
        if not isinstance(values, dict):
            raise ParameterError("the description is not an event; pass the output of to_dict.")
        name = values.get("event")
        if not isinstance(name, str) or name not in (kinds := event_kinds(name)):
            raise ParameterError(
                f"event {_validate.describe(name)} is unknown; this version supports "
                f"{', '.join(sorted(event_kinds()))}."
            )
        others = {key: value for key, value in values.items() if key != "event"}
        try:
            return _validate.read_fields(kinds[name], others, f"event {name}")
        except RecursionError as error:
            raise ParameterError(_TOO_DEEP) from error

    @staticmethod
    def from_json(text: str) -> Event:
        """Read the event from :meth:`to_json`.

        Raises:
            ParameterError: if the text does not describe an event.
        """
        return Event.from_dict(_validate.parse_json(text, "an event"))


def _finite(value: Any) -> Any:
    # JSON cannot represent infinity as a number.
    return "inf" if value == math.inf else value


def _check_events(events: tuple[Event, ...]) -> None:
    if not events:
        raise ParameterError("events must contain at least one event, not ().")
    if 1 + max(event._depth for event in events) > _MOST_LEVELS:
        raise ParameterError(_TOO_DEEP)


def _common_level(events: tuple[Event, ...]) -> Level:
    levels = {event.level for event in events}
    if len(levels) > 1:
        raise ParameterError(
            "unit is required, because the events protect different units, "
            f"{', '.join(sorted(levels))}."
        )
    return levels.pop()


@dataclass(frozen=True)
class Compose(Event):
    """Several events on the same people's data, possibly chosen adaptively.

    Args:
        events: the published events, in any order; at least one.

    Formal guarantee: ε and δ of known guarantees add, and squared distances of Gaussians add.
    Proof: docs/theory, "Composition".

    >>> from dpgrain.accounting import Gaussian
    >>> two = Gaussian(4.0) + Gaussian(4.0)
    >>> two.epsilon(1e-6) == Gaussian(4.0, count=2).epsilon(1e-6)
    True
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        _check_events(self.events)

    @property
    def parts(self) -> tuple[Event, ...]:
        return self.events

    @property
    def level(self) -> Level:
        return _common_level(self.events)

    def cost(self, neighbours: Neighbours) -> Loss:
        # All events are queried for the same unit: if each used its own, no person would be
        # protected. Equal losses are grouped and sorted, so that neither the order nor the grouping
        # of the events changes a digit.
        times = Counter(event.cost(neighbours) for event in self.events)
        return sum((loss * times[loss] for loss in sorted(times, key=repr)), Loss())


@dataclass(frozen=True)
class Parallel(Event):
    """Several events on disjoint groups of people: each person is in only one.

    Args:
        events: the event of each group of people. The groups must not depend on the data (a split
            of the known population by index, for example).

    Formal guarantee: one person is charged the worst of the events. k whole users, possibly from
    different groups, are charged k steps of the worst. Source: McSherry 2009, Theorem 4;
    docs/theory, "Composition".

    >>> from dpgrain.accounting import Gaussian
    >>> Parallel((Gaussian(4.0), Gaussian(2.0))).epsilon(1e-6) == Gaussian(2.0).epsilon(1e-6)
    True
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        _check_events(self.events)

    @property
    def level(self) -> Level:
        return _common_level(self.events)

    def cost(self, neighbours: Neighbours) -> Loss:
        steps = neighbours.units if neighbours.level == "user" else 1
        one = dataclasses.replace(neighbours, units=1) if steps > 1 else neighbours
        losses = tuple(dict.fromkeys(event.cost(one) for event in self.events))
        if steps == 1:
            return losses[0] if len(losses) == 1 else Loss.from_curve(WorstCurve(losses))
        return Loss.from_curve(GroupCurve(WorstCurve(losses), steps))


def event_kinds(name: str | None = None) -> dict[str, type[Event]]:
    """Return the types of events by name, after an import of this one, or of all."""
    package = import_module("dpgrain.accounting")
    for public in package.__all__:
        if name in (None, public):
            getattr(package, public)
    return Event._kinds

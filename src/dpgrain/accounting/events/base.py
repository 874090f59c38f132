"""What happened: immutable, printable events, apart from what they cost.

An event answers for every granularity through one question, ``cost(asked)``; what it costs is a
:class:`~dpgrain.accounting.losses.loss.Loss`. A new kind of event is a frozen dataclass with that one
method; JSON, composition and the curve come with the base class.
"""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, Literal, overload

import numpy as np

from dpgrain import _fields, _validate
from dpgrain._special import log_ndtr, ndtr
from dpgrain._types import FloatArray
from dpgrain.accounting.contribution import Contribution
from dpgrain.accounting.losses.curves import Group, Worst
from dpgrain.accounting.losses.gaussian import pure_mu
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.rounding import or_worst, product_up
from dpgrain.errors import ParameterError
from dpgrain.units import OWN_UNIT, RELATIONS, Level, Relation, Unit, User, unit_level

# Kinds of events that other modules define: these are imported when such an event is read.
_ELSEWHERE = {
    kind: f"dpgrain.accounting.events.{module}"
    for module, kinds in {
        "shuffled": ("Binomial", "Poisson"),
        "sampled": ("SampledGaussian", "Participation"),
        "best_of": ("SelectBest",),
        "choices": ("AboveThreshold", "ExponentialMechanism", "SoftCore"),
        "nearby": ("StatisticallyClose",),
    }.items()
    for kind in kinds
}
# What the rounding of a probability, and of the scale of the noise behind it, may amount to.
_ROUNDING = 2.0**-36
# Numbers up to here are looked at one by one, and larger ones to so fine a share of themselves.
_FINE = 1 << 12
# How deeply events may be nested: what walks through them is recursive.
_DEEPEST = 40
_TOO_DEEP = f"events must be nested at most {_DEEPEST} deep; put them beside each other."


@dataclass(frozen=True)
class Asked:
    """Whom a question is about: ``units`` units of one person change, in the stated way.

    Args:
        units: how many records or elements of one person; how many users.
        relation: the neighbouring relation.
        unit: what changes.
        max_elements: people hold at most so many elements; None if nothing is known.
    """

    units: int
    relation: Relation
    unit: Unit
    max_elements: int | None

    @property
    def level(self) -> Level:
        """What changes: records, elements or users."""
        return self.unit.level

    def move(self, contribution: Contribution) -> float:
        """How far a sum moves, in clipping bounds."""
        return contribution.sensitivity(self.units, self.relation, self.unit)

    def steps(self, level: Level, relation: Relation) -> float:
        """How many moves of a unit and relation lead from one data set to the other.

        Args:
            level: the unit that is known to be protected.
            relation: the relation under which it is.
        """
        # Removing and then adding takes two steps of zero_out, and one of replace.
        both = 1 if relation == "replace" else 2
        if self.level == level:
            return self.units * (both if self.relation == "replace" else 1)
        if self.level == "record":
            # Inside the unit: its data become other data. A replaced record may touch two elements.
            across = 2 if self.relation == "replace" and level == "element" else 1
            return self.units * across * both
        if self.level == "element" and level == "user":
            return both
        held = self.unit.max_elements if isinstance(self.unit, User) else None
        if level == "element" and held is not None:
            # A replaced user may leave M cells and enter M others.
            return self.units * held * (2 if self.relation == "replace" else 1)
        return math.inf


class Event(ABC):
    """Something that was published, as the accountant sees it."""

    _kinds: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls) -> None:
        Event._kinds[cls.__name__] = cls
        ranges = getattr(cls, "__post_init__", None)

        def checked(self: Event) -> None:
            _fields.check(self)
            if ranges is not None:
                ranges(self)

        # Before anything is computed from them, and also where a class has no checks of its own.
        cls.__post_init__ = checked  # type: ignore[attr-defined]

    @property
    @abstractmethod
    def level(self) -> Level:
        """The unit that the event protects, and that is asked about where none is named."""

    @property
    def parts(self) -> tuple[Event, ...]:
        """The events that it is made of: itself, unless it is composed."""
        return (self,)

    @property
    def _depth(self) -> int:
        """How deeply events are nested in it."""
        inner = getattr(self, "events", ())
        return 1 + max(event._depth for event in inner) if inner else 0

    @abstractmethod
    def cost(self, asked: Asked) -> Loss:
        """What the event costs the units that are asked about."""

    def loss(
        self,
        units: int = 1,
        relation: Relation = "zero_out",
        unit: Unit | None = None,
        max_elements: int | None = None,
    ) -> Loss:
        """What the event costs ``units`` units of one person (for ``User``: so many users).

        Arguments as for :meth:`epsilon`.
        """
        _validate.one_of(RELATIONS, relation=relation)
        units = _validate.integer(minimum=1, units=units)
        unit = OWN_UNIT[self.level] if unit is None else unit
        level = unit_level(unit, "user")
        if max_elements is not None:
            held = _validate.integer(minimum=1, max_elements=max_elements)
            if level == "element":
                units = min(units, held)
            elif isinstance(unit, User):
                stated = held if unit.max_elements is None else min(held, unit.max_elements)
                unit = User(max_elements=stated)
        return self.cost(Asked(units, relation, unit, max_elements))

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
        """The smallest ε promised at δ to ``units`` units of one person.

        Args:
            delta: the δ; may be left out where the event is pure.
            units: how many units of one person; computed from how k units enter the sum,
                never by multiplying ε.
            relation: ``"zero_out"`` (default) or ``"replace"``.
            unit: the unit asked about; by default the event's own.
            max_elements: a condition: the ε holds for people who hold at most so many elements.
            bounds: answer (lower, upper) instead, between which the exact ε of the accountant's
                bound lies; the upper one is what is promised.

        Raises:
            ParameterError: if a parameter is out of range, or δ is needed and missing.
        """
        relation = "zero_out" if relation is None else relation
        bounds = _validate.truth(bounds=bounds)
        loss = self.loss(units, relation, unit, max_elements)
        if delta is None:
            if loss.mu or loss.leak or loss.pairs or loss.renyi:
                raise ParameterError("delta must be given, such as 1e-6: the event is not pure.")
            return (loss.pure, loss.pure) if bounds else loss.pure
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
        """The smallest δ promised at ε; arguments as for :meth:`epsilon`."""
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
        """The privacy profile: δ at each of several ε.

        Args:
            epsilons: (n,) values of ε, at least 0.
            units: as for :meth:`epsilon`, and so the others.
            relation: the neighbouring relation.
            unit: the unit asked about.
            max_elements: a condition on how many elements people hold.

        Raises:
            ParameterError: if a parameter is out of range.

        >>> Gaussian(4.0).profile([0.0, 1.0, 2.0]).round(6)
        array([9.9476e-02, 3.0000e-06, 0.0000e+00])
        """
        loss = self.loss(units, relation, unit, max_elements)
        given = [_validate.non_negative(epsilon=x) for x in _validate.sequence(epsilons=epsilons)]
        return np.array([loss.delta(x) for x in given])

    def tradeoff(
        self,
        alphas: Sequence[float],
        *,
        units: int = 1,
        relation: Relation = "zero_out",
        unit: Unit | None = None,
        max_elements: int | None = None,
    ) -> FloatArray:
        """The f-DP curve: the least error of the second kind of a test for the unit, at each level.

        Args:
            alphas: (n,) errors of the first kind, in [0, 1].
            units: as for :meth:`epsilon`, and so the others.
            relation: the neighbouring relation.
            unit: the unit asked about.
            max_elements: a condition on how many elements people hold.

        Raises:
            ParameterError: if a parameter is out of range.

        A lower bound: of a Gaussian part alone exact, Φ(Φ⁻¹(1−α)−μ); otherwise from the profile,
        max over ε of 1 − δ(ε) − e^ε α and e^{−ε}(1 − δ(ε) − α), on a grid of ε.
        Source: Dong, Roth & Su 2022, eq. (5), Prop. 2.12.

        >>> Gaussian(1.0).tradeoff([0.05, 0.5]).round(4)
        array([0.7405, 0.1587])
        """
        listed = _validate.sequence(alphas=alphas)
        given = np.array([_validate.probability(alpha=alpha) for alpha in listed])
        return self.loss(units, relation, unit, max_elements).tradeoff(given)

    def __add__(self, other: Event) -> Compose:
        if not isinstance(other, Event):
            return NotImplemented
        return Compose(self.parts + other.parts)

    def beside(self, other: Event | None) -> Event:
        """This and what else is published under the same promise, if anything is.

        >>> Gaussian(4.0).beside(None) == Gaussian(4.0)
        True
        """
        return self if other is None else self + other

    def __radd__(self, other: object) -> Event:
        # What `sum` begins with.
        return self if other == 0 else NotImplemented

    def to_dict(self) -> dict[str, Any]:
        """The event as plain JSON values."""
        values: dict[str, Any] = {"event": type(self).__name__}
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, Contribution):
                value = {k: _finite(v) for k, v in dataclasses.asdict(value).items()}
            elif isinstance(value, tuple):
                value = [x.to_dict() if isinstance(x, Event) else _finite(x) for x in value]
            values[item.name] = _finite(value)
        return values

    def to_json(self) -> str:
        """The event as JSON text."""
        return json.dumps(self.to_dict())

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Event:
        """The event that :meth:`to_dict` described.

        Raises:
            ParameterError: if no such kind of event is known, or a field is missing, unknown or wrong.
        """
        if not isinstance(values, dict):
            raise ParameterError("the description is not of an event; give what to_dict made.")
        name = values.get("event")
        if isinstance(name, str) and name in _ELSEWHERE:
            import_module(_ELSEWHERE[name])
        if not isinstance(name, str) or name not in Event._kinds:
            known = ", ".join(sorted({*Event._kinds, *_ELSEWHERE}))
            raise ParameterError(
                f"event {_validate.said(name)} is not known; this version knows {known}."
            )
        others = {key: value for key, value in values.items() if key != "event"}
        try:
            return _fields.read(Event._kinds[name], others, f"event {name}")
        except RecursionError as error:
            raise ParameterError(_TOO_DEEP) from error

    @staticmethod
    def from_json(text: str) -> Event:
        """The event that :meth:`to_json` wrote.

        Raises:
            ParameterError: if the text does not describe an event.
        """
        return Event.from_dict(_fields.loads(text, "an event"))


def _finite(value: Any) -> Any:
    # JSON has no infinity.
    return "inf" if value == math.inf else value


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise on a clipped sum, ``count`` times.

    Args:
        noise_multiplier: noise sd ÷ clipping bound, the same for every coordinate; where bounds
            differ by cell each cell's noise is scaled by its own bound.
        contribution: how units enter the sum.
        count: how many such sums.

    Formal guarantee: μ-GDP with μ = √count · sensitivity / noise_multiplier, exact for every ε.
    Source: element-level paper, eq. (9), with the exact curve instead of its eq. (1).

    >>> round(Gaussian(3.7306).epsilon(1e-5), 3)
    1.0
    >>> round(Gaussian(3.7306).epsilon(1e-5, units=4), 3)
    2.155
    """

    noise_multiplier: float
    contribution: Contribution = field(default_factory=Contribution)
    count: int = 1

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.integer(minimum=1, count=self.count)

    @property
    def level(self) -> Level:
        return self.contribution.block

    def cost(self, asked: Asked) -> Loss:
        moved = asked.move(self.contribution)
        return Loss(mu=math.sqrt(self.count) * moved / self.noise_multiplier)


@dataclass(frozen=True)
class Laplace(Event):
    """Two-sided geometric (or Laplace) noise on an l1-clipped sum, ``count`` times.

    Args:
        noise_multiplier: noise scale ÷ clipping bound.
        contribution: how units enter the sum, with ``norm="l1"``.
        count: how many such sums.

    Formal guarantee: ε-DP with ε = count · l1 sensitivity / noise_multiplier.
    Source: element-level paper, eq. (6).

    >>> Laplace(2.0).epsilon(units=3)
    1.5
    """

    noise_multiplier: float
    contribution: Contribution = field(default_factory=lambda: Contribution(norm="l1"))
    count: int = 1

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.integer(minimum=1, count=self.count)
        if self.contribution.norm != "l1":
            raise ParameterError("contribution must have norm='l1' under Laplace noise.")

    @property
    def level(self) -> Level:
        return self.contribution.block

    def cost(self, asked: Asked) -> Loss:
        moved = asked.move(self.contribution)
        one = moved / self.noise_multiplier
        pure = product_up(self.count, moved, over=self.noise_multiplier)
        return Loss(pure=pure, rho=self.count * one * one / 2)


@dataclass(frozen=True)
class Selection(Event):
    """Items selected because their noisy indicator count passed a threshold.

    Each block gives 1/√t to each of its t ≤ max_items items (l2 norm at most 1); Gaussian noise is
    added to the items that anybody holds, and those at or above the threshold are named.

    Args:
        noise_multiplier: noise sd, the blocks having norm at most 1.
        threshold: the noisy count from which an item is named.
        max_items: the most items that one block may add to.
        contribution: how blocks enter the counts.

    Formal guarantee: δ(ε) ≤ δ_G(ε; sensitivity/noise_multiplier) + a/(1−a), where a is the probability
    that an item held only by the changed units is named. Source: docs/theory.md, "Unknown domains".

    >>> Selection(4.0, threshold=25.0, max_items=1).loss().leak < 1e-8
    True
    """

    noise_multiplier: float
    threshold: float
    max_items: int
    contribution: Contribution = field(default_factory=Contribution)

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.positive(threshold=self.threshold)
        _validate.integer(minimum=1, max_items=self.max_items)

    @property
    def level(self) -> Level:
        return self.contribution.block

    def cost(self, asked: Asked) -> Loss:
        moved = asked.move(self.contribution)
        named = self._named(asked)
        leak = named / (1 - named) if named < 1 else 1.0
        return Loss(mu=moved / self.noise_multiplier, leak=min(leak, 1.0))

    def _named(self, asked: Asked) -> float:
        """The probability that an item held only by the changed units is named."""
        blocks = _changed_blocks(self.contribution, asked)
        if math.isinf(blocks):
            return 1.0
        several_people = asked.units > 1 and asked.level == "user"
        may_pile_up = self.contribution.layout == "shared" or self.contribution.block == "record"
        if blocks > 1 and (may_pile_up or several_people):
            # k blocks may pile up on one item: k/√t each on t items is the worst case, and the
            # items whose smallest holder has t items number at most k·t.
            piled = (
                last * self._passes(blocks / math.sqrt(first))
                for first, last in _stretches(self.max_items)
            )
            return min(blocks * max(piled), 1.0)
        single = selection_leak(self.threshold, self.noise_multiplier, self.max_items)
        return -math.expm1(blocks * math.log1p(-single)) if single < 1 else 1.0

    def _passes(self, value: float) -> float:
        return float(ndtr((value - self.threshold) / self.noise_multiplier))


def _changed_blocks(contribution: Contribution, asked: Asked) -> float:
    """How many blocks of one data set may vanish or appear."""
    own = contribution.block
    bounds = [contribution.max_elements, contribution.cells]
    if own == "element" and asked.level == "user":
        bounds.append(asked.unit.max_elements if isinstance(asked.unit, User) else None)
        known = [m for m in bounds if m is not None]
        return asked.units * min(known) if known else math.inf
    if own == "record" and asked.level != "record":
        return math.inf
    if own == "element" and asked.level == "record":
        # A replaced record leaves one block and enters another.
        return 2 * asked.units
    return asked.units


def selection_leak(threshold: float, noise_multiplier: float, max_items: int) -> float:
    """The probability that any item held by one block alone is named, at the worst block size."""
    first, last = np.array(_stretches(max_items), dtype=np.float64).T
    # The more items, the smaller each count; the last number of several bounds them all.
    with np.errstate(all="ignore"):
        log_none = last * log_ndtr((threshold - 1 / np.sqrt(first)) / noise_multiplier)
    return or_worst(float(-np.expm1(log_none.min())), 1.0)


@lru_cache(maxsize=16)
def _stretches(most: int) -> tuple[tuple[int, int], ...]:
    """1..most in stretches (first, last): each number by itself up to some thousand, then coarser."""
    found, first = [], 1
    while first <= most:
        last = min(first + first // _FINE, most)
        found.append((first, last))
        first = last + 1
    return tuple(found)


@dataclass(frozen=True)
class TruncatedGeometric(Event):
    """Items published with their counts, because these passed a cutoff with noise that never does.

    Each block adds 1 to the counts of at most ``max_items`` items. The counts of the items that anybody
    holds get noise X in {−cutoff..cutoff}, P(X = x) ∝ e^{−rate·|x|}; what is above the cutoff is
    published, items and noisy counts. This names an item with the largest probability that any
    mechanism with the same ε and δ for one holder can give it.

    Args:
        rate: ε for one count that changes by one.
        cutoff: the largest noise; an item is published if its noisy count is above it.
        max_items: the most items that one block adds to.
        contribution: how blocks enter the counts.

    Formal guarantee: (rate, P(X = cutoff))-DP for one count that changes by one. Source: Desfontaines,
    Voss, Gipson & Mandayam 2022; docs/theory.md, "Truncated noise".

    >>> event = TruncatedGeometric(1.0, cutoff=11)
    >>> round(event.epsilon(1e-5), 4), round(event.passes(12), 2)
    (1.0, 0.73)
    """

    rate: float
    cutoff: int
    max_items: int = 1
    contribution: Contribution = field(default_factory=Contribution)

    def __post_init__(self) -> None:
        _validate.positive(rate=self.rate)
        _validate.integer(minimum=1, cutoff=self.cutoff)
        _validate.integer(minimum=1, max_items=self.max_items)

    @property
    def level(self) -> Level:
        return self.contribution.block

    def passes(self, count: int) -> float:
        """The probability that an item with this count is published.

        Args:
            count: how many blocks add to it, at least 0.
        """
        if count <= self.cutoff + 1:
            return self._tail(self.cutoff + 1 - count)
        return 1 - self._tail(count - self.cutoff)

    def _tail(self, value: int) -> float:
        """P(X ≥ value) for value ≥ 0."""
        if value > self.cutoff:
            return 0.0
        # (q^v − q^{k+1})/(1 + q − 2q^{k+1}), q = e^{−rate}, without cancellation.
        past = -math.expm1(-self.rate * (self.cutoff + 1 - value))
        below = -math.expm1(-self.rate * (self.cutoff + 1))
        inside = -math.exp(-self.rate) * math.expm1(-self.rate * self.cutoff)
        return math.exp(-self.rate * value) * past / (below + inside)

    def cost(self, asked: Asked) -> Loss:
        changes = self._changes(asked)
        if math.isinf(changes):
            return Loss(pure=math.inf)
        piled = self._piled(asked, changes)
        # An item that changes by j costs (j·rate, passes(j)); no more than the best ratio for each
        # change, which is found before the law of X ends.
        ends = min(piled, 2 * self.cutoff + 1)
        # Passing grows with the count, so that the last of several bounds them all.
        leak = changes * max(self.passes(last) / first for first, last in _stretches(ends))
        return Loss(
            pure=product_up(changes, self.rate),
            leak=min(leak * (1 + _ROUNDING), 1.0),
            rho=changes * piled * self.rate * self.rate / 2,
        )

    def _changes(self, asked: Asked) -> float:
        """By how much the counts change, all items together."""
        own = self.contribution.block
        one = self.contribution.coordinates == "one"
        items = 1 if one else self.max_items
        # A block is a vector of l1 norm at most max_items; nothing but that is used.
        blocks = dataclasses.replace(
            self.contribution,
            coordinates="one" if one else "nonnegative",
            norm="l1",
            record_size=math.inf,
        )
        changes = items * asked.move(blocks)
        if asked.level == "record" and own != "record":
            moves = asked.relation == "replace" and own == "element"
            steps = 2 * asked.units if moves else asked.units
            # A record takes one item out of the block's first ones and lets another in; the last one
            # of an element also makes room for another element.
            if self.contribution.max_elements is None:
                changes = min(changes, steps * (1 if one else 2))
            elif own == "element":
                changes = min(changes, steps * (1 + items))
        return changes

    def _piled(self, asked: Asked, changes: float) -> int:
        """The most by which the count of one item changes."""
        own = self.contribution.block
        if own == "user" or (own == "element" and self.contribution.layout == "disjoint"):
            # A person has an item in one block at most.
            piled: float = asked.units if asked.level == "user" else 1
        else:
            piled = _changed_blocks(self.contribution, asked)
        return int(min(piled, changes))


@dataclass(frozen=True)
class BoundedRange(Event):
    """The best items of a public domain, chosen by their noisy numbers of holders.

    Every item of the domain has a score, the number of distinct users who hold it (of records, where
    the level is the record); Gumbel noise of scale 1/rate is added to each, and the names of the
    ``count`` largest are published in their order. One person moves each score by at most one however
    many items are held, so that an element costs as much as the
    whole user. For that no item that a user holds may be left out of the scores.

    Args:
        rate: ε for one choice, under ``zero_out``.
        count: how many items are chosen.
        level: the unit that the release protects.

    Formal guarantee: ``count`` adaptive choices of rate-bounded range under ``zero_out``, where all
    scores move one way, of twice that under ``replace``: count·rate-DP and count·rate²/8-zCDP.
    Source: Durfee & Rogers 2019, Dong, Durfee & Rogers 2020; docs/theory.md, "Choosing the best items".

    >>> event = BoundedRange(0.1, count=100)
    >>> round(event.epsilon(), 9), round(event.epsilon(1e-6), 3)
    (10.0, 2.419)
    """

    rate: float
    count: int = 1
    level: Level = "user"

    def __post_init__(self) -> None:
        _validate.positive(rate=self.rate)
        _validate.integer(minimum=1, count=self.count)

    @property
    def scale(self) -> float:
        """The scale of the Gumbel noise."""
        # The division is rounded: towards more noise.
        return (1 / self.rate) * (1 + 2.0**-51)

    def cost(self, asked: Asked) -> Loss:
        if self.level == "record" and asked.level != "record":
            return Loss(pure=math.inf)
        moved = asked.units if asked.level == "user" or self.level == "record" else 1
        spread = product_up(self.rate, moved, 1 if asked.relation == "zero_out" else 2)
        loss = Loss(pure=product_up(self.count, spread), rho=self.count * spread * spread / 8)
        # Beside Gaussian noise a choice is cheaper as the Gaussian mechanism that dominates it.
        return loss.or_else(Loss(mu=math.sqrt(self.count) * pure_mu(spread / 2)))


@dataclass(frozen=True)
class ApproximateDP(Event):
    """Any mechanism of which only (ε, δ) is known, ``count`` times; δ = 0 is pure.

    Args:
        guaranteed_epsilon: its ε for one unit.
        guaranteed_delta: its δ for one unit.
        level: the unit that it protects.
        relation: the relation under which it does.
        count: how many times it ran.

    Formal guarantee: basic composition; a move that takes several steps of the stated relation is
    charged by group privacy, δ_k = δ·(e^{kε}−1)/(e^ε−1).

    >>> ApproximateDP(0.5, 0.0).epsilon(units=2)
    1.0
    """

    guaranteed_epsilon: float
    guaranteed_delta: float = 0.0
    level: Level = "user"
    relation: Relation = "zero_out"
    count: int = 1

    def __post_init__(self) -> None:
        _validate.non_negative(guaranteed_epsilon=self.guaranteed_epsilon)
        _validate.delta(allow_zero=True, guaranteed_delta=self.guaranteed_delta)
        _validate.integer(minimum=1, count=self.count)

    def cost(self, asked: Asked) -> Loss:
        steps = asked.steps(self.level, self.relation)
        if math.isinf(steps):
            return Loss(pure=math.inf)
        epsilon = self.guaranteed_epsilon
        pure = product_up(self.count, steps, epsilon)
        rho = self.count * steps * epsilon * (steps * epsilon) / 2
        if self.guaranteed_delta == 0:
            return Loss(pure=pure, rho=rho)
        # Σ_{i<k} e^{iε}, without overflow before it is beyond any δ.
        grown: float = steps
        if (steps - 1) * epsilon > 700:
            grown = math.inf
        elif epsilon > 0 and steps > 1:
            last = math.exp((steps - 1) * epsilon)
            grown = last * math.expm1(-steps * epsilon) / math.expm1(-epsilon) * (1 + _ROUNDING)
        leak = min(product_up(self.count, self.guaranteed_delta, grown), 1.0)
        return Loss(pure=pure, leak=leak, rho=rho)


def PureDP(epsilon: float, *, level: Level = "user", relation: Relation = "zero_out") -> Event:  # noqa: N802
    """An ε-DP mechanism of which nothing else is known.

    >>> PureDP(0.5).epsilon(units=3)
    1.5
    """
    return ApproximateDP(epsilon, 0.0, level, relation)


def _check_events(events: tuple[Event, ...]) -> None:
    if not events:
        raise ParameterError("events must hold events, at least one, not ().")
    if 1 + max(event._depth for event in events) > _DEEPEST:
        raise ParameterError(_TOO_DEEP)


def _common_level(events: tuple[Event, ...]) -> Level:
    levels = {event.level for event in events}
    if len(levels) > 1:
        raise ParameterError(
            f"unit must be given: the events protect different units, {', '.join(sorted(levels))}."
        )
    return levels.pop()


@dataclass(frozen=True)
class Compose(Event):
    """Several events on the same people's data; later ones may depend on earlier outcomes.

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

    def cost(self, asked: Asked) -> Loss:
        # Of one unit, the same for all: each event's own would protect nobody.
        # Like with like, in an order of their own: neither order nor grouping changes a digit.
        times = Counter(event.cost(asked) for event in self.events)
        return sum((loss * times[loss] for loss in sorted(times, key=repr)), Loss())


@dataclass(frozen=True)
class ZCDP(Event):
    """Any mechanism of which only ρ-zCDP is known, ``count`` times.

    Args:
        rho: its ρ for one unit, all Rényi divergences D_α ≤ αρ.
        level: the unit that it protects.
        relation: the relation under which it does.
        count: how many times it ran.

    Formal guarantee: count·ρ-zCDP; k units cost k²ρ. Source: Bun & Steinke 2016, Prop. 27 (groups);
    Canonne, Kamath & Steinke 2020, Cor. 13 (conversion).

    >>> round(ZCDP(0.5).epsilon(1e-6), 3)
    5.222
    """

    rho: float
    level: Level = "user"
    relation: Relation = "zero_out"
    count: int = 1

    def __post_init__(self) -> None:
        _validate.positive(rho=self.rho)
        _validate.integer(minimum=1, count=self.count)

    def cost(self, asked: Asked) -> Loss:
        steps = asked.steps(self.level, self.relation)
        rho = self.count * steps * steps * self.rho
        return Loss(pure=math.inf, rho=rho)


@dataclass(frozen=True)
class RDP(Event):
    """Any mechanism of which only Rényi divergences of some orders are known, ``count`` times.

    Args:
        orders: (n,) orders α, above 1.
        values: (n,) bounds on D_α for one unit, at least 0.
        level: the unit that it protects.
        relation: the relation under which it does.
        count: how many times it ran.

    Raises:
        ParameterError: if there are no orders, not as many values, or one out of range.

    Formal guarantee: values add (Mironov 2017, Prop. 1); 2^c steps divide the order by 2^c and
    multiply the value by 3^c (his Prop. 2). Source: element-level paper, Definition 2.2 and Lemmas
    3.1(i), 3.2(i), with the conversion of Canonne, Kamath & Steinke 2020 instead of log(1/δ)/(α−1).

    >>> round(RDP((8.0, 16.0, 32.0), (0.04, 0.08, 0.16)).epsilon(1e-6), 3)
    0.462
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]
    level: Level = "user"
    relation: Relation = "zero_out"
    count: int = 1

    def __post_init__(self) -> None:
        if not self.orders or len(self.orders) != len(self.values):
            raise ParameterError(
                f"values must be as many as orders, at least one, not {len(self.values)} "
                f"for {len(self.orders)} orders."
            )
        for order, value in zip(self.orders, self.values, strict=True):
            if not 1 < order < math.inf:
                raise ParameterError(f"orders must be finite and above 1, not {order!r}.")
            if not value >= 0:
                raise ParameterError(f"values must be at least 0, not {value!r}.")
        _validate.integer(minimum=1, count=self.count)

    def cost(self, asked: Asked) -> Loss:
        steps = asked.steps(self.level, self.relation)
        if math.isinf(steps):
            return Loss(pure=math.inf)
        # The least c with 2^c ≥ steps.
        doublings = math.ceil(steps - 1).bit_length()
        known = [
            (order / 2**doublings, self.count * 3**doublings * value)
            for order, value in sorted(zip(self.orders, self.values, strict=True))
        ]
        # Mironov's Proposition 2 asks for an order of at least 2^{c+1}.
        least = 2.0 if doublings else 1.0
        kept = tuple((order, value) for order, value in known if order > 1 and order >= least)
        return Loss(renyi=kept) if kept else Loss(pure=math.inf)


@dataclass(frozen=True)
class Parallel(Event):
    """Several events, each on other people: every person's data enter one of them.

    Args:
        events: what was done with each group. Who is in which group must not depend on the data
            (a split of the roster by index, say).

    Formal guarantee: the worst of them for one person; k whole users, who may be in different groups,
    are k steps of the worst. Source: McSherry 2009, Theorem 4.

    >>> Parallel((Gaussian(4.0), Gaussian(2.0))).epsilon(1e-6) == Gaussian(2.0).epsilon(1e-6)
    True
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        _check_events(self.events)

    @property
    def level(self) -> Level:
        return _common_level(self.events)

    def cost(self, asked: Asked) -> Loss:
        steps = asked.units if asked.level == "user" else 1
        one = dataclasses.replace(asked, units=1) if steps > 1 else asked
        losses = tuple(dict.fromkeys(event.cost(one) for event in self.events))
        if steps == 1:
            return losses[0] if len(losses) == 1 else Loss.of(Worst(losses))
        return Loss.of(Group(Worst(losses), steps))

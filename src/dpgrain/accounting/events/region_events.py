"""Events on the records of one public region each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from dpgrain import _validate
from dpgrain.accounting.events.base import Compose, Event, Neighbours
from dpgrain.accounting.losses.curves import WorstCurve
from dpgrain.accounting.losses.loss import Loss
from dpgrain.accounting.losses.pairs import DominatingPair
from dpgrain.accounting.losses.rounding import product_up
from dpgrain.errors import ParameterError
from dpgrain.scope.regions import Region, atoms
from dpgrain.units import Element, Level, Unit, User

# Relative amount by which rates are rounded up; covers the rounding of squares and sums.
_RELATIVE_ROUNDING = 1e-12
# Parts of a loss that are divided over regions; a loss with other parts is charged in full.
_ADDED = ("pure", "leak", "rho", "concentrated")
_DIVIDED = (*_ADDED, "mu", "pairs")
# Max units for which each number is evaluated; beyond, a rate is evaluated at powers of two.
_MOST_POINTS = 64


@dataclass(frozen=True)
class Scoped(Event):
    """Several events, each on the units of one public region.

    Args:
        events: the published event of each region.
        regions: the region of each event. Every unit is inside or outside as a whole: a region of
            elements consists of whole cells, a region of users lists users.
        most: the largest number of elements of one person in each region; None if unbounded, and
            for records and users.

    Raises:
        ParameterError: if the three differ in length.

    Formal guarantee: k units of one person, with k_j in region j, cost the composition of the costs
    of each event to k_j units, and the worst division of k over the regions is charged. For
    Gaussian noise that is μ² = max Σ_j k_j·r_j, with r_j the largest of μ_j(i)²/i. The regions are
    fixed in advance. Source: docs/theory, "Scopes".

    >>> from dpgrain.accounting import Gaussian
    >>> from dpgrain.scope.regions import LabelSet, Side
    >>> regions = [Region((Side("day", LabelSet((day,))),)) for day in ("Monday", "Tuesday")]
    >>> two = Scoped((Gaussian(4.0), Gaussian(4.0)), tuple(regions), (1, 1))
    >>> one, both = Gaussian(4.0), Gaussian(4.0, count=2)
    >>> two.epsilon(1e-6) == one.epsilon(1e-6)
    True
    >>> round(two.epsilon(1e-6, units=2) / both.epsilon(1e-6), 9)
    1.0
    """

    events: tuple[Event, ...]
    regions: tuple[Region, ...]
    most: tuple[int | None, ...]

    def __post_init__(self) -> None:
        # The composed event validates the events.
        Compose(self.events)
        if not len(self.events) == len(self.regions) == len(self.most):
            raise ParameterError(
                f"events, regions and most must have the same length, not {len(self.events)}, "
                f"{len(self.regions)} and {len(self.most)}."
            )
        for number in self.most:
            if number is not None:
                _validate.integer(minimum=1, most=number)

    @property
    def level(self) -> Level:
        return Compose(self.events).level

    def cost(self, neighbours: Neighbours) -> Loss:
        everything = Compose(self.events).cost(neighbours)
        division = _division(neighbours, {event.level for event in self.events})
        if division is None:
            # A person who may be in every region is charged for all events.
            return everything
        looks = [division.evaluation_points(most) for most in self.most]
        losses = [
            [event.cost(division.of(units)) for units in own]
            for event, own in zip(self.events, looks, strict=True)
        ]
        ways = [way for of in losses for loss in of for way in loss.alternatives]
        if any(way != Loss(**{name: getattr(way, name) for name in _DIVIDED}) for way in ways):
            # Some parts are not divided, such as divergences of some orders.
            return everything
        places = _index_sets(self.regions)
        if division.slots == 1:
            return _one_unit_loss([of[-1] for of in losses], places)
        room = [division.capacity([self.most[j] for j in of]) for of in places]
        longest = max(len(loss.others) for of in losses for loss in of)
        first, *others = dict.fromkeys(
            _worst_division(
                [[_alternative(loss, i) for loss in of] for of in losses],
                looks,
                places,
                room,
                division.slots,
            )
            for i in range(longest + 1)
        )
        return first.or_else(*others)


@dataclass(frozen=True)
class _Division:
    """Division of a query about several units over regions."""

    neighbours: Neighbours
    slots: int  # most memberships of a unit in regions, before and after the change
    capped: bool = False  # a region has at most as many units of a person as cells
    together: bool = False  # all units are in the same regions

    def of(self, units: int) -> Neighbours:
        """Return the query for some of the units."""
        return replace(self.neighbours, units=units)

    def capacity(self, most: Sequence[int | None]) -> int:
        """Return the number of units that fit in regions with these limits per person."""
        bounds = [number for number in most if number is not None] if self.capped else []
        return min([self.slots, *bounds])

    def evaluation_points(self, most: int | None) -> list[int]:
        """Return the numbers of units where the loss of one event is evaluated."""
        if self.together:
            return [self.neighbours.units]
        last = self.neighbours.units
        if self.capped and most is not None:
            last = min(last, most)
        if last <= _MOST_POINTS:
            return list(range(1, last + 1))
        doubled = [2**i for i in range(1, last.bit_length()) if _MOST_POINTS < 2**i < last]
        return [*range(1, _MOST_POINTS + 1), *doubled, last]


def _division(neighbours: Neighbours, levels: set[Level]) -> _Division | None:
    """Return the division of a query over regions of units of one level, or None."""
    own = next(iter(levels))
    # A replaced record may move from one region to another.
    twice = 2 if neighbours.relation == "replace" else 1
    match own, neighbours.level:
        case _ if len(levels) > 1:
            return None
        case ("element", "element"):
            return _Division(neighbours, neighbours.units, capped=True)
        case ("user", "user"):
            return _Division(neighbours, neighbours.units)
        case ("element" | "record", "record"):
            return _Division(neighbours, twice * neighbours.units)
        case ("user", "element" | "record"):
            return _Division(neighbours, 1, together=True)
        case ("element", "user"):
            return _user_division(neighbours, neighbours.unit, twice)
    return None


def _user_division(neighbours: Neighbours, unit: Unit, twice: int) -> _Division | None:
    """Return the division of one user's elements, if their number is bounded."""
    if neighbours.units > 1 or not isinstance(unit, User) or unit.max_elements is None:
        return None
    # A replaced user may leave M cells and enter M others.
    elements = twice * unit.max_elements
    return _Division(
        Neighbours(elements, neighbours.relation, Element(), None), elements, capped=True
    )


@lru_cache(maxsize=64)
def _index_sets(regions: tuple[Region, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the possible sets of region indices of one unit."""
    return tuple(sorted({tuple(sorted(places)) for places in atoms(regions).values()}))


def _alternative(loss: Loss, place: int) -> Loss:
    """Return one of the alternative bounds on a loss; the last one if there are fewer."""
    ways = loss.alternatives
    return ways[min(place, len(ways) - 1)]


def _one_unit_loss(losses: Sequence[Loss], places: Sequence[Sequence[int]]) -> Loss:
    """Return the largest total cost of one unit over its possible regions."""
    sums = dict.fromkeys(sum((losses[j] for j in of), Loss()) for of in places)
    plain = [loss for loss in sums if loss == Loss(mu=loss.mu)]
    if len(plain) == len(sums):
        return max(plain, key=lambda loss: loss.mu)
    return Loss.from_curve(WorstCurve(tuple(sums)))


def _worst_division(
    losses: Sequence[Sequence[Loss]],  # of each event, at the evaluated numbers of units
    looks: Sequence[Sequence[int]],  # the evaluated numbers of units
    places: Sequence[Sequence[int]],  # sets of events that may charge one unit
    room: Sequence[int],  # units that each set may contain
    slots: int,
) -> Loss:
    """Return a loss that bounds every division of the units over the regions."""

    def largest(value: Callable[[Loss], float]) -> float:
        """Bound the sum of a part of the losses over all events, for every division."""
        all_of_it = math.fsum(max(map(value, of)) for of in losses)
        rates = [
            _rate([value(loss) for loss in of], at) for of, at in zip(losses, looks, strict=True)
        ]
        values = [math.fsum(rates[j] for j in of) for of in places]
        filled = _fill(values, room, slots)
        return min(all_of_it, filled) * (1 + _RELATIVE_ROUNDING)

    parts: dict[str, Any] = {name: largest(attrgetter(name)) for name in _ADDED}
    parts["leak"] = min(parts["leak"], 1.0)
    parts["mu"] = math.sqrt(largest(lambda loss: loss.mu * loss.mu)) * (1 + _RELATIVE_ROUNDING)
    parts["pairs"] = _pairs([of[-1] for of in losses], places, slots)
    return Loss(**parts)


def _fill(values: Sequence[float], room: Sequence[int], slots: int) -> float:
    """Return the largest total value of ``slots`` units, with limited room per value."""
    parts, left = [], slots
    for value, most in sorted(zip(values, room, strict=True), reverse=True):
        parts.append(value * min(most, left) if left else 0.0)
        left -= min(most, left)
    return math.fsum(parts)


def _rate(values: Sequence[float], looks: Sequence[int]) -> float:
    """Return the largest cost per unit, the maximum of value(i)/i, rounded up."""
    before = [0, *looks[:-1]]
    rates = (
        product_up(max(value, 0.0), over=float(last + 1))
        for value, last in zip(values, before, strict=True)
    )
    return max(rates)


def _pairs(
    losses: Sequence[Loss], places: Sequence[Sequence[int]], slots: int
) -> tuple[tuple[DominatingPair, int], ...]:
    """Return each dominating pair with its largest number of uses by ``slots`` units."""
    mine = [Counter(dict(loss.pairs)) for loss in losses]
    counts = {}
    for pair in dict.fromkeys(pair for own in mine for pair in own):
        met = sorted((sum(mine[j][pair] for j in of) for of in places), reverse=True)
        counts[pair] = min(sum(met[:slots]), sum(own[pair] for own in mine))
    return tuple(sorted(counts.items(), key=repr))

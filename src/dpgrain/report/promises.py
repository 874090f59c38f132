"""A promise as a page prints it: four sentences, odds, and granularities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dpgrain._wording import powers, rounded_up
from dpgrain.accounting import Compose, Contribution, Event
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import RELATIONS, Element, Level, Record, Unit, User

# The table of granularities asks about these numbers of elements of one person.
SOME_ELEMENTS = (5, 20, 100)
# Units of one person of which the third sentence speaks, at most.
_SEVERAL = 5
# Reason why a smaller unit may cost more than the promised one.
_WHY_MORE = (
    "more than {whole}: if only a part of {whole} changes, the rest is clipped anew, and may move the "
    "sums in another direction"
)
_THEY = {"record": "it was", "element": "they were", "user": "they were"}
_SAYS = {"record": "says", "element": "say", "user": "say"}
FINENESS: tuple[Level, ...] = ("record", "element", "user")
_OF_DEVICES = (
    "Protected is any one user: all that the device of that user puts in, in all rounds together."
)
_WHOLE = {"record": "a record", "element": "a whole element", "user": "a whole user"}


def contributions(event: Event) -> Iterator[Contribution]:
    """Yield how units entered each of the sums of an event."""
    for part in event.events if isinstance(event, Compose) else (event,):
        contribution = getattr(part, "contribution", None)
        if isinstance(contribution, Contribution):
            yield contribution


def smallest_bound(guarantee: Guarantee, name: str) -> int | None:
    """Return the smallest public bound of a name among the contributions to the sums."""
    values = [getattr(contribution, name) for contribution in contributions(guarantee.event)]
    return min((value for value in values if value is not None), default=None)


def most_units(guarantee: Guarantee, most: int) -> int:
    """Return the largest number of units of one person that a curve covers.

    Args:
        guarantee: the promise.
        most: the largest number where one person can hold more.
    """
    if guarantee.level != "element":
        return most
    cells = [c.cells for c in contributions(guarantee.event) if c.cells is not None]
    return max(1, min([most, *cells]))


@dataclass(frozen=True)
class Odds:
    """The meaning of an ε (with δ) for somebody's belief about two neighbouring tables."""

    epsilon: float
    delta: float

    @property
    def endless(self) -> bool:
        """True where nothing is promised."""
        return math.isinf(self.epsilon)

    @property
    def shown(self) -> str:
        """The ε as it is printed, not below the true one."""
        return rounded_up(self.epsilon)

    @property
    def factor(self) -> str:
        """The largest factor by which the odds move: e^ε."""
        if self.endless:
            return "no limit"
        return rounded_up(math.exp(self.epsilon), 3) if self.epsilon < 13 else "over 400,000"

    def after(self, before: float) -> str:
        """Return the largest belief afterwards for a belief beforehand, where δ is left aside."""
        doubt = (1 - before) / before * math.exp(-self.epsilon)
        return _percent_up(1 / (1 + doubt))

    @property
    def right(self) -> str:
        """The largest share of right guesses which table is the true one, from even odds."""
        # Half of 1 plus the largest total variation distance, which is (e^ε − 1 + 2δ) / (e^ε + 1).
        # Source: Kairouz, Oh & Viswanath 2015, "The composition theorem for differential privacy".
        wrong = (1 - self.delta) / (1 + math.exp(min(self.epsilon, 700)))
        return _percent_up(1 - wrong)

    def caught(self, false_alarms: float) -> str:
        """Return the largest power of a test with this share of false alarms."""
        # (ε, δ) leaves two half-planes: power ≤ e^ε·α + δ, and 1 − α ≤ e^ε·(1 − power) + δ.
        # Source: Kairouz, Oh & Viswanath 2015, "The composition theorem for differential privacy".
        rest = 1 - false_alarms - self.delta
        bounds = [1.0, 1 - math.exp(-self.epsilon) * max(rest, 0.0)]
        if self.epsilon < 100:
            bounds.append(math.exp(self.epsilon) * false_alarms + self.delta)
        return _percent_up(min(bounds))


@dataclass(frozen=True)
class Grain:
    """One line of the table of granularities."""

    name: str
    promises: tuple[Odds, ...]
    promised: bool = False
    share: str = ""
    why: str = ""


def grains_of(guarantee: Guarantee, shares: Mapping[int, str]) -> tuple[Grain, ...]:
    """List what is promised to each granularity, at the δ of the promise, and to how many users.

    Args:
        guarantee: the promise.
        shares: a number of elements → the share of users with at most that many, if it is known.
    """

    def grain(name: str, unit: Unit) -> Grain:
        promises = (
            Odds(guarantee.epsilon(relation=relation, unit=unit), guarantee.delta)
            for relation in RELATIONS
        )
        told = tuple(promises)
        return Grain(name, told, unit.level == guarantee.level, why=why(told, unit))

    def why(promises: tuple[Odds, ...], unit: Unit) -> str:
        place = RELATIONS.index(guarantee.relation)
        part = FINENESS.index(unit.level) < FINENESS.index(guarantee.level)
        if not part or promises[place].epsilon <= guarantee.epsilon():
            return ""
        return _WHY_MORE.format(whole=_WHOLE[guarantee.level])

    grains = [grain("one record", Record())]
    if guarantee.elements:
        grains.append(grain("one element", Element()))
        known = (smallest_bound(guarantee, name) for name in ("max_elements", "cells"))
        most = min((bound for bound in known if bound is not None), default=math.inf)
        for some in SOME_ELEMENTS:
            if some < most:
                limited = grain(f"a user with at most {some} elements", User(max_elements=some))
                grains.append(replace(limited, promised=False, share=shares.get(some, "")))
    grains.append(grain("a whole user", User()))
    return tuple(grains)


def four_sentences(guarantee: Guarantee, *, of_devices: bool = False) -> tuple[str, ...]:
    """Return the promise in four sentences: who, how much, what of several units, and where it ends.

    Args:
        guarantee: the promise.
        of_devices: True where data lie on the devices of users.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> event = Gaussian(5.0, Contribution(block="user"))
    >>> four_sentences(Guarantee("user", "", "zero_out", 1e-6, event))[2]
    'Several together are hidden less: for 5 users the factor is 133 (ε = 4.887).'
    """
    odds = Odds(guarantee.epsilon(), guarantee.delta)
    who = _OF_DEVICES if of_devices else _who(guarantee)
    return (who, _how_much(guarantee, odds), _several(guarantee), _ends(guarantee))


def of_a_person(guarantee: Guarantee) -> str:
    """Say what is promised to a whole person, with all data of one id together.

    Args:
        guarantee: the promise.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> event = Gaussian(5.0, Contribution(block="element"))
    >>> of_a_person(Guarantee("element", "day", "zero_out", 1e-6, event))[:61]
    'To a whole person, with all elements together, nothing is pro'
    """
    if guarantee.level == "user":
        return "This is a promise to a whole person: to all of one user together."
    odds = Odds(guarantee.epsilon(unit=User()), guarantee.delta)
    who = f"To a whole person, with all {guarantee.level}s together,"
    if odds.endless:
        rule = (
            " Where a public rule bounds how many one has, the guarantee can be asked for the ε of "
            "that many (max_elements)."
            if guarantee.level == "element"
            else ""
        )
        return f"{who} nothing is promised at this δ.{rule}"
    return f"{who} ε = {odds.shown} is promised: right guesses in at most {odds.right} of cases."


def _who(guarantee: Guarantee) -> str:
    if guarantee.level == "record":
        return "Protected is any one record, one row of the table, by itself."
    if guarantee.level == "user":
        return "Protected is any one user: all records of that user together, however many."
    return (
        "Protected is any one element: all records that one user has in one cell of the partition by "
        f"{guarantee.elements or 'elements'}, however many."
    )


def _how_much(guarantee: Guarantee, odds: Odds) -> str:
    whether = (
        f"whether {_THEY[guarantee.level]} there at all"
        if guarantee.relation == "zero_out"
        else f"what {_THEY[guarantee.level].split()[0]} {_SAYS[guarantee.level]}"
    )
    if odds.endless:
        return f"At this δ nothing is promised to anybody who asks {whether}."
    more = ", plus δ" if odds.delta else ""
    return (
        f"Whoever knows all the rest and guesses {whether}, from even odds, is right in at most "
        f"{odds.right} of cases: no outcome is more than {odds.factor} times as likely either way"
        f"{more} (ε = {odds.shown})."
    )


def _several(guarantee: Guarantee) -> str:
    several = max(most_units(guarantee, _SEVERAL), 2)
    what = {
        "record": f"{several} records of one person",
        "element": f"{several} elements of one person",
        "user": f"{several} users",
    }[guarantee.level]
    more = guarantee.epsilon(units=several)
    if more <= guarantee.epsilon():
        return f"The same holds for {what} together."
    odds = Odds(more, guarantee.delta)
    if odds.endless:
        return f"Several together are hidden less: to {what} nothing is promised at this δ."
    return (
        f"Several together are hidden less: for {what} the factor is {odds.factor} "
        f"(ε = {odds.shown})."
    )


def _ends(guarantee: Guarantee) -> str:
    """Say where the promise ends: at δ, at what was public, and at other publications."""
    fails = (
        f"It may fail with a probability of at most δ = {powers(guarantee.delta)}"
        if guarantee.delta
        else "It has no exception"
    )
    return (
        f"{fails}, and it says nothing of what holds for people in general, of what was public "
        "beforehand, or of other publications about the same people."
    )


def _percent_up(share: float) -> str:
    """Return a share in per cent, not below the true one."""
    return f"{rounded_up(min(share, 1.0) * 100, 2 if share < 0.1 else 3)}%"

"""The guarantee in a report: four sentences, odds and risks, and granularities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dpgrain._formatting import powers, rounded_up
from dpgrain.accounting import Compose, Contribution, Event
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.risk import Risk, percent_up
from dpgrain.units import RELATIONS, Element, Level, Record, Relation, Unit, User

# The table of granularities asks about these numbers of elements of one person.
SOME_ELEMENTS = (5, 20, 100)
# Units of one person of which the third sentence speaks, at most.
_SEVERAL = 5
# Reason why a smaller unit may cost more than the promised one.
_WHY_MORE = (
    "more than {whole}: if only a part of {whole} changes, the rest is clipped again and can change "
    "the sums in another direction"
)
FINENESS: tuple[Level, ...] = ("record", "element", "user")
# The probability of a false alarm of the tests in reports.
FALSE_ALARMS = 0.05
_OF_DEVICES = (
    "This release protects users: all data that the device of one user contributes, in all rounds "
    "together."
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
    """An (ε, δ), and the risk of the attacks that it limits.

    Args:
        epsilon: the ε.
        delta: the δ.
        risk: the risk by the trade-off curve; without it, only (ε, δ) limits attacks.
    """

    epsilon: float
    delta: float
    risk: Risk | None = None

    @classmethod
    def of(
        cls,
        guarantee: Guarantee,
        *,
        units: int = 1,
        unit: Unit | None = None,
        relation: Relation | None = None,
    ) -> Odds:
        """Return the ε and the risk of some units in a guarantee, at its own δ."""
        epsilon = guarantee.epsilon(units=units, unit=unit, relation=relation)
        risk = guarantee.risk(units=units, unit=unit, relation=relation, false_alarms=FALSE_ALARMS)
        return cls(epsilon, guarantee.delta, risk)

    @property
    def endless(self) -> bool:
        """True if no ε is guaranteed at this δ."""
        return math.isinf(self.epsilon)

    @property
    def shown(self) -> str:
        """The ε, rounded up."""
        return rounded_up(self.epsilon)

    @property
    def factor(self) -> str:
        """The largest change e^ε of the odds."""
        if self.endless:
            return "no limit"
        return rounded_up(math.exp(self.epsilon), 3) if self.epsilon < 13 else "over 400,000"

    def after(self, before: float) -> str:
        """Return the largest posterior after an alarm of a test with 5% false alarms.

        Args:
            before: the prior, in (0, 1).
        """
        true, false = before * self._power(FALSE_ALARMS), (1 - before) * FALSE_ALARMS
        return percent_up(true / (true + false))

    @property
    def right(self) -> str:
        """The largest probability of a correct guess between two tables, from even odds."""
        if self.risk is not None:
            return percent_up(self.risk.guess)
        # Half of 1 plus the largest total variation distance, which is (e^ε − 1 + 2δ) / (e^ε + 1).
        # Source: Kairouz, Oh & Viswanath 2015, "The composition theorem for differential privacy".
        wrong = (1 - self.delta) / (1 + math.exp(min(self.epsilon, 700)))
        return percent_up(1 - wrong)

    def caught(self, false_alarms: float) -> str:
        """Return the largest power of a test with this probability of a false alarm."""
        return percent_up(self._power(false_alarms))

    def _power(self, false_alarms: float) -> float:
        if self.risk is not None and self.risk.false_alarms == false_alarms:
            return self.risk.detection
        # (ε, δ) leaves two half-planes: power ≤ e^ε·α + δ, and 1 − α ≤ e^ε·(1 − power) + δ.
        # Source: Kairouz, Oh & Viswanath 2015, "The composition theorem for differential privacy".
        rest = 1 - false_alarms - self.delta
        bounds = [1.0, 1 - math.exp(-self.epsilon) * max(rest, 0.0)]
        if self.epsilon < 100:
            bounds.append(math.exp(self.epsilon) * false_alarms + self.delta)
        return min(bounds)


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
        told = tuple(Odds.of(guarantee, relation=relation, unit=unit) for relation in RELATIONS)
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
    """Return the guarantee in four sentences: the unit, the bound, several units, and limits.

    Args:
        guarantee: the guarantee.
        of_devices: True if the data are on the devices of users.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> event = Gaussian(5.0, Contribution(block="user"))
    >>> four_sentences(Guarantee("user", "", "zero_out", 1e-6, event))[2]
    'Several users are protected less: for 5 of them the factor is 133 (ε = 4.887).'
    """
    who = _OF_DEVICES if of_devices else _who(guarantee)
    return (who, _how_much(guarantee), _several(guarantee), _ends(guarantee))


def of_a_person(guarantee: Guarantee) -> str:
    """Return the guarantee for a whole person, with all data of one id together.

    Args:
        guarantee: the guarantee.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> event = Gaussian(5.0, Contribution(block="element"))
    >>> of_a_person(Guarantee("element", "day", "zero_out", 1e-6, event))[:62]
    'For a whole person, with all elements together, nothing is gua'
    """
    if guarantee.level == "user":
        return "This guarantee covers a whole person: all data of one user together."
    odds = Odds.of(guarantee, unit=User())
    who = f"For a whole person, with all {guarantee.level}s together,"
    if odds.endless:
        rule = (
            " If a public rule bounds the number of elements of a person, pass it as max_elements."
            if guarantee.level == "element"
            else ""
        )
        return f"{who} nothing is guaranteed at this δ.{rule}"
    return f"{who} ε = {odds.shown}: the best guess is right at most {odds.right} of the time."


def _who(guarantee: Guarantee) -> str:
    if guarantee.level == "record":
        return "This release protects records: each row of the table separately."
    if guarantee.level == "user":
        return "This release protects users: all records of one user, however many there are."
    cells = guarantee.elements.removeprefix("the column ") or "a public partition"
    return (
        f"This release protects elements: all records of one user in one cell of {cells}, however "
        "many there are."
    )


def _how_much(guarantee: Guarantee) -> str:
    odds = Odds.of(guarantee)
    these = "this record" if guarantee.level == "record" else "these records"
    guess = (
        f"whether {these} {'is' if guarantee.level == 'record' else 'are'} present"
        if guarantee.relation == "zero_out"
        else f"which of two versions of {these} was used"
    )
    attacker = "An attacker who knows all other records and starts from even odds can guess"
    if odds.endless:
        return (
            f"At this δ, no factor is guaranteed. {attacker} {guess} correctly at most {odds.right} "
            "of the time."
        )
    more = ", plus δ" if odds.delta else ""
    return (
        f"{attacker} {guess} correctly at most {odds.right} of the time: no outcome is more than "
        f"{odds.factor} times as likely in either case{more} (ε = {odds.shown})."
    )


def _several(guarantee: Guarantee) -> str:
    several = max(most_units(guarantee, _SEVERAL), 2)
    what = {
        "record": "records of one person",
        "element": "elements of one person",
        "user": "users",
    }[guarantee.level]
    odds = Odds.of(guarantee, units=several)
    if odds.epsilon <= guarantee.epsilon():
        return f"The same holds for {several} {what} together."
    less = f"Several {what} are protected less: for {several} of them"
    if odds.endless:
        return f"{less} nothing is guaranteed at this δ."
    return f"{less} the factor is {odds.factor} (ε = {odds.shown})."


def _ends(guarantee: Guarantee) -> str:
    """Return the limits of the guarantee: δ, public facts, and other publications."""
    slack = f"an additive slack of δ = {powers(guarantee.delta)}" if guarantee.delta else "no slack"
    return (
        f"The bound has {slack}. It does not cover facts about people in general, information that "
        "was already public, or other publications about the same people."
    )

"""Facts of a guarantee for reports: sentences, odds, granularities and the curve as a table.

The sliders of a page select cells of the curve table and compute nothing, so every ε comes from the
guarantee and is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dpgrain._formatting import powers, rounded_up
from dpgrain.accounting import Compose, Contribution, Event
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.risk import Risk, percent_up
from dpgrain.units import (
    PLAIN_UNITS,
    RELATIONS,
    Element,
    Level,
    Record,
    Relation,
    Unit,
    User,
)
from dpgrain.words.headings import UNITS

# Numbers of elements per user in the table of granularities.
ELEMENT_COUNTS = (5, 20, 100)
# Maximum number of units in the third sentence.
_SEVERAL = 5
# Reason why a smaller unit may cost more than the promised one.
_WHY_MORE = (
    "more than {whole}: if only a part of {whole} changes, the rest is clipped again and can change "
    "the sums in another direction"
)
FINENESS: tuple[Level, ...] = ("record", "element", "user")
# The probability of a false alarm of the tests in reports.
FALSE_ALARMS = 0.05
# Numbers of units and δ of the curve table; the δ of the guarantee is always included.
_UNITS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100)
_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
# Fewer points for numerically composed curves: each takes some hundredths of a second.
_FEW_UNITS = (1, 2, 5, 10, 20, 50, 100)
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


def covered_units(guarantee: Guarantee, most: int) -> int:
    """Return the largest number of units of one person in a curve, at most ``most``."""
    if guarantee.level != "element":
        return most
    cells = [c.cells for c in contributions(guarantee.event) if c.cells is not None]
    return max(1, min([most, *cells]))


@dataclass(frozen=True)
class Odds:
    """An (ε, δ), and the risk of the attacks that it limits.

    ``risk`` follows from the trade-off curve; without it, only (ε, δ) limits attacks.
    """

    epsilon: float
    delta: float
    risk: Risk | None = None

    @classmethod
    def from_guarantee(
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
    def is_infinite(self) -> bool:
        """True if no ε is guaranteed at this δ."""
        return math.isinf(self.epsilon)

    @property
    def text(self) -> str:
        """The ε, rounded up."""
        return rounded_up(self.epsilon)

    @property
    def factor(self) -> str:
        """The largest change e^ε of the odds."""
        if self.is_infinite:
            return "no limit"
        return rounded_up(math.exp(self.epsilon), 3) if self.epsilon < 13 else "over 400,000"

    def posterior(self, prior: float) -> str:
        """Return the largest posterior after an alarm of a test with 5% false alarms."""
        true, false = prior * self._power(FALSE_ALARMS), (1 - prior) * FALSE_ALARMS
        return percent_up(true / (true + false))

    @property
    def guess(self) -> str:
        """The largest probability of a correct guess between two tables, from even odds."""
        if self.risk is not None:
            return percent_up(self.risk.guess)
        # Half of 1 plus the largest total variation distance, which is (e^ε − 1 + 2δ) / (e^ε + 1).
        # Source: Kairouz, Oh & Viswanath 2015, "The composition theorem for differential privacy".
        wrong = (1 - self.delta) / (1 + math.exp(min(self.epsilon, 700)))
        return percent_up(1 - wrong)

    def detection(self, false_alarms: float) -> str:
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
class GranularityRow:
    """One row of the table of granularities, with the odds under each relation."""

    name: str
    odds: tuple[Odds, ...]
    is_guaranteed: bool = False
    share: str = ""
    why: str = ""


def granularity_rows(guarantee: Guarantee, shares: Mapping[int, str]) -> tuple[GranularityRow, ...]:
    """List the guarantee of each granularity, at its own δ.

    ``shares`` maps a number of elements to the known share of users with at most that many.
    """

    def row(name: str, unit: Unit) -> GranularityRow:
        odds = tuple(
            Odds.from_guarantee(guarantee, relation=relation, unit=unit) for relation in RELATIONS
        )
        return GranularityRow(name, odds, unit.level == guarantee.level, why=why(odds, unit))

    def why(odds: tuple[Odds, ...], unit: Unit) -> str:
        place = RELATIONS.index(guarantee.relation)
        part = FINENESS.index(unit.level) < FINENESS.index(guarantee.level)
        if not part or odds[place].epsilon <= guarantee.epsilon():
            return ""
        return _WHY_MORE.format(whole=_WHOLE[guarantee.level])

    rows = [row("one record", Record())]
    if guarantee.elements:
        rows.append(row("one element", Element()))
        known = (smallest_bound(guarantee, name) for name in ("max_elements", "cells"))
        most = min((bound for bound in known if bound is not None), default=math.inf)
        for some in ELEMENT_COUNTS:
            if some < most:
                limited = row(f"a user with at most {some} elements", User(max_elements=some))
                rows.append(replace(limited, is_guaranteed=False, share=shares.get(some, "")))
    rows.append(row("a whole user", User()))
    return tuple(rows)


def guarantee_sentences(guarantee: Guarantee, *, of_devices: bool = False) -> tuple[str, ...]:
    """Return the guarantee in four sentences: the unit, the bound, several units, and limits.

    If ``of_devices``, the data are on the devices of users.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> event = Gaussian(5.0, Contribution(block="user"))
    >>> guarantee_sentences(Guarantee("user", "", "zero_out", 1e-6, event))[2]
    'Several users are protected less: for 5 of them the factor is 133 (ε = 4.887).'
    """
    who = _OF_DEVICES if of_devices else _unit_sentence(guarantee)
    return (who, _bound_sentence(guarantee), _group_sentence(guarantee), _limit_sentence(guarantee))


def person_sentence(guarantee: Guarantee) -> str:
    """Return the guarantee for a whole person, with all data of one id together.

    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> event = Gaussian(5.0, Contribution(block="element"))
    >>> person_sentence(Guarantee("element", "day", "zero_out", 1e-6, event))[:62]
    'For a whole person, with all elements together, nothing is gua'
    """
    if guarantee.level == "user":
        return "This guarantee covers a whole person: all data of one user together."
    odds = Odds.from_guarantee(guarantee, unit=User())
    who = f"For a whole person, with all {guarantee.level}s together,"
    if odds.is_infinite:
        rule = (
            " If a public rule bounds the number of elements of a person, pass it as max_elements."
            if guarantee.level == "element"
            else ""
        )
        return f"{who} nothing is guaranteed at this δ.{rule}"
    return f"{who} ε = {odds.text}: the best guess is right at most {odds.guess} of the time."


def _unit_sentence(guarantee: Guarantee) -> str:
    if guarantee.level == "record":
        return "This release protects records: each row of the table separately."
    if guarantee.level == "user":
        return "This release protects users: all records of one user, however many there are."
    cells = guarantee.elements.removeprefix("the column ") or "a public partition"
    return (
        f"This release protects elements: all records of one user in one cell of {cells}, however "
        "many there are."
    )


def _bound_sentence(guarantee: Guarantee) -> str:
    odds = Odds.from_guarantee(guarantee)
    these = "this record" if guarantee.level == "record" else "these records"
    guess = (
        f"whether {these} {'is' if guarantee.level == 'record' else 'are'} present"
        if guarantee.relation == "zero_out"
        else f"which of two versions of {these} was used"
    )
    attacker = "An attacker who knows all other records and starts from even odds can guess"
    if odds.is_infinite:
        return (
            f"At this δ, no factor is guaranteed. {attacker} {guess} correctly at most {odds.guess} "
            "of the time."
        )
    more = ", plus δ" if odds.delta else ""
    return (
        f"{attacker} {guess} correctly at most {odds.guess} of the time: no outcome is more than "
        f"{odds.factor} times as likely in either case{more} (ε = {odds.text})."
    )


def _group_sentence(guarantee: Guarantee) -> str:
    several = max(covered_units(guarantee, _SEVERAL), 2)
    what = UNITS[guarantee.level]
    odds = Odds.from_guarantee(guarantee, units=several)
    if odds.epsilon <= guarantee.epsilon():
        return f"The same holds for {several} {what} together."
    less = f"Several {what} are protected less: for"
    if odds.is_infinite:
        numbers = range(2, several + 1)
        first = next(n for n in numbers if Odds.from_guarantee(guarantee, units=n).is_infinite)
        return f"{less} {first} or more of them nothing is guaranteed at this δ."
    return f"{less} {several} of them the factor is {odds.factor} (ε = {odds.text})."


def _limit_sentence(guarantee: Guarantee) -> str:
    """Return the limits of the guarantee: δ, public facts, and other publications."""
    slack = f"an additive slack of δ = {powers(guarantee.delta)}" if guarantee.delta else "no slack"
    return (
        f"The bound has {slack}. It does not cover facts about people in general, information that "
        "was already public, or other publications about the same people."
    )


@dataclass(frozen=True)
class CurveRow:
    """One row of the table: the guarantee for a number of units at each δ."""

    units: int
    odds: tuple[Odds, ...]


@dataclass(frozen=True)
class CurveTable:
    """The granularity curve of a guarantee, under its own relation.

    ``deltas`` are the δ of the columns, the largest first, and ``own`` is the column of the
    guarantee's own δ. ``rows`` have increasing numbers of units.
    """

    level: Level
    deltas: tuple[float, ...]
    own: int
    rows: tuple[CurveRow, ...]

    @property
    def what(self) -> str:
        """The counted units, as text."""
        return UNITS[self.level]

    @property
    def heads(self) -> list[str]:
        """The δ of each column, as text."""
        return [powers(delta) for delta in self.deltas]

    @property
    def max_units(self) -> int:
        """The largest number of units."""
        return self.rows[-1].units

    def at(self, units: int, column: int) -> Odds | None:
        """Return the cell of the next number of units, an upper bound; None beyond the last."""
        return next((row.odds[column] for row in self.rows if row.units >= units), None)


def curve_table(guarantee: Guarantee) -> CurveTable:
    """Return the granularity curve of a guarantee as a table.

    Formal guarantee: no cell is below the ε of the guarantee, nor below the cells of fewer units or
    of a larger δ. So the next cell also bounds all values between two cells.
    """
    deltas = tuple(sorted({*_DELTAS, guarantee.delta}, reverse=True))
    # A loss with pairs has no closed form.
    some = _FEW_UNITS if guarantee.event.loss(unit=PLAIN_UNITS[guarantee.level]).pairs else _UNITS
    last = covered_units(guarantee, max(some))
    rows: list[CurveRow] = []
    above = [0.0] * len(deltas)
    risk = guarantee.risk(false_alarms=FALSE_ALARMS)
    for units in [*(k for k in some if k < last), last]:
        least = 0.0
        for place, delta in enumerate(deltas):
            epsilon = guarantee.epsilon(delta, units=units)
            least = above[place] = max(epsilon, above[place], least)
        more = guarantee.risk(units=units, false_alarms=FALSE_ALARMS)
        risk = _larger(risk, more)
        cells = zip(above, deltas, strict=True)
        rows.append(CurveRow(units, tuple(Odds(*cell, risk) for cell in cells)))
    return CurveTable(guarantee.level, deltas, deltas.index(guarantee.delta), tuple(rows))


def _larger(risk: Risk, other: Risk) -> Risk:
    """Return the other risk with the larger of both values in each field."""
    names = ("guess", "detection", "posterior", "mu")
    most = {name: max(getattr(risk, name), getattr(other, name)) for name in names}
    larger = replace(other, **most)
    return larger if larger == other else replace(larger, exact=False)

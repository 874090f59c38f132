"""Risks in words, the odds that a guarantee leaves to an attacker, and its four sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpgrain._formatting import powers, rounded_up
from dpgrain.accounting import Compose, Contribution, Event
from dpgrain.units import Relation, Unit, User
from dpgrain.words.guarantee_text import UNITS, elements_text, share_text

if TYPE_CHECKING:
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.publishing.risk import Risk
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from dpgrain.units import PLAIN_UNITS
from dpgrain.words.guarantee_text import SEED_KNOWN
from dpgrain.words.plan_text import budget_text

if TYPE_CHECKING:
    from dpgrain.publishing.guarantee import Guarantee
    from dpgrain.publishing.risk import Risk


def risk_text(risk: Risk) -> str:
    """Return limits on attacks, one per line."""
    start = f"from a prior of {_exact_percent(risk.prior)}"
    return "\n".join(
        (
            f"{'' if risk.private else SEED_KNOWN}Risk of {risk.units_text} ({risk.relation}), "
            f"{risk.values}:",
            f"best guess      {percent_up(risk.guess)} right at most, {start}",
            f"detection       {percent_up(risk.detection)} at most, with "
            f"{_exact_percent(risk.false_alarms)} false alarms",
            f"after an alarm  {percent_up(risk.posterior)} at most, {start}",
            f"Gaussian DP     μ = {rounded_up(risk.mu)}",
        )
    )


def percent_up(share: float) -> str:
    """Write a probability as a percentage, rounded up."""
    return f"{rounded_up(min(share, 1.0) * 100, 2 if share < 0.1 else 3)}%"


def _exact_percent(share: float) -> str:
    """Write a probability as a percentage with all digits."""
    percentage = (Decimal(repr(share)) * 100).normalize()
    return f"{percentage:f}%" if percentage >= Decimal("1e-6") else f"{percentage:e}%"


def risk_lines(guarantee: Guarantee) -> tuple[str, ...]:
    """Describe the risk of one unit, and of a whole user, one line each."""
    units = [PLAIN_UNITS[guarantee.level]]
    if guarantee.level != "user":
        units.append(User())
    return tuple(_line(guarantee.risk(unit=unit)) for unit in units)


def privacy_sections(
    guarantee: Guarantee, shares: Mapping[str, float], query: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the last parts of an explanation: use of the budget, guarantee and risk."""
    share = share_text(query)
    together = f"{share}: budget.guarantee covers all its releases together" * bool(share)
    parts = budget_text(shares)
    budget = ". ".join(filter(None, (together, parts[:1].upper() + parts[1:])))
    risk = " ".join(risk_lines(guarantee))
    sections = {"Budget": budget, "Privacy": str(guarantee), "Risk": risk}
    return {name: text for name, text in sections.items() if text}


def _line(risk: Risk) -> str:
    if risk.unbounded:
        return f"{risk.units_text}: nothing limits the risk."
    return (
        f"{'' if risk.private else SEED_KNOWN}{risk.units_text}: the best guess from even odds is "
        f"right in at most {percent_up(risk.guess)} of cases; a test with "
        f"{_exact_percent(risk.false_alarms)} false alarms detects at most "
        f"{percent_up(risk.detection)} ({risk.values})."
    )


# Maximum number of units in the third sentence.
_SEVERAL = 5

_OF_DEVICES = (
    "This release protects users: all data that the device of one user contributes, in all rounds "
    "together."
)

# The probability of a false alarm of the tests in reports.
FALSE_ALARMS = 0.05


def contributions(event: Event) -> Iterator[Contribution]:
    """Yield how units entered each of the sums of an event."""
    for part in event.events if isinstance(event, Compose) else (event,):
        contribution = getattr(part, "contribution", None)
        if isinstance(contribution, Contribution):
            yield contribution


def covered_units(guarantee: Guarantee, most: int) -> int:
    """Return the largest number of units of one person in a curve, at most ``most``."""
    if guarantee.level != "element":
        return most
    cells = [c.cells for c in contributions(guarantee.event) if c.cells is not None]
    return max(1, min([most, *cells]))


@dataclass(frozen=True)
class Odds:
    """An (ε, δ), and the risk of the attacks that it limits."""

    epsilon: float
    delta: float
    risk: Risk | None = None  # from the trade-off curve; if None, only (ε, δ) limits attacks

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


def guarantee_sentences(guarantee: Guarantee, *, of_devices: bool = False) -> tuple[str, ...]:
    """Return four sentences on the guarantee: unit, bound, several units, limits."""
    who = _OF_DEVICES if of_devices else _unit_sentence(guarantee)
    return (who, _bound_sentence(guarantee), _group_sentence(guarantee), _limit_sentence(guarantee))


def person_sentence(guarantee: Guarantee) -> str:
    """Return the guarantee for a whole person, with all data of one id together."""
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
    cells = elements_text(guarantee.elements) or "a public partition"
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

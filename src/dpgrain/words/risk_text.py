"""Risks in words: several lines, or one line per unit."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from dpgrain._formatting import rounded_up
from dpgrain.units import PLAIN_UNITS, User
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
    """Write a probability as a percentage, rounded up.

    >>> percent_up(0.65866), percent_up(0.0123456), percent_up(1.0)
    ('65.9%', '1.3%', '100%')
    """
    return f"{rounded_up(min(share, 1.0) * 100, 2 if share < 0.1 else 3)}%"


def _exact_percent(share: float) -> str:
    """Write a probability as a percentage with all digits."""
    percentage = (Decimal(repr(share)) * 100).normalize()
    return f"{percentage:f}%" if percentage >= Decimal("1e-6") else f"{percentage:e}%"


def risk_lines(guarantee: Guarantee) -> tuple[str, ...]:
    """Describe the risk of one unit, and of a whole user, one line each.

    >>> from dpgrain import Guarantee
    >>> from dpgrain.accounting import Contribution, Gaussian
    >>> event = Gaussian(2.0, Contribution(block="user"))
    >>> risk_lines(Guarantee("user", "", "zero_out", 1e-6, event))[0]
    '1 user: the best guess from even odds is right in at most 59.9% of cases; a test with 5% false \
alarms detects at most 12.7% (exact).'
    """
    units = [PLAIN_UNITS[guarantee.level]]
    if guarantee.level != "user":
        units.append(User())
    return tuple(_line(guarantee.risk(unit=unit)) for unit in units)


def privacy_sections(guarantee: Guarantee, shares: Mapping[str, float]) -> dict[str, str]:
    """Return the last parts of an explanation: use of the budget, guarantee and risk."""
    risk = " ".join(risk_lines(guarantee))
    sections = {"Budget": budget_text(shares), "Privacy": str(guarantee), "Risk": risk}
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

"""A promise in numbers that a page prints: odds, and granularities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dpgrain._wording import rounded_up
from dpgrain.accounting import Compose, Contribution, Event
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import RELATIONS, Element, Record, Unit, User

# The table of granularities asks about these numbers of elements of one person.
SOME_ELEMENTS = (5, 20, 100)


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


@dataclass(frozen=True)
class Odds:
    """The meaning of an ε (with δ) to somebody who weighs the two neighbouring tables."""

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
        """Return the largest belief afterwards for a belief beforehand."""
        doubt = (1 - before) / before * math.exp(-self.epsilon)
        return _percent_up(1 / (1 + doubt))

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
        return Grain(name, tuple(promises), unit.level == guarantee.level)

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


def _percent_up(share: float) -> str:
    """Return a share in per cent, not below the true one."""
    return f"{rounded_up(min(share, 1.0) * 100, 2 if share < 0.1 else 3)}%"

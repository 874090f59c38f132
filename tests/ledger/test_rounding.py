"""Sentences never report less as used than is used, nor more as left than is left."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.effort import Effort
from tests.ledger import cases

import dpgrain as dg
from dpgrain._formatting import percent
from dpgrain.accounting import ApproximateDP, Loss
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.ledger import LastingPromise
from dpgrain.publishing.caps import Caps
from dpgrain.publishing.prices import Price

EPSILON, DELTA = 1.0, 1e-6
OPTIONS: dict[str, Any] = {"pure": 0.25, "leak": 3e-7}
PROMISE = LastingPromise.of(dg.User(), EPSILON, DELTA, **OPTIONS)
# Caps are lower than stated, and prices are rounded up, by less than this share.
SLACK = Fraction(1, 10**8)
DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def number(said: str) -> Fraction:
    """A number as printed, such as 4.9·10⁻⁸."""
    mantissa, _, power = said.rstrip("%.,;").replace(",", "").rpartition("·")
    if power.startswith("10") and power[2:].translate(DIGITS) != power[2:]:
        return Fraction(mantissa or "1") * Fraction(10) ** int(power[2:].translate(DIGITS))
    return Fraction(power)


class Spent:
    """The charges so far, as fractions."""

    def __init__(self, caps: Price) -> None:
        self.caps = caps
        self.pure, self.squares, self.leak = Fraction(0), Fraction(0), Fraction(0)

    def add(self, draw: random.Random) -> dg.Guarantee:
        """A charge of a random part of one of the caps."""
        part, kind = draw.uniform(0.001, 0.3), draw.choice(["pure", "mu", "leak"])
        if kind == "mu":
            multiplier = 1 / (self.caps.mu * part**0.5)
            self.squares += Fraction(multiplier) ** -2
            return cases.of_users(multiplier)
        pure = part * self.caps.pure if kind == "pure" else 0.0
        leak = part * self.caps.leak if kind == "leak" else 0.0
        self.pure, self.leak = self.pure + Fraction(pure), self.leak + Fraction(leak)
        return dg.Guarantee("user", "", "zero_out", 1e-9, ApproximateDP(pure, leak))

    @property
    def share(self) -> Fraction:
        caps = self.caps
        parts = (
            self.pure / Fraction(caps.pure),
            self.squares / Fraction(caps.mu) ** 2,
            self.leak / Fraction(caps.leak),
        )
        return max(parts)

    def used(self, percent: str) -> None:
        assert number(percent) / 100 >= self.share * (1 - SLACK), (percent, float(self.share))

    def left(self, percent: str) -> None:
        assert number(percent) / 100 <= 1 - self.share + SLACK, (percent, float(self.share))


def charges(draw: random.Random, caps: Price) -> Iterator[tuple[Spent, dg.Guarantee]]:
    """Charges until one does not fit, each with the total so far."""
    spent = Spent(caps)
    while True:
        spent = copy.copy(spent)
        guarantee = spent.add(draw)
        if spent.share > 1:
            return
        yield spent, guarantee


def found(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text)
    assert match is not None, text
    return match


def refused(charge: Callable[[dg.Guarantee], Any], caps: Price) -> str:
    with pytest.raises(dg.RefusedError) as caught:
        charge(cases.of_users(0.9 / caps.mu))
    return str(caught.value)


def test_a_ledger_rounds_against_itself(tmp_path: Path, command: Any, effort: Effort) -> None:
    for seed in effort.some(range(20)):
        place = tmp_path / f"ledger {seed}"
        ledger = cases.made(place, PROMISE)
        for spent, guarantee in charges(random.Random(seed), PROMISE.caps):
            ledger.charge(guarantee)
            spent.left(percent(ledger.left(1), up=False))
            spent.used(percent(1 - ledger.left(1)))
            check_words(ledger.remaining_text(1), spent)
            shown = command("ledger", "show", place)
            spent.left(found(r"│\s+1 │\s+(\S+%) │", shown.stdout)[1])
        said = refused(ledger.charge, PROMISE.caps)
        spent.left(found(r"and (\S+%) remains for", said)[1])


def check_words(said: str, spent: Spent) -> None:
    """Check the used ε and the rest of each cap."""
    caps = spent.caps
    used = Price(float(spent.pure), float(spent.squares) ** 0.5, float(spent.leak))
    epsilon = Caps(used, Loss()).epsilon(DELTA)
    assert number(found(r"^ε = (\S+) of", said)[1]) >= min(epsilon, EPSILON) * (1 - SLACK)
    room = Fraction(caps.leak) - spent.leak
    if fits := re.search(r"A Gaussian release with ε ≤ (\S+) at δ = (\S+) per user", said):
        assert number(fits[2]) <= room + Fraction(caps.leak) * SLACK
        mu = gaussian_mu(float(fits[1]), float(number(fits[2])))
        assert Fraction(mu) ** 2 <= Fraction(caps.mu) ** 2 * (1 + SLACK) - spent.squares
    assert fits is not None or "δ = 0 per user" in said or "exhausted" in said
    if spent.leak:
        leak = found(r"remaining: δ = (\S+) of", said)
        assert number(leak[1]) <= room + Fraction(caps.leak) * SLACK
    if spent.pure:
        pure = found(r"ε = (\S+) for releases with δ = 0 \(pure\)", said)
        assert number(pure[1]) <= Fraction(caps.pure) * (1 + SLACK) - spent.pure


def test_a_budget_rounds_against_itself(effort: Effort) -> None:
    for seed in effort.some(range(60)):
        budget = dg.budget(EPSILON, DELTA, **OPTIONS)
        for spent, guarantee in charges(random.Random(seed), budget.caps.price):
            budget.charge(guarantee)
            spent.used(found(r"spent (\S+%)", repr(budget))[1])
        said = refused(budget.charge, budget.caps.price)
        spent.left(found(r"and (\S+%) is left", said)[1])
        if share := re.search(r"share=([\d.e-]+)", said):
            assert Fraction(share[1]) <= 1 - spent.share + SLACK

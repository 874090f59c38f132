"""Choices by Gumbel noise and their composition, against all neighbours of small data sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pytest
from tests.accounting.events.test_partition_selection import EPSILONS, ROUNDING, Law, hockey_stick

from dpgrain.accounting import (
    ApproximateDP,
    BoundedRange,
    Compose,
    Contribution,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Loss,
    calibrate_bounded_range,
    gaussian_delta,
)
from dpgrain.accounting.losses.zcdp import zcdp_delta, zcdp_epsilon
from dpgrain.units import RELATIONS, Element, Level, Record, Relation, Unit, User


def chosen(scores: Sequence[int], rate: float, count: int) -> Law:
    """The law of the choice: one after the other, without replacement."""
    law: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(scores)), count):
        left, mass = set(range(len(scores))), 1.0
        for j in order:
            mass /= math.fsum(math.exp(rate * (scores[i] - scores[j])) for i in left)
            left.remove(j)
        law[order] = mass
    return law


def worst_choice(
    rate: float, count: int, moves: Iterable[tuple[int, ...]], epsilon: float
) -> float:
    """The largest δ over starting scores and moves, in both orders."""
    gamma = math.exp(epsilon)
    worst = 0.0
    for move in moves:
        for start in itertools.product((0, 3), repeat=len(move) - 1):
            before = (0, *start)
            after = tuple(a + b for a, b in zip(before, move, strict=True))
            p, q = chosen(before, rate, count), chosen(after, rate, count)
            worst = max(worst, hockey_stick(p, q, gamma), hockey_stick(q, p, gamma))
    return worst


def moves_of(relation: Relation, users: int = 1) -> list[tuple[int, ...]]:
    steps = range(-users, 1) if relation == "zero_out" else range(-users, users + 1)
    return list(itertools.product(steps, repeat=3))


@pytest.mark.proof("search", "BoundedRange")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("users", [1, 2])
def test_no_scores_break_the_claim(relation: Relation, count: int, users: int) -> None:
    for rate in (0.3, 1.0):
        event = BoundedRange(rate, count)
        moves = moves_of(relation, users)
        ends = event.loss(users, relation).pure
        for epsilon in (0.0, 0.2, ends / 2, 0.9 * ends, ends):
            claim = event.delta(epsilon, units=users, relation=relation)
            assert worst_choice(rate, count, moves, epsilon) <= claim + ROUNDING


def test_choice_costs_elements_and_user_equally() -> None:
    event = BoundedRange(0.5, count=3, level="element")
    for units in (1, 7):
        assert event.loss(units) == event.loss(1, unit=User()) == event.loss(units, unit=Record())
    assert event.loss(4, unit=User()).pure == pytest.approx(6.0)
    # If records are counted, a person may have any number.
    records = BoundedRange(0.5, level="record")
    assert records.loss(3).pure == 1.5
    assert records.loss(1, unit=User()).pure == math.inf


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("count", [1, 10, 1000])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_calibrated_choices_keep_the_promise_and_spend_it(
    relation: Relation, count: int, delta: float
) -> None:
    for epsilon in (0.01, 1.0, 20.0):
        event = calibrate_bounded_range(epsilon, delta, count=count, relation=relation)
        assert event.epsilon(delta, relation=relation) <= epsilon
        more = BoundedRange(event.rate * (1 + 1e-9), count)
        assert more.epsilon(delta, relation=relation) > epsilon * (1 - 1e-12)
        assert 1 / event.scale <= event.rate


STEPS = 4


def worst_composed(
    rate: float, choices: int, epsilon: float, *, mu: float = 0.0, leaks: int = 0, leak: float = 0.0
) -> float:
    """The largest δ of adaptive choices of bounded range, then of (rate, leak)-DP parts and a Gaussian.

    A choice of bounded range has log ratios t and t − rate at worst, and an adversary picks t each
    time, here from multiples of rate/4. H_γ of the whole is Σ over outcomes of p·H_{γq/p}(rest).
    """

    @cache
    def stick(left: int, offset: int) -> float:
        """H_γ of the remainder at ln γ = epsilon + offset·rate/4."""
        if left == 0:
            at = epsilon + offset * rate / STEPS
            return gaussian_delta(at, mu) if mu else max(-math.expm1(at), 0.0)
        best = 0.0
        for t in range(1, STEPS) if left > leaks else [STEPS // 2]:
            # The leaking parts have log ratios ±rate: twice the range.
            up, down = (t, t - STEPS) if left > leaks else (STEPS, -STEPS)
            ratio_up, ratio_down = (math.exp(rate * x / STEPS) for x in (up, down))
            q = (1 - ratio_down) / (ratio_up - ratio_down)
            p = ratio_up * q
            rest = p * stick(left - 1, offset - up) + (1 - p) * stick(left - 1, offset - down)
            best = max(best, rest if left > leaks else leak + (1 - leak) * rest)
        return best

    return stick(choices + leaks, 0)


@pytest.mark.proof("search", "Compose")
@pytest.mark.parametrize(
    ("choices", "others"),
    [(1, {}), (5, {}), (60, {}), (30, {"mu": 0.7}), (20, {"leaks": 20, "leak": 1e-5}),
     (0, {"leaks": 60, "leak": 1e-6}), (10, {"mu": 2.0, "leaks": 5, "leak": 1e-4})],
)  # fmt: skip
@pytest.mark.parametrize("rate", [0.05, 0.3, 1.5])
def test_composed_claims_are_valid_against_the_worst_adversary(
    choices: int, others: dict[str, Any], rate: float
) -> None:
    events: list[Event] = [BoundedRange(rate)] * choices
    leaks, mu = others.get("leaks", 0), others.get("mu", 0.0)
    if leaks:
        events.append(ApproximateDP(rate, others["leak"], count=leaks))
    loss = Compose(tuple(events)).loss() + Loss(mu=mu)
    for epsilon in (0.0, 0.3, 1.0, 2.5, 6.0, 12.0):
        exact = worst_composed(rate, choices, epsilon, **others)
        assert exact <= loss.delta(epsilon) + ROUNDING
    for delta in (1e-3, 3e-4, 1e-9):
        epsilon = loss.epsilon(delta)
        assert epsilon == math.inf or loss.delta(epsilon) <= delta
    if choices + leaks > 1 and not mu:
        # A loss of half the range would be detected.
        halved = Loss(mu, loss.pure / 2, loss.leak, loss.rho / 4)
        sharp = [e / 4 for e in range(40)]
        assert any(
            worst_composed(rate, choices, e, **others) > halved.delta(e) + 1e-9 for e in sharp
        )


def test_the_better_of_two_curves_is_taken() -> None:
    few, many = BoundedRange(0.5, count=2), BoundedRange(0.05, count=400)
    assert few.epsilon(1e-6) == pytest.approx(few.epsilon(0.0), rel=1e-3)
    assert many.epsilon(1e-6) < many.epsilon(0.0) / 5
    assert many.epsilon(1e-6) == zcdp_epsilon(1e-6, 400 * 0.05**2 / 8)
    assert many.epsilon() == many.epsilon(0.0) == pytest.approx(20.0)
    mixed = many + Gaussian(2.0) + Laplace(3.0)
    loss = mixed.loss(1, unit=User(max_elements=1))
    assert loss.rho == pytest.approx(400 * 0.05**2 / 8 + 1 / 18)
    first = Loss(loss.mu, loss.pure).epsilon(1e-6)
    second = zcdp_epsilon(1e-6, loss.rho + 1 / 8)
    assert loss.epsilon(1e-6) == min(first, second) < first
    for epsilon in EPSILONS:
        assert loss.delta(epsilon) <= zcdp_delta(epsilon, loss.rho + 1 / 8)


# For whole users, and for records if these are counted, the two events agree.
@pytest.mark.parametrize(("level", "unit"), [("user", User()), ("record", Record())])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("units", [1, 3])
def test_best_items_cost_whole_units_like_one_way_choices(
    level: Level, unit: Unit, relation: Relation, units: int
) -> None:
    items = BoundedRange(0.5, count=7, level=level)
    scores = ExponentialMechanism(2.0, one_way=True, count=7, level=level)
    assert items.loss(units, relation, unit) == scores.loss(units, relation, unit)


def test_best_items_cost_parts_less_than_general_choices() -> None:
    # A removed part may raise one score and lower another, but never raises a number of users.
    items, scores = BoundedRange(0.5), ExponentialMechanism(2.0, one_way=True)
    for unit in (Record(), Element()):
        assert 2 * items.epsilon(unit=unit) == scores.epsilon(unit=unit) == 1.0


def test_choices_with_gaussian_noise_are_priced_like_a_gaussian() -> None:
    items = BoundedRange(0.05, count=50)
    released = items + Gaussian(1.0, Contribution(block="user"))
    assert released.epsilon(1e-6) == pytest.approx(5.022, abs=1e-3)
    # ρ of the choices with the same Gaussian noise.
    apart = Loss(mu=1.0, rho=50 * 0.05**2 / 8, pure=2.5)
    assert apart.epsilon(1e-6) == pytest.approx(5.313, abs=1e-3)

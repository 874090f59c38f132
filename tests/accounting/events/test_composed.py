"""Events of noise, of selection and of opaque guarantees: JSON, composition, units and errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
from tests.refusals import refuses

from dpgrain.accounting import (
    ApproximateDP,
    Compose,
    Contribution,
    Event,
    Gaussian,
    Laplace,
    Parallel,
    Selection,
    calibrate_gaussian,
    calibrate_laplace,
)
from dpgrain.accounting.calibration import gaussian_multipliers
from dpgrain.accounting.events.shuffling import Binomial
from dpgrain.accounting.losses.loss import Loss
from dpgrain.units import RELATIONS, Element, Relation, User


def test_unknown_event_is_rejected_by_name() -> None:
    with refuses("event", "'Tarot'", "Gaussian, Laplace"):
        Event.from_dict({"event": "Tarot", "cards": 78})
    nested = Compose((Gaussian(1.0),)).to_dict()
    nested["events"][0]["event"] = "Tarot"
    with refuses("event", "'Tarot'"):
        Event.from_dict(nested)
    with refuses("event", "None"):
        Event.from_json("{}")


def test_composing_different_units_needs_a_unit() -> None:
    """With its own unit each event would protect no user: both would cost a user ∞."""
    mixed = Gaussian(3.0, Contribution(block="user")) + Gaussian(3.0)
    with refuses("unit", "different units, element, user"):
        mixed.epsilon(1e-6)
    assert mixed.epsilon(1e-6, unit=User()) == math.inf
    assert mixed.epsilon(1e-6, unit=Element()) > Gaussian(3.0, count=2).epsilon(1e-6)


def test_order_and_nesting_do_not_matter() -> None:
    parts = [Gaussian(5.0), Laplace(9.0), Selection(6.0, 40.0, 2), Gaussian(7.0, count=3)]
    epsilons = []
    for order in itertools.permutations(parts):
        a, b, c, d = order
        assert ((a + b) + (c + d)).events == (a + (b + c) + d).events == order
        epsilons.append((a + b + c + d).epsilon(1e-6))
        epsilons.append(Compose((Compose((a, b)), Compose((c, d)))).epsilon(1e-6))
    assert max(epsilons) == pytest.approx(min(epsilons), rel=1e-12)


@pytest.mark.parametrize(
    ("make", "name", "word"),
    [
        (lambda: Gaussian(0.0), "noise_multiplier", "not 0.0"),
        (lambda: Gaussian(math.inf), "noise_multiplier", "not inf"),
        (lambda: Gaussian(math.nan), "noise_multiplier", "not nan"),
        (lambda: Gaussian(True), "noise_multiplier", "not True"),
        (lambda: Gaussian(1.0, count=0), "count", "not 0"),
        (lambda: Laplace(-2.0), "noise_multiplier", "not -2.0"),
        (lambda: Laplace(1.0, Contribution()), "contribution", "norm='l1'"),
        (lambda: Laplace(1.0, count=1.5), "count", "not 1.5"),  # type: ignore[arg-type]
        (lambda: Selection(1.0, -1.0, 1), "threshold", "not -1.0"),
        (lambda: Selection(1.0, 1.0, 0), "max_items", "not 0"),
        (lambda: ApproximateDP(-0.5), "guaranteed_epsilon", "not -0.5"),
        (lambda: ApproximateDP(0.5, 1.0), "guaranteed_delta", "not 1.0"),
        (lambda: Compose(()), "events", "at least one"),
        (lambda: Gaussian(1.0).epsilon(), "delta", "1e-6"),
        (lambda: Gaussian(1.0).epsilon(1.5), "delta", "not 1.5"),
        (lambda: Gaussian(1.0).epsilon(1e-6, units=0), "units", "not 0"),
        (lambda: Gaussian(1.0).delta(-1.0), "epsilon", "not -1.0"),
        (
            lambda: Gaussian(1.0).epsilon(1e-6, relation="swap"),  # type: ignore[call-overload]
            "relation",
            "not 'swap'",
        ),
        (lambda: calibrate_gaussian(0.0, 1e-6), "epsilon", "not 0.0"),
        (lambda: calibrate_gaussian(1.0, 0.0), "delta", "0 requires"),
        (lambda: calibrate_gaussian(1.0, 1e-6, count=0), "count", "not 0"),
        (lambda: calibrate_gaussian(1.0, 1e-6, unit=User()), "unit", "max_elements"),
        (lambda: calibrate_laplace(math.inf), "epsilon", "not inf"),
        (lambda: gaussian_multipliers(1.0, 1e-6, [Contribution()], [0.0]), "share", "not 0.0"),
    ],
)
def test_errors_name_the_value(make: Any, name: str, word: str) -> None:
    with refuses(name, word):
        make()


# -- groups of people ---

# The second one also gives a probability away, once for each group that changes.
GROUPS: dict[str, tuple[Event, ...]] = {
    "gaussian": tuple(
        Gaussian(noise, Contribution(block="user"), count)
        for noise, count in ((4.0, 1), (3.0, 2), (6.0, 1))
    ),
    "leaking": tuple(Binomial(10_000, 0.5, 10, 1, leak) for leak in (1e-3, 5e-4, 1e-3)),
}


def divided(users: int, groups: int) -> Iterator[tuple[int, ...]]:
    """How many of some users may be in each group."""
    for places in itertools.combinations_with_replacement(range(groups), users):
        yield tuple(places.count(group) for group in range(groups))


@pytest.mark.proof("search", "Parallel")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("users", [1, 2, 4])
@pytest.mark.parametrize("name", GROUPS)
def test_no_division_of_users_over_groups_costs_more(
    name: str, users: int, relation: Relation
) -> None:
    """Users of one group change its sum together; groups have independent noise."""
    groups = GROUPS[name]
    charged, worst = Parallel(groups).loss(users, relation), 0.0
    for division in divided(users, len(groups)):
        paid = sum(
            (group.loss(k, relation) for group, k in zip(groups, division, strict=True) if k),
            Loss(),
        )
        for epsilon in (0.0, 0.3, 1.0, 2.0, 6.0):
            assert paid.delta(epsilon) <= charged.delta(epsilon) * (1 + 1e-9)
        worst = max(worst, paid.delta(0.3) / charged.delta(0.3))
    # Several users are charged by their steps only, which cost slightly more.
    assert worst > (0.999 if users == 1 else 0.4)
    # The parts of one user are in one group, however many they are.
    inside = [event.loss(3, relation, Element()) for event in (Parallel(groups), *groups)]
    assert inside[0].delta(0.3) == pytest.approx(max(loss.delta(0.3) for loss in inside[1:]))

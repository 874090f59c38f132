"""An ε without a δ is valid at δ = 0."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.accounting.events.test_base import EVENTS, RELATIONS

from dpgrain.accounting import ZCDP, Event, ExponentialMechanism, PureDP, SelectBest
from dpgrain.errors import ParameterError
from dpgrain.units import Element, Record, Relation, Unit, User

# The examples with finite ε at δ = 0, by their papers; noise of every other one has δ > 0.
PURE = {"laplace", "pure", "bounded-range", "threshold", "choice", "one-way choice"}
UNITS: tuple[Unit, ...] = (Record(), Element(), User(), User(max_elements=2))


def answer(event: Event, **asked: Any) -> float | None:
    try:
        return float(event.epsilon(**asked))
    except ParameterError:
        return None


@pytest.mark.slow(cases=10)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", list(EVENTS))
def test_epsilon_without_delta_is_valid_at_zero(name: str, relation: Relation) -> None:
    """For every event and every pair of events, for each unit and several k."""
    event = EVENTS[name]
    sums = {(name, other): event + EVENTS[other] for other in list(EVENTS) if other >= name}
    for (names, whole), k, unit in itertools.product(
        [((name,), event), *sums.items()], (1, 2, 5), UNITS
    ):
        asked: dict[str, Any] = {"units": k, "relation": relation, "unit": unit}
        found = answer(whole, **asked)
        if found is None:
            continue
        assert found == whole.epsilon(0, **asked)
        assert whole.epsilon(bounds=True, **asked) == whole.epsilon(0, bounds=True, **asked)
        if found < float("inf"):
            assert set(names) <= PURE
            assert whole.delta(found, **asked) == 0
            assert whole.delta(found * (1 - 1e-6), **asked) > 0


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_events_need_no_delta(name: str) -> None:
    event = EVENTS[name]
    both = event + PureDP(0.25, level=event.level)
    assert both.epsilon() == pytest.approx(event.epsilon() + 0.25)


@pytest.mark.parametrize("rho", [1e-9, 0.5, 1e6])
def test_pure_zcdp_has_no_epsilon_without_delta(rho: float) -> None:
    for event in (ZCDP(rho), ZCDP(rho) + PureDP(0.1), PureDP(0.1) + ZCDP(rho, count=3)):
        assert event.epsilon(0) == float("inf")
        for asked in ({}, {"units": 3}, {"relation": "replace"}, {"bounds": True}):
            assert answer(event, **asked) is None
        assert answer(Event.from_json(event.to_json())) is None


def test_the_best_of_pure_choices_is_pure() -> None:
    # A choice is also bounded as Gaussian noise, which must not hide that it is pure.
    best = SelectBest(ExponentialMechanism(40.0), mean=10.0)
    assert 0.05 < best.epsilon() == best.epsilon(0) < 0.2

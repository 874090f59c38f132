"""Audits of mechanisms of one's own: planted errors are found, and mistakes are explained."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Event, Gaussian, Laplace
from dpgrain.auditing import Mechanism
from dpgrain.units import Relation


@dataclass
class Noisy:
    """A count with noise ``off`` times as large as claimed; neighbours are the two counts."""

    event: Event
    off: float = 1.0
    delta: float = 0.0
    down: bool = False
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))

    @property
    def guarantee(self) -> dg.Guarantee:
        return dg.Guarantee("user", "", "zero_out", self.delta, self.event)

    def neighbours(self, units: int, relation: Relation) -> tuple[int, int] | None:
        far = units * (1 if relation == "zero_out" else 2)
        return (far, 0) if self.down else (0, far)

    def draw(self, data: int, count: int) -> NDArray[Any]:
        scale = self.off * self.event.noise_multiplier  # type: ignore[attr-defined]
        if isinstance(self.event, Laplace):
            return data + self.random.laplace(scale=scale, size=count)
        return data + self.random.normal(scale=scale, size=count)


# One signed number per user: a replaced user moves it twice as far as a removed one.
ONE = Contribution("user", "shared", "signed", norm="l1")
LAWS: dict[str, tuple[Event, float]] = {
    "laplace": (Laplace(1.0, ONE), 0.0),
    "gaussian": (Gaussian(2.0, Contribution("user", "shared", "signed")), 1e-3),
}


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_true_noise_is_kept_and_half_of_it_violated(law: str, down: bool) -> None:
    event, delta = LAWS[law]
    for off in (1.0, 0.5):
        mechanism = Noisy(event, off, delta, down)
        assert isinstance(mechanism, Mechanism)
        found = dg.audit(mechanism, units=(1, 2), draws=200_000, seconds=600)
        assert len(found.lines) == 4
        assert found.verdict == ("kept" if off == 1.0 else "violated")
        for line in found.lines:
            assert line.free.epsilon is not None
            assert line.free.epsilon > 0.6 * line.claim
            assert line.named.epsilon is None
            assert (line.free.epsilon <= line.claim) == (off == 1.0)
            assert line.free.seen == (2.0 if off == 1.0 else 1.0)
        assert found.draws == 200_000
        assert "200,000 draws" in str(found)
        assert len(found.claimed) == 4


def test_false_refutations_are_as_rare_as_stated() -> None:
    """With confidence 0.5 at most half of the audits of an exact claim may refute it."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(40):
        mechanism = Noisy(LAWS["laplace"][0], random=rng)
        found = dg.audit(mechanism, units=[1], draws=2000, confidence=0.5)
        wrong += found.verdict == "violated"
    assert wrong <= 20 + 3 * math.sqrt(10)


def test_weak_and_missing_neighbours_are_reported() -> None:
    class OneUnit(Noisy):
        def neighbours(self, units: int, relation: Relation) -> tuple[int, int] | None:
            return super().neighbours(units, relation) if units == 1 else None

    found = dg.audit(OneUnit(LAWS["laplace"][0]), units=(1, 2), draws=2000)
    assert [line.units for line in found.lines] == [1, 1]
    assert found.verdict == "weak"
    assert "Not audited for 2 units (zero_out): no neighbours." in found.notes


def test_numbers_of_any_kind_are_counted() -> None:
    class Odd(Noisy):
        def draw(self, data: int, count: int) -> Any:
            numbers = super().draw(data, count)
            numbers[:2] = math.inf, -math.inf
            return numbers.tolist()

    assert dg.audit(Odd(LAWS["laplace"][0]), units=[1], draws=40_000).verdict != "violated"


def test_equal_neighbours_are_not_kept() -> None:
    class Off(Noisy):
        def neighbours(self, units: int, relation: Relation) -> tuple[int, int]:
            return 0, 5 * (units - 1)

    assert dg.audit(Off(LAWS["laplace"][0]), units=[1], draws=40_000).verdict == "weak"


def test_an_outcome_without_order_is_rejected() -> None:
    class Undefined(Noisy):
        def draw(self, data: int, count: int) -> NDArray[Any]:
            return np.where(self.random.random(count) < 0.01 * data, np.nan, 0.0)

    with refuses("query", "NaN", "−inf"):
        dg.audit(Undefined(LAWS["laplace"][0]))


def test_repeated_noise_is_rejected() -> None:
    class Seeded(Noisy):
        def draw(self, data: int, count: int) -> NDArray[Any]:
            self.random = np.random.default_rng(1)
            return super().draw(data, count)

    with refuses("query", "new random numbers", "generator once"):
        dg.audit(Seeded(LAWS["laplace"][0]))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda data: data, ["query", "neighbours(units, relation)", "own-mechanisms.md"]),
        (Noisy, ["query", "draw(data, count)"]),
        (3, ["query", "dpgrain.count.query"]),
    ],
)
def test_other_objects_are_explained(wrong: Any, words: list[str]) -> None:
    with refuses(*words):
        dg.audit(wrong)


def test_a_query_of_arrays_is_pointed_to_mechanisms() -> None:
    query = dg.mean_of_users.query(np.ones((3, 1)), bound=1.0, epsilon=1.0, delta=1e-6)
    with refuses("query", "mechanism", "draw(data, count)"):
        dg.audit(query)


@pytest.mark.parametrize("shape", [(), (3,), (1, 10)])
def test_draws_of_another_shape_are_rejected(shape: tuple[int, ...]) -> None:
    class Shaped(Noisy):
        def draw(self, data: int, count: int) -> Any:
            return np.zeros(shape)

    with refuses("query", "one number for each"):
        dg.audit(Shaped(LAWS["laplace"][0]))


@pytest.mark.parametrize("stated", [{"rows": "curator"}, {"random_state": 1}])
def test_arguments_of_queries_are_rejected(stated: dict[str, Any]) -> None:
    with refuses(*stated):
        dg.audit(Noisy(LAWS["laplace"][0]), **stated)


def test_a_false_guarantee_is_rejected() -> None:
    class Bare(Noisy):
        @property
        def guarantee(self) -> Any:
            return 1.0

    with refuses("query", "Guarantee as guarantee"):
        dg.audit(Bare(LAWS["laplace"][0]))

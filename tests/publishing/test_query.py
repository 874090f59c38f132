from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian, Laplace, calibrate_gaussian
from dpgrain.publishing import Charge, Planned, Price, Promise, Query, publish, publishes
from dpgrain.publishing.expected import Expected

USER = Contribution(block="user")


@dataclass(frozen=True)
class Number(Query[int]):
    """A toy: the number 0, with noise; what its run does besides is the test's."""

    promise: Promise
    also: Callable[[Charge, Gaussian], Any] = lambda *_: None
    random_state: Any = None

    @property
    def event(self) -> Gaussian:
        promise = self.promise
        return calibrate_gaussian(promise.epsilon, promise.delta, contribution=USER)

    @property
    def plan(self) -> Planned:
        promise = self.promise
        told = dg.Guarantee("user", "", promise.relation, promise.delta, self.event)
        return Planned(told, 1000, expected=Expected(self.event.noise_multiplier))

    def run(self, charge: Charge) -> int:
        self.also(charge, self.event)
        return int(charge.noisy(self.event, np.zeros(1, dtype=np.int64), 2.0**20)[0])


def asked(epsilon: float | None = 1.0, share: float | None = None, **options: Any) -> Number:
    return Number(Promise.of(dg.User(), epsilon, 1e-6, "zero_out", share), **options)


def test_a_plan_reads_draws_and_charges_nothing() -> None:
    with dg.budget(1.0, 1e-6) as whole:
        plan = asked(share=0.5, epsilon=None).settled().plan
    assert whole.left == 1.0
    assert plan.guarantee.private
    assert str(plan.expected).startswith("±")


def test_a_release_is_charged_before_it_runs() -> None:
    spent: list[float] = []
    with dg.budget(2.0, 1e-5) as whole:
        publish(asked(also=lambda *_: spent.append(1 - whole.left)))
    assert spent[0] > 0.1
    assert spent[0] == 1 - whole.left


def test_what_is_refused_does_not_run() -> None:
    def never(*_: Any) -> None:
        raise AssertionError("it ran")

    with dg.budget(0.1, 1e-6) as whole, pytest.raises(dg.RefusedError):
        publish(asked(also=never))
    assert whole.left == 1.0


def test_a_share_is_settled_by_plans() -> None:
    with dg.budget(1.0, 1e-6) as whole:
        publish(asked(share=0.25, epsilon=None))
        assert whole.left == pytest.approx(0.75, abs=2e-3)
        publish(asked(share=0.75, epsilon=None))
    assert 0 <= whole.left < 5e-3


def test_more_than_was_charged_is_not_drawn() -> None:
    """A seeded bug of each kind: a second draw, a smaller multiplier, another law."""
    sums = np.zeros(1, dtype=np.int64)

    def twice(charge: Charge, event: Gaussian) -> None:
        charge.noisy(event, sums, 2.0**20)

    def smaller(charge: Charge, event: Gaussian) -> None:
        charge.noisy(replace(event, noise_multiplier=0.9 * event.noise_multiplier), sums, 2.0**20)

    def other(charge: Charge, event: Gaussian) -> None:
        charge.noisy(Laplace(event.noise_multiplier), sums, 2.0**20)

    for also in (twice, smaller, other):
        with pytest.raises(RuntimeError, match="as often as it was charged"):
            publish(asked(also=also))


def test_a_seed_is_told_by_the_charge() -> None:
    private: list[bool] = []

    def noted(charge: Charge, _: Gaussian) -> None:
        private.append(charge.guarantee.private)

    for seed in (None, 1):
        publish(
            asked(
                random_state=seed, also=lambda charge, _: private.append(charge.guarantee.private)
            )
        )
    assert private == [True, False]


def test_a_query_may_stand_in_a_plan() -> None:
    """It is composed exactly, made as the same query, and charged once it is made a second time."""
    planned = asked(0.5)
    with dg.budget(1.0, 1e-5, plan=[planned]) as whole:
        publish(planned)
        assert whole.spent == Price()
        publish(planned)
        assert whole.spent != Price()


@publishes
def number(epsilon: float, random_state: int | None = None) -> Query[int]:
    """A number."""
    return asked(epsilon, random_state=random_state)


def test_a_door_publishes_and_gives_its_query() -> None:
    assert isinstance(number(1.0, random_state=1), int)
    assert number.query(1.0).plan == asked(1.0).plan
    signature = inspect.signature(number)
    assert list(signature.parameters) == ["epsilon", "random_state"]
    assert signature.return_annotation == "int"
    assert number.__doc__ == "A number."

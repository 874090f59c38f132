from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian, Laplace, calibrate_gaussian
from dpgrain.publishing import Charge, Plan, Price, Promise, Query, publish, publishes
from dpgrain.publishing.release_plan import Expected

USER = Contribution(block="user")


@dataclass(frozen=True)
class Number(Query[int]):
    """A sample query: the number 0, with noise; the test decides the other effects of its run."""

    promise: Promise
    also: Callable[[Charge, Gaussian], Any] = lambda *_: None
    random_state: Any = None

    @property
    def event(self) -> Gaussian:
        promise = self.promise
        return calibrate_gaussian(promise.epsilon, promise.delta, contribution=USER)

    @property
    def plan(self) -> Plan:
        promise = self.promise
        told = dg.Guarantee("user", "", promise.relation, promise.delta, self.event)
        return Plan(told, 1000, expected=Expected(self.event.noise_multiplier))

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


def test_rejected_query_does_not_run() -> None:
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
    """One mutant of each type: a second draw, a smaller multiplier, another distribution."""
    sums = np.zeros(1, dtype=np.int64)

    def twice(charge: Charge, event: Gaussian) -> None:
        charge.noisy(event, sums, 2.0**20)

    def smaller(charge: Charge, event: Gaussian) -> None:
        charge.noisy(replace(event, noise_multiplier=0.9 * event.noise_multiplier), sums, 2.0**20)

    def other(charge: Charge, event: Gaussian) -> None:
        charge.noisy(Laplace(event.noise_multiplier), sums, 2.0**20)

    for also in (twice, smaller, other):
        with pytest.raises(RuntimeError, match="no charged draws left"):
            publish(asked(also=also))


def test_seed_is_reported_by_the_charge() -> None:
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


@pytest.mark.parametrize(
    "promise",
    [Promise(dg.Record(), 1.0, 1e-6, "zero_out"), Promise(dg.User(), 1.0, 1e-6, "replace")],
)
def test_a_query_keeps_its_unit_and_relation(promise: Promise) -> None:
    """The first unit determined its rows, which another guarantee must not rename."""
    with refuses("promise", "relation"):
        asked().with_promise(promise)
    assert asked().with_promise(Promise(dg.User(), 0.5, 1e-6, "zero_out")).promise.epsilon == 0.5


def test_copied_mean_of_users_guarantees_nothing_to_other_units() -> None:
    query: Any = dg.mean_of_users.query(
        np.ones((4, 2)), users=[1, 1, 2, 3], bound=2.0, epsilon=1.0, delta=1e-6, n_users=3
    )
    for unit in (dg.Record(), dg.User(5)):
        with refuses("promise", "cannot change the unit"):
            replace(query, promise=replace(query.promise, unit=unit))


def test_shares_of_several_parts_are_exact() -> None:
    """A share is priced in its part of the limits, as settled, whatever else remains."""
    rows = pa.table({"who": [1, 2, 2], "v": [0.5, 1.0, 0.0]})
    table = dg.read(rows, user="who")
    options: dict[str, Any] = {"bounds": (0, 1), "unit": dg.User(), "noise": "laplace"}
    with dg.budget(1.0, 1e-6, pure=0.5) as whole:
        for left in (0.5, 0.0):
            dg.mean(table, "v", share=0.5, **options)
            assert whole.left == pytest.approx(left, abs=0.01)


def test_a_query_shows_no_rows() -> None:
    rows = np.array([[12345.678]])
    query = dg.select.query([0.0], lambda _, x: x[:, 0], rows, ["SECRET"], epsilon=1.0)
    assert "SECRET" not in repr(query)
    assert "12345" not in repr(query)
    for module in (
        "learn.query",
        "learn.minimise",
        "learn.tuning",
        "means.user_mean",
        "papers.generic",
        "shuffle.protocol",
        "statistics.top",
        "papers.typical",
    ):
        import_module(f"dpgrain.{module}")
    queries = _subclasses(Query) - {Query, Number}
    # Other tests load programs with queries of their own.
    queries = {query for query in queries if query.__module__.startswith("dpgrain.")}
    assert len(queries) > 8
    # A query shows only its fields, which may be rows.
    shown = [cls for cls in queries if {"__repr__", "__eq__", "__getstate__"} & vars(cls).keys()]
    assert shown == []


def _subclasses(cls: type) -> set[type]:
    return {cls}.union(*map(_subclasses, cls.__subclasses__()))


def test_errors_passing_through_rows_are_not_quoted() -> None:
    def labels() -> Iterator[str]:
        yield "ann"
        raise ValueError("SECRET")

    with refuses("the iterator", "raised an error", kind=dg.DataError) as error:
        dg.select([0.0], lambda _, x: x, np.zeros(2), labels(), epsilon=1.0)
    assert "SECRET" not in str(error.value)
    assert error.value.__cause__ is None


def test_query_may_be_in_a_plan() -> None:
    """It is composed exactly, published as the same query, and charged if repeated."""
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

"""Publishing: refusals, reservations and functions that publish a query."""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.publishing import cases
from tests.refusals import no_room, refused_when_forked, refuses

import dpgrain as dg
from dpgrain.means.user_mean import MeanOfUsers, mean_of_users
from dpgrain.publishing import Price
from dpgrain.publishing.origins import ArrayOrigin, array_origin
from dpgrain.publishing.publish import (
    Reservation,
    before_publishing,
    before_resuming,
    published,
    publishes,
    reserve,
)
from dpgrain.publishing.query import Query
from dpgrain.scope.regions import EVERYTHING, LabelSet, Region, Side


def _count(table: dg.UserTable, epsilon: float) -> Query[dg.Histogram]:
    asked = {"epsilon": epsilon, "delta": 1e-7, "clip": 5.0, "noise": "gaussian", **cases.USER}
    return dg.count.query(table, **asked)


def _guarantees(*epsilons: float) -> list[dg.Guarantee]:
    return [_count(cases.unread(), epsilon).plan.guarantee for epsilon in epsilons]


def test_they_are_charged_together_and_made_in_any_order() -> None:
    guarantees = _guarantees(0.3, 0.4, 0.3)
    together = reduce(add, guarantees)
    with dg.budget(2.0, 1e-5) as whole:
        held = reserve(together, guarantees)
        spent = whole.spent
        for epsilon in (0.3, 0.3, 0.4):
            held.publish(_count(cases.table(), epsilon))
        with pytest.raises(dg.ParameterError, match="not part of the reservation"):
            held.publish(_count(cases.unread(), 0.4))
        assert whole.spent == spent
        dg.publish(_count(cases.table(), 0.4))
        assert whole.spent.mu > spent.mu
    with dg.budget(2.0, 1e-5) as single:
        for epsilon in (0.3, 0.4, 0.3):
            dg.publish(_count(cases.table(), epsilon))
    assert spent.mu == pytest.approx(single.spent.mu)


def test_rejection_charges_and_reads_nothing() -> None:
    guarantees = _guarantees(0.9, 0.9)
    with dg.budget(1.0, 1e-6) as whole:
        with no_room():
            reserve(reduce(add, guarantees), guarantees)
        assert whole.spent == Price()
        assert whole.guarantee is None


def test_non_boolean_progress_is_rejected_before_the_charge() -> None:
    progress: Any = "yes"
    asked = {**cases.USER, "clip": 5.0, "noise": "gaussian", "progress": progress}
    with dg.budget(1.0, 1e-6) as whole:
        with refuses("progress", "'yes'"):
            dg.count(cases.unread(), share=0.5, **asked)
        assert whole.spent == Price()


def test_failed_release_was_charged() -> None:
    guarantees = _guarantees(0.3, 0.4)
    with dg.budget(1.0, 1e-6) as whole:
        held = reserve(reduce(add, guarantees), guarantees)
        with pytest.raises(AssertionError, match="rows were read"):
            held.publish(_count(cases.unread(), 0.3))
        assert whole.spent.mu > 0
        # A reservation without a release is not refunded.
        with no_room():
            dg.publish(_count(cases.unread(), 1.05))


def test_a_plan_takes_them_out_as_one() -> None:
    guarantees = _guarantees(0.3, 0.4)
    together = reduce(add, guarantees)
    with dg.budget(1.0, 1e-6, plan=[together]) as whole:
        held = reserve(together, guarantees)
        held.publish(_count(cases.table(), 0.4))
        held.publish(_count(cases.table(), 0.3))
        assert whole.spent == Price()


@pytest.mark.slow(cases=9)
@pytest.mark.parametrize("epsilons", list(itertools.product((0.05, 0.2, 0.5), repeat=3)), ids=str)
def test_total_price_is_at_least_the_composition(
    epsilons: tuple[float, float, float],
) -> None:
    """A budget with these limits satisfies its guarantee: they cover the releases' costs."""
    guarantees = _guarantees(*epsilons)
    together = reduce(add, guarantees)
    with dg.budget(3.0, 1e-5) as whole:
        held = reserve(together, guarantees)
        for epsilon in epsilons:
            held.publish(_count(cases.table(), epsilon))
    made = together.event.loss(1, "zero_out", dg.User())
    assert whole.spent.mu >= made.mu * (1 - 1e-12)
    assert made.delta(3.0) <= whole.caps.delta(3.0) <= 1e-5


def test_continued_run_is_charged_to_an_exhausted_ledger(tmp_path: Path) -> None:
    one, two = (
        dg.Ledger.create(
            tmp_path / name, name=name, promises=[dg.LastingPromise.of(dg.User(), 9.0, 1e-4)]
        )
        for name in ("one", "two")
    )
    (begun,) = _guarantees(0.3)
    with one:
        begun = before_publishing(begun)
    spent = one.left(1)
    assert spent < 1
    with one:
        assert before_resuming(begun) == begun
    assert one.left(1) == spent
    with two:
        resumed = before_resuming(begun)
    assert two.left(1) == spent
    assert [receipt.ledger for receipt in resumed.receipts] == [one.id, two.id]


def test_continued_run_is_charged_to_a_budget_regardless(
    tmp_path: Path,
) -> None:
    promises = [dg.LastingPromise.of(dg.User(), 9.0, 1e-4)]
    (begun,) = _guarantees(0.3)
    with dg.Ledger.create(tmp_path / "one", name="one", promises=promises) as ledger:
        begun = before_publishing(begun)
        left = ledger.left(1)
        with dg.budget(1.0, 1e-5) as whole:
            before_resuming(begun)
            assert whole.guarantee is not None
            assert whole.guarantee.epsilon(1e-5) >= begun.epsilon(1e-5)
        assert ledger.left(1) == left


@pytest.mark.parametrize("together", [False, True])
def test_nested_release_uses_separate_rows(together: bool) -> None:
    """A caller's loss may publish something of all days inside a fit of the rows of one."""
    query = dg.select.query(
        [0.0, 1.0], lambda one, rows: abs(rows - one), [0.3, 0.4], epsilon=1.0, unit=dg.Record()
    )
    held = reserve(query.plan.guarantee, [query.plan.guarantee]) if together else None
    with array_origin(
        ArrayOrigin(Region((Side("day", LabelSet(("2026-02-01",))),)), provenance="table")
    ):
        made = dg.publish(query) if held is None else held.publish(query)
    assert made.guarantee.scope == EVERYTHING
    assert made.guarantee.provenance == "as given"


@pytest.mark.slow
def test_a_large_epsilon_is_warned_of_once() -> None:
    code = """
import warnings, pyarrow as pa, dpgrain as dg
table = dg.read(pa.table({"who": [1, 2]}), user="who")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for epsilon in (10.0, 11.0, 50.0):
        dg.count(table, unit=dg.User(), epsilon=epsilon, delta=1e-6)
        print(epsilon, [each.category.__name__ for each in caught])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "10.0 []", "11.0 ['EpsilonWarning']", "50.0 ['EpsilonWarning']"
    ]  # fmt: skip


def _guarantee(**options: Any) -> dg.Guarantee:
    table = options.pop("table", None) or cases.table()
    asked = {**cases.USER, "epsilon": 0.5, "delta": 1e-7, "clip": 5.0, **options}
    return dg.count.query(table, **asked).plan.guarantee


def _held(*guarantees: dg.Guarantee) -> Reservation:
    return Reservation(reduce(add, guarantees), guarantees)


def test_each_release_is_taken_once() -> None:
    held = _held(_guarantee(), _guarantee(), _guarantee(epsilon=0.2))
    for promise in (_guarantee(), _guarantee(epsilon=0.2), _guarantee()):
        held.take(promise)
    for promise in (_guarantee(), _guarantee(epsilon=0.2)):
        with pytest.raises(dg.ParameterError, match="not part of the reservation"):
            held.take(promise)


@pytest.mark.parametrize(
    "other",
    [
        lambda: _guarantee(epsilon=0.4),
        lambda: _guarantee(relation="replace"),
        lambda: _guarantee(table=dg.read(cases.ROWS.rename_columns(["me", *"pbc"]), user="me")),
        lambda: _guarantee(table=cases.table().where(page="a")),
    ],
    ids=["noise", "relation", "users", "region"],
)
def test_different_release_is_rejected(other: Callable[[], dg.Guarantee]) -> None:
    with pytest.raises(dg.ParameterError, match=r"not part of the reservation|do not compose"):
        _held(_guarantee()).take(other())


def test_of_many_threads_one_takes_it() -> None:
    held, promise = _held(_guarantee(), _guarantee()), _guarantee()
    start = threading.Barrier(16)

    def take(_: int) -> bool:
        start.wait()
        try:
            held.take(promise)
        except dg.ParameterError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(take, range(16))) == 2


def test_release_happens_once() -> None:
    asked = {**cases.USER, "epsilon": 0.5, "delta": 1e-7, "clip": 5.0}
    query = dg.count.query(cases.table(), **asked)
    held = _held(query.plan.guarantee)
    assert held.publish(query).guarantee == query.plan.guarantee
    with refuses("this", "already published"):
        held.publish(dg.count.query(cases.unread(), **asked))


def test_copy_in_another_process_is_rejected() -> None:
    held = _held(promise := _guarantee())
    refused_when_forked(lambda: held.take(promise), "another process")
    held.take(promise)


VECTORS, USERS = np.ones((20, 2)), np.arange(20)


class People:
    def __init__(self, vectors: Any) -> None:
        self.vectors = vectors

    def asked(self, *, epsilon: float, delta: float = 1e-6) -> Query[MeanOfUsers]:
        """Publish the mean."""
        return mean_of_users.query(
            self.vectors, users=USERS, bound=2.0, epsilon=epsilon, delta=delta, method="clip"
        )

    mean = published(asked, "mean")


def test_function_publishes_its_query() -> None:
    def asked(vectors: Any, *, epsilon: float) -> Query[MeanOfUsers]:
        """Publish the mean of all users."""
        return People(vectors).asked(epsilon=epsilon)

    door = publishes(asked)
    assert door.query is asked
    assert door.__doc__ == "Publish the mean of all users."
    assert inspect.signature(door).return_annotation == "MeanOfUsers"
    with dg.budget(1.0, 1e-5) as whole:
        assert 0.49 < door(VECTORS, epsilon=0.5).guarantee.epsilon() <= 0.5
        assert whole.left < 1
    with pytest.raises(TypeError, match="delta"):
        door(VECTORS, epsilon=0.5, delta=0.1)  # type: ignore[call-arg]


def test_method_publishes_the_query_of_another() -> None:
    people = People(VECTORS)
    with dg.budget(1.0, 1e-5) as whole:
        assert 0.49 < people.mean(epsilon=0.5).guarantee.epsilon() <= 0.5
        left = whole.left
        assert people.asked(epsilon=0.5).plan.guarantee.level == "user"
        assert whole.left == left < 1
    assert (People.mean.__name__, People.mean.__qualname__) == ("mean", "People.mean")
    assert People.mean.__doc__ == "Publish the mean."
    mean, asked = (inspect.signature(method) for method in (People.mean, People.asked))
    assert mean.parameters == asked.parameters
    assert (mean.return_annotation, asked.return_annotation) == (
        "MeanOfUsers",
        "Query[MeanOfUsers]",
    )

"""Reserved releases are charged as one, before any of them reads anything."""

from __future__ import annotations

import itertools
import subprocess
import sys
from functools import reduce
from operator import add
from pathlib import Path

import pytest
from tests.publishing import cases
from tests.refusals import no_room

import dpgrain as dg
from dpgrain.publishing import Price
from dpgrain.publishing.origins import ArrayOrigin, array_origin
from dpgrain.publishing.publish import before_publishing, before_resuming, reserve
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
        print(epsilon, [each.category.__name__ for each in caught])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "10.0 []", "11.0 ['EpsilonWarning']", "50.0 ['EpsilonWarning']"
    ]  # fmt: skip

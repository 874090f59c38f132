"""Planned releases are composed exactly, and publish nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.publishing import cases
from tests.refusals import no_room, refuses

import dpgrain as dg
from dpgrain.accounting import (
    PureDP,
)
from dpgrain.publishing import Price

PURE = PureDP(0.1)
#: A choice between two numbers.
CHOICE = ([0.0, 0.5], lambda c, x: abs(x - c), cases.VECTORS[:, 0], cases.OWNERS)


def test_plan_composes_exactly_and_runs_in_any_order() -> None:
    """Sampled runs and pure parts cost less in a plan than at their prices."""
    releases: list[Callable[[], Any]] = [
        lambda: dg.count.query(cases.table(), noise="laplace", clip=5.0, epsilon=0.3, **cases.USER),
        lambda: dg.top.query(
            cases.table(),
            "page",
            method="truncated",
            max_items=1,
            epsilon=0.3,
            delta=1e-7,
            **cases.USER,
        ),
        lambda: dg.mean.query(
            cases.table(), "paid", noise="gaussian", epsilon=0.3, delta=1e-7, **cases.USER
        ),
    ]
    with dg.budget(1.2, 1e-6, plan=releases) as b:
        for release in reversed(releases):
            dg.publish(release())
        assert b.spent == Price()
        # Each plan is used once: a second time it is charged at its price, which does not fit.
        with no_room():
            dg.publish(releases[0]())
    assert b.guarantee is not None
    assert b.guarantee.epsilon(1e-6) <= 1.2
    with dg.budget(1.2, 1e-6), pytest.raises(dg.ParameterError, match="pure="):
        dg.publish(releases[0]())


def test_choice_in_a_budget_is_planned_in_it() -> None:
    """Noise and mechanism depend on whether a budget is open: plans assume an open one."""
    releases: list[Callable[[], Any]] = [
        lambda: dg.count.query(cases.table(), epsilon=0.2, delta=1e-7, **cases.USER),
        lambda: dg.top.query(cases.table(), "page", epsilon=0.2, delta=1e-7, **cases.USER),
        lambda: dg.select.query(*CHOICE, epsilon=0.1),
    ]
    with dg.budget(1.0, 1e-6, plan=releases[:2]) as b:
        for release in releases[:2]:
            dg.publish(release())
        assert b.spent == Price()
    with dg.budget(1.0, 1e-6, plan=releases[2:]) as b:
        dg.publish(releases[2]())
        assert b.spent == Price()


def test_plan_lists_the_budget_shares_of_its_parts() -> None:
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, **cases.USER}
    plan = dg.mean.query(cases.table(), "paid", by="page", noise="gaussian", **options).plan
    event = plan.guarantee.event
    assert list(plan.parts) == [
        "selection", "range", "values outside", "alignment", "bounds", "sums"
    ]  # fmt: skip
    assert sum(plan.shares.values()) == pytest.approx(1.0)
    for part, share in plan.shares.items():
        assert plan.parts[part].loss().mu ** 2 == pytest.approx(share * event.loss().mu ** 2)
    assert "\nShares of the budget: selection 30%, range 15%, " in str(plan)
    laplace = dg.count.query(cases.table(), noise="laplace", **options).plan
    assert {part: round(share, 3) for part, share in laplace.shares.items()} == {
        "bounds": 0.285,
        "clipped units": 0.05,
        "sums": 0.665,
    }
    scaled = dg.count.query(cases.table(), by="page", **options).plan
    assert {part: round(share, 3) for part, share in scaled.shares.items()} == {
        "selection": 0.3,
        "alignment": 0.033,
        "group scales": 0.04,
        "bounds": 0.06,
        "scaled bounds": 0.06,
        "clipped units": 0.035,
        "sums": 0.472,
    }
    # A choice by Gumbel noise has no share of μ².
    items: dict[str, Any] = {"domain": ["a", "b"], "k": 1, "method": "gumbel"}
    chosen = dg.top.query(cases.table(), "page", **items, **options).plan
    assert list(chosen.parts) == ["selection", "bounds", "sums"]
    assert chosen.shares == {}
    assert "Shares" not in str(chosen)


def test_a_plan_publishes_nothing() -> None:
    asked = {**cases.USER, "clip": 5.0, "epsilon": 0.5, "delta": 1e-7}
    with refuses("plan", "count.query(…)"):
        dg.budget(1.0, 1e-6, plan=[lambda: dg.count(cases.unread(), **asked)])
    with pytest.raises(dg.ParameterError, match="best_of must not run inside a budget"):
        dg.budget(
            1.0, 1e-6, plan=[lambda: dg.best_of(lambda _: (1.0, "made"), event=PURE, mean=5.0)]
        )
    # Afterwards all is as before.
    dg.count(cases.table(), **asked)


def test_share_refers_to_the_charged_budget() -> None:
    """A loss that closes the budget in the meantime does not make the choice free."""
    b = dg.budget(1.0, 1e-6)

    def closing(candidate: float, x: Any) -> Any:
        b.__exit__(None, None, None)
        return abs(x - candidate)

    with b, refuses("budget", "closed"):
        dg.select([0.0, 0.5], closing, cases.VECTORS[:, 0], cases.OWNERS, share=1.0)
    assert b.guarantee is None


def test_plan_reads_nothing_and_leaves_budget_for_unplanned_releases() -> None:
    with dg.budget(
        1.0,
        1e-6,
        plan=[lambda: dg.count.query(cases.unread(), clip=5.0, **cases.USER, epsilon=0.5)],
    ) as b:
        assert b.guarantee is None
        dg.count(cases.table(), clip=5.0, **cases.USER, share=1)
        assert b.caps.delta(1.0) <= 1e-6
    with refuses("plan", "NoneType"):
        dg.budget(1.0, 1e-6, plan=[lambda: None])
    with refuses("plan", "plan less"):
        dg.budget(
            1.0,
            1e-6,
            plan=[lambda: dg.count.query(cases.unread(), clip=5.0, **cases.USER, epsilon=1.5)],
        )
    other = [
        lambda: dg.count.query(cases.unread(), clip=5.0, **cases.USER, epsilon=0.1),
        lambda: dg.count.query(cases.unread(), clip=5.0, unit=dg.Record(), epsilon=0.1),
    ]
    with refuses("guarantees", "compose"):
        dg.budget(1.0, 1e-6, plan=other)

"""A guarantee's errors and knowledge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.publishing import cases
from tests.refusals import no_room, refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian, calibrate_gaussian
from dpgrain.publishing import Promise
from dpgrain.units import Unit

UNITS: dict[str, Unit] = {
    "record": dg.Record(),
    "element": dg.Element({"a": 1}),
    "user": dg.User(max_elements=3),
}
STATED: dict[str, Any] = {
    "unit": dg.User(), "epsilon": 1.0, "delta": 1e-6, "relation": "zero_out",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", wrong) for wrong in (0, -1.0, float("inf"), float("nan"), "1", True)],
        *[("delta", wrong) for wrong in (-1e-9, 1, float("nan"), "0", False)],
        *[("relation", wrong) for wrong in ("add", "", None, 1)],
        *[("unit", wrong) for wrong in ("user", None, dg.User, 1)],
    ],
)
def test_invalid_value_is_rejected_by_its_name(name: str, value: object) -> None:
    with pytest.raises(dg.ParameterError, match=f"^{name} must "):
        Promise(**{**STATED, name: value})


@pytest.mark.parametrize("level", UNITS)
def test_it_has_the_level_and_plain_unit(level: str) -> None:
    promise = Promise(UNITS[level], 1, 0, "replace")
    assert promise.level == level == promise.plain_unit.level
    assert promise.plain_unit == type(UNITS[level])()
    assert hash(promise) == hash(Promise(UNITS[level], 1.0, 0.0, "replace"))


def test_numbers_are_stored_as_floats() -> None:
    promise = Promise(dg.User(), 1, 0, "zero_out")
    assert (type(promise.epsilon), type(promise.delta)) == (float, float)


def test_zero_delta_is_rejected_with_the_callers_message() -> None:
    promise = Promise(**STATED)
    promise.require_delta("delta = 0 does not do.")
    with refuses("delta", "0") as caught:
        replace(promise, delta=0.0).require_delta("delta = 0 does not do.")
    assert caught.value.name == "delta"


def test_exactly_one_of_epsilon_and_share_is_required() -> None:
    with refuses("epsilon", "required"):
        Promise.of(dg.User(), None, 1e-6, "zero_out")
    with refuses("epsilon", "omitted"):
        Promise.of(dg.User(), 1.0, 1e-6, "zero_out", 0.5)
    with refuses("share", "budget"):
        Promise.of(dg.User(), None, 1e-6, "zero_out", 0.5)


def event_of(promise: Promise) -> Gaussian:
    return calibrate_gaussian(
        promise.epsilon,
        promise.delta,
        contribution=Contribution(block="user"),
        relation=promise.relation,
        unit=promise.plain_unit,
    )


def test_stated_promise_is_settled_unchanged() -> None:
    promise = Promise(**STATED)
    assert promise.settled(event_of) is promise
    assert promise.share is None


def test_share_is_settled_at_its_epsilon() -> None:
    with dg.budget(1.0, 1e-6) as budget:
        half = Promise.of(dg.User(), None, 0.5, "zero_out", 0.5)
        whole = Promise.of(dg.User(), None, 0.5, "zero_out", 1.0)
    settled = half.settled(event_of)
    assert half.share is not None
    assert settled.share is not None
    assert half.share.budget is settled.share.budget is budget
    assert 0 < settled.epsilon < whole.settled(event_of).epsilon
    assert 0.98 < event_of(whole.settled(event_of)).epsilon(1e-6) <= 1


def test_shares_of_a_pure_budget() -> None:
    with dg.budget(1.0) as b:
        for part in (0.25, 0.75):
            release = dg.count(
                cases.table(),
                by="page",
                domain=cases.PAGES,
                noise="laplace",
                **cases.USER,
                share=part,
            )
            assert release.guarantee.epsilon() == pytest.approx(part, rel=1e-6)
    assert b.guarantee is not None
    assert b.guarantee.delta == 0
    assert 0.999 < b.guarantee.epsilon() <= 1.0
    assert b.caps.epsilon(0.0) <= 1.0
    with dg.budget(1.0), no_room():
        dg.count(cases.unread(), clip=5.0, noise="gaussian", **cases.USER, epsilon=0.1, delta=1e-6)


def test_budget_may_be_reserved_for_pure_parts() -> None:
    """►: a cap on ε is cheaper for one large pure release than its price as Gaussian noise."""
    for pure, noise, without in ((0.1, 1.068, 1.18), (0.05, 1.021, 1.037)):
        kept = dg.budget(1.0, 1e-6, pure=pure)
        more = dg.budget(1.0, 1e-6).caps.price.mu / kept.caps.price.mu
        assert more == pytest.approx(noise, abs=2e-3)
        asked: Any = {"noise": "laplace", "clip": 5.0, **cases.USER}
        with kept as b:
            dg.count(cases.table(), epsilon=pure * (1 - 1e-8), **asked)
            assert b.spent.mu == 0
            dg.count(cases.table(), clip=5.0, **cases.USER, share=1)
        with dg.budget(1.0, 1e-6) as b:
            dg.count(cases.table(), epsilon=pure, **asked)
            left = b.caps.price.mu**2 - b.spent.mu**2
            assert b.caps.price.mu / left**0.5 == pytest.approx(without, abs=5e-3)


def test_half_of_a_budget_as_a_promise() -> None:
    """►: half of (1, 10⁻⁶) is ε = .790 at δ = 5·10⁻⁸ of Gaussian noise."""
    with dg.budget(1.0, 1e-6) as b:
        assert b.caps.price.mu == pytest.approx(0.2355, abs=5e-5)
        half = dg.count(cases.table(), noise="gaussian", clip=5.0, share=0.5, **cases.USER)
    assert half.guarantee.epsilon(5e-8) == pytest.approx(0.790, abs=5e-4)


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan"), "half"])
def test_share_is_between_0_and_1(share: Any) -> None:
    with dg.budget(1.0, 1e-6), pytest.raises(dg.ParameterError, match="share must"):
        dg.count(cases.unread(), **cases.USER, share=share)


def test_share_needs_a_budget_and_replaces_epsilon() -> None:
    with refuses("share", "budget"):
        dg.count(cases.unread(), **cases.USER, share=0.5)
    with refuses("epsilon", "required"):
        dg.count(cases.unread(), **cases.USER, delta=1e-6)
    with dg.budget(1.0, 1e-6), refuses("epsilon", "omitted"):
        dg.count(cases.unread(), **cases.USER, share=0.5, epsilon=1.0)


def test_names_need_a_leak() -> None:
    with dg.budget(1.0, 1e-6, leak=0), refuses("share", "leak="):
        dg.count(cases.unread(), by="page", **cases.USER, share=0.5)

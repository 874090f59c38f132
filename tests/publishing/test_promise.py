"""A guarantee's errors and knowledge."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses

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
        promise.pure().require_delta("delta = 0 does not do.")
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
    assert promise.budget is None


def test_share_is_settled_at_its_epsilon() -> None:
    with dg.budget(1.0, 1e-6) as budget:
        half = Promise.of(dg.User(), None, 0.5, "zero_out", 0.5)
        whole = Promise.of(dg.User(), None, 0.5, "zero_out", 1.0)
    settled = half.settled(event_of)
    assert half.budget is settled.budget is budget
    assert 0 < settled.epsilon < whole.settled(event_of).epsilon
    assert 0.98 < event_of(whole.settled(event_of)).epsilon(1e-6) <= 1

"""What a ledger promises: units, windows, caps."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from tests.ledger import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.ledger import AnyDays, AnyHours, LastingPromise
from dpgrain.ledger.window import Meeting
from dpgrain.publishing import Price
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import Region

MEETINGS: tuple[Meeting, ...] = get_args(Meeting)
TOPICS = Partition((Rule("topic"),))
PROMISES = [
    cases.USERS,
    cases.OF_DAYS,
    LastingPromise.of(dg.Record(), 1.0, relation="replace"),
    LastingPromise.of(dg.Element(["day", "country"]), 1.0, 1e-6, pure=0.1, leak=1e-8),
    LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(30, "day", "Europe/Paris")),
    LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyHours(720, "at")),
    LastingPromise.of(dg.Element("topic"), 1.0, 1e-6, window=AnyDays(7, "day")),
]


@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_a_promise_is_read_as_it_was_written(promise: LastingPromise) -> None:
    assert LastingPromise.from_dict(promise.to_dict()) == promise


@pytest.mark.parametrize(
    ("unit", "more", "told"),
    [
        (dg.Element(), {}, "Element of a column"),
        (dg.Element({"a": 1}), {}, "cannot store mappings"),
        (dg.Element([]), {}, "Element of a column"),
        (dg.User(max_elements=3), {}, "without max_elements"),
        ("user", {}, "unit must be"),
        (dg.User(), {"epsilon": 0}, "epsilon must be"),
        (dg.User(), {"delta": 1}, "delta must"),
        (dg.User(), {"pure": 2.0}, "pure must be at most"),
        (dg.User(), {"leak": 1.0}, "leak must be at most"),
        (dg.User(), {"relation": "add"}, "relation must be"),
        (dg.Record(), {"window": AnyDays(3, "day")}, "window is for users"),
        (dg.Element("day"), {"window": AnyDays(3, "day")}, "already defines the elements"),
    ],
)
def test_what_cannot_be_promised_is_refused(unit: Any, more: dict[str, Any], told: str) -> None:
    with pytest.raises(dg.ParameterError, match=told):
        LastingPromise.of(unit, **{"epsilon": 1.0, "delta": 1e-6, **more})


def test_caps_that_keep_no_promise_are_refused() -> None:
    values = {**cases.USERS.to_dict(), "caps": {"pure": 0.0, "mu": 0.3, "leak": 1e-7}}
    with refuses("caps", "promise"):
        LastingPromise.from_dict(values)
    less = {**cases.USERS.to_dict(), "caps": {"pure": -1e30, "mu": 0.2, "leak": 1e-7}}
    with refuses("pure", "at least 0"):
        LastingPromise.from_dict(less)


@pytest.mark.parametrize(
    ("promise", "reached"),
    [
        (cases.USERS, cases.on()),
        (cases.OF_DAYS, cases.on("2026-01-03", "2026-01-05")),
        (LastingPromise.of(dg.Record(), 1.0), cases.on("2026-01-03", "2026-01-05", "FR")),
        (LastingPromise.of(dg.Element("country"), 1.0), cases.on(country="FR")),
        (PROMISES[4], cases.on("2026-01-03", "2026-01-05")),
        (PROMISES[5], cases.on()),
        (PROMISES[6], cases.on("2026-01-03", "2026-01-05")),
        (
            LastingPromise.of(dg.Element(Partition((Rule("day", "month"),))), 1.0),
            cases.on("2026-01-01", "2026-01-31"),
        ),
    ],
    ids=str,
)
def test_a_release_reaches_the_units_that_its_region_meets(
    promise: LastingPromise, reached: Region
) -> None:
    assert promise.reach(cases.on("2026-01-03", "2026-01-05", "FR")) == reached


def test_a_unit_of_other_cells_that_nothing_bounds_is_refused() -> None:
    topics = LastingPromise.of(dg.Element("topic"), 1.0, 1e-6)
    with refuses("contribution", "unbounded"):
        topics.price(cases.of_days(10.0, cases.on()))
    with refuses("contribution", "unbounded"):
        cases.USERS.price(cases.of_days(10.0, cases.on()))


def test_a_user_is_charged_for_the_days_that_are_read() -> None:
    """7 whole blocks on disjoint coordinates cost 7 times one."""
    week = cases.of_days(10.0, cases.on("2026-01-01", "2026-01-07"))
    # The seven days, and the cell of records without a day, which the region leaves out.
    assert cases.USERS.price(week).mu == pytest.approx(0.1 * 7**0.5)
    any_30 = LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyDays(30, "day"))
    assert any_30.price(week).mu == pytest.approx(0.1 * 7**0.5)


def test_a_renewed_promise_is_to_the_same_units() -> None:
    new = PROMISES[4].renewed(2.0, 1e-7)
    assert (new.window, new.level, new.epsilon) == (PROMISES[4].window, "user", 2.0)
    assert isinstance(new.caps, Price)


def test_hours_that_hold_a_part_of_a_block_pay_for_a_part() -> None:
    """A block that loses a part may move twice as far as one that leaves, where signs may differ."""
    promise = LastingPromise.of(dg.User(), 1.0, 1e-6, window=AnyHours(720, "at"))
    event = Gaussian(10.0, Contribution(block="user", coordinates="signed"))
    asked = dg.Guarantee("user", "", "zero_out", 1e-9, event)
    prices = {meeting: promise.price(asked, None, meeting).mu for meeting in MEETINGS}
    assert prices == pytest.approx({"whole": 0.1, "parts": 0.2, "any": 0.2})

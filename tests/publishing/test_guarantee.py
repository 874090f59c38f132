"""The guarantee as one sentence and as a curve."""

from __future__ import annotations

import json
import math

import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Event, Gaussian, Laplace, PureDP
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import Region, Side, days
from dpgrain.units import Level, Relation, Unit


def promise(
    level: Level = "element", relation: Relation = "zero_out", event: Event | None = None
) -> Guarantee:
    event = event or Gaussian(5.0, Contribution(block=level))
    elements = "'topic'" if level == "element" else ""
    return Guarantee(level, elements, relation, 1e-6, event, (Fact("items", (9,)),))


def test_unwritable_text_is_rejected() -> None:
    """Halves of letters are text to JSON, and have neither a hash nor bytes."""
    values = {**promise().to_dict(), "elements": "'\ud800'"}
    with refuses("elements", "valid UTF-8 text"):
        Guarantee.from_json(json.dumps(values))


def test_composition() -> None:
    both = promise() + promise()
    assert both.delta == 2e-6
    assert both.public == (Fact("items", (9,)),)
    mu = math.sqrt(2) / 5.0
    assert both.epsilon() == pytest.approx(Gaussian(1 / mu).epsilon(2e-6), rel=1e-9)
    three = both + promise()
    assert three.epsilon(1e-6) == pytest.approx(Gaussian(5.0, count=3).epsilon(1e-6), rel=1e-9)
    assert promise().epsilon(1e-6) < both.epsilon(1e-6) < three.epsilon(1e-6)


def test_incompatible_guarantees_do_not_compose() -> None:
    mine = promise()
    others = [
        promise("user"),
        promise("element", "replace"),
        Guarantee("element", "another partition", "zero_out", 1e-6, mine.event),
    ]
    for other in others:
        with refuses("guarantees", "compose"):
            mine + other


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(5.0, Contribution(max_elements=3, cells=9, record_size=0.25)),
        Laplace(2.0),
        Gaussian(5.0) + Gaussian(2.0, Contribution(layout="shared")) + PureDP(0.1, level="element"),
    ],
)
def test_json_round_trip(event: Event) -> None:
    before = promise(event=event)
    text = before.to_json()
    assert json.loads(text)["elements"] == "'topic'"
    after = Guarantee.from_json(text)
    assert after == before
    assert str(after) == str(before)


def test_a_column_of_earlier_versions_is_the_same_partition() -> None:
    now = promise()
    before = Guarantee.from_dict({**now.to_dict(), "elements": "the column 'topic'"})
    assert (before, before.hash) == (now, now.hash)
    assert (before + now).elements == "'topic'"


def test_the_curve_by_granularity() -> None:
    disjoint = promise(event=Gaussian(5.0))
    shared = promise(event=Gaussian(5.0, Contribution(layout="shared")))
    for k in (1, 2, 4, 9):
        assert disjoint.epsilon(units=k) == pytest.approx(
            Gaussian(5.0 / math.sqrt(k)).epsilon(1e-6), rel=1e-12
        )
        assert shared.epsilon(units=k) == pytest.approx(Gaussian(5.0 / k).epsilon(1e-6), rel=1e-12)
        assert disjoint.epsilon(unit=dg.User(k)) == disjoint.epsilon(units=k)
    pure = Guarantee("element", "cells", "zero_out", 0.0, Laplace(2.0))
    assert [pure.epsilon(units=k) for k in (1, 2, 3)] == [0.5, 1.0, 1.5]
    assert disjoint.epsilon(relation="replace") > disjoint.epsilon()


@pytest.mark.parametrize(
    ("level", "unit"),
    [
        ("element", dg.User()),
        ("record", dg.User()),
        ("record", dg.Element()),
        ("record", dg.User(3)),
    ],
)
def test_unbounded_units_have_no_guarantee(level: Level, unit: Unit) -> None:
    assert promise(level).epsilon(unit=unit) == math.inf


def test_wrong_arguments() -> None:
    with refuses("level"):
        Guarantee("group", "", "zero_out", 1e-6, Gaussian(1.0))  # type: ignore[arg-type]
    with refuses("relation"):
        promise(relation="add")  # type: ignore[arg-type]
    with refuses("delta", "1.0"):
        Guarantee("user", "", "zero_out", 1.0, Gaussian(1.0))
    for wrong in (0, -1, 1.5, True):
        with refuses("units", "integer"):
            promise().epsilon(units=wrong)  # type: ignore[arg-type]
    with refuses("delta"):
        promise().epsilon(2.0)
    with refuses("unit"):
        promise().epsilon(unit="user")  # type: ignore[arg-type]


def test_parts_of_one_element_in_two_releases_compose() -> None:
    # Monday and Tuesday are in one week, the element: a user in both is charged for both.
    weeks = Partition((Rule("day", "week"),))

    def of_a_day(day: str) -> Guarantee:
        event, scope = Gaussian(5.0), Region((Side("day", days(day, day)),))
        return Guarantee(
            "element", str(weeks), "zero_out", 1e-6, event, scope=scope, partition=weeks
        )

    monday, tuesday, later = map(of_a_day, ("2026-11-23", "2026-11-24", "2026-12-01"))
    both = Gaussian(5.0, count=2).epsilon(1e-6)
    assert (monday + tuesday).epsilon(1e-6) == pytest.approx(both)
    assert (monday + later).epsilon(1e-6) == pytest.approx(Gaussian(5.0).epsilon(1e-6))
    assert monday.unit_region.within(tuesday.unit_region)

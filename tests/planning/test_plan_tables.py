"""Plans from public numbers, with lower bounds on the error."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.errors import ParameterError
from dpgrain.planning.choice_error import plan_select
from dpgrain.planning.descent_error import plan_sco
from dpgrain.planning.mean_error import plan_mean
from dpgrain.planning.plan_tables import ErrorPlan, PlanRow, plan_table
from dpgrain.units import Element, Unit, User
from dpgrain.words.notes import note_texts

VECTORS = Contribution(block="user", layout="shared", coordinates="signed")


def test_invalid_unit_is_rejected() -> None:
    assert plan_mean(1.0, 1e-6, n=10, unit=Element())["noise multiplier σ"] > 0
    with refuses("unit"):
        plan_mean(1.0, 1e-6, n=10, unit="user")  # type: ignore[arg-type]


WRONG = [
    (lambda: plan_sco(1.0, 1e-6, n_users=9, dimension=2, strength=2.5), "strength must be at most"),
    (
        lambda: plan_sco(1.0, 1e-6, n_users=9, dimension=2, distance=0.0),
        "distance must be positive",
    ),
    (
        lambda: plan_sco(1.0, 1e-6, n_users=9, dimension=2, lipschitz=1e-200),
        "lipschitz must be between 1e-100 and 1e100, not 1e-200; rescale",
    ),
    (lambda: plan_sco(1.0, 0.0, n_users=9, dimension=2), "delta"),
    (lambda: plan_select(1.0, n_users=9, hypotheses=1), "hypotheses must be an integer"),
    (lambda: plan_select(1.0, n_users=9, hypotheses=2, bound=-1.0), "bound must be positive"),
]


@pytest.mark.parametrize(("made", "said"), WRONG, ids=[said for _, said in WRONG])
def test_plans_reject_out_of_range_arguments(made: Callable[[], ErrorPlan], said: str) -> None:
    with pytest.raises(ParameterError) as error:
        made()
    assert said in str(error.value)


def test_a_plan_is_frozen_and_plain() -> None:
    plan = plan_mean(1.0, 1e-6, n=10)
    with pytest.raises(FrozenInstanceError):
        plan.epsilon = 2.0  # type: ignore[misc]
    read = json.loads(plan.to_json())
    assert read == plan.to_dict()
    assert {row["kind"] for row in read["rows"]} == {"number", "floor", "order"}
    assert Gaussian.from_dict(read["event"]) == plan.event
    for row in plan.rows:
        assert row.name in str(plan)
        assert row.text in str(plan)
    with refuses("row", "'nothing'"):
        plan["nothing"]


def test_numbers_are_rounded_to_the_safe_side() -> None:
    third = 1 / 3
    assert PlanRow("error", third).text == "0.3334"
    assert PlanRow("floor", third, kind="floor").text == "0.3333"
    assert PlanRow("order", third, kind="order").text == "order of 0.3"
    assert isinstance(plan_mean(1.0, 1e-6, n=10), ErrorPlan)


def test_zero_floor_states_its_absence() -> None:
    # With this many users δ lets any two data sets be distinguished; with δ = 0 the floor
    # underflows.
    for plan in (
        plan_sco(1.0, 1e-6, n_users=4000, dimension=5),
        plan_select(1.0, n_users=4000, hypotheses=9),
    ):
        floor = next(row for row in plan.rows if row.name == "the same, any number of records")
        assert (floor.value, floor.text) == (0.0, "no floor above 1e-300")
    assert PlanRow("floor", 2e-310, kind="floor").text == "2.000e-310"
    assert PlanRow("error", 0.0).text == "0"


@pytest.mark.parametrize("epsilon", [400.0, 2000.0])
def test_a_plan_for_a_large_epsilon_overflows_nowhere(epsilon: float) -> None:
    plan = plan_sco(epsilon, 1e-6, n_users=10, dimension=3, strength=1.0)
    assert all(math.isfinite(row.value) for row in plan.rows)


def test_query_table_has_each_error_at_each_epsilon() -> None:
    """Every cell is the expected error of the query with that ε, and no rows are read."""
    table = dg.read(pa.table({"who": [1, 2, 2], "day": ["a", "b", "b"]}), user="who")
    options: dict[str, Any] = {"delta": 1e-6, "by": "day", "domain": ["a", "b"], "clip": 5.0}
    units: dict[str, Unit] = {"day": Element("day"), "user": User()}
    queries = {
        name: dg.count.query(table, unit=unit, epsilon=1.0, **options)
        for name, unit in units.items()
    }
    result = plan_table(queries, [0.5, 3.0])
    ((_, rows),) = result.tables()
    assert result.columns == ("ε", "day", "user")
    for epsilon, (text, *errors) in zip((0.5, 3.0), rows, strict=True):
        assert text == f"{epsilon:g}"
        assert errors == [
            str(dg.count.query(table, unit=unit, epsilon=epsilon, **options).plan.expected)
            for unit in units.values()
        ]
    read = json.loads(result.to_json())
    assert read["epsilons"] == [0.5, 3.0]
    expected = result.plans["user"][1].expected
    assert expected is not None
    assert read["errors"]["user"][1]["std_error"] == expected.std_error


def test_query_table_shows_warnings_with_the_query_name() -> None:
    model = dg.learn.LogisticRegression(
        unit=User(), epsilon=1.0, delta=1e-6, n_users=80, classes=[0, 1], intervals=0.2
    )
    query = model.query(np.zeros((80, 2)), np.arange(80) % 2, users=np.arange(80))
    (warning,) = note_texts(query.plan.care)
    result = plan_table({"model": query}, [1.0, 1.0])
    assert result.notes == (f"model: {warning}",)
    assert str(result).endswith(warning)
    assert result.tables()[0][1] == [("1", "unknown")] * 2


def test_query_table_rejects_other_objects() -> None:
    with refuses("queries"):
        plan_table({"a": "count"}, [1.0])  # type: ignore[dict-item]
    with refuses("epsilons"):
        plan_table({}, 1.0)  # type: ignore[arg-type]

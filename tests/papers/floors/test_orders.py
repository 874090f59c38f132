"""The papers' orders by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.refusals import refuses

from dpgrain.papers.floors import (
    choice_order,
    convex_order,
    mean_order,
)


def test_orders_by_hand() -> None:
    assert mean_order(0.5, 1000, dimension=25, records=4) == pytest.approx(5 / 2 / 500)
    assert convex_order(0.5, 1000, dimension=25, records=4) == pytest.approx(
        1 / math.sqrt(4000) + 0.005
    )
    assert convex_order(0.5, 1000, dimension=25, records=4, strength=2.0) == pytest.approx(
        (1 / 4000 + 0.005**2) / 2
    )
    assert choice_order(0.5, 1000, 20, records=4) == pytest.approx(
        math.sqrt(math.log(20) / 4000) + math.log(20) / 1000
    )


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"n": 0}, "n"),
        ({"records": 0}, "records"),
        ({"dimension": 0}, "dimension"),
        ({"strength": 0.0}, "strength"),
        ({"hypotheses": 0}, "hypotheses"),
    ],
)
def test_out_of_range_arguments_are_rejected(wrong: dict[str, float], name: str) -> None:
    asked: dict[str, Any] = {"epsilon": 1.0, "n": 100, **wrong}
    order: Any = choice_order if name == "hypotheses" else convex_order
    if order is convex_order:
        asked.setdefault("dimension", 3)
    with refuses(name):
        order(**asked)

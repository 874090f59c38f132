"""The papers' orders by hand."""

from __future__ import annotations

import math

import pytest

from dpgrain.planning.floors import (
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

"""Plans of counts have the numbers of the planned release."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy.stats import norm

from dpgrain.accounting import Contribution, Selection
from dpgrain.papers.floors import min_users_with_item
from dpgrain.planning.count_error import plan_counts
from dpgrain.statistics.plan import plan_histogram
from dpgrain.units import Element, Unit, User


@pytest.mark.parametrize("unit", [Element(), User(), User(max_elements=3)], ids=str)
def test_plan_has_the_numbers_of_the_release(unit: Unit) -> None:
    release = plan_histogram(unit=unit, epsilon=1.0, delta=1e-6, clip=1.0, max_items=9)
    assert isinstance(release.select, Selection)
    plan = plan_counts(release)
    assert plan["noise sd of a count"] == release.std_error
    assert plan["95% of counts within ±"] == release.radius
    assert plan.event == release.event
    assert ("of at most 3 elements" in plan.title) == (unit == User(max_elements=3))
    half = plan["item is selected half the time from"]
    assert half == math.ceil(release.select.threshold)
    assert plan["the same, half the time"] == pytest.approx(3 * half, abs=3)
    assert plan["by any rule, half the time"] == min_users_with_item(1.0, 1e-6)
    assert (
        plan["by any rule, half the time"]
        <= plan["by truncated noise on one item a block"]
        < half
        < plan["item is selected 95% of the time from"]
    )


@pytest.mark.parametrize("noise", [0.4, 6.0, 250.0])
def test_items_are_selected_as_often_as_planned(noise: float) -> None:
    select = Selection(noise, 31.0, 1, Contribution(block="user"))
    release = plan_histogram(unit=User(), epsilon=1.0, delta=1e-6, clip=1.0)
    plan = plan_counts(replace(release, select=select))
    for name, share in (("half the time", 0.5), ("95% of the time", 0.95)):
        users = plan[f"item is selected {name} from"]
        passes = [norm.sf(select.threshold, loc=n, scale=noise) for n in (users, users - 1)]
        assert passes[0] >= share * (1 - 1e-12) > passes[1]


def test_plan_with_laplace_noise_has_no_selection() -> None:
    release = plan_histogram(unit=User(), epsilon=1.0, clip=1.0, items=9, noise="laplace")
    plan = plan_counts(release)
    assert (plan["noise sd of a count"], plan.delta) == (release.std_error, 0.0)
    assert [row.name for row in plan.rows][-1] == "times the least"

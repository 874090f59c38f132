"""Plans of counts are the releases that follow."""

from __future__ import annotations

import math

import pytest
from scipy.stats import norm

from dpgrain.accounting import Contribution, Gaussian, Laplace, Selection
from dpgrain.papers.floors import min_users_with_item
from dpgrain.planning.counts import plan_counts
from dpgrain.statistics.plan import plan_histogram
from dpgrain.units import Element, Unit, User


@pytest.mark.parametrize("unit", [Element(), User()], ids=["element", "user"])
def test_a_histogram_is_the_release_that_is_planned(unit: Unit) -> None:
    release = plan_histogram(unit=unit, epsilon=1.0, delta=1e-6, clip=1.0, max_items=9)
    assert isinstance(release.select, Selection)
    plan = plan_counts(
        release.sums,
        release.select,
        epsilon=1.0,
        delta=1e-6,
        unit=unit,
    )
    assert plan["noise sd of a count"] == release.std_error
    assert plan.event.epsilon(1e-6, unit=unit) <= 1.0
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


def test_noise_stays_within_what_is_told_in_95_percent_whatever_its_law() -> None:
    laplace = plan_counts(
        Laplace(3.0, Contribution(norm="l1", coordinates="one")), epsilon=1.0, delta=0.0
    )
    assert math.exp(-laplace["95% of counts within ±"] / 3.0) == pytest.approx(0.05)
    gaussian = plan_counts(Gaussian(3.0), epsilon=1.0, delta=1e-6)
    beyond = math.erfc(gaussian["95% of counts within ±"] / 3.0 / math.sqrt(2))
    assert beyond == pytest.approx(0.05)


@pytest.mark.parametrize("noise", [0.4, 6.0, 250.0])
def test_an_item_is_named_as_often_as_is_said(noise: float) -> None:
    select = Selection(noise, 31.0, 1, Contribution(block="user"))
    plan = plan_counts(Gaussian(4.0), select, epsilon=1.0, delta=1e-6)
    for name, share in (("half the time", 0.5), ("95% of the time", 0.95)):
        holders = plan[f"item is selected {name} from"]
        passes = [
            norm.sf(select.threshold, loc=held, scale=noise) for held in (holders, holders - 1)
        ]
        assert passes[0] >= share * (1 - 1e-12) > passes[1]


def test_a_histogram_with_laplace_noise_needs_no_delta() -> None:
    event = Laplace(1.0, Contribution(norm="l1", coordinates="one"))
    plan = plan_counts(event, epsilon=1.0, delta=0.0)
    assert plan["noise sd of a count"] == math.sqrt(2)
    assert [row.name for row in plan.rows()][-1] == "times the least"

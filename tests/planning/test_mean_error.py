"""Plans of means against arithmetic by hand."""

from __future__ import annotations

import math

import pytest
from tests.planning.test_plan_tables import VECTORS

from dpgrain.accounting import Gaussian
from dpgrain.papers.floors import (
    min_error_of_records,
    min_error_of_worlds,
    min_noise_of_clipped_sums,
)
from dpgrain.planning.mean_error import plan_mean
from dpgrain.units import RELATIONS, Relation, User


def test_a_mean_by_hand() -> None:
    plan = plan_mean(1.0, 1e-6, n=1000, dimension=25, relation="replace", error=0.01)
    noise = plan["noise multiplier σ"]
    assert Gaussian(noise, VECTORS).epsilon(1e-6, relation="replace") <= 1.0
    assert plan["rms privacy error"] == pytest.approx(5 * noise / 1000)
    assert plan["lower bound, as an order"] == pytest.approx(5 / 1000)
    assert plan["times the lower bound"] == pytest.approx(noise)
    assert plan["times the least"] == pytest.approx(
        plan["rms privacy error"] / plan["least rms error by any mechanism"]
    )
    # This number of vectors reaches the error; one fewer does not.
    needed = int(plan["for an error of 0.01"])
    reached, missed = (
        plan_mean(1.0, 1e-6, n=n, dimension=25, relation="replace") for n in (needed, needed - 1)
    )
    assert reached["rms privacy error"] <= 0.01 < missed["rms privacy error"]
    assert plan["the same, at least by any mechanism"] <= needed


def test_records_help_the_order_only() -> None:
    one, many = (plan_mean(1.0, 1e-6, n=1000, dimension=4, records=m) for m in (1, 16))
    assert one["lower bound, as an order"] == pytest.approx(4 * many["lower bound, as an order"])
    assert one["rms privacy error"] == many["rms privacy error"]
    assert "16 independent records" in " ".join(many.notes)


@pytest.mark.parametrize("relation", RELATIONS)
def test_user_of_five_elements_costs_five_times_more(relation: Relation) -> None:
    one, five = (
        plan_mean(1.0, 1e-6, n=10_000, dimension=4, unit=unit, relation=relation)
        for unit in (User(), User(max_elements=5))
    )
    for name in (
        "rms privacy error",
        "lower bound, as an order",
        "least rms error by any mechanism",
    ):
        assert five[name] == pytest.approx(5 * one[name]), name


def test_a_mean_of_users_with_records() -> None:
    plan = plan_mean(0.3, 1e-9, n=60, dimension=16, relation="replace", records=25)
    noise = plan["noise multiplier σ"]
    assert plan["least noise of clipped sums, such records"] == pytest.approx(
        min_noise_of_clipped_sums(noise, 60, 16) / math.sqrt(16 * 25)
    )
    assert plan["least by any mechanism, such records"] == min_error_of_records(
        0.3, 1e-9, 60, records=25, dimension=16, relation="replace"
    )
    assert plan["the same, any number of records"] == 2 * math.sqrt(
        min_error_of_worlds(0.3, 1e-9, 60, relation="replace")
    )
    # Clipping around a found centre gains √m at most, and a little less than that.
    gained = plan["rms privacy error"] / plan["least noise of clipped sums, such records"]
    assert 4.5 < gained < 5
    # A user of 3 vectors has all their records.
    several = plan_mean(0.3, 1e-9, n=60, unit=User(max_elements=3), records=5)
    assert several["least by any mechanism, such records"] == min_error_of_records(
        0.3, 1e-9, 20, records=15
    )

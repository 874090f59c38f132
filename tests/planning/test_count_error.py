"""Plans of counts under each privacy unit predict the errors of the releases."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import Contribution, Selection
from dpgrain.errors import ParameterError
from dpgrain.papers.floors import min_users_with_item
from dpgrain.planning.count_error import plan_counts, plan_units
from dpgrain.statistics.plan import plan_histogram
from dpgrain.units import Element, Level, Unit, User

UNITS: dict[Level, Unit] = {
    "record": dg.Record(),
    "element": dg.Element("cell"),
    "user": dg.User(),
}


def test_each_unit_satisfies_the_planned_guarantee() -> None:
    for relation in dg.units.RELATIONS:
        plan = plan_units(
            0.7, 1e-6, n_users=500, records=9, elements=3, cells=20, relation=relation
        )
        for errors in plan.units:
            own = errors.event.epsilon(1e-6, relation=relation, unit=UNITS[errors.unit])
            assert 0.69 < own <= 0.7
        assert plan["user"].epsilon_of_person == plan["user"].event.epsilon(1e-6, relation=relation)
        assert plan["element"].epsilon_of_person == plan["element"].event.epsilon(
            1e-6, units=3, relation=relation
        )
        assert plan["record"].epsilon_of_person > plan["element"].epsilon_of_person > 0.7


def test_a_finer_unit_costs_less_and_hides_less() -> None:
    plan = plan_units(1.0, 1e-6, n_users=10_000, records=90, elements=5, cells=40)
    assert plan["record"].error < plan["element"].error < plan["user"].error
    even = plan_units(1.0, 1e-6, n_users=10_000, records=90, elements=5, cells=40, skew=1)
    assert even["element"].lost == 0
    assert even["element"].error < plan["element"].error


@pytest.mark.parametrize("skew", [1.0, 2.5])
def test_no_bound_does_better(skew: float) -> None:
    """Compared with a search over bounds, with randomly drawn losses."""
    plan = plan_units(1.0, 1e-6, n_users=3000, records=60, elements=2, cells=10, skew=skew)
    spread = math.sqrt(2 * math.log(skew))
    rng = np.random.default_rng(0)
    sizes = 30 * np.exp(spread * rng.normal(size=400_000) - spread**2 / 2)
    for level, wider in (("element", 1.0), ("user", math.sqrt(2))):
        found = plan[level]  # type: ignore[index]
        sd = found.noise / found.clip / wider
        errors = [
            math.hypot(600 * np.maximum(sizes - bound, 0).mean(), bound * wider * sd)
            for bound in np.geomspace(1, 3000, 150)
        ]
        assert found.error == pytest.approx(min(errors), rel=0.05)


def lognormal_holders(seed: int) -> pd.DataFrame:
    users, cells, rng = 2000, 10, np.random.default_rng(seed)
    held = 20 * rng.lognormal(-math.log(2.5), math.sqrt(2 * math.log(2.5)), users)
    places = np.argsort(rng.random((users, cells)))[:, :2]
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(users), 2),
            "cell": places.ravel().astype(str),
            "weight": np.repeat(np.maximum(held, 1).round(), 2),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("level", ["element", "user"])
def test_releases_have_the_planned_errors(level: Level) -> None:
    off = []
    for seed in range(8):
        frame = lognormal_holders(seed)
        true = frame.groupby("cell")["weight"].sum()
        found = dg.histogram(
            dg.read(frame, user="user"), "cell", weight="weight", unit=UNITS[level], epsilon=1.0,
            delta=1e-6, domain=list(true.index), random_state=seed,
        )  # fmt: skip
        off.append(found.estimate - true.to_numpy())
    error = math.sqrt(float(np.mean(np.square(off))))
    planned = plan_units(1.0, 1e-6, n_users=2000, records=40, elements=2, cells=10)[level].error
    assert 0.9 * planned < error < 1.8 * planned


def test_it_is_shown_side_by_side() -> None:
    plan = plan_units(1.0, 1e-6, n_users=100, records=5)
    lines = str(plan).splitlines()
    assert lines[1].split() == ["record", "element", "user"]
    assert len({len(line) for line in lines[1:8]}) == 1
    told = json.loads(plan.to_json())
    assert [errors["unit"] for errors in told["units"]] == ["record", "element", "user"]
    assert told["units"][1]["error"] == plan["element"].error
    with refuses("unit", "'all'", "'record'"):
        plan["all"]  # type: ignore[index]


WRONG = [
    ({"elements": 0.5}, "elements must be between 1 and the number of cells, 4, not 0.5."),
    ({"elements": 5}, "elements must be between 1 and the number of cells, 4, not 5."),
    ({"records": 1, "elements": 2}, "records must be between elements (2) and 1e9, not 1."),
    ({"skew": 0.9}, "skew must be between 1 and 1e6, not 0.9."),
    ({"n_users": 0}, "n_users must be an integer of at least 1, not 0."),
    ({"delta": 0.0}, "delta"),
]


@pytest.mark.parametrize(("changed", "said"), WRONG, ids=[said for _, said in WRONG])
def test_out_of_range_arguments_are_rejected(changed: dict[str, float], said: str) -> None:
    asked = {"epsilon": 1.0, "delta": 1e-6, "n_users": 9, "records": 9, "cells": 4, **changed}
    with pytest.raises(ParameterError) as error:
        plan_units(**asked)  # type: ignore[arg-type]
    assert str(error.value).startswith(said)


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
def test_items_are_selected_as_frequently_as_planned(noise: float) -> None:
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

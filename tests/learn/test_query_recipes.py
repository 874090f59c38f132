"""Fits by a recipe: every recipe is an algorithm of estimators, and other trust is rejected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.papers.recipes import programs

import dpgrain as dg
from dpgrain import learn
from dpgrain.errors import CareWarning, ParameterError
from dpgrain.learn import load
from dpgrain.papers import Concentrated, Recipe, UserLevelSgd
from dpgrain.units import Element, Record, Trust, User

Array = NDArray[Any]


def test_one_curator_phase_is_enough_to_need_one() -> None:
    (shuffled,) = programs.RECIPES["gd"].plan(programs.TASK).stages
    (curated,) = Concentrated(programs.KINKS).plan(programs.TASK).stages
    program = programs.RECIPES["gd strong"].plan(programs.TASK)
    assert program.trust == "shuffle"
    for stages in ((shuffled, curated), (curated, shuffled), (curated, curated)):
        assert replace(program, stages=stages).trust == "central"
    assert replace(program, stages=(shuffled, shuffled)).trust == "shuffle"


@pytest.mark.parametrize("name", programs.RECIPES)
def test_every_recipe_is_an_algorithm_of_estimators(name: str, tmp_path: Path) -> None:
    trust = programs.RECIPES[name].plan(programs.TASK).trust
    model = learn.LinearRegression(
        algorithm=programs.RECIPES[name], trust=trust, epsilon=8.0, n_users=400
    )
    model.fit(programs.X, programs.Y, users=programs.USERS)
    program = programs.RECIPES[name].plan(replace(programs.TASK, start=(0.0,) * 3))
    assert model.guarantee_.event == program.event
    for fact in (
        "400 enrolled users",
        "a solution within 2 of the start",
        programs.TRUSTS[trust],
    ):
        assert fact in str(model.guarantee_)
    again = load(model.save(tmp_path / "model.json"))
    assert again.get_params() == model.get_params()
    assert again.guarantee_ == model.guarantee_


def test_recipe_of_another_trust_is_rejected_before_the_charge() -> None:
    pairs: list[tuple[Recipe, Trust, Trust]] = [
        (programs.RECIPES["agd"], "central", "shuffle"),
        (programs.RECIPES["agd"], "pan", "shuffle"),
        (programs.RECIPES["pan"], "shuffle", "pan"),
        (Concentrated(programs.KINKS), "shuffle", "central"),
        (UserLevelSgd(programs.KINKS, rounds=2), "pan", "central"),
    ]
    with dg.budget(8.0, 1e-6) as budget:
        for recipe, stated, needed in pairs:
            model = learn.LinearRegression(algorithm=recipe, trust=stated, epsilon=8.0, n_users=400)
            kind = type(recipe).__name__
            with pytest.raises(ParameterError, match=f"trust must be '{needed}' with {kind}, not"):
                model.fit(programs.X, programs.Y, users=programs.USERS)
        assert budget.guarantee is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trust": "nobody"}, "trust must be one of"),
        ({"unit": Record()}, r"unit must be User\(\) with trust='shuffle'"),
        ({"unit": Element()}, r"unit must be User\(\) with trust='shuffle'"),
        ({"unit": User(max_elements=2)}, r"unit must be User\(\) with trust='shuffle'"),
        ({"clip": "least"}, "clip must be a number or 'auto', not 'least'"),
        ({"sampling_rate": 0.5}, "sampling_rate must be omitted with trust='shuffle'"),
        ({"sampling": "users"}, "sampling must be omitted with trust='shuffle'"),
        ({"elements_per_user": 2.0}, "elements_per_user must be omitted with trust='shuffle'"),
        ({"intervals": 0.2}, "intervals must be omitted with trust='shuffle'"),
        ({"exact": True}, "exact must be omitted with trust='shuffle'"),
        ({"tune": {"l2": [0.0, 0.1]}}, "trust must be 'central' with tune"),
        (
            {"trust": "central", "tune": {"trust": ["pan", "shuffle"]}},
            "must be 'central' with tune",
        ),
        ({"algorithm": programs.RECIPES["gd"], "clip": 1.0}, "clip must be omitted with a recipe"),
        (
            {"algorithm": programs.RECIPES["gd"], "rounds": 3},
            "rounds must be omitted with a recipe",
        ),
    ],
)
def test_invalid_trust_is_reported(wrong: dict[str, Any], message: str) -> None:
    model = learn.LinearRegression(**{"trust": "shuffle", **wrong})
    with pytest.raises(ParameterError, match=message) as found:
        model.fit(programs.X, programs.Y, users=programs.USERS)
    assert "\n" not in str(found.value)


TRUE = np.array([2.0, -1.0, 0.5, 0.0, 1.0])


def people(seed: int, n: int) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 5)) / 2
    return X, (generator.random(n) < 1 / (1 + np.exp(-X @ TRUE))).astype(int)


def excess(trust: Trust, n: int, **options: Any) -> float:
    X, y = people(100, 200_000)

    def risk(margins: Array) -> float:
        return float(np.mean(np.logaddexp(0, margins) - y * margins))

    risks = []
    for seed in range(2):
        model = learn.LogisticRegression(
            trust=trust, classes=[0, 1], n_users=n, random_state=seed, **options
        )
        model.fit(*people(seed, n), users=np.arange(n))
        risks.append(risk(X @ model.coef_[0] + model.intercept_[0]))
    return float(np.mean(risks)) - risk(X @ TRUE)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("trust", ["shuffle", "pan"])
def test_excess_falls_with_users_without_a_curator(trust: Trust) -> None:
    few, many = excess(trust, 3000), excess(trust, 30_000)
    assert many < few / 3
    assert many < 1e-3


@pytest.mark.parametrize("trust", ["shuffle", "pan"])
def test_warns_of_a_clip_leaving_only_directions(trust: Trust) -> None:
    def asked(clip: Any) -> learn.LogisticRegression:
        return learn.LogisticRegression(
            trust=trust, classes=[0, 1], clip=clip, rounds=2, n_users=2000, random_state=0
        )

    X, y = people(0, 2000)
    with pytest.warns(CareWarning, match="clip = 0.5 is at most half of the largest slope"):
        asked(0.5).fit(X, y, users=np.arange(2000))
    for clip in (None, "auto", 1.0):
        # Nothing is published: a plan has all warnings of public numbers.
        assert asked(clip).query(X, y, users=np.arange(2000)).plan.care == ()

"""No fit guarantees more than its rows allow: without users the unit is a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.learn.cases import fit_tuned
from tests.refusals import refuses

import dpgrain as dg
from dpgrain import learn, papers
from dpgrain.learn import minimise
from dpgrain.optimize import Constant, Sgd, Squared

RNG = np.random.default_rng(0)
X, USERS = RNG.normal(size=(200, 2)), np.repeat(np.arange(50), 4)
Y = (X[:, 0] > 0).astype(int)
CELLS = np.arange(200) % 3
Door = Callable[..., dg.Guarantee]


def estimator(kind: str) -> Door:
    def fit(unit: Any, **rows: Any) -> dg.Guarantee:
        own: dict[str, Any] = {"classes": [0, 1]} if "Logistic" in kind or "SVC" in kind else {}
        model = getattr(learn, kind)(unit=unit, rounds=2, **own)
        found: dg.Guarantee = model.fit(X, Y, **rows).guarantee_
        assert model.config_.promise.level == found.level
        return found

    return fit


def tuned(unit: Any, **rows: Any) -> dg.Guarantee:
    model = learn.LogisticRegression(unit=unit, rounds=2, classes=[0, 1], tune={"l2": [0.0, 0.1]})
    return model.fit(X, Y, **rows).guarantee_


def directly_tuned(unit: Any, **rows: Any) -> dg.Guarantee:
    model = learn.LogisticRegression(unit=unit, rounds=2, classes=[0, 1])
    return fit_tuned(model, X, Y, grid={"l2": [0.0, 0.1]}, **rows).guarantee_


def with_share(unit: Any, **rows: Any) -> dg.Guarantee:
    with dg.budget(2.0, 1e-5):
        return learn.LinearRegression(unit=unit, rounds=2, share=0.5).fit(X, Y, **rows).guarantee_


def minimised(unit: Any, **rows: Any) -> dg.Guarantee:
    solver = Sgd(Constant(0.1))
    promise: dict[str, Any] = {"unit": unit, "epsilon": 1.0, "delta": 1e-6}
    return minimise(
        Squared(), X, Y, [0.0, 0.0], solver=solver, rounds=2, **promise, **rows
    ).guarantee


def selected(unit: Any, **rows: Any) -> dg.Guarantee:
    return dg.select(
        [0.0, 1.0], lambda at, x: abs(at - x[:, 0]), X, unit=unit, epsilon=1.0, **rows
    ).guarantee


DOORS: dict[str, Door] = {
    **{
        kind: estimator(kind)
        for kind in (
            "LinearRegression",
            "LogisticRegression",
            "LinearSVC",
            "PoissonRegressor",
            "QuantileRegressor",
        )
    },
    "tune": tuned,
    "fit_tuned": directly_tuned,
    "share": with_share,
    "minimise": minimised,
    "select": selected,
}
# The rows contain the elements.
WHOLE: dict[str, tuple[Any, dict[str, Any]]] = {
    "users": (dg.User(), {}),
    "some elements": (dg.User(max_elements=2), {"elements": CELLS}),
    "elements": (dg.Element(), {"elements": CELLS}),
}


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("door", DOORS)
def test_unit_follows_from_the_arguments(door: str) -> None:
    assert DOORS[door](None).level == "record"
    assert DOORS[door](dg.Record()).level == "record"
    assert DOORS[door](None, users=USERS).level == "user"
    assert DOORS[door](dg.Record(), users=USERS).level == "record"
    assert str(DOORS[door](None)).startswith("Record-level")


@pytest.mark.parametrize("unit", WHOLE)
@pytest.mark.parametrize("door", DOORS)
def test_whole_users_without_ids_are_rejected(door: str, unit: str) -> None:
    stated, rows = WHOLE[unit]
    refused = r"users is required for unit=|unit must be User\(\) without"
    with pytest.raises(dg.ParameterError, match=refused):
        DOORS[door](stated, **rows)


def test_fit_without_users_is_rejected_before_the_charge() -> None:
    with dg.budget(9.0, 1e-3) as spent, refuses("users"):
        learn.LinearRegression(unit=dg.User(), rounds=2).fit(X, Y)
    assert spent.guarantee is None


@pytest.mark.parametrize("unit", [None, dg.User()])
@pytest.mark.parametrize("trust", ["central", "shuffle", "pan"])
def test_recipes_are_for_whole_users_and_need_them(trust: Any, unit: Any) -> None:
    own: dict[str, Any] = {"algorithm": papers.UserLevelSgd(papers.Known(radius=1.0), rounds=2)}
    model = learn.LinearRegression(
        unit=unit, trust=trust, n_users=200, **(own if trust == "central" else {})
    )
    with refuses("users", "pass the user id"):
        model.fit(X, Y)
    if trust == "central":
        with refuses("users", "pass the user id"):
            minimise(
                Squared(),
                X,
                Y,
                [0.0, 0.0],
                solver=own["algorithm"],
                unit=unit,
                n_users=200,
                epsilon=1.0,
            )


def test_mean_of_users_states_one_row_per_user() -> None:
    mean = dg.mean_of_users(X, bound=3.0, epsilon=1.0, delta=1e-6)
    assert mean.guarantee.level == "user"
    assert "each row is all that one user has, because no users were passed" in str(mean.guarantee)

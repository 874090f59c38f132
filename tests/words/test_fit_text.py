"""A fit states its population, the clipping, and that rows do not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.learn import cases

from dpgrain.errors import CareWarning
from dpgrain.learn import LinearRegression, LinearSVC, LogisticRegression, PoissonRegressor, load
from dpgrain.optimize import Constant, Sgd
from dpgrain.papers import Concentrated
from dpgrain.units import Element, Record, User
from dpgrain.words.fit_text import explain_fit, fit_warnings

STATED: dict[str, Any] = {"n_users": 600, "classes": [0, 1], "rounds": 10, "epsilon": 4.0}


def fitted(**options: Any) -> LogisticRegression:
    model = LogisticRegression(**{**STATED, "random_state": 0, **options})
    cells = cases.ELEMENTS if isinstance(model.unit, Element) else None
    return model.fit(cases.X, cases.BINARY, users=cases.USERS, elements=cells)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "whom"),
    [
        (User(), "describe the average person, not the average record"),
        (Element(), "describe the average element, not the average record"),
        (Record(), "describe the average record"),
    ],
    ids=repr,
)
def test_it_states_its_population(unit: Any, whom: str, tmp_path: Path) -> None:
    model = fitted(unit=unit)
    assert whom in explain_fit(model)["Weights"]
    assert whom in str(model)
    assert whom in model.report(tmp_path / "fit.html").read_text(encoding="utf-8")
    assert whom in str(load(model.save(tmp_path / "model.json")))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, ", which affected at most about 9% of users."),
        ({"epsilon": 0.05}, "noise hides how many were clipped"),
        ({"clip": 0.5}, "to norm 0.5; how many were clipped was not measured"),
        ({"algorithm": Sgd(Constant(1.0))}, "to norm 1; how many were clipped was not measured"),
        ({"algorithm": Concentrated()}, "The mean gradient of each user was clipped to norm"),
    ],
    ids=["found", "hidden", "stated", "a solver", "a recipe"],
)
def test_it_reports_clipping(options: dict[str, Any], said: str) -> None:
    if isinstance(options.get("algorithm"), Concentrated):
        options = {**options, "rounds": None}
    assert said in explain_fit(fitted(**options))["Clipping"]


@pytest.mark.parametrize(
    ("model", "labels", "gains"),
    [
        (LinearRegression, None, "the change in the prediction when its feature increases by 1"),
        (LogisticRegression, [0, 1], "the change in the logarithm of the odds"),
        (LogisticRegression, [0, 1, 2], "the change in the score of a label"),
        (LinearSVC, [0, 1], "the change in the score, whose sign is the label,"),
        (PoissonRegressor, None, "the change in the logarithm of the expected count"),
    ],
)
def test_it_explains_the_unit_of_a_coefficient(model: Any, labels: Any, gains: str) -> None:
    options = {"n_users": 600, "rounds": 5, "random_state": 0, "l2": 0.25}
    made = model(**options) if labels is None else model(classes=labels, **options)
    said = explain_fit(made.fit(cases.X, cases.BINARY, users=cases.USERS))
    assert gains in said["value"]
    assert "A ridge of 0.25 pulls the coefficients" in said["Ridge"]


@pytest.mark.slow
def test_fit_reports_equal_weights_of_users(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 4000
    X = rng.normal(size=(n, 2))
    said = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    options: dict[str, Any] = {"unit": Record(), "n_users": n, "random_state": 0}
    wrong = LogisticRegression(classes=[0, 1], **options).fit(X, said)
    (doubt,) = fit_warnings(wrong)
    assert "only about" in doubt
    assert "of 4,000 users have rows that affect the fit" in doubt
    assert f"Warning: {doubt}" in str(wrong)
    assert "have rows that affect the fit" in wrong.report(tmp_path / "a.html").read_text(
        encoding="utf-8"
    )
    assert fit_warnings(load(wrong.save(tmp_path / "model.json"))) == (doubt,)
    right = LogisticRegression(classes=["no", "yes"], **options).fit(X, said)
    assert fit_warnings(right) == ()
    text = LinearRegression(**options).fit(X, said)
    assert "have rows that affect the fit" in fit_warnings(text)[0]
    few = LogisticRegression(classes=[0, 1], unit=Record(), n_users=100, random_state=0).fit(
        X[:100], said[:100]
    )
    assert "noise hides whether any" in fit_warnings(few)[0]


def test_fit_reports_badly_scaled_features() -> None:
    """A step that suits a feature of 0 and 1 is far too long for one of hundreds."""
    rng, n = np.random.default_rng(0), 4000
    X = np.column_stack([rng.normal(130, 18, n), rng.random(n) < 0.4])
    y = rng.random(n) < 1 / (1 + np.exp(2 - 1.4 * X[:, 1]))
    options: dict[str, Any] = {"unit": Record(), "n_users": n, "random_state": 0, "classes": [0, 1]}
    wrong = LogisticRegression(**options).fit(X, y)
    (doubt,) = fit_warnings(wrong)
    assert "features are far from a scale of 1" in doubt
    assert f"Warning: {doubt}" in str(wrong)
    assert abs(wrong.coef_[0, 1] - 1.4) > 0.5, "so there is something to take care of"
    right = LogisticRegression(**options).fit(X / [200, 1], y)
    assert fit_warnings(right) == ()
    assert abs(right.coef_[0, 1] - 1.4) < 0.5
    spread = LogisticRegression(**options).fit(rng.uniform(-1, 1, size=(n, 50)), y)
    assert "far from a scale" not in " ".join(fit_warnings(spread))


def test_fit_without_intervals_reports_its_unknown_error() -> None:
    said = "No standard errors: the fit had intervals=0."
    assert said in str(fitted())
    assert said not in str(fitted(intervals=0.3))


def test_fit_reports_its_replacement_of_missing_numbers() -> None:
    said = "Missing or non-numeric features were set to 0; rows without a target were dropped."
    assert said in " ".join(fitted().explain().split())


def test_explicit_arguments_leave_no_doubt() -> None:
    assert fit_warnings(fitted(clip=1.0)) == ()
    assert fit_warnings(fitted(algorithm=Concentrated(), rounds=None)) == ()
    assert str(LogisticRegression()) == repr(LogisticRegression())


@pytest.mark.parametrize("model", [LinearRegression, PoissonRegressor, LinearSVC])
def test_rows_without_error_leave_no_doubt(model: Any) -> None:
    rng, n = np.random.default_rng(0), 4000
    X = rng.uniform(-1, 1, size=(n, 2))
    # Nine of ten targets are 0 for squares and 1 for counts; classes are separable.
    y = (rng.random(n) < 0.1).astype(float) + (model is PoissonRegressor)
    y = X[:, 0] > 0 if model is LinearSVC else y
    assert fit_warnings(model(unit=Record(), n_users=n, random_state=0).fit(X, y)) == ()


def test_fit_reports_selected_labels() -> None:
    """Rows with rare labels are dropped, which published numbers show."""
    rng, n = np.random.default_rng(0), 2000
    X, users = rng.normal(size=(n, 2)), np.arange(n)
    y = np.array([f"t{label}" for label in rng.choice(12, n, p=[0.4, 0.3, *[0.03] * 10])])
    options: dict[str, Any] = {"n_users": n, "random_state": 1, "rounds": 5}
    with pytest.warns(
        CareWarning, match=r"2 were selected privately: t0, t1\. Rows with other labels"
    ):
        some = LogisticRegression(**options).fit(X, y, users=users)
    assert "2 were selected privately: t0, t1. Rows with other labels were dropped." in str(some)
    assert "each user is counted for the label of one row" in str(some.guarantee_)
    common = np.where(np.isin(y, ["t0", "t1"]), y, "t0")
    # No user is dropped, which needs no warning; it is still reported.
    every = LogisticRegression(**options).fit(X, common, users=users)
    assert "2 were selected privately" in str(every)
    stated = LogisticRegression(classes=["t0", "t1"], **options).fit(X, common, users=users)
    truths = LogisticRegression(**options).fit(X, X[:, 0] > 0, users=users)
    for model in (stated, truths):
        assert "selected privately" not in str(model)

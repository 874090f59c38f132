"""Estimators follow scikit-learn: shapes, good defaults, and its own checks."""

from __future__ import annotations

import warnings
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.learn import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain._formatting import rounded_up
from dpgrain.learn import (
    HuberRegressor,
    LinearModel,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    load,
)
from dpgrain.optimize import Adagrad, Constant, Power, Sgd
from dpgrain.units import Element

Array = NDArray[Any]
REGRESSORS = (LinearRegression, HuberRegressor, QuantileRegressor, PoissonRegressor)
ALL: tuple[type[LinearModel], ...] = (*REGRESSORS, LogisticRegression, LinearSVC)
NOT_OURS = {
    # A non-finite target is dropped, and an empty table is fitted: an error would reveal a row.
    # Tested below.
    "check_supervised_y_no_nan",
    "check_estimators_empty_data_messages",
    # The numeric type of targets is not inspected: labels are values that enough people have.
    "check_classifiers_regression_target",
}
# Features in checks that pass a list of rows, which requires n_features.
LISTED = {"check_regressors_train": 10, "check_classifiers_train": 2}
CHECKS = [
    pytest.param(model, check, id=f"{kind.__name__}-{check.func.__name__}-{i}")
    for kind in ALL
    for i, (model, check) in enumerate(
        # So much that two people suffice for a label.
        estimator_checks_generator(kind(epsilon=1e4, random_state=0))
    )
    if check.func.__name__ not in NOT_OURS
]


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learn(estimator: LinearModel, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)
        warnings.simplefilter("ignore", category=FutureWarning)
        width = LISTED.get(check.func.__name__)
        check(estimator if width is None else clone(estimator).set_params(n_features=width))


@pytest.mark.slow
def test_a_default_fit_is_good() -> None:
    features, z, users, _ = cases.people(4000)
    rng = np.random.default_rng(2)
    fits: list[tuple[LinearModel, Array, float]] = [
        (LinearRegression(), z + rng.normal(size=len(z)), 0.6),
        (HuberRegressor(), z + rng.normal(size=len(z)), 0.6),
        (QuantileRegressor(), z + rng.normal(size=len(z)), 0.6),
        (PoissonRegressor(), rng.poisson(np.exp(z / 3)).astype(float), 0.3),
        (LogisticRegression(), rng.random(len(z)) < 1 / (1 + np.exp(-z)), 0.75),
        (LinearSVC(), rng.random(len(z)) < 1 / (1 + np.exp(-z)), 0.75),
        (LogisticRegression(), (z + rng.normal(size=len(z))).round().clip(-1, 1), 0.6),
    ]
    for model, y, least in fits:
        model.set_params(epsilon=1.0, random_state=0)
        assert model.fit(features, y, users=users).score(features, y) > least, model


def test_shapes_agree_with_scikit_learn() -> None:
    two = LogisticRegression(random_state=0).fit(cases.X, cases.BINARY)
    assert (two.coef_.shape, two.intercept_.shape) == ((1, 3), (1,))
    assert two.predict_proba(cases.X).shape == (len(cases.X), 2)
    assert np.allclose(two.predict_proba(cases.X).sum(axis=1), 1)
    three = LogisticRegression(random_state=0).fit(cases.X, np.digitize(cases.Z, [-1, 1]))
    assert (three.coef_.shape, three.intercept_.shape) == ((3, 3), (3,))
    assert three.decision_function(cases.X).shape == (len(cases.X), 3)
    line = LinearRegression(random_state=0, fit_intercept=False).fit(cases.X, cases.Z)
    assert (line.coef_.shape, line.intercept_) == ((3,), 0.0)
    words = LogisticRegression(random_state=0).fit(cases.X, np.where(cases.BINARY, "yes", "no"))
    assert set(words.predict(cases.X)) <= {"yes", "no"}


def test_sparse_rows_give_the_same_model() -> None:
    rows = np.where(np.random.default_rng(0).random(cases.X.shape) < 0.5, cases.X, 0)
    fits = [
        LogisticRegression(random_state=0, epsilon=5.0)
        .fit(made(rows), cases.BINARY, users=cases.USERS)
        .coef_
        for made in (np.array, sparse.csr_array)
    ]
    assert np.allclose(fits[0], fits[1], atol=1e-6)


@pytest.mark.parametrize("algorithm", [Sgd(Power(4.0, 0.6)), Sgd(Constant(2.0)), Adagrad(1.0)])
def test_other_solvers(algorithm: Any) -> None:
    features, z, users, _ = cases.people(4000)
    y = np.random.default_rng(2).random(len(z)) < 1 / (1 + np.exp(-z))
    model = LogisticRegression(algorithm=algorithm, random_state=0).fit(features, y, users=users)
    assert model.score(features, y) > 0.75


@pytest.mark.parametrize("model", [LogisticRegression(), LinearRegression()], ids=repr)
def test_each_exact_score_is_warned_of(model: Any) -> None:
    model.set_params(rounds=2, n_users=600).fit(cases.X, cases.BINARY, users=cases.USERS)
    for _ in range(2):
        with pytest.warns(dg.ScoreWarning, match=r"not covered by any \(ε, δ\)") as caught:
            model.score(cases.X, cases.BINARY)
        assert [warning.filename for warning in caught] == [__file__]
    pipeline = make_pipeline(FunctionTransformer(), model)
    with pytest.warns(dg.ScoreWarning, match=r"not covered by any \(ε, δ\)"):
        pipeline.score(cases.X, cases.BINARY)


def test_it_is_a_scikit_learn_estimator() -> None:
    model = LogisticRegression(unit=Element(), epsilon=2.0, random_state=3)
    again = clone(model)
    assert again.get_params() == model.get_params()
    scaled = make_pipeline(FunctionTransformer(lambda rows: rows / 2), LogisticRegression())
    fitted = scaled.fit(cases.X, cases.BINARY, logisticregression__users=cases.USERS)
    assert fitted.score(cases.X, cases.BINARY) > 0.6


FRAME = pd.DataFrame(cases.X, columns=["a", "b", "c"])
CHANGED: list[dict[str, Any]] = [
    {},
    {"tune": {"l2": [0.1, 0.2], "fit_intercept": [False], "feature_bound": [2.0]}},
    {"share": 0.5},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", CHANGED, ids=lambda options: next(iter(options), "plain"))
def test_a_fit_changes_no_parameter(options: dict[str, Any], tmp_path: Path) -> None:
    with dg.budget(9.0, 1e-4, leak=5e-5):
        model = LogisticRegression(rounds=5, classes=[0, 1], random_state=0, **options)
        before = model.get_params()
        model.fit(FRAME, cases.BINARY, users=cases.USERS)
    assert model.get_params() == before
    assert clone(model).get_params() == before
    assert model.parameters_.keys() == before.keys()
    # The fit's own parameters are reported, used for prediction and written, whatever they are now.
    page, shown = model.report(tmp_path / "page.html").read_text(encoding="utf-8"), str(model)
    told = model.config_.promise.epsilon
    assert f">{rounded_up(told, 6)}<" in page
    assert model.guarantee_.epsilon() == pytest.approx(told, rel=1e-3)
    predicted = model.predict_proba(FRAME[:9])
    model.set_params(l2=7.0, fit_intercept=False, feature_bound=0.1, epsilon=9.0, unit=Element())
    assert str(model) == shown
    again = load(model.save(tmp_path / "model.json"))
    for one in (model, again):
        assert (one.predict_proba(FRAME[:9]) == predicted).all()
        assert (one.config_.promise.epsilon, one.config_.l2) == (told, model.parameters_["l2"])


def test_features_are_named() -> None:
    model = LogisticRegression(rounds=2).fit(FRAME, cases.BINARY)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    for other, said in (
        (FRAME.rename(columns={"a": "z"}), "unseen at fit time"),
        (FRAME[["b", "a", "c"]], "same order"),
        (FRAME[["a", "b"]], "yet now missing"),
    ):
        with pytest.raises(ValueError, match=said):
            model.predict(other)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(cases.X)


def test_pipeline_may_pass_frames() -> None:
    steps = make_pipeline(FunctionTransformer(lambda rows: rows / 2), LogisticRegression(rounds=2))
    steps.set_output(transform="pandas").fit(FRAME, cases.BINARY)
    assert list(steps[-1].feature_names_in_) == ["a", "b", "c"]
    assert len(steps.predict(FRAME)) == len(FRAME)


def test_sparse_targets_raise_one_sentence() -> None:
    with refuses("y", "targets"):
        LogisticRegression().fit(cases.X, sparse.csr_array(cases.BINARY[:, None]))


def test_notebook_shows_the_guarantee_with_the_diagram() -> None:
    model = LogisticRegression(rounds=2)
    assert "What" not in model._repr_mimebundle_()["text/plain"]
    model.fit(FRAME.rename(columns={"a": "<b>"}), cases.BINARY)
    shown = model._repr_mimebundle_()
    assert shown["text/plain"] == str(model)
    html = shown["text/html"]
    assert "sk-top-container" in html
    below = html[html.rindex("<pre") :]
    assert escape(model.guarantee_.summary) in below
    assert "print(.guarantee_)" in below
    assert "&lt;b&gt;" in below
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()

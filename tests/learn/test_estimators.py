"""Estimators are those of scikit-learn: shapes, defaults that are good, and its own checks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.learn import cases

from dpgrain.learn import (
    HuberRegressor,
    LinearModel,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
)
from dpgrain.optimize import Adagrad, Constant, Power, Sgd
from dpgrain.units import Element

Array = NDArray[Any]
REGRESSORS = (LinearRegression, HuberRegressor, QuantileRegressor, PoissonRegressor)
ALL: tuple[type[LinearModel], ...] = (*REGRESSORS, LogisticRegression, LinearSVC)
NOT_OURS = {
    # A target that is not finite is left out, and an empty table is fitted: an error would tell of a
    # row. Tested below.
    "check_supervised_y_no_nan",
    "check_estimators_empty_data_messages",
    # What kind of numbers targets are is not looked at: labels are those that enough people have.
    "check_classifiers_regression_target",
}
CHECKS = [
    pytest.param(model, check, id=f"{kind.__name__}-{check.func.__name__}-{i}")
    for kind in ALL
    for i, (model, check) in enumerate(
        # So much that two people suffice for a label.
        estimator_checks_generator(kind(epsilon=1e4, random_state=0))
    )
    if check.func.__name__ not in NOT_OURS
]


@pytest.mark.search(keep=60)
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learn(estimator: LinearModel, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)
        warnings.simplefilter("ignore", category=FutureWarning)
        check(estimator)


@pytest.mark.search(keep=0)
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


def test_shapes_are_those_of_scikit_learn() -> None:
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


def test_it_is_a_scikit_learn_estimator() -> None:
    model = LogisticRegression(unit=Element(), epsilon=2.0, random_state=3)
    again = clone(model)
    assert again.get_params() == model.get_params()
    scaled = make_pipeline(FunctionTransformer(lambda rows: rows / 2), LogisticRegression())
    fitted = scaled.fit(cases.X, cases.BINARY, logisticregression__users=cases.USERS)
    assert fitted.score(cases.X, cases.BINARY) > 0.6
    frame = pd.DataFrame(cases.X, columns=["a", "b", "c"])
    assert list(LogisticRegression().fit(frame, cases.BINARY).feature_names_in_) == ["a", "b", "c"]

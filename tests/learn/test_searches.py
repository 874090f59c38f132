"""Searches of scikit-learn choose by scores without noise: their fits are warned of, or refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    cross_val_score,
    train_test_split,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dpgrain as dg
from dpgrain.accounting import SampledGaussian
from dpgrain.learn import LinearRegression, LogisticRegression

X = np.random.default_rng(0).normal(size=(300, 2))
Y = X[:, 0] > 0
GRID = {"l2": [0.0, 0.1]}


def model(**options: Any) -> LogisticRegression:
    return LogisticRegression(rounds=2, n_users=300, **options)


Search = Callable[..., Any]
SEARCHES: dict[str, Search] = {
    "grid": lambda **options: GridSearchCV(model(), GRID, cv=2, **options),
    "random": lambda **options: RandomizedSearchCV(model(), GRID, n_iter=2, cv=2, **options),
    "pipeline": lambda **options: GridSearchCV(
        make_pipeline(FunctionTransformer(), model()),
        {"logisticregression__l2": [0.0, 0.1]},
        cv=2,
        **options,
    ),
}


@pytest.mark.filterwarnings("ignore::dpgrain.ScoreWarning")
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_no_search_promises_what_scores_have_chosen(search: Search) -> None:
    with (
        dg.budget(40.0, 1e-3) as spent,
        pytest.raises(dg.ParameterError, match="refit must be False where the model is private"),
    ):
        search().fit(X, Y)
    # Two settings on two folds were charged; the fit that was refused was not.
    assert spent.guarantee is not None
    rounds = [part for part in spent.guarantee.event.parts if isinstance(part, SampledGaussian)]
    assert sum(part.count for part in rounds) == 4


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_folds_are_warned_of(search: Search) -> None:
    with pytest.warns(dg.ScoreWarning, match="no \\(ε, δ\\) covers scores") as caught:
        found = search(refit=False).fit(X, Y)
    assert len(caught) == 4
    assert set(found.best_params_) <= {"l2", "logisticregression__l2"}


def test_scores_are_warned_of_also_in_other_processes() -> None:
    with pytest.raises(ValueError, match="ScoreWarning: each fit of a fold is a release"):
        # A warning is an error in these tests, and scikit-learn tells what happened in its processes.
        cross_val_score(model(), X, Y, cv=2, n_jobs=2)


def test_fits_in_threads_of_another_estimator_are_refused() -> None:
    # Its threads have stacks of their own, on which no search is seen.
    several = MultiOutputRegressor(LinearRegression(rounds=2, n_users=300), n_jobs=2)
    search = GridSearchCV(several, {"estimator__l2": [0.0, 0.1]}, cv=2, error_score="raise")
    targets = np.column_stack([X[:, 0], X[:, 1]])
    with (
        parallel_config(backend="threading"),
        pytest.raises(dg.ParameterError, match="n_jobs must be None where a search holds"),
    ):
        search.fit(X, targets)
    # Without a search they are fitted.
    with parallel_config(backend="threading"):
        assert len(clone(several).fit(X, targets).estimators_) == 2


def test_a_share_is_warned_of_once() -> None:
    with dg.budget(40.0, 1e-3), pytest.warns(dg.ScoreWarning) as caught:
        cross_val_score(LogisticRegression(rounds=2, share=0.3), X, Y, cv=2)
    assert len(caught) == 2


def test_other_fits_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = train_test_split(X, Y, random_state=0)
        fitted = make_pipeline(FunctionTransformer(), model()).fit(parts[0], parts[2])
        fitted.score(parts[1], parts[3])
        model(tune=GRID).fit(X, Y)

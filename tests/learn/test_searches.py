"""Searches of scikit-learn choose by scores without noise: their fits are warned of, or refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import RFE, RFECV, SelectFromModel, SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RANSACRegressor
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
    train_test_split,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RegressorChain,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import SampledGaussian
from dpgrain.learn import LinearRegression, LogisticRegression
from dpgrain.units import Record

X = np.random.default_rng(0).normal(size=(300, 2))
Y = X[:, 0] > 0
GRID = {"l2": [0.0, 0.1]}


def model(**options: Any) -> LogisticRegression:
    return LogisticRegression(rounds=2, unit=Record(), n_users=300, **options)


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
    several = MultiOutputRegressor(LinearRegression(rounds=2, unit=Record(), n_users=300), n_jobs=2)
    search = GridSearchCV(several, {"estimator__l2": [0.0, 0.1]}, cv=2, error_score="raise")
    targets = np.column_stack([X[:, 0], X[:, 1]])
    with (
        parallel_config(backend="threading"),
        pytest.raises(dg.ParameterError, match="n_jobs must be None where a search holds"),
    ):
        search.fit(X, targets)
    # Without a search they are fitted, and warned of.
    with parallel_config(backend="threading"), pytest.warns(dg.ScoreWarning, match="several"):
        assert len(clone(several).fit(X, targets).estimators_) == 2


BOTH = np.column_stack([X[:, 0], X[:, 1]])
LABELS = np.where(X[:, 1] > 0, 2, Y.astype(int))


def number() -> LinearRegression:
    return LinearRegression(rounds=2, unit=Record(), n_users=300)


def label() -> LogisticRegression:
    return model(classes=[0, 1])


# What fits copies side by side, and its targets.
SEVERAL: dict[str, tuple[Callable[[], Any], Any]] = {
    "OneVsRest": (lambda: OneVsRestClassifier(label()), LABELS),
    "OneVsRest in processes": (lambda: OneVsRestClassifier(label(), n_jobs=2), LABELS),
    "OneVsOne": (lambda: OneVsOneClassifier(label()), LABELS),
    "OutputCode": (lambda: OutputCodeClassifier(label(), random_state=0), LABELS),
    "MultiOutputRegressor": (lambda: MultiOutputRegressor(number()), BOTH),
    "MultiOutputClassifier": (lambda: MultiOutputClassifier(label()), BOTH > 0),
    "ClassifierChain": (lambda: ClassifierChain(label()), BOTH > 0),
    "RegressorChain": (lambda: RegressorChain(number()), BOTH),
    "VotingClassifier": (lambda: VotingClassifier([("a", label()), ("b", label())]), Y),
    "VotingRegressor": (lambda: VotingRegressor([("a", number()), ("b", number())]), X[:, 0]),
    "TransformedTarget": (lambda: TransformedTargetRegressor(number()), X[:, 0]),
}
# What learns around the model, draws rows again, or seeds copies.
OTHERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "RFE": (lambda: RFE(number()), X[:, 0]),
    "RFECV": (lambda: RFECV(number(), cv=2), X[:, 0]),
    "SelectFromModel": (lambda: SelectFromModel(number()), X[:, 0]),
    "SequentialFeatureSelector": (
        lambda: SequentialFeatureSelector(number(), n_features_to_select=1, cv=2),
        X[:, 0],
    ),
    "CalibratedClassifierCV": (lambda: CalibratedClassifierCV(label(), cv=2), Y),
    "FixedThreshold": (lambda: FixedThresholdClassifier(label()), Y),
    "TunedThreshold": (lambda: TunedThresholdClassifierCV(label(), cv=2), Y),
    "BaggingClassifier": (lambda: BaggingClassifier(label(), n_estimators=2), Y),
    "BaggingRegressor": (lambda: BaggingRegressor(number(), n_estimators=2), X[:, 0]),
    "BaggingRegressor in processes": (
        lambda: BaggingRegressor(number(), n_estimators=2, n_jobs=2),
        X[:, 0],
    ),
    "AdaBoostRegressor": (lambda: AdaBoostRegressor(number(), n_estimators=2), X[:, 0]),
    "StackingRegressor": (lambda: StackingRegressor([("a", number())], cv=2), X[:, 0]),
    "StackingClassifier": (lambda: StackingClassifier([("a", label())], cv=2), Y),
    "SelfTraining": (lambda: SelfTrainingClassifier(label()), np.where(X[:, 1] > 1, -1, Y)),
    "RANSAC": (lambda: RANSACRegressor(number(), min_samples=50), X[:, 0]),
}


@pytest.mark.filterwarnings("ignore::dpgrain.ScoreWarning")
@pytest.mark.parametrize(
    "around", [name for name in (*SEVERAL, *OTHERS) if "processes" not in name]
)
def test_inside_a_budget_only_a_pipeline_surrounds_a_fit(around: str) -> None:
    made, y = (SEVERAL | OTHERS)[around]
    with (
        dg.budget(40.0, 1e-3) as spent,
        # Where folds are scored it stands in an error of scikit-learn.
        pytest.raises(ValueError, match=r"must not be fitted by sklearn\.\S+") as refused,
    ):
        made().fit(X, y)
    assert ("inside a budget or ledger" in str(refused.value)) == (around in SEVERAL)
    assert spent.guarantee is None


@pytest.mark.search
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.parametrize("around", OTHERS)
def test_what_has_no_promise_is_refused_everywhere(around: str) -> None:
    made, y = OTHERS[around]
    with pytest.raises(ValueError, match=r"must not be fitted by sklearn\.\S+"):
        made().fit(X, y)


@pytest.mark.parametrize("around", [name for name in SEVERAL if "processes" not in name])
def test_several_copies_are_warned_of(around: str) -> None:
    made, y = SEVERAL[around]
    with pytest.warns(dg.ScoreWarning, match=r"sklearn\.\S+ may fit several copies"):
        made().fit(X, y)


def test_several_copies_are_warned_of_in_other_processes() -> None:
    made, y = SEVERAL["OneVsRest in processes"]
    with pytest.raises(dg.ScoreWarning, match="may fit several copies"):
        # A warning is an error in these tests.
        made().fit(X, y)


def test_a_copy_of_ones_own_is_like_its_model() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(clone(model())).fit(X, Y)


STEPS: dict[str, tuple[Any, bool]] = {
    "StandardScaler": (StandardScaler(), True),
    "inside another": (make_pipeline(StandardScaler(), Normalizer()), True),
    "FunctionTransformer": (FunctionTransformer(), False),
    "Normalizer": (Normalizer(), False),
    "passthrough": ("passthrough", False),
    "FrozenEstimator": (FrozenEstimator(StandardScaler().fit(np.eye(2))), False),
}


@pytest.mark.parametrize("step", STEPS)
def test_steps_of_a_pipeline_learn_nothing(step: str) -> None:
    made, learns = STEPS[step]
    pipeline = Pipeline([("before", made), ("model", model())])
    with dg.budget(40.0, 1e-3) as spent:
        if learns:
            with refuses("step", "pipeline"):
                pipeline.fit(X, Y)
            assert spent.guarantee is None
        else:
            pipeline.fit(X, Y)
    if learns:
        with pytest.warns(dg.ScoreWarning, match="the step 'before' of the pipeline learns"):
            pipeline.fit(X, Y)


def test_a_share_is_warned_of_once() -> None:
    with dg.budget(40.0, 1e-3), pytest.warns(dg.ScoreWarning) as caught:
        cross_val_score(LogisticRegression(rounds=2, share=0.3), X, Y, cv=2)
    assert len(caught) == 2


def test_a_score_without_noise_is_warned_of_where_it_is_asked_for() -> None:
    with dg.budget(40.0, 1e-3):
        fitted = LogisticRegression(rounds=2, share=0.3).fit(X, Y)
        line = LinearRegression(rounds=2, share=0.3).fit(X, X[:, 0])
    for model, targets in ((fitted, Y), (line, X[:, 0])):
        with pytest.warns(dg.ScoreWarning, match="for whoever holds the rows") as caught:
            score = model.score(X, targets)
        assert score <= 1
        assert [warning.filename for warning in caught] == [__file__]


def test_other_fits_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = train_test_split(X, Y, random_state=0)
        fitted = make_pipeline(FunctionTransformer(), model()).fit(parts[0], parts[2])
        fitted.score(parts[1], parts[3])
        model(tune=GRID).fit(X, Y)

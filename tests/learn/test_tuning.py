"""Settings tuned within a model's guarantee: guarantee, charge, choice and errors."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from tests.charges import charge_of
from tests.learn.cases import fit_tuned
from tests.refusals import refuses

import dpgrain.learn.tuning as tuning
from dpgrain._progress import Progress
from dpgrain.accounting import Compose, Gaussian, Parallel
from dpgrain.accounting.events.best_of import SelectBest
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.choices.scores import BlockLosses
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import arrange
from dpgrain.learn import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
)
from dpgrain.learn.central import CentralFit
from dpgrain.learn.classes import Targets
from dpgrain.learn.fit_data import FitData
from dpgrain.learn.tuning import parse_grid
from dpgrain.noise import SeededSource
from dpgrain.papers import Concentrated
from dpgrain.publishing.budget import budget
from dpgrain.publishing.facts import Fact
from dpgrain.units import Element, Record, Relation, Unit, User

Array = NDArray[Any]
RNG = np.random.default_rng(0)
SCALE, USERS = 30.0, np.repeat(np.arange(1500), 4)
X = RNG.normal(size=(6000, 4)) * SCALE
TRUTH = np.array([2.0, -2.0, 1.0, 0.0]) / SCALE
Y = RNG.random(6000) < 1 / (1 + np.exp(-(X @ TRUTH)))
GRID = {"clip": [0.1, 1.0, 30.0]}
TEST = np.random.default_rng(1).normal(size=(20_000, 4)) * SCALE


def excess(model: Any) -> float:
    """The expected log-loss above the true model's."""
    true = 1 / (1 + np.exp(-(TEST @ TRUTH)))
    found = np.clip(model.predict_proba(TEST)[:, 1], 1e-12, 1 - 1e-12)
    return float(
        np.mean(true * np.log(true / found) + (1 - true) * np.log((1 - true) / (1 - found)))
    )


def fitted(seed: int) -> LogisticRegression:
    return fit_tuned(LogisticRegression(random_state=seed), X, Y, users=USERS, grid=GRID)


@pytest.fixture(scope="module")
def first() -> LogisticRegression:
    return fitted(0)


@pytest.fixture(scope="module")
def tuned(first: LogisticRegression) -> list[LogisticRegression]:
    return [first, *map(fitted, range(1, 8))]


@pytest.mark.slow
def test_tuning_the_clipping_bound_helps(tuned: list[LogisticRegression]) -> None:
    plain = [LogisticRegression(clip=1.0, random_state=s).fit(X, Y, users=USERS) for s in range(8)]
    assert np.median([excess(m) for m in tuned]) < 0.3 * np.median([excess(m) for m in plain])
    chosen = Counter(model.tuned_["clip"] for model in tuned)
    assert chosen[30.0] >= 4


@pytest.mark.slow
def test_whole_promise_is_satisfied(tuned: list[LogisticRegression]) -> None:
    for model in tuned[:2]:
        promise = model.guarantee_
        assert 0.999 < promise.epsilon() <= 1.0
        assert promise.delta == 1e-6
        assert isinstance(promise.event, SelectBest)
        assert promise.event.mean == 9.0
        # A run is the fit, as done by the winner, and its score.
        score = promise.event.candidate.parts[-1]
        # The published number of users is one of its parts.
        fit = Compose(promise.event.candidate.parts[:-1])
        own = LogisticRegression(clip=model.clip, epsilon=fit.epsilon(1e-6)).config()
        event = CentralFit.calibrate(own, own.promise).event
        assert event.epsilon(1e-6) == pytest.approx(fit.epsilon(1e-6), rel=1e-3)
        assert isinstance(score, Gaussian)
        assert "3 settings of clip, and 9 runs on average" in str(promise)
        assert not promise.private


def test_uncounted_run_would_be_detected(first: LogisticRegression) -> None:
    event = first.guarantee_.event
    assert isinstance(event, SelectBest)
    *parts, score = event.candidate.parts
    fit = Compose(tuple(parts))
    # Less than the whole: without the number of runs, without the score, only the fit.
    assert event.epsilon(1e-6) > 1.3 * event.candidate.epsilon(1e-6)
    assert event.candidate.epsilon(1e-6) > 1.02 * fit.epsilon(1e-6)
    assert SelectBest(fit, event.mean).epsilon(1e-6) < 0.99
    assert score.epsilon(1e-6) > 0.1 * fit.epsilon(1e-6)


def test_the_winner_is_the_model(first: LogisticRegression) -> None:
    model = first
    assert model.parameters_ == {**model.get_params(), **model.tuned_}
    assert model.clip is None
    assert model.epsilon == 1.0
    assert model.random_state == 0
    assert model.coef_.shape == (1, 4)
    assert model.n_iter_ == len(model.history_.gradients) == 100
    assert model.classes_.tolist() == [False, True]
    assert set(model.predict(X)) <= {False, True}


@pytest.mark.slow
def test_fits_are_not_charged_one_by_one() -> None:
    with budget(3.5, 1e-4, leak=5e-5) as b:
        model = LogisticRegression(epsilon=0.8, delta=5e-7, rounds=5, random_state=0)
        fit_tuned(model, X, Y, users=USERS, grid=GRID)
        charged = b.guarantee
        assert charged is not None
        assert charged.event == model.guarantee_.event
        with pytest.raises(ParameterError, match="has no room"):
            fit_tuned(model, X, Y, users=USERS, grid=GRID)
        # A rejected fit leaves the model and the budget unchanged.
        assert b.guarantee == charged
        assert charged.event == model.guarantee_.event


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize(
    ("unit", "elements"),
    [
        (Record(), None),
        (Element(), np.tile([0, 0, 1, 1], 1500)),
        (User(max_elements=1), np.tile([0, 0, 1, 1], 1500)),
    ],
    ids=["record", "element", "kept"],
)
def test_every_unit_and_relation(unit: Unit, elements: Any, relation: Relation) -> None:
    model = LinearRegression(unit=unit, relation=relation, epsilon=2.0, rounds=5, random_state=0)
    users = None if isinstance(unit, Record) else USERS
    fit_tuned(model, X, X @ TRUTH, users=users, elements=elements, grid=GRID)
    assert 1.99 < model.guarantee_.epsilon() <= 2.0
    assert model.guarantee_.relation == relation
    assert model.guarantee_.level == unit.level
    score = model.guarantee_.event.candidate.parts[-1]  # type: ignore[attr-defined]
    assert 0 < score.loss(1, relation, unit).mu < 2.0


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("unit", [Record(), Element(), User(), User(max_elements=2)], ids=str)
def test_a_score_takes_a_tenth_of_a_run(unit: Unit, relation: Relation) -> None:
    """Measured in μ², relative to the unit's cost under the relation."""
    asked = LinearRegression(unit=unit, relation=relation, epsilon=2.0, rounds=5).config()
    mu = tuning._score(asked.promise, 0.5).loss(1, relation, unit).mu
    assert mu == pytest.approx(math.sqrt(0.1) * gaussian_mu(0.5, asked.promise.delta))


def test_the_worst_of_two_settings_is_charged() -> None:
    settings = [
        LinearRegression(epsilon=1.0, rounds=2, clip=clip).config() for clip in (1.0, "auto")
    ]
    noise = tuning._calibrate_fits(settings[0].promise, settings, 9.0)
    fits = noise.event.candidate.parts[0]
    assert isinstance(fits, Parallel)
    assert len(fits.events) == 2
    for fit in fits.events:
        assert SelectBest((fit, noise.score), 9.0).epsilon(1e-6) <= 1.0


@pytest.mark.slow
def test_the_worst_of_different_fits_is_charged() -> None:
    model = HuberRegressor(epsilon=1.0, random_state=0)
    grid: dict[str, list[Any]] = {"rounds": [3, 30], "clip": [1.0, "auto"]}
    fit_tuned(model, X, X @ TRUTH, users=USERS, grid=grid)
    assert 0.999 < model.guarantee_.epsilon() <= 1.0
    event = model.guarantee_.event
    assert isinstance(event, SelectBest)
    assert isinstance(event.candidate, Compose)
    both = event.candidate.parts[0]
    assert isinstance(both, Parallel)
    assert len(both.events) == 4
    for one in both.events:
        assert SelectBest((one, event.candidate.parts[1]), event.mean).epsilon(1e-6) <= 1.0


def test_scores_are_bounded_by_unit_and_have_their_noise() -> None:
    model = LogisticRegression(rounds=3, random_state=0).fit(X, Y, users=USERS)
    rows = arrange(6000, USERS, None, User())
    blocks = BlockLosses(rows, 0.0, 4.0)
    fit = FitData(X, Targets(Y.astype(float)), rows, USERS)
    data = tuning._TuningData(fit, blocks, model.loss(None))
    event = tuning._score(model.config().promise, 0.5)
    noisy = [
        tuning._noisy_score(model, event, data, charge_of(event, SeededSource(seed)))
        for seed in range(300)
    ]
    margins = X @ model.coef_[0] + model.intercept_[0]
    exact = np.minimum(np.logaddexp(0, margins) - Y * margins, 4.0).reshape(1500, 4).mean(axis=1)
    spread = event.noise_multiplier
    assert abs(np.mean(noisy) - exact.sum() / 4) < 5.5 * spread / math.sqrt(300)
    assert np.std(noisy) == pytest.approx(spread, rel=0.25)
    # One user moves a total by one bound at most, for any records.
    far = X.copy()
    far[:4] = 1e200
    far[4, 0] = np.nan
    moved = replace(data, fit=replace(data.fit, X=far))
    one, two = (
        tuning._noisy_score(model, event, d, charge_of(event, SeededSource(0)))
        for d in (data, moved)
    )
    assert abs(one - two) <= 2.0


@pytest.mark.parametrize("labels", [2, 3])
def test_missing_row_changes_no_other_scored_margin(labels: int) -> None:
    # A matrix product rounds rows depending on their number, and among tens of thousands of rows
    # each one at the edge of a step would move a score.
    rng = np.random.default_rng(0)
    features = rng.normal(size=(420, 100))
    model = LogisticRegression(classes=range(labels), rounds=2, feature_bound=5.0, random_state=0)
    model.fit(features, rng.integers(0, labels, 420))
    whole = model.margins(features)
    by_column = np.asfortranarray(features)
    np.testing.assert_array_equal(model.margins(by_column), whole)
    for first, end in [*itertools.pairwise(range(20)), (0, 79), (0, 400), (0, 401), (1, 420)]:
        np.testing.assert_array_equal(model.margins(features[first:end]), whole[first:end])
        np.testing.assert_array_equal(model.margins(by_column[first:end]), whole[first:end])


@pytest.mark.slow
def test_best_by_score_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # With almost no noise the best of all runs wins; half the settings are useless.
    monkeypatch.setattr(tuning, "_MEAN_RUNS", 10.0)
    grid = [{"clip": 30.0}, {"clip": 30.0, "l2": 1e6}]
    for seed in range(4):
        model = LogisticRegression(epsilon=50.0, rounds=20, random_state=seed)
        fit_tuned(model, X, Y, users=USERS, grid=grid)
        assert model.tuned_ == {"clip": 30.0}


@pytest.mark.slow
def test_runs_differ_in_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    score = tuning._noisy_score

    def noted(model: Any, *others: Any) -> float:
        seen.append(float(model.coef_[0]))
        return score(model, *others)

    monkeypatch.setattr(tuning, "_noisy_score", noted)
    monkeypatch.setattr(tuning, "_MEAN_RUNS", 30.0)
    model = LinearRegression(rounds=2, random_state=5)
    fit_tuned(model, X, X @ TRUTH, users=USERS, grid={"clip": [1.0]})
    assert len(seen) > 3
    assert len(set(seen)) == len(seen)
    again = LinearRegression(rounds=2, random_state=5)
    fit_tuned(again, X, X @ TRUTH, users=USERS, grid={"clip": [1.0]})
    assert (again.coef_ == model.coef_).all()


@pytest.mark.slow
def test_frames_and_sparse_rows() -> None:
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(X, columns=names)
    made = [
        fit_tuned(LogisticRegression(rounds=3, random_state=1), rows, Y, users=USERS, grid=GRID)
        for rows in (frame, sparse.csr_array(X), X)
    ]
    assert made[0].feature_names_in_.tolist() == names
    assert (made[0].predict(frame) == made[2].predict(X)).all()
    assert made[1].tuned_ == made[2].tuned_
    assert np.allclose(made[1].coef_, made[2].coef_)


def test_a_secret_source_is_private() -> None:
    model = fit_tuned(LinearRegression(rounds=2), X, X @ TRUTH, users=USERS, grid=GRID)
    assert model.guarantee_.private


def test_grids_are_products_and_lists() -> None:
    known = ["clip", "l2"]
    assert parse_grid({"clip": [1, 2], "l2": [3]}, known) == [
        {"clip": 1, "l2": 3},
        {"clip": 2, "l2": 3},
    ]
    assert parse_grid([{"clip": 1}, {"l2": 2}], known) == [{"clip": 1}, {"l2": 2}]


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({}, "at least one setting"),
        ({"clip": []}, "at least one setting"),
        ([], "at least one setting"),
        (None, "must map parameters"),
        ("clip", "must map parameters"),
        ({"clip": 1.0}, "tune must map clip to a list"),
        ({"algorithm": "auto"}, "tune must map algorithm to a list"),
        ({"epsilon": [1.0]}, "must not contain epsilon"),
        ({"unit": [User()]}, "must not contain unit"),
        ({"random_state": [1]}, "must not contain random_state"),
        ({"colour": [1]}, "not 'colour'"),
        ({"clip": [1.0, -1.0]}, "clip must be positive and finite"),
    ],
    ids=str,
)
def test_invalid_grids_are_rejected_before_publishing(grid: Any, sentence: str) -> None:
    with budget(1.0, 1e-6) as b, pytest.raises(ParameterError, match=sentence):
        fit_tuned(LogisticRegression(), X, Y, users=USERS, grid=grid)
    assert b.guarantee is None


@pytest.mark.slow
def test_fit_tunes_on_request() -> None:
    model = LogisticRegression(random_state=3, rounds=10, tune={"l2": [0.0, 0.01]})
    with budget(9.0, 1e-4, leak=5e-5) as spent:
        model.fit(X, Y, users=USERS)
    assert spent.guarantee is not None
    assert spent.guarantee.event == model.guarantee_.event
    assert isinstance(model.guarantee_.event, SelectBest)
    assert 0.99 < model.guarantee_.epsilon() <= 1.0
    assert model.parameters_["l2"] == model.tuned_["l2"]
    assert (model.l2, model.clip) == (0.0, None)
    # Whole users: the clipping bound of each run is found inside it.
    assert isinstance(model.guarantee_.event.events, tuple)
    # The rounds, the norms and the number of users.
    assert len(model.guarantee_.event.events[0].parts) == 3
    assert model.n_iter_ == 8
    plain = LogisticRegression(random_state=3, rounds=10)
    by_hand = fit_tuned(plain, X, Y, users=USERS, grid={"l2": [0.0, 0.01]})
    assert np.array_equal(by_hand.coef_, model.coef_)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": Concentrated(), "tune": {"l2": [0.0, 0.01]}},
        {"tune": {"algorithm": ["auto", Concentrated()]}},
    ],
    ids=["all", "one"],
)
def test_recipes_are_not_tuned(options: dict[str, Any]) -> None:
    with (
        budget(1.0, 1e-6) as spent,
        pytest.raises(ParameterError, match="algorithm must be 'auto' or a solver with tune"),
    ):
        LogisticRegression(**options).fit(X, Y, users=USERS)
    assert spent.guarantee is None


@pytest.mark.slow
def test_guarantee_names_the_public_parameters_of_each_setting() -> None:
    X, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 2 == 1
    model = LogisticRegression(
        epsilon=4.0, clip=2.0, feature_bound=3.0, l2=0.1, random_state=0, tune={"rounds": [3, 7]}
    ).fit(X, y)
    public = model.guarantee_.public
    for fact in (
        Fact("gradient-bound", (2.0,)),
        Fact("ridge", (0.1,)),
        Fact("feature-bound", (3.0,)),
    ):
        assert fact in public
    assert Fact("setting", ("all-rounds", 3)) in public
    assert Fact("setting", ("all-rounds", 7)) in public


def test_how_many_runs_there_were_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpgrain.learn import central
    from dpgrain.learn import rounds as training

    shown: list[bool | None] = []

    class Bar(Progress):
        def __init__(self, rounds: int, show: bool | None = None) -> None:
            shown.append(show)
            super().__init__(rounds, False)

    monkeypatch.setattr(central, "Progress", Bar)
    monkeypatch.setattr(training, "Progress", Bar)
    X, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 2 == 1
    model = LogisticRegression(epsilon=4.0, rounds=3, random_state=0, verbose=True)
    model.set_params(tune={"clip": [1.0, 2.0]}).fit(X, y)
    # Not even a bar of each run, however long it takes.
    assert shown
    assert set(shown) == {False}


def test_losses_without_curvature_have_no_intervals() -> None:
    X, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 2 == 1
    with refuses("intervals"):
        LinearSVC(epsilon=4.0, rounds=3, intervals=0.2, tune={"clip": [1.0, 2.0]}).fit(X, y)

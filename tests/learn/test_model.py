"""Private linear models: scikit-learn's contract, promises, and what must not depend on a person."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import dpgrain as dg
from dpgrain.arrays.blocks import arrange
from dpgrain.errors import ParameterError
from dpgrain.gradients.linear import LinearBlocks
from dpgrain.inputs.numbers import numbers
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
from dpgrain.units import Element, Record, Unit, User

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


def people(n: int = 600, per_user: int = 6, d: int = 3, seed: int = 0) -> tuple[Array, ...]:
    """Features, probabilities' logits, users and elements of n users with so many records each."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n * per_user, d))
    z = 3 * X[:, 0] - 2 * X[:, 1] + 0.5
    users = np.repeat(np.arange(n), per_user)
    elements = np.tile(np.arange(per_user) // 2, n)
    return X, z, users, elements


X, Z, USERS, ELEMENTS = people()
RNG = np.random.default_rng(1)
BINARY = (RNG.random(len(Z)) < 1 / (1 + np.exp(-Z))).astype(int)


@pytest.mark.parametrize(
    ("unit", "elements"),
    [
        (None, None),
        (User(), None),
        (Record(), None),
        (Element(), ELEMENTS),
        (User(max_elements=2), ELEMENTS),
    ],
    ids=["default", "user", "record", "element", "kept"],
)
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_the_promise_is_the_one_asked_for(unit: Unit | None, elements: Any, relation: Any) -> None:
    # Kept elements may all be of one label: then it takes more of them to find one.
    model = LogisticRegression(unit=unit, relation=relation, epsilon=2.0, delta=1e-6)
    promise = model.fit(X, BINARY, users=USERS, elements=elements).guarantee_
    level = "user" if unit is None else unit.level
    assert (promise.level, promise.relation, promise.delta) == (level, relation, 1e-6)
    assert 1.99 < promise.epsilon() <= 2.0
    assert promise.private
    assert f"{level.capitalize()}-level" in str(promise)
    assert "3% of the budget for the number of users, which is released with noise of" in str(
        promise
    )
    assert "3% of the budget and 10% of δ for the labels: those are selected that" in str(promise)
    assert model.classes_.tolist() == [0, 1]
    assert abs(model.n_users_ - 600) < 6 * 12.2
    assert model.score(X, BINARY) > 0.6
    assert dg.Guarantee.from_json(promise.to_json()) == promise


def test_parts_share_one_promise() -> None:
    options: dict[str, Any] = {"clip": "auto", "elements_per_user": "auto", "intervals": 0.15}
    options |= {"n_users": 600, "classes": [0, 1]}
    model = LogisticRegression(unit=Element(), epsilon=1.0, **options)
    model.fit(X, BINARY, users=USERS, elements=ELEMENTS)
    assert len(model.guarantee_.event.parts) == 3
    assert 0.99 < model.guarantee_.epsilon() <= 1.0
    assert model.history_.clip in 2.0 ** np.arange(-12, 12.5, 0.5)
    alone = LogisticRegression(unit=Element(), epsilon=1.0, n_users=600, classes=[0, 1])
    alone.fit(X, BINARY, users=USERS, elements=ELEMENTS)
    # The noise of the rounds is larger for what the others take.
    noise = [m.guarantee_.event.parts[0].noise_multiplier for m in (model, alone)]  # type: ignore[attr-defined]
    assert 1.05 < noise[0] / noise[1] < 1.4


def test_whole_users_are_clipped_to_what_is_found_near_the_solution() -> None:
    stated: dict[str, Any] = {"rounds": 50, "n_users": 600, "classes": [0, 1]}
    model = LogisticRegression(**stated).fit(X, BINARY, users=USERS)
    rounds, norms = model.guarantee_.event.parts
    # All rounds are accounted for, those that look for the neighbourhood too, with the same noise.
    assert rounds.rounds == 50  # type: ignore[attr-defined]
    assert model.n_iter_ == len(model.history_.points) == 40
    assert model.history_.points[0].any()
    assert norms.level == "user"
    history = model.history_
    assert history.noise_sd == pytest.approx(rounds.noise_multiplier * history.clip / 600)  # type: ignore[attr-defined]
    assert history.clip * 2 in 2.0 ** np.arange(-12, 12.5, 0.5)
    assert "the first fifth of the rounds takes the directions" in str(model.guarantee_)
    for options in ({"clip": 1.0}, {"intervals": 0.2}, {"algorithm": Sgd(Constant(1.0))}):
        plain = LogisticRegression(**stated, **options).fit(X, BINARY, users=USERS)
        assert (plain.n_iter_, plain.history_.clip) == (50, 1.0)
        assert not plain.history_.points[0].any()
        assert "a clipping bound of 1" in str(plain.guarantee_)
    # What intervals cover is less than half clipped.
    wide = LogisticRegression(**stated, clip="auto", intervals=0.2).fit(X, BINARY, users=USERS)
    assert wide.n_iter_ == 40
    assert wide.history_.clip in 2.0 ** np.arange(-12, 12.5, 0.5)


@pytest.mark.parametrize("sampling", ["pairs", "users", "full"])
def test_how_blocks_are_drawn(sampling: Any) -> None:
    rate = None if sampling == "full" else 0.3
    model = LogisticRegression(
        unit=Element(),
        epsilon=3.0,
        sampling=sampling,
        sampling_rate=rate,
        rounds=40,
        n_users=600,
        classes=[0, 1],
    )
    model.fit(X, BINARY, users=USERS, elements=ELEMENTS)
    event = model.guarantee_.event
    assert (event.sampling_rate, event.rounds) == (rate or 1.0, 40)  # type: ignore[attr-defined]
    assert event.sampling == ("users" if sampling == "users" else "pairs")  # type: ignore[attr-defined]
    assert model.guarantee_.epsilon() <= 3.0
    assert len(model.history_.norms) == model.n_iter_ == 40


@pytest.mark.search(keep=0)
def test_a_default_fit_is_good() -> None:
    features, z, users, _ = people(4000)
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
    two = LogisticRegression(random_state=0).fit(X, BINARY)
    assert (two.coef_.shape, two.intercept_.shape) == ((1, 3), (1,))
    assert two.predict_proba(X).shape == (len(X), 2)
    assert np.allclose(two.predict_proba(X).sum(axis=1), 1)
    three = LogisticRegression(random_state=0).fit(X, np.digitize(Z, [-1, 1]))
    assert (three.coef_.shape, three.intercept_.shape) == ((3, 3), (3,))
    assert three.decision_function(X).shape == (len(X), 3)
    line = LinearRegression(random_state=0, fit_intercept=False).fit(X, Z)
    assert (line.coef_.shape, line.intercept_) == ((3,), 0.0)
    words = LogisticRegression(random_state=0).fit(X, np.where(BINARY, "yes", "no"))
    assert set(words.predict(X)) <= {"yes", "no"}


def test_sparse_rows_give_the_same_model() -> None:
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.5, X, 0)
    fits = [
        LogisticRegression(random_state=0, epsilon=5.0).fit(made(rows), BINARY, users=USERS).coef_
        for made in (np.array, sparse.csr_array)
    ]
    assert np.allclose(fits[0], fits[1], atol=1e-6)


@pytest.mark.parametrize("algorithm", [Sgd(Power(4.0, 0.6)), Sgd(Constant(2.0)), Adagrad(1.0)])
def test_other_solvers(algorithm: Any) -> None:
    features, z, users, _ = people(4000)
    y = np.random.default_rng(2).random(len(z)) < 1 / (1 + np.exp(-z))
    model = LogisticRegression(algorithm=algorithm, random_state=0).fit(features, y, users=users)
    assert model.score(features, y) > 0.75


def test_it_is_a_scikit_learn_estimator() -> None:
    model = LogisticRegression(unit=Element(), epsilon=2.0, random_state=3)
    again = clone(model)
    assert again.get_params() == model.get_params()
    scaled = make_pipeline(FunctionTransformer(lambda rows: rows / 2), LogisticRegression())
    fitted = scaled.fit(X, BINARY, logisticregression__users=USERS)
    assert fitted.score(X, BINARY) > 0.6
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    assert list(LogisticRegression().fit(frame, BINARY).feature_names_in_) == ["a", "b", "c"]


def test_cross_validation_and_what_it_costs() -> None:
    import sklearn

    folds = 4
    with sklearn.config_context(enable_metadata_routing=True):
        model = LogisticRegression(epsilon=1.0, random_state=0).set_fit_request(users=True)
        scores = cross_val_score(
            model, X, BINARY, cv=GroupKFold(folds), params={"users": USERS, "groups": USERS}
        )
    assert len(scores) == folds
    one = LogisticRegression(epsilon=1.0).fit(X, BINARY, users=USERS).guarantee_
    # Every user is in all fits but one.
    whole = dg.learn.cross_validated(one, folds)
    assert one.epsilon() < whole.epsilon() < 3 * one.epsilon()
    assert whole.event.epsilon(1e-6) == (one + one + one).event.epsilon(1e-6)
    with pytest.raises(ParameterError, match="folds must be a whole number of at least 2"):
        dg.learn.cross_validated(one, 1)


def test_a_budget_holds_fits() -> None:
    with dg.budget(1.0, 1e-6) as budget:
        LogisticRegression(epsilon=0.9, delta=1e-7).fit(X, BINARY, users=USERS)
        with pytest.raises(ParameterError, match="does not hold this release"):
            LogisticRegression(epsilon=0.9, delta=1e-7).fit(X, BINARY, users=USERS)
    assert budget.guarantee is not None


# -- what must not depend on one person --


def test_bad_rows_follow_fixed_rules_without_a_word() -> None:
    rows, y = X.copy(), BINARY.astype(float)
    users = USERS.astype(object)
    rows[0, 1], rows[1] = np.nan, np.inf
    users[2], y[3] = None, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LogisticRegression(random_state=0, classes=[0, 1], n_users=600)
        found = model.fit(rows, y, users=users).coef_
    clean, left = np.where(np.isfinite(rows), rows, 0), np.ones(len(y), dtype=bool)
    left[[2, 3]] = False
    expected = LogisticRegression(random_state=0, classes=[0, 1], n_users=600).fit(
        clean[left], BINARY[left], users=USERS[left]
    )
    assert np.array_equal(found, expected.coef_)


def test_huge_values_of_one_user_move_one_clipped_block() -> None:
    rows = X.copy()
    rows[USERS == 7] = 1e300
    model = LinearRegression(random_state=0, n_users=600, clip=1.0)
    first = model.fit(X, Z, users=USERS).history_.gradients[0]
    second = clone(model).fit(rows, Z, users=USERS).history_.gradients[0]
    assert np.linalg.norm(first - second) <= 2 / 600 * (1 + 1e-6)


@pytest.mark.parametrize(
    ("unit", "moved"),
    [(Record(), 1.0), (Element(), 1.0), (User(), 1.0), (User(max_elements=1), 1.0)],
    ids=["record", "element", "user", "kept"],
)
def test_a_unit_without_rows_moves_a_gradient_by_the_clip(unit: Unit, moved: float) -> None:
    rng = np.random.default_rng(5)
    largest = 0.0
    passed = unit.level == "element" or (isinstance(unit, User) and unit.max_elements)
    elements = ELEMENTS if passed else None
    for _ in range(12):
        rows = X * 10.0 ** rng.integers(-1, 4)
        y = rng.integers(0, 2, len(X))
        someone = int(rng.integers(600))
        gone = someone == USERS
        if unit.level == "element":
            gone &= rng.integers(3) == ELEMENTS
        if unit.level == "record":
            gone = np.arange(len(X)) == rng.integers(len(X))
        model = LogisticRegression(
            unit=unit,
            random_state=0,
            n_users=600,
            classes=[0, 1],
            epsilon=50.0,
            rounds=1,
            clip=1.0,
        )
        pair = [
            clone(model).fit(
                rows[keep],
                y[keep],
                users=USERS[keep],
                elements=None if elements is None else elements[keep],
            )
            for keep in (np.ones(len(X), dtype=bool), ~gone)
        ]
        apart = pair[0].history_.gradients[0] - pair[1].history_.gradients[0]
        largest = max(largest, float(np.linalg.norm(apart)) * 600)
    assert 0.5 * moved < largest <= moved * (1 + 1e-4)


def test_kept_elements_are_the_first_in_a_public_order() -> None:
    users = np.array([1, 1, 1, 2, 2])
    elements = ["a", "b", "c", "c", "b"]
    kept = arrange(5, users, elements, User(max_elements=1))
    # Whoever else is there, and in whatever order rows come, the same element of a user is kept.
    names = {elements[i] for i in kept.kept if users[i] == 1}
    turned = arrange(5, users[::-1], elements[::-1], User(max_elements=1))
    assert {elements[::-1][i] for i in turned.kept if users[::-1][i] == 1} == names
    alone = arrange(3, users[:3], elements[:3], User(max_elements=1))
    assert {elements[i] for i in alone.kept} == names
    # A null elsewhere must not rename whole numbers.
    numbers = arrange(3, [1, 1, 1], [10, 9, 8], User(max_elements=1))
    beside = arrange(4, [1, 1, 1, 2], [10, 9, 8, None], User(max_elements=1))
    assert numbers.kept[0] == beside.kept[0]


def test_users_are_told_apart_whatever_else_is_there() -> None:
    large = 2**60
    assert arrange(3, [large, large + 1, None], None, User()).users == 2
    assert arrange(2, [large, large + 1], None, User()).users == 2


# -- errors that teach --


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be finite and above 0"),
        ({"epsilon": np.inf}, "epsilon must be finite and above 0"),
        ({"delta": 1.0}, r"delta must lie in \[0, 1\)"),
        ({"delta": 0.0}, "delta = 0 needs pure privacy"),
        ({"algorithm": Sgd}, "algorithm must be 'auto', a solver"),
        ({"clip": 0.0}, "clip must be finite and above 0"),
        ({"clip": "best"}, "clip must be a number or 'auto'"),
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"sampling": "shuffle"}, "sampling must be one of"),
        ({"sampling": "full", "sampling_rate": 0.1}, "sampling_rate must be left out"),
        ({"sampling_rate": 0.0}, "sampling_rate must be above 0"),
        ({"relation": "add"}, "relation must be one of"),
        ({"unit": "user"}, "unit must be"),
        ({"unit": Element()}, "elements must be passed"),
        ({"unit": Element("column")}, "elements of rows come with"),
        ({"algorithm": "newton"}, "algorithm must be 'auto', a solver"),
        ({"l2": -1.0}, "l2 must be finite and at least 0"),
        ({"n_users": 0}, "n_users must be a whole number"),
        ({"feature_bound": 0.0}, "feature_bound must be finite and above 0"),
        ({"elements_per_user": 0.0}, "elements_per_user must be finite and above 0"),
        ({"intervals": 1.0}, "intervals must be a share"),
        ({"classes": [1]}, "classes must be at least two"),
    ],
)
def test_wrong_parameters_say_so(wrong: dict[str, Any], message: str) -> None:
    unit = wrong.get("unit")
    elements = ELEMENTS if isinstance(unit, Element) and unit.by else None
    with pytest.raises(ParameterError, match=message):
        LogisticRegression(**wrong).fit(X, BINARY, users=USERS, elements=elements)


@pytest.mark.parametrize(
    ("passed", "message"),
    [
        ({"users": USERS[:-1]}, "users must have one label for each"),
        ({"elements": ELEMENTS}, "elements are not used with"),
    ],
)
def test_wrong_labels_say_so(passed: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        LogisticRegression().fit(X, BINARY, **passed)


def test_what_has_no_curvature_has_no_intervals() -> None:
    with pytest.raises(ParameterError, match="intervals need a loss with curvature"):
        QuantileRegressor(intervals=0.1).fit(X, Z)
    with pytest.raises(ParameterError, match="intervals must be above 0"):
        LinearRegression().fit(X, Z).confidence_intervals()


def test_a_seed_is_not_private() -> None:
    model = LinearRegression(random_state=1).fit(X, Z)
    assert not model.guarantee_.private
    assert "NOT PRIVATE" in str(model.guarantee_)
    assert np.array_equal(model.coef_, LinearRegression(random_state=1).fit(X, Z).coef_)
    assert not np.array_equal(model.coef_, LinearRegression().fit(X, Z).coef_)


def test_exact_sums_give_about_the_same_model() -> None:
    fits = [
        LogisticRegression(random_state=0, epsilon=50.0, exact=exact).fit(X, BINARY, users=USERS)
        for exact in (True, False)
    ]
    assert np.allclose(fits[0].coef_, fits[1].coef_, atol=0.1)
    assert "floating point" not in str(fits[0].guarantee_)


def test_a_feature_bound_is_a_public_scale() -> None:
    features, z, users, _ = people(3000)
    y = (np.random.default_rng(2).random(len(z)) < 1 / (1 + np.exp(-z))).astype(int)
    large = LogisticRegression(feature_bound=1e3 * np.sqrt(3), random_state=0)
    small = LogisticRegression(feature_bound=np.sqrt(3), random_state=0)
    large.fit(1e3 * features, y, users=users)
    small.fit(features, y, users=users)
    assert np.allclose(1e3 * large.coef_, small.coef_, rtol=1e-6)
    assert np.array_equal(large.predict(1e3 * features), small.predict(features))


def test_the_kernels_see_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = LinearBlocks.arrange

    def spy(*args: Any, **options: Any) -> LinearBlocks:
        seen.append(options["blocks"])
        return real(*args, **options)

    monkeypatch.setattr(LinearBlocks, "arrange", staticmethod(spy))
    for unit, elements in ((Record(), None), (Element(), ELEMENTS), (User(), None)):
        LogisticRegression(unit=unit, rounds=1).fit(X, BINARY, users=USERS, elements=elements)
    assert seen == [3600, 1800, 600]


def first(model: LinearModel, features: Array, y: Any, users: Any = None) -> Array:
    """The first noisy gradient."""
    found: Array = clone(model).fit(features, y, users=users).history_.gradients[0]
    return found


ROWS = np.random.default_rng(3).normal(size=(1000, 2))
SIDE = ROWS[:, 0] > 0


@pytest.mark.parametrize(
    ("classes", "y"),
    [
        # Whatever one person's label makes of the column's type: nothing, a null, text, a list.
        ([False, True], pd.Series(["?", *map(str, SIDE[1:])])),
        ([False, True], [None, *SIDE[1:].tolist()]),
        ([False, True], [2, *SIDE[1:].tolist()]),
        ([0, 1], pd.Series(["?", *map(str, SIDE[1:].astype(int))])),
        ([0, 1], ["x", *SIDE[1:].astype(int).tolist()]),
        ([0, 1], [1j, *SIDE[1:].astype(int).tolist()]),
        ([0, 1], [["a"], *SIDE[1:].astype(int).tolist()]),
        ([0, 1], pd.array([None, *SIDE[1:].astype(int).tolist()], dtype="Int64")),
        ([0, 1], [np.nan, *SIDE[1:].astype(float).tolist()]),
    ],
    ids=["text", "null", "number", "csv", "word", "complex", "list", "Int64", "nan"],
)
def test_one_label_does_not_change_those_of_others(classes: Any, y: Any) -> None:
    model = LogisticRegression(classes=classes, random_state=0, n_users=1000, rounds=1, clip=1.0)
    expected = first(model, ROWS, SIDE if classes == [False, True] else SIDE.astype(int))
    assert np.linalg.norm(first(model, ROWS, y) - expected) <= 1 / 1000 * (1 + 1e-9)


def test_one_id_or_element_does_not_change_those_of_others() -> None:
    large = [2**53, 2**53 + 1]
    for more in ([], [None]):
        assert (
            arrange(2 + len(more), pd.Series(large + more, dtype="Int64"), None, User()).users == 2
        )
    from decimal import Decimal

    users = ["a", "a", "b"]
    kept = arrange(3, users, [1, 2, 1], User(max_elements=1)).kept
    for odd in (True, np.True_, Decimal("1.0"), 1 + 0j, "1", 1.0, None, "\ud800", 10**5000, ["b"]):
        found = arrange(4, ["z", *users], [odd, 1, 2, 1], User(max_elements=1)).kept
        assert [row - 1 for row in found if row > 0] == kept.tolist(), odd


def test_huge_values_of_one_person_are_silent() -> None:
    large = np.ones(1000)
    large[0] = 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (np.float32, np.float64):
            features = ROWS.astype(kind)
            LinearRegression(random_state=0, rounds=2).fit(features, large)
        LinearRegression(random_state=0, rounds=2, clip="auto").fit(ROWS * large[:, None], large)
        odd = np.array([*np.ones(999), "abc"], dtype=object)
        LinearRegression(random_state=0, rounds=2).fit(ROWS, odd)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_second_row_of_one_user_does_not_change_others(kind: Any) -> None:
    n, model = 300, LogisticRegression(classes=[0, 1], fit_intercept=False, n_users=301, rounds=1)
    model.set_params(random_state=0, clip=1.0)
    found = []
    for second in (0, 1):
        features = np.full((n + 1 + second, 1), 2e154 if kind is np.float64 else 3e19, dtype=kind)
        features[n:] = 0
        y = (np.arange(n + 1 + second) == n).astype(int)
        found.append(first(model, features, y, np.append(np.arange(n + 1), [n] * second)))
    assert np.linalg.norm(found[0] - found[1]) <= 1 / 301 * (1 + 1e-2)


def test_a_refused_fit_leaves_nothing_behind() -> None:
    model = LinearSVC(random_state=0)
    with pytest.raises(ParameterError, match="classes must be two"):
        model.fit(ROWS, np.arange(1000) % 3)
    assert model.fit(ROWS, SIDE).score(ROWS, SIDE) > 0.8


def test_promises_about_other_elements_or_users_do_not_compose() -> None:
    thirds = np.tile(np.arange(6) % 3, 600)

    def promise(elements: Any, users: Any = USERS) -> dg.Guarantee:
        model = LogisticRegression(unit=Element(), rounds=1)
        return model.fit(X, BINARY, users=users, elements=elements).guarantee_

    one = promise(ELEMENTS)
    assert one.epsilon() < (one + promise(ELEMENTS)).epsilon() < 2 * one.epsilon()
    named = pd.Series(ELEMENTS, name="half"), pd.Series(thirds, name="third")
    assert promise(named[0]).elements == "'half'"
    assert (promise(named[0]) + promise(named[0].copy())).elements == "'half'"
    for other in (promise(thirds), promise(named[0]), promise(ELEMENTS, USERS // 2)):
        with pytest.raises(ParameterError, match="do not compose"):
            one + other
    with pytest.raises(ParameterError, match="do not compose"):
        promise(named[0]) + promise(named[1])


def test_pairs_as_labels_are_not_spoken_for_by_equal_ones() -> None:
    users = ["a", "a", "b"]
    elements = [(1, "x"), (2, "x"), (1, "x")]
    kept = arrange(3, users, elements, User(max_elements=1)).kept
    found = arrange(4, ["z", *users], [(True, "x"), *elements], User(max_elements=1)).kept
    assert [row - 1 for row in found if row > 0] == kept.tolist()


def test_exact_sums_name_what_is_left_in_floating_point() -> None:
    model = LogisticRegression(exact=True, intervals=0.2, rounds=1).fit(X, BINARY, users=USERS)
    assert "second moments are added in floating point" in str(model.guarantee_)


ODD = ("secret", None, {"a": 1}, 1 + 2j, np.complex128(1 + 1j), [1.0], object())


@pytest.mark.search(keep=2)
@pytest.mark.parametrize("cell", ODD, ids=lambda cell: type(cell).__name__)
def test_an_odd_cell_counts_as_nothing(cell: Any) -> None:
    # It makes objects, text or complex numbers of all features: an error would tell of the row.
    X, y = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2
    nulls = np.column_stack([X, X[:, 0] > 0])
    nulls[5, 1] = np.nan

    def fitted(X: Any) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = LogisticRegression(rounds=3, random_state=0, classes=[0, 1]).fit(X, y)
        return model.coef_

    rows = [[*row, row[0] > 0] for row in X.tolist()]
    rows[5][1] = cell
    odd = np.empty(nulls.shape, dtype=object)
    for i, row in enumerate(rows):
        odd[i, :] = row
    for given in (rows, list(map(tuple, rows)), odd, pd.DataFrame(odd)):
        assert np.array_equal(fitted(given), fitted(nulls))


@pytest.mark.parametrize("cell", ODD, ids=lambda cell: type(cell).__name__)
def test_an_odd_target_is_left_out(cell: Any) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    targets: list[Any] = [*(X[1:] @ np.ones(3) / 4).tolist(), 0.5]
    truths: list[Any] = (X[:, 0] > 0).tolist()

    def fitted(model: LinearModel, targets: list[Any]) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return model.fit(X, targets).coef_

    for given, model in (
        (targets, LinearRegression(rounds=3, random_state=0)),
        (truths, LinearRegression(rounds=3, random_state=0)),
        (truths, LogisticRegression(rounds=3, random_state=0, classes=[False, True])),
    ):
        missing, odd = list(given), list(given)
        missing[5], odd[5] = np.nan, cell
        assert np.array_equal(fitted(model, odd), fitted(model, missing))


def test_a_complex_number_is_none_and_not_warned_of() -> None:
    # NumPy would take its real part, with a warning.
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = numbers(np.array([np.complex128(1 + 1j), "2", True, 1j], dtype=object))
    assert np.array_equal(found, [np.nan, 2.0, 1.0, np.nan], equal_nan=True)
    assert not seen


def test_one_wider_number_does_not_change_how_others_are_added_up() -> None:
    narrow = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    y = np.arange(200) % 2
    found = []
    for first in (np.float32(0.5), 0.5):
        rows = [list(row) for row in narrow]
        rows[0][0] = first
        found.append(
            LogisticRegression(rounds=3, classes=[0, 1], random_state=0).fit(rows, y).coef_
        )
    assert np.array_equal(found[0], found[1])


def test_one_odd_cell_of_a_narrow_frame_does_not_change_how_others_are_added_up() -> None:
    narrow = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32))
    y, found = np.arange(200) % 2, []
    for odd in (np.nan, "abc"):
        frame = narrow.copy()
        frame[0] = frame[0].astype(object) if odd == "abc" else frame[0]
        frame.loc[0, 0] = odd
        model = LogisticRegression(rounds=3, classes=[0, 1], random_state=0, exact=True)
        found.append(model.fit(frame, y).coef_)
    assert np.array_equal(found[0], found[1])

"""Private linear models: scikit-learn's contract, guarantees, and independence of a person."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from tests.learn import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.accounting import SampledGaussian
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import arrange
from dpgrain.learn import (
    LinearRegression,
    LinearSVC,
    LogisticRegression,
)
from dpgrain.means.clipped import ClippedRounds
from dpgrain.units import Element, Record, Unit, User

Array = NDArray[Any]


@pytest.mark.parametrize(
    ("unit", "elements"),
    [
        (None, None),
        (User(), None),
        (Record(), None),
        (Element(), cases.ELEMENTS),
        (User(max_elements=2), cases.ELEMENTS),
    ],
    ids=["default", "user", "record", "element", "kept"],
)
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_guarantee_matches_the_request(unit: Unit | None, elements: Any, relation: Any) -> None:
    # Counted elements may all have one label: then more of them are needed to find one.
    model = LogisticRegression(unit=unit, relation=relation, epsilon=2.0, delta=1e-6)
    promise = model.fit(cases.X, cases.BINARY, users=cases.USERS, elements=elements).guarantee_
    level = "user" if unit is None else unit.level
    assert (promise.level, promise.relation, promise.delta) == (level, relation, 1e-6)
    assert 1.99 < promise.epsilon() <= 2.0
    assert promise.private
    assert f"{level.capitalize()}-level" in str(promise)
    assert "3% of the budget for the number of users, which is published with noise of" in str(
        promise
    )
    assert "3% of the budget and 10% of δ for the labels: each" in str(promise)
    assert model.classes_.tolist() == [0, 1]
    assert abs(model.n_users_ - 600) < 6 * 12.2
    assert model.score(cases.X, cases.BINARY) > 0.6
    assert dg.Guarantee.from_json(promise.to_json()) == promise


def test_cross_validation_costs_its_folds() -> None:
    import sklearn

    folds = 4
    with sklearn.config_context(enable_metadata_routing=True):
        model = LogisticRegression(epsilon=1.0, random_state=0).set_fit_request(users=True)
        scores = cross_val_score(
            model,
            cases.X,
            cases.BINARY,
            cv=GroupKFold(folds),
            params={"users": cases.USERS, "groups": cases.USERS},
        )
    assert len(scores) == folds
    one = LogisticRegression(epsilon=1.0).fit(cases.X, cases.BINARY, users=cases.USERS).guarantee_
    # Every user is in all fits but one.
    whole = dg.learn.cross_validated(one, folds)
    assert one.epsilon() < whole.epsilon() < 3 * one.epsilon()
    assert whole.event.epsilon(1e-6) == (one + one + one).event.epsilon(1e-6)
    with refuses("folds", "2"):
        dg.learn.cross_validated(one, 1)


COPIES: dict[str, Callable[[LogisticRegression], LogisticRegression]] = {
    "clone": clone,
    "clone of a clone": lambda model: clone(clone(model)),
    "pickled clone": lambda model: pickle.loads(pickle.dumps(clone(model))),
    "deep copy of a clone": lambda model: copy.deepcopy(clone(model)),
    "clone with tune": lambda model: clone(model).set_params(tune={"l2": [0.0, 0.1]}),
    "clone with a recipe": lambda model: clone(model).set_params(trust="shuffle", rounds=2),
}
NOT_COVERED = "scores without noise, choices based on them"


@pytest.mark.parametrize("copied", COPIES)
def test_guarantee_mentions_a_scikit_learn_copy_of_the_model(copied: str) -> None:
    model = LogisticRegression(rounds=2, epsilon=5.0, classes=[0, 1], n_users=600)
    fitted = COPIES[copied](model).fit(cases.X, cases.BINARY, users=cases.USERS)
    assert str(fitted.guarantee_).count(NOT_COVERED) == 1


def test_guarantee_of_a_new_model_states_no_copy() -> None:
    for tune in (None, {"l2": [0.0, 0.1]}):
        model = LogisticRegression(rounds=2, classes=[0, 1], n_users=600, tune=tune)
        model.fit(cases.X, cases.BINARY, users=cases.USERS)
        # Cloning and pickling change only the copies.
        clone(model), pickle.loads(pickle.dumps(model))
        assert NOT_COVERED not in str(model.guarantee_)
        assert NOT_COVERED not in str(
            model.fit(cases.X, cases.BINARY, users=cases.USERS).guarantee_
        )


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_budget_is_charged_for_each_fit_of_a_search(n_jobs: int | None) -> None:
    model = LogisticRegression(unit=Record(), rounds=2, classes=[0, 1], n_users=len(cases.X))
    search = GridSearchCV(model, {"l2": [0.0, 0.1]}, cv=2, n_jobs=n_jobs, error_score="raise")
    with parallel_config(backend="threading"), dg.budget(40.0, 1e-3) as spent:
        search.fit(cases.X, cases.BINARY)
    assert spent.guarantee is not None
    rounds = [part for part in spent.guarantee.event.parts if isinstance(part, SampledGaussian)]
    # Two settings on two folds, and the fit with the chosen parameters.
    assert sum(part.count for part in rounds) == 5
    assert NOT_COVERED in str(search.best_estimator_.guarantee_)
    assert NOT_COVERED in str(spent.guarantee)


def test_budget_covers_fits() -> None:
    with dg.budget(1.0, 1e-6) as budget:
        LogisticRegression(epsilon=0.9, delta=1e-7).fit(cases.X, cases.BINARY, users=cases.USERS)
        with pytest.raises(ParameterError, match="has no room for this release"):
            LogisticRegression(epsilon=0.9, delta=1e-7).fit(
                cases.X, cases.BINARY, users=cases.USERS
            )
    assert budget.guarantee is not None


# -- what must not depend on one person --


def test_huge_values_of_one_user_move_one_clipped_block() -> None:
    rows = cases.X.copy()
    rows[cases.USERS == 7] = 1e300
    model = LinearRegression(random_state=0, n_users=600, clip=1.0)
    first = model.fit(cases.X, cases.Z, users=cases.USERS).history_.gradients[0]
    second = clone(model).fit(rows, cases.Z, users=cases.USERS).history_.gradients[0]
    assert np.linalg.norm(first - second) <= 2 / 600 * (1 + 1e-6)


@pytest.mark.parametrize(
    ("unit", "moved"),
    [(Record(), 1.0), (Element(), 1.0), (User(), 1.0), (User(max_elements=1), 1.0)],
    ids=["record", "element", "user", "kept"],
)
def test_unit_without_rows_moves_a_gradient_by_the_clip(unit: Unit, moved: float) -> None:
    rng = np.random.default_rng(5)
    largest = 0.0
    passed = unit.level == "element" or (isinstance(unit, User) and unit.max_elements)
    elements = cases.ELEMENTS if passed else None
    for _ in range(12):
        rows = cases.X * 10.0 ** rng.integers(-1, 4)
        y = rng.integers(0, 2, len(cases.X))
        someone = int(rng.integers(600))
        gone = someone == cases.USERS
        if unit.level == "element":
            gone &= rng.integers(3) == cases.ELEMENTS
        if unit.level == "record":
            gone = np.arange(len(cases.X)) == rng.integers(len(cases.X))
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
                users=cases.USERS[keep],
                elements=None if elements is None else elements[keep],
            )
            for keep in (np.ones(len(cases.X), dtype=bool), ~gone)
        ]
        apart = pair[0].history_.gradients[0] - pair[1].history_.gradients[0]
        largest = max(largest, float(np.linalg.norm(apart)) * 600)
    assert 0.5 * moved < largest <= moved * (1 + 1e-4)


def test_counted_elements_are_the_first_in_public_order() -> None:
    users = np.array([1, 1, 1, 2, 2])
    elements = ["a", "b", "c", "c", "b"]
    kept = arrange(5, users, elements, User(max_elements=1))
    # With any other users, and in any order of rows, the same element of a user is counted.
    names = {elements[i] for i in kept.indices if users[i] == 1}
    turned = arrange(5, users[::-1], elements[::-1], User(max_elements=1))
    assert {elements[::-1][i] for i in turned.indices if users[::-1][i] == 1} == names
    alone = arrange(3, users[:3], elements[:3], User(max_elements=1))
    assert {elements[i] for i in alone.indices} == names
    # A null elsewhere must not rename whole numbers.
    numbers = arrange(3, [1, 1, 1], [10, 9, 8], User(max_elements=1))
    beside = arrange(4, [1, 1, 1, 2], [10, 9, 8, None], User(max_elements=1))
    assert numbers.indices[0] == beside.indices[0]


def test_users_are_distinguished_independently_of_others() -> None:
    large = 2**60
    assert arrange(3, [large, large + 1, None], None, User()).users == 2
    assert arrange(2, [large, large + 1], None, User()).users == 2


# -- errors that teach --


def test_a_seed_is_not_private() -> None:
    model = LinearRegression(random_state=1).fit(cases.X, cases.Z)
    assert not model.guarantee_.private
    assert "NOT PRIVATE" in str(model.guarantee_)
    assert np.array_equal(model.coef_, LinearRegression(random_state=1).fit(cases.X, cases.Z).coef_)
    assert not np.array_equal(model.coef_, LinearRegression().fit(cases.X, cases.Z).coef_)


def test_one_id_or_element_does_not_affect_others() -> None:
    large = [2**53, 2**53 + 1]
    for more in ([], [None]):
        assert (
            arrange(2 + len(more), pd.Series(large + more, dtype="Int64"), None, User()).users == 2
        )
    from decimal import Decimal

    users = ["a", "a", "b"]
    kept = arrange(3, users, [1, 2, 1], User(max_elements=1)).indices
    for odd in (True, np.True_, Decimal("1.0"), 1 + 0j, "1", 1.0, None, "\ud800", 10**5000, ["b"]):
        found = arrange(4, ["z", *users], [odd, 1, 2, 1], User(max_elements=1)).indices
        assert [row - 1 for row in found if row > 0] == kept.tolist(), odd


def test_huge_values_of_one_person_are_silent() -> None:
    large = np.ones(1000)
    large[0] = 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (np.float32, np.float64):
            features = cases.ROWS.astype(kind)
            LinearRegression(random_state=0, rounds=2).fit(features, large)
        LinearRegression(random_state=0, rounds=2, clip="auto").fit(
            cases.ROWS * large[:, None], large
        )
        odd = np.array([*np.ones(999), "abc"], dtype=object)
        LinearRegression(random_state=0, rounds=2).fit(cases.ROWS, odd)


def test_rejected_fit_leaves_nothing() -> None:
    model = LinearSVC(random_state=0)
    with refuses("classes"):
        model.fit(cases.ROWS, np.arange(1000) % 3)
    assert model.fit(cases.ROWS, cases.SIDE).score(cases.ROWS, cases.SIDE) > 0.8


def test_promises_about_other_elements_or_users_do_not_compose() -> None:
    thirds = np.tile(np.arange(6) % 3, 600)

    def promise(elements: Any, users: Any = cases.USERS) -> dg.Guarantee:
        model = LogisticRegression(unit=Element(), rounds=1)
        return model.fit(cases.X, cases.BINARY, users=users, elements=elements).guarantee_

    one = promise(cases.ELEMENTS)
    assert one.epsilon() < (one + promise(cases.ELEMENTS)).epsilon() < 2 * one.epsilon()
    named = pd.Series(cases.ELEMENTS, name="half"), pd.Series(thirds, name="third")
    assert promise(named[0]).elements == "'half'"
    assert (promise(named[0]) + promise(named[0].copy())).elements == "'half'"
    for other in (promise(thirds), promise(named[0]), promise(cases.ELEMENTS, cases.USERS // 2)):
        with refuses("guarantees", "compose"):
            one + other
    with refuses("guarantees", "compose"):
        promise(named[0]) + promise(named[1])


def test_pairs_as_labels_are_distinct_from_equal_ones() -> None:
    users = ["a", "a", "b"]
    elements = [(1, "x"), (2, "x"), (1, "x")]
    kept = arrange(3, users, elements, User(max_elements=1)).indices
    found = arrange(4, ["z", *users], [(True, "x"), *elements], User(max_elements=1)).indices
    assert [row - 1 for row in found if row > 0] == kept.tolist()


def test_wider_number_does_not_change_the_sums_of_others() -> None:
    narrow = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    y = np.arange(200) % 2
    found = []
    for first in (np.float32(0.5), 0.5):
        rows = [list(row) for row in narrow]
        rows[0][0] = first
        model = LogisticRegression(rounds=3, classes=[0, 1], random_state=0, n_features=3)
        found.append(model.fit(rows, y).coef_)
    assert np.array_equal(found[0], found[1])


def test_malformed_narrow_cell_does_not_change_sums_of_others() -> None:
    narrow = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32))
    y, found = np.arange(200) % 2, []
    for odd in (np.nan, "abc"):
        frame = narrow.copy()
        frame[0] = frame[0].astype(object) if odd == "abc" else frame[0]
        frame.loc[0, 0] = odd
        model = LogisticRegression(rounds=3, classes=[0, 1], random_state=0, exact=True)
        found.append(model.fit(frame, y).coef_)
    assert np.array_equal(found[0], found[1])


@pytest.mark.parametrize("tune", [None, {"l2": [0.0, 1.0]}])
def test_an_interrupted_fit_leaves_nothing(tune: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 2
    model = LogisticRegression(classes=[0, 1], rounds=20, unit=Record(), n_users=300).fit(X, y)
    model.set_params(tune=tune, epsilon=1.0)
    done = 0
    whole = ClippedRounds.estimate

    def interrupted(run: ClippedRounds, contributions: Any) -> Any:
        nonlocal done
        done += 1
        if done == 3:
            raise KeyboardInterrupt
        return whole(run, contributions)

    monkeypatch.setattr(ClippedRounds, "estimate", interrupted)
    with dg.budget(40.0, 1e-3) as budget, pytest.raises(KeyboardInterrupt) as stopped:
        model.fit(X, y)
    assert "stays charged" in stopped.value.__notes__[0]
    # It was charged before the first round, and is not given back.
    assert budget.left < 1
    names = {name for name in vars(model) if name.endswith("_")}
    assert names <= {"n_features_in_"}
    assert model.epsilon == 1.0


def test_row_passed_as_a_table_is_not_quoted() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = LinearRegression(unit=Record(), n_users=60, rounds=2, epsilon=1.0, random_state=0).fit(
        X, X[:, 0]
    )
    with pytest.raises(ParameterError, match="Reshape your data") as told:
        model.predict(np.array([86_420.5, 1.0]))
    assert "array=" not in str(told.value)
    assert told.value.__context__ is None

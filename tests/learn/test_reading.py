"""Rows, labels and targets are read individually: one malformed cell affects no other."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from tests.learn import cases
from tests.refusals import refuses

from dpgrain.errors import ParameterError
from dpgrain.learn import (
    LinearModel,
    LinearRegression,
    LogisticRegression,
)
from dpgrain.units import Record

Array = NDArray[Any]


def test_malformed_rows_silently_follow_fixed_rules() -> None:
    rows, y = cases.X.copy(), cases.BINARY.astype(float)
    users = cases.USERS.astype(object)
    rows[0, 1], rows[1] = np.nan, np.inf
    users[2], y[3] = None, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LogisticRegression(random_state=0, classes=[0, 1], unit=Record(), n_users=600)
        found = model.fit(rows, y, users=users).coef_
    clean, left = np.where(np.isfinite(rows), rows, 0), np.ones(len(y), dtype=bool)
    left[[2, 3]] = False
    expected = LogisticRegression(random_state=0, classes=[0, 1], unit=Record(), n_users=600).fit(
        clean[left], cases.BINARY[left], users=cases.USERS[left]
    )
    assert np.array_equal(found, expected.coef_)


@pytest.mark.parametrize(
    ("passed", "message"),
    [
        ({"users": cases.USERS[:-1]}, "users must have exactly one label for each"),
        ({"elements": cases.ELEMENTS}, "elements are not used with"),
    ],
)
def test_invalid_labels_are_reported(passed: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        LogisticRegression().fit(cases.X, cases.BINARY, **passed)


def first(model: LinearModel, features: Array, y: Any, users: Any = None) -> Array:
    found: Array = clone(model).fit(features, y, users=users).history_.gradients[0]
    return found


@pytest.mark.parametrize(
    ("classes", "y"),
    [
        # Effects of one person's label on the column's type: none, a null, text, a list.
        ([False, True], pd.Series(["?", *map(str, cases.SIDE[1:])])),
        ([False, True], [None, *cases.SIDE[1:].tolist()]),
        ([False, True], [2, *cases.SIDE[1:].tolist()]),
        ([0, 1], pd.Series(["?", *map(str, cases.SIDE[1:].astype(int))])),
        ([0, 1], ["x", *cases.SIDE[1:].astype(int).tolist()]),
        ([0, 1], [1j, *cases.SIDE[1:].astype(int).tolist()]),
        ([0, 1], [["a"], *cases.SIDE[1:].astype(int).tolist()]),
        ([0, 1], pd.array([None, *cases.SIDE[1:].astype(int).tolist()], dtype="Int64")),
        ([0, 1], [np.nan, *cases.SIDE[1:].astype(float).tolist()]),
    ],
    ids=["text", "null", "number", "csv", "word", "complex", "list", "Int64", "nan"],
)
def test_one_label_does_not_affect_the_others(classes: Any, y: Any) -> None:
    model = LogisticRegression(
        classes=classes, random_state=0, unit=Record(), n_users=1000, rounds=1, clip=1.0
    )
    expected = first(
        model, cases.ROWS, cases.SIDE if classes == [False, True] else cases.SIDE.astype(int)
    )
    assert np.linalg.norm(first(model, cases.ROWS, y) - expected) <= 1 / 1000 * (1 + 1e-9)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_second_row_of_one_user_does_not_affect_others(kind: Any) -> None:
    n, model = (
        300,
        LogisticRegression(
            classes=[0, 1], fit_intercept=False, unit=Record(), n_users=301, rounds=1
        ),
    )
    model.set_params(random_state=0, clip=1.0)
    found = []
    for second in (0, 1):
        features = np.full((n + 1 + second, 1), 2e154 if kind is np.float64 else 3e19, dtype=kind)
        features[n:] = 0
        y = (np.arange(n + 1 + second) == n).astype(int)
        found.append(first(model, features, y, np.append(np.arange(n + 1), [n] * second)))
    assert np.linalg.norm(found[0] - found[1]) <= 1 / 301 * (1 + 1e-2)


ODD = ("secret", None, {"a": 1}, 1 + 2j, np.complex128(1 + 1j), [1.0], object())


@pytest.mark.parametrize("cell", ODD, ids=lambda cell: type(cell).__name__)
def test_malformed_cell_counts_as_nothing(cell: Any) -> None:
    # It turns all features into objects, text or complex numbers: an error would reveal the row.
    X, y = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2
    nulls = np.column_stack([X, X[:, 0] > 0])
    nulls[5, 1] = np.nan

    def fitted(X: Any) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = LogisticRegression(rounds=3, random_state=0, classes=[0, 1], n_features=4)
            model.fit(X, y)
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


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [1.0, 2.0], "sex": pd.array(["f", "m"], dtype="string")}),
        pd.DataFrame({"a": [1.0, 2.0], "sex": ["f", "m"]}, dtype=pd.ArrowDtype(pa.string())).assign(
            a=[1.0, 2.0]
        ),
        pa.table({"a": [1.0, 2.0], "sex": ["f", "m"]}),
        pl.DataFrame({"a": [1.0, 2.0], "sex": ["f", "m"]}),
        pl.LazyFrame({"a": [1.0, 2.0], "sex": ["f", "m"]}),
    ],
    ids=["pandas", "arrow in pandas", "arrow", "polars", "lazy"],
)
def test_text_columns_are_rejected_by_their_type(frame: Any) -> None:
    with refuses("X", "'sex'"):
        LinearRegression().fit(frame, [1.0, 2.0])


def test_all_columns_of_text_are_named() -> None:
    frame = pa.table({"sex": ["f"], "a": [1.0], "city": ["x"]})
    with refuses("X", "'sex'"):
        LinearRegression().fit(frame, [1.0])


def test_malformed_cell_does_not_reject_a_column() -> None:
    frame = pd.DataFrame({"a": [*cases.ROWS[1:, 0], "x"], "b": cases.ROWS[:, 1]})
    assert frame["a"].dtype.kind == "O"
    model = LinearRegression(unit=Record(), n_users=1000, rounds=1, random_state=0).fit(
        frame, cases.ROWS[:, 0]
    )
    assert np.isfinite(model.coef_).all()

"""pandas objects with the same index labels in different orders are not matched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.choices.select import select
from dpgrain.errors import ParameterError
from dpgrain.learn import LinearRegression, LogisticRegression, accuracy, auc, minimise, r2
from dpgrain.optimize import Power, Sgd, Squared

N = 400
_RNG = np.random.default_rng(0)
LABELS = [f"secret-{place}" for place in _RNG.permutation(N)]
X = pd.DataFrame(_RNG.uniform(-1, 1, (N, 2)), index=LABELS, columns=["a", "b"])
Y = (X["a"] > 0).astype(float)
USERS = pd.Series(np.repeat(np.arange(N // 2), 2), index=LABELS, name="user")
ELEMENTS = pd.Series(np.tile(["x", "y"], N // 2), index=LABELS, name="cell")
_FEW: dict[str, Any] = {"epsilon": 1.0, "rounds": 2, "clip": 1.0, "random_state": 0}
_SEED: dict[str, Any] = {"epsilon": 1.0, "random_state": 0}


def _fit(X: Any, y: Any, users: Any) -> Any:
    return LinearRegression(n_users=200, **_FEW).fit(X, y, users=users)


def _tuned(X: Any, y: Any, users: Any) -> Any:
    model = LinearRegression(n_users=200, tune={"l2": [0.0]}, **_FEW)
    return model.fit(X, y, users=users)


def _scored(X: Any, y: Any, users: Any) -> Any:
    model = LogisticRegression(classes=[0, 1], **_FEW).fit(X.to_numpy(), np.asarray(y))
    model.feature_names_in_ = np.array(["a", "b"], dtype=object)
    return model.score_privately(X, y, users=users, **_SEED)


ENTRIES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "fit": _fit,
    "tune": _tuned,
    "minimise": lambda X, y, users: minimise(
        Squared(), X, y, np.zeros(2), users=users, solver=Sgd(Power(1.0)), **_FEW
    ),
    "accuracy": lambda X, y, users: accuracy(y, X["a"] > 0, users=users, classes=[0, 1], **_SEED),
    "auc": lambda X, y, users: auc(y, X["a"] / 2 + 0.5, users=users, positive=1.0, **_SEED),
    "r2": lambda X, y, users: r2(y, X["a"], users=users, lower=0, upper=1, **_SEED),
    "score": _scored,
    "mean": lambda X, _, users: dg.mean_of_users(X, users=users, bound=2.0, delta=1e-6, **_SEED),
    "select": lambda X, y, users: select(
        [0.0, 1.0], lambda c, x, y: abs(np.asarray(x)[:, 0] - c), (X, y), users, **_SEED
    ),
    "select of one": lambda X, _, users: select(
        [0.0, 1.0], lambda c, x: abs(np.asarray(x)[:, 0] - c), X, users, **_SEED
    ),
}


@pytest.mark.parametrize("entry", list(ENTRIES))
def test_reordered_users_are_rejected(entry: str) -> None:
    call = ENTRIES[entry]
    call(X, Y, USERS)
    with pytest.raises(ParameterError, match="users must have the same index order as") as caught:
        call(X, Y, USERS.sort_index())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("entry", ["fit", "tune", "minimise", "accuracy", "auc", "r2", "score"])
def test_reordered_targets_are_rejected(entry: str) -> None:
    with pytest.raises(ParameterError, match="must have the same index order as"):
        ENTRIES[entry](X, Y.sort_index(), USERS)


def test_reordered_elements_are_rejected() -> None:
    def fit(elements: Any) -> Any:
        model = LinearRegression(unit=dg.Element(), **_FEW)
        return model.fit(X.to_numpy(), Y.to_numpy(), users=USERS, elements=elements)

    fit(ELEMENTS)
    with refuses("elements", "the same index order as users"):
        fit(ELEMENTS.sort_index())


def test_equal_and_unrelated_indexes_are_matched_by_position() -> None:
    usual = _fit(X.to_numpy(), Y.to_numpy(), USERS.to_numpy()).coef_
    several = pd.MultiIndex.from_arrays([LABELS, range(N)])
    mixed = pd.Index([*LABELS[1:], 7], dtype=object)
    unhashable = pd.Index([[place] for place in range(N)], dtype=object)
    for index in (LABELS, range(N), range(1, N + 1), several, mixed, unhashable):
        assert np.array_equal(_fit(X, Y, USERS.set_axis(index)).coef_, usual)
    # An array has no index.
    assert np.array_equal(_fit(X, Y, USERS.to_numpy()).coef_, usual)
    assert np.array_equal(_fit(X.to_numpy(), Y, list(USERS)).coef_, usual)


def test_repeated_labels_in_another_order_are_rejected() -> None:
    twice = ["a", "b"] * (N // 2)
    _fit(X.set_axis(twice), Y.set_axis(twice), USERS.set_axis(twice))
    with pytest.raises(ParameterError, match="index"):
        _fit(X.set_axis(twice), Y.set_axis(twice), USERS.set_axis(twice[::-1]))


N_USERS: dict[str, Callable[..., Any]] = {
    "regression": lambda **more: LinearRegression(
        n_users=N, unit=more.pop("unit", None), **_FEW
    ).fit(X, Y, **more),
    "classifier": lambda **more: LogisticRegression(
        n_users=N, classes=[0, 1], unit=more.pop("unit", None), **_FEW
    ).fit(X, Y, **more),
    "tune": lambda **more: LinearRegression(
        n_users=N, tune={"l2": [0.0]}, unit=more.pop("unit", None), **_FEW
    ).fit(X, Y, **more),
    "minimise": lambda **more: minimise(
        Squared(), X, Y, np.zeros(2), n_users=N, solver=Sgd(Power(1.0)), **_FEW, **more
    ),
    "select": lambda **more: select(
        [0.0, 1.0], lambda c, x: abs(np.asarray(x)[:, 0] - c), X, n_users=N, **_SEED, **more
    ),
}


@pytest.mark.parametrize("entry", list(N_USERS))
def test_n_users_without_users_is_rejected(entry: str) -> None:
    call = N_USERS[entry]
    with refuses("n_users", "users=", "unit=Record()"):
        call()
    call(users=USERS)
    call(unit=dg.Record())

"""Rows never decide the shape, type or order of published results, or whether an error occurs.

Every public function for rows of numbers is called with lists in which k rows have one number more
or
less than the others, for k from none to all: the outcome has one form.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import dpgrain as dg
from dpgrain.errors import ParameterError
from dpgrain.learn import LinearRegression, LogisticRegression, minimise
from dpgrain.means import ClippedMean, Vectors, mean_of_users
from dpgrain.noise import SeededSource
from dpgrain.optimize import Constant, Sgd, Squared
from dpgrain.papers import PanPrivate, PanPrivateStream, release_mean
from dpgrain.shuffle import Bag, PoissonSum, ScalarSum, VectorSum

M, D = 8, 2
PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
SEEDED: dict[str, Any] = {**PROMISE, "random_state": 0}
ROSTER: dict[str, Any] = {**SEEDED, "n_users": M}


def by_sensitivity(rows: Any, **options: Any) -> Any:
    return release_mean(rows, sensitivity=1.0, **SEEDED, **options).value


def of_users(rows: Any, **options: Any) -> Any:
    return mean_of_users(rows, bound=1.0, method="clip", **ROSTER, **options).value


def of_vectors(rows: Any, **options: Any) -> Any:
    mean = ClippedMean(1.0, 2.0, n_users=M, rounds=1)
    return mean.start(SeededSource(1)).estimate(Vectors(rows, **options))


def minimum(rows: Any) -> Any:
    return minimise(
        Squared(), rows, np.ones(M), np.zeros(D), solver=Sgd(Constant(0.1)), rounds=1, **ROSTER
    ).theta


def fit(kind: Any) -> Callable[..., Any]:
    def fitted(rows: Any, **options: Any) -> Any:
        labels = np.arange(M) % 2
        asked = {"classes": [0, 1]} if kind is LogisticRegression else {}
        return kind(clip=1.0, rounds=1, **asked, **ROSTER, **options).fit(rows, labels).coef_

    return fitted


def simulated(kind: Any) -> Callable[..., Any]:
    shape: dict[str, Any] = {} if kind is ScalarSum else {"dim": D}
    protocol = kind(n_users=M, **shape, epsilon=8.0, delta=1e-3)
    return lambda rows: protocol.simulate(rows, random_state=0)


def on_devices(rows: Any) -> Any:
    protocol = VectorSum(n_users=M, dim=D, epsilon=8.0, delta=1e-3)
    shuffler, device = protocol.shuffler(), protocol.randomizer()
    assert all(shuffler.receive(device.report(row)) for row in rows)
    return protocol.analyzer().estimate(shuffler.release()).value


def streamed(rows: Any) -> Any:
    stream = PanPrivateStream(PanPrivate(1.0, 1.0, M, 1), D)
    return [stream.receive(row) for row in rows][-1]


def bagged(rows: Any) -> Any:
    return Bag.from_messages(rows, M, most=3, dim=D, tag=b"a demonstration").ones


def chosen(rows: Any) -> Any:
    def loss(candidate: float, records: Any) -> list[float]:
        return [abs(float(record[0]) - candidate) for record in records]

    # A tuple would be several tables.
    asked: dict[str, Any] = {"epsilon": 1.0, "n_users": M, "random_state": 0}
    return dg.select([0.0, 1.0], loss, list(rows), **asked).index


#: Every function for rows of numbers, with the public number of cells per row if required.
DOORS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "release_mean": (by_sensitivity, {"dimension": D}),
    "mean_of_users": (of_users, {"dimension": D}),
    "Vectors": (of_vectors, {"dimension": D}),
    "minimise": (minimum, {}),
    "LinearRegression": (fit(LinearRegression), {"n_features": D}),
    "LogisticRegression": (fit(LogisticRegression), {"n_features": D}),
    "select": (chosen, {}),
    "VectorSum": (simulated(VectorSum), {}),
    "PoissonSum": (simulated(PoissonSum), {}),
    "ScalarSum": (simulated(ScalarSum), {}),
    "devices": (on_devices, {}),
    "PanPrivateStream": (streamed, {}),
    "Bag": (bagged, {}),
}
ASKS = ("release_mean", "mean_of_users", "Vectors")
#: Rows that do not consist of D numbers.
ROWS: dict[str, Any] = {
    "longer": [0.5] * (D + 1),
    "shorter": [0.5] * (D - 1),
    "empty": [],
    "number": 0.5,
    "None": None,
    "text": "somebody",
    "pairs": [[0.5, 0.5]] * D,
    "tuple": (0.5,) * (D + 1),
    "array": np.full(D, 0.5),
    "complex": [1j] * D,
    "text cells": ["somebody"] * D,
}


def form_of(call: Callable[[], Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = np.asarray(call())
        except ParameterError as refused:
            return str(refused)
    assert np.isfinite(found).all()
    return f"{found.dtype} {found.shape}"


@pytest.mark.parametrize("container", [list, tuple])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("door", DOORS)
def test_published_form_depends_on_no_row(door: str, row: str, container: Any) -> None:
    call, stated = DOORS[door]
    forms = {
        form_of(partial(call, container(odd), **stated))
        for few in range(M + 1)
        for odd in ([ROWS[row]] * few + [[0.5] * D] * (M - few),)
    }
    assert len(forms) == 1, forms


@pytest.mark.parametrize(("door", "row"), list(itertools.product(ASKS, ROWS)))
def test_ambiguous_list_shape_is_required_for_any_rows(door: str, row: str) -> None:
    call, _ = DOORS[door]
    for odd in ([], [ROWS[row]] * M, [[0.5] * D] * M, [0.5] * M):
        assert "dimension is required for a list" in form_of(partial(call, odd))

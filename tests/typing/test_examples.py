"""What a type checker knows of what callers write: checked by mypy and pyright, and run once.

``assert_type`` fails in the checker where a public name is untyped or of another type.
"""

from __future__ import annotations

from typing import assert_type

import numpy as np
import pandas as pd
import pyarrow as pa

import dpgrain as dg
from dpgrain.learn import LinearRegression
from dpgrain.publishing.guarantee import Guarantee

TABLE = pa.table({"who": [1, 1, 2, 3], "what": ["a", "b", "a", "a"], "paid": [1.0, 2.0, 3.0, 4.0]})


def test_releases_are_typed() -> None:
    table = assert_type(dg.read(TABLE, user="who"), dg.UserTable)
    items = dg.histogram(table, "what", domain=["a", "b"], unit=dg.User(), epsilon=1.0, delta=1e-6)
    assert_type(items, dg.Histogram)
    assert_type(items.guarantee, Guarantee)
    assert_type(items.guarantee.epsilon(units=2), float)
    assert_type(items.to_pandas(), pd.DataFrame)
    with dg.budget(1.0, 1e-6) as budget:
        paid = dg.mean(table, "paid", bounds=(0, 9), unit=dg.Element("what"), share=0.5)
        assert_type(paid, dg.Estimates)
    assert_type(budget, dg.Budget)
    assert_type(budget.left, float)


def test_fits_are_typed() -> None:
    X = np.zeros((8, 2))
    model = LinearRegression(epsilon=1.0, rounds=2, n_users=8)
    assert_type(model.fit(X, np.zeros(8), users=np.arange(8)), LinearRegression)
    assert_type(model.guarantee_, Guarantee)


def test_means_and_choices_are_typed() -> None:
    X = np.zeros((50, 2))
    mean = dg.mean_of_users(X, n_users=50, bound=1.0, epsilon=1.0, delta=1e-6)
    assert_type(mean, dg.MeanOfUsers)
    assert_type(mean.error, float)

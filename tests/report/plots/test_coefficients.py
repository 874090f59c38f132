"""Coefficients are drawn by their names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dpgrain import learn
from dpgrain.report.plots.coefficients import largest
from dpgrain.units import Record
from dpgrain.words.fit_text import coefficients


@pytest.mark.parametrize("intervals", [0.0, 0.2])
def test_a_feature_may_be_called_an_intercept(intervals: float) -> None:
    X = np.random.default_rng(0).normal(size=(90, 2))
    frame = pd.DataFrame(X, columns=["price: intercept", "intercept"])
    labels = np.array(["a", "b", "c"])[np.arange(90) % 3]
    model = learn.LogisticRegression(
        rounds=2, unit=Record(), classes=["a", "b", "c"], intervals=intervals, random_state=0
    )
    rows = coefficients(model.fit(frame, labels)).rows
    assert [row.intercept for row in rows] == [False, False, True] * 3
    assert len(largest(coefficients(model))) == 6

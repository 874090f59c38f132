"""R²: the noise of the variance, and malformed cells."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.accounting import Contribution, Laplace
from dpgrain.learn import r2
from dpgrain.learn.r2 import r2_interval


def test_noise_of_centred_squares_is_in_the_interval() -> None:
    enters = Contribution("user", "shared", "nonnegative", "l1")
    small, large = Laplace(0.01, enters), Laplace(3.0, enters)
    z = np.random.default_rng(0).uniform(size=800)
    corners = np.array([((1 - z) ** 2).sum(), (2 * z * (1 - z)).sum(), (z**2).sum()])
    error, squares = 20.0, ((z - z.mean()) ** 2).sum()
    drawn = np.random.default_rng(1)
    found = [
        r2_interval(error, corners + drawn.laplace(scale=3.0, size=3), small, large)
        for _ in range(1000)
    ]
    held = [low <= 1 - error / squares <= high for _, low, high in found]
    assert 0.94 < np.mean(held) < 0.99


def test_malformed_cells_follow_the_fixed_rules() -> None:
    # A row without a target is dropped, whatever its prediction.
    y = np.array([0.0, 1.0, np.nan, 50.0, np.inf] * 500)
    predicted = np.array([0.0, 1.0, 7.0, np.inf, -3.0] * 500, dtype=object)
    exact = r2(y, predicted, lower=0.0, upper=2.0, epsilon=1000.0, random_state=1)
    assert exact.value == pytest.approx(1.0, abs=0.01)
    assert round(exact.units, -1) == 1500


def test_text_is_rejected_by_its_type() -> None:
    with refuses("y", "must be numbers"):
        r2.query(np.array(["a", "b"]), np.ones(2), lower=0.0, upper=1.0, epsilon=1.0)
    with refuses("predicted", "must be numbers"):
        r2.query(np.ones(2), np.array(["a", "b"]), lower=0.0, upper=1.0, epsilon=1.0)

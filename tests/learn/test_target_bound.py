"""Fits of targets on a large scale, and warnings of too much clipping."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgrain.errors import CareWarning, ParameterError
from dpgrain.learn import HuberRegressor, LinearRegression, load
from dpgrain.units import Record
from dpgrain.words.fit_text import fit_warnings

N, BETA = 3000, np.array([2.0, -1.0])
USERS = np.arange(N)
_RNG = np.random.default_rng(0)
X = _RNG.uniform(-1, 1, (N, 2))
Y = X @ BETA + 0.5 + _RNG.normal(0, 0.3, N)


def fitted(scale: float, **options: Any) -> LinearRegression:
    model = LinearRegression(epsilon=1.0, n_users=N, random_state=0, **options)
    return model.fit(X, scale * Y, users=USERS)


@pytest.mark.parametrize("scale", [1e4, 1e5, 1e6, 1e-9])
def test_stated_target_bound_suits_every_scale(scale: float) -> None:
    model = fitted(scale, target_bound=4 * scale)
    assert model.coef_ / scale == pytest.approx(BETA, abs=0.06)
    assert model.intercept_ / scale == pytest.approx(0.5, abs=0.06)
    assert model.coef_ / scale == pytest.approx(fitted(1.0, target_bound=4.0).coef_, rel=1e-6)
    assert model.predict(X) / scale == pytest.approx(Y, abs=1.5)
    assert fit_warnings(model) == ()


@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_a_fit_with_most_gradients_clipped_warns(scale: float) -> None:
    with pytest.warns(CareWarning, match=r"exceed the clipping bound 4096.*target_bound="):
        model = fitted(scale)
    assert abs(model.coef_[0] / scale - 2) > 0.2, "the coefficients are biased"
    (doubt,) = fit_warnings(model)
    assert f"Warning: {doubt}" in str(model)


def test_warning_states_a_remedy_of_its_model() -> None:
    with pytest.warns(CareWarning, match="divide features and targets by public numbers"):
        HuberRegressor(threshold=1e5, epsilon=1.0, unit=Record(), n_users=N, random_state=0).fit(
            X, 1e5 * Y
        )
    with pytest.warns(CareWarning, match="pass a larger clip="):
        fitted(1.0, clip=0.01, elements_per_user="auto")


def test_a_tuned_fit_warns() -> None:
    with pytest.warns(CareWarning, match="exceed the clipping bound 4096"):
        fitted(1e6, tune={"l2": [0.0]})


def test_the_range_is_told_and_saved(tmp_path: Path) -> None:
    model = fitted(1e5, target_bound=4e5, intervals=0.2)
    assert "targets clipped to ±400000" in str(model.guarantee_)
    again = load(model.save(tmp_path / "model.json"))
    assert np.array_equal(again.predict(X), model.predict(X))
    found, small = (
        each.confidence_intervals()
        for each in (again, fitted(1.0, target_bound=4.0, intervals=0.2))
    )
    assert found.low / 1e5 == pytest.approx(small.low, rel=1e-6)
    assert found.high / 1e5 == pytest.approx(small.high, rel=1e-6)


def test_tuning_scores_on_the_scale_of_the_fits() -> None:
    options: dict[str, Any] = {"tune": {"l2": [0.0, 100.0]}}
    large, small = (
        fitted(1e5, target_bound=4e5, **options),
        fitted(1.0, target_bound=4.0, **options),
    )
    assert large.tuned_ == small.tuned_
    assert large.coef_ / 1e5 == pytest.approx(small.coef_, rel=1e-6)


def test_targets_beyond_the_bound_count_as_the_bound() -> None:
    def fit(y: Any) -> Any:
        model = LinearRegression(target_bound=2.0, n_users=N, random_state=0)
        return model.fit(X, y, users=USERS).coef_

    assert np.array_equal(fit(Y), fit(np.where(abs(Y) > 2, 1e300 * np.sign(Y), Y)))
    # A target that is not finite is dropped, with or without a bound.
    some = USERS % 50 == 0
    assert np.array_equal(fit(np.where(some, np.inf, Y)), fit(np.where(some, np.nan, Y)))


@pytest.mark.parametrize("bound", [0, -1.0, np.nan, np.inf, 1e60, "4"])
def test_target_bound_is_a_positive_number(bound: Any) -> None:
    with pytest.raises(ParameterError, match="target_bound"):
        fitted(1.0, target_bound=bound)


def test_ordinary_fits_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(1.0)
        fitted(100.0)

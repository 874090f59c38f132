"""The arguments of a fit are checked before anything is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.learn import cases
from tests.refusals import refuses

from dpgrain.errors import ParameterError
from dpgrain.learn import (
    LinearRegression,
    LogisticRegression,
    QuantileRegressor,
)
from dpgrain.optimize import CoinBetting, FullMatrixAdagrad, Sgd
from dpgrain.units import Element

Array = NDArray[Any]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive and finite"),
        ({"epsilon": np.inf}, "epsilon must be positive and finite"),
        ({"delta": 1.0}, r"delta must be in \[0, 1\)"),
        ({"delta": 0.0}, "delta must be above 0 for fits"),
        ({"algorithm": Sgd}, "algorithm must be 'auto', a solver"),
        ({"clip": 0.0}, "clip must be positive and finite"),
        ({"clip": "best"}, "clip must be a number or 'auto'"),
        ({"rounds": 0}, "rounds must be an integer"),
        ({"sampling": "shuffle"}, "sampling must be one of"),
        ({"sampling": "full", "sampling_rate": 0.1}, "sampling_rate must be "),
        ({"sampling_rate": 0.0}, "sampling_rate must be above 0"),
        ({"relation": "add"}, "relation must be one of"),
        ({"unit": "user"}, "unit must be"),
        ({"unit": Element()}, "elements is required"),
        ({"unit": Element("column")}, "pass the elements of rows to"),
        ({"algorithm": "newton"}, "algorithm must be 'auto', a solver"),
        ({"l2": -1.0}, "l2 must be finite and at least 0"),
        ({"n_users": 0}, "n_users must be an integer"),
        ({"feature_bound": 0.0}, "feature_bound must be positive and finite"),
        ({"elements_per_user": 0.0}, "elements_per_user must be positive and finite"),
        ({"intervals": 1.0}, "intervals must be a share"),
        ({"fit_intercept": 2}, "fit_intercept must be True or False"),
        ({"classes": [1]}, "classes must be at least two"),
    ],
)
def test_invalid_parameters_are_reported(wrong: dict[str, Any], message: str) -> None:
    unit = wrong.get("unit")
    elements = cases.ELEMENTS if isinstance(unit, Element) and unit.by else None
    with pytest.raises(ParameterError, match=message):
        LogisticRegression(**wrong).fit(cases.X, cases.BINARY, users=cases.USERS, elements=elements)


def test_losses_without_curvature_have_no_intervals() -> None:
    with refuses("intervals", "curvature"):
        QuantileRegressor(intervals=0.1).fit(cases.X, cases.Z)
    with refuses("intervals", "0"):
        LinearRegression().fit(cases.X, cases.Z).confidence_intervals()


def test_a_feature_bound_is_a_public_scale() -> None:
    features, z, users, _ = cases.people(3000)
    y = (np.random.default_rng(2).random(len(z)) < 1 / (1 + np.exp(-z))).astype(int)
    large = LogisticRegression(feature_bound=1e3 * np.sqrt(3), random_state=0)
    small = LogisticRegression(feature_bound=np.sqrt(3), random_state=0)
    large.fit(1e3 * features, y, users=users)
    small.fit(features, y, users=users)
    assert np.allclose(1e3 * large.coef_, small.coef_, rtol=1e-6)
    assert np.array_equal(large.predict(1e3 * features), small.predict(features))


def test_rounds_after_the_warm_up_reach_its_distance() -> None:
    ask = LogisticRegression().config()
    assert ask.warms_up
    # One coordinate that is far away, such as a constant, does not count for the others.
    assert ask.after_warming_up(np.array([75.0, -0.2, 0.1]), 0.3) == FullMatrixAdagrad(0.4, 0.3)
    assert ask.after_warming_up(np.zeros(3), 0.3) == FullMatrixAdagrad(1.0, 0.3)
    # Few people distinguish the axes of many coefficients from noise.
    assert isinstance(ask.after_warming_up(np.ones(100), 0.3), FullMatrixAdagrad)
    assert ask.after_warming_up(np.ones(101), 0.3) == CoinBetting()
    assert ask.solver == CoinBetting()
    assert not LogisticRegression(clip=1.0).config().warms_up

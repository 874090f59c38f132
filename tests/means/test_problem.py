"""The methods answer one problem: the error to expect, and the number of users that suffices."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.means import cases

from dpgrain.errors import ParameterError
from dpgrain.means.methods import method_of
from dpgrain.means.problem import Problem
from dpgrain.publishing import Promise
from dpgrain.units import User

Array = NDArray[np.float64]


def test_the_error_to_expect_is_the_one_that_is_met() -> None:
    for method in ("clip", "softcore", "winsorized"):
        plan = method_of(method).make(
            Problem(cases.N, cases.D, Promise(User(), 4.0, 1e-6, "zero_out"), 10.0, cases.RADIUS)
        )
        assert plan.expected == pytest.approx(
            cases.mean(method=method, radius=cases.RADIUS).std_error * 2
        )
    plan = method_of("recentred").make(
        Problem(cases.N, cases.D, Promise(User(), 4.0, 1e-6, "zero_out"), 10.0, cases.RADIUS)
    )
    ratio = plan.expected / (2 * cases.mean(method="recentred", radius=cases.RADIUS).std_error)
    assert 0.5 < ratio < 3


def test_users_without_rows_count_by_the_rule() -> None:
    records, users = cases.rows()
    half, options = records.mean(axis=0) / 2, {"n_users": 2 * cases.N, "epsilon": 20.0}
    # Clipping counts them as 0.
    assert np.allclose(cases.mean(records, users, method="clip", **options).value, half, atol=0.1)
    # Recentring as its centre: where half are missing each look goes half of the way.
    plan = method_of("recentred").make(
        Problem(2 * cases.N, cases.D, Promise(User(), 20.0, 1e-6, "zero_out"), 10.0, None)
    )
    found = cases.mean(records, users, method="recentred", **options).value
    assert np.allclose(found, records.mean(axis=0) * (1 - 0.5**plan.mean.rounds), atol=0.05)
    # A radius that is not stated is found where a few are missing.
    few = cases.mean(records, users, n_users=cases.N + cases.N // 20)
    assert few.method == "recentred"
    assert few.radius < 4 * cases.RADIUS
    assert np.allclose(few.value, records.mean(axis=0), atol=0.1)
    assert "a roster of 2,400 users;" in str(
        cases.mean(records, users, n_users=2 * cases.N).guarantee
    )


def test_the_number_that_suffices_does() -> None:
    with pytest.raises(ParameterError) as caught:
        cases.mean(np.ones((20, 100)), method="recentred", epsilon=1.0)
    (enough,) = re.findall(r"about ([\d,]+) suffice", str(caught.value))
    n = int(enough.replace(",", ""))
    plan = method_of("recentred").make(
        Problem(n, 100, Promise(User(), 1.0, 1e-6, "zero_out"), 10.0, None)
    )
    assert plan.method == "recentred"
    # So many are enough to look around, and not for a mean of all.
    assert not plan.tells
    with pytest.raises(ParameterError, match="too few for the method 'recentred'"):
        method_of("recentred").make(
            Problem(n - 2, 100, Promise(User(), 1.0, 1e-6, "zero_out"), 10.0, None)
        )

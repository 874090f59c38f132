"""The methods answer one problem: the error to expect, and the number of users that suffices."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.means import cases

from dpgrain.errors import ParameterError
from dpgrain.inputs.population import Population
from dpgrain.means.problem import Problem, get_method
from dpgrain.publishing import Promise
from dpgrain.units import User

Array = NDArray[np.float64]


def test_expected_error_equals_the_actual_one() -> None:
    for method in ("clip", "softcore", "winsorized"):
        plan = get_method(method).make(
            Problem(cases.N, cases.D, Promise(User(), 4.0, 1e-6, "zero_out"), 10.0, cases.RADIUS)
        )
        assert plan.expected == pytest.approx(
            cases.mean(method=method, radius=cases.RADIUS).std_error * 2
        )
    plan = get_method("recentred").make(
        Problem(cases.N, cases.D, Promise(User(), 4.0, 1e-6, "zero_out"), 10.0, cases.RADIUS)
    )
    ratio = plan.expected / (2 * cases.mean(method="recentred", radius=cases.RADIUS).std_error)
    assert 0.5 < ratio < 3


@pytest.mark.parametrize("method", ["auto", "clip", "recentred"])
@pytest.mark.parametrize("of", [2, 20])
def test_the_mean_is_of_users_with_records(method: str, of: int) -> None:
    records, users = cases.rows()
    found = cases.mean(records, users, method=method, n_users=of * cases.N, epsilon=20.0)
    off = float(np.linalg.norm(found.value - records.mean(axis=0)))
    assert off < found.error
    # This number of enrolled users is missing, and sums are divided by the present number.
    assert found.n_users == pytest.approx(cases.N, abs=10)
    assert off < 0.05
    assert f" {of * cases.N:,} enrolled users;" in str(found.guarantee)


def test_partially_missing_list_of_users_is_handled() -> None:
    records, users = cases.rows()
    few = cases.mean(records, users, n_users=cases.N + cases.N // 20)
    assert few.method == "recentred"
    assert few.radius < 4 * cases.RADIUS
    assert np.allclose(few.value, records.mean(axis=0), atol=0.1)


def test_centre_is_not_revealed() -> None:
    # Soft cores leave out who is far, and winsorized means count the missing as the middle.
    found = cases.mean(method="winsorized", radius=cases.RADIUS)
    assert found.error_covers.startswith(
        "everything that the bound allows, because the published numbers"
    )
    assert found.error == pytest.approx(10 + np.linalg.norm(found.value))


@pytest.mark.slow
def test_sufficient_number_of_users_suffices() -> None:
    with pytest.raises(ParameterError) as caught:
        cases.mean(np.ones((20, 100)), method="recentred", epsilon=1.0)
    (enough,) = re.findall(r"about ([\d,]+) users", str(caught.value))
    n = int(enough.replace(",", ""))
    promise = Promise(User(), 1.0, 1e-6, "zero_out")
    number = Population.create(None, promise).event
    plan = get_method("recentred").make(Problem(n, 100, promise, 10.0, None, number))
    assert plan.method == "recentred"
    # Enough users for recentring with few noisy queries.
    assert plan.mean.rounds == 2
    with pytest.raises(ParameterError, match="too small for the method 'recentred'"):
        get_method("recentred").make(Problem(n - 2, 100, promise, 10.0, None, number))

"""Counts that are not negative and add up, against solvers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from tests.statistics.test_shrinkage import SDS, VALUES, FloatArray, arrays, squared

from dpgrain.errors import ParameterError
from dpgrain.statistics.consistency import consistent, reconcile
from dpgrain.statistics.shrinkage import shrink


@given(st.data())
def test_the_projection_is_optimal(data: st.DataObject) -> None:
    """The conditions of Karush, Kuhn and Tucker, which are sufficient: one multiplier a group."""
    size, groups = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 3))
    x, sd = data.draw(arrays(VALUES, size)), data.draw(arrays(SDS, size))
    group = np.array(data.draw(st.lists(st.integers(0, groups - 1), min_size=size, max_size=size)))
    total = data.draw(arrays(st.floats(0, 1e6), groups))
    total[np.bincount(group, minlength=groups) == 0] = 0
    found = consistent(x, sd, total, group)
    assert (found >= 0).all()
    size_of = 1 + np.abs(x).max() + total.max()
    assert np.bincount(group, found, minlength=groups) == pytest.approx(total, abs=1e-8 * size_of)
    slope = (found - x) / sd**2
    for g in range(groups):
        mine = group == g
        active = mine & (found > 1e-6 * size_of)
        if active.any():
            tolerance = 1e-8 * size_of / sd[active].min() ** 2
            assert np.ptp(slope[active]) <= tolerance
            assert (slope[mine] >= slope[active].max() - tolerance).all()


def test_projection_agrees_with_a_solver() -> None:
    generator = np.random.default_rng(12)
    for _ in range(10):
        x, sd = generator.normal(2, 4, 6), generator.uniform(0.5, 3, 6)
        found = consistent(x, sd, 9.0)

        def cost(y: FloatArray, x: FloatArray = x, sd: FloatArray = sd) -> float:
            return squared(y, x, sd)

        solved = minimize(
            cost,
            np.full(6, 1.5),
            bounds=[(0, None)] * 6,
            constraints={"type": "eq", "fun": lambda y: y.sum() - 9},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert found == pytest.approx(solved.x, abs=1e-4)
        assert cost(found) <= cost(solved.x) + 1e-9


def test_totals_by_default_and_exact_counts() -> None:
    assert consistent([5.0, -2.0, 3.0], 1.0) == pytest.approx([4.0, 0.0, 2.0])
    assert consistent([-5.0, 2.0], 1.0).tolist() == [0.0, 0.0]
    # Exact values stay, the others share the rest.
    assert consistent([5.0, 1.0, 1.0], [0.0, 1.0, 2.0], 12.0) == pytest.approx([5.0, 2.0, 5.0])
    assert consistent([5.0, 3.0], 0.0, 8.0).tolist() == [5.0, 3.0]
    assert consistent([1.0, 2.0], 1.0, 0.0).tolist() == [0.0, 0.0]
    assert consistent([4.0, 4.0, 1.0], 1.0, [10.0, 7.0], [0, 0, 1]).tolist() == [5.0, 5.0, 7.0]
    assert consistent([], [], 0.0).shape == (0,)


def test_projection_survives_distant_scales() -> None:
    generator = np.random.default_rng(13)
    sd = np.exp(generator.uniform(-500, 500, 2000))
    group = np.repeat(np.arange(20), 100)
    x = generator.normal(0, 10, 2000)
    found = consistent(x, sd, np.full(20, 500.0), group)
    assert (found >= 0).all()
    assert np.bincount(group, found) == pytest.approx(500)
    # If the only adjustable value barely moves.
    assert consistent([-5.0, 10.0], [1.0, 1e-200], 8.0) == pytest.approx([0.0, 8.0])


@given(st.data())
def test_reconciled_levels_add_up_and_are_least_squares(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    parts = data.draw(arrays(st.floats(-1e3, 1e3), size))
    parts_sd = data.draw(arrays(st.floats(0.1, 10), size))
    totals, totals_sd = data.draw(arrays(st.floats(-1e3, 1e3), 2)), data.draw(arrays(SDS, 2))
    group = np.array(data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    x, sd, whole, whole_sd = reconcile(parts, parts_sd, totals, totals_sd, group)
    assert np.bincount(group, x, minlength=2) == pytest.approx(whole, abs=1e-6)
    # Generalised least squares by a solver: unknown parts, observed one by one and in sum.
    design = np.vstack([np.eye(size), [group == 0, group == 1]])
    weight = 1 / np.concatenate([parts_sd, totals_sd])
    solved, *_ = np.linalg.lstsq(
        design * weight[:, None], np.concatenate([parts, totals]) * weight, rcond=None
    )
    covariance = np.linalg.inv((design * weight[:, None] ** 2).T @ design)
    assert x == pytest.approx(solved, abs=1e-4)
    assert sd == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-4)
    sums = design[size:] @ covariance @ design[size:].T
    assert whole_sd == pytest.approx(np.sqrt(np.diag(sums)), rel=1e-4, abs=1e-6)
    assert (sd <= parts_sd * (1 + 1e-12)).all()
    assert (whole_sd <= totals_sd * (1 + 1e-12)).all()


def test_reconciling_with_exact_levels() -> None:
    x, sd, whole, whole_sd = reconcile([4.0, 5.0], [1.0, 2.0], [14.0], [0.0], [0, 0])
    assert x == pytest.approx([5.0, 9.0])
    assert whole.tolist() == [14.0]
    assert whole_sd.tolist() == [0.0]
    assert sd == pytest.approx([math.sqrt(0.8)] * 2)
    x, _, whole, whole_sd = reconcile([4.0, 5.0], [0.0, 0.0], [14.0], [3.0], [0, 0])
    assert x.tolist() == [4.0, 5.0]
    assert whole.tolist() == [9.0]
    assert whole_sd.tolist() == [0.0]
    assert reconcile([], [], [], [], [])[0].shape == (0,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shrink([math.nan], [1.0]), "estimate must be finite everywhere, not nan"),
        (lambda: shrink([math.inf], [1.0]), "estimate must be finite everywhere, not inf"),
        (lambda: shrink([1.0], [math.inf]), "std_error must be finite and at least 0"),
        (lambda: shrink([1.0], [-1.0]), "std_error must be finite and at least 0"),
        (lambda: shrink([1.0], [1.0, 2.0]), "std_error must be an array of length 1"),
        (lambda: shrink([[1.0]], [1.0]), "estimate must be an array one-dimensional"),
        (lambda: shrink(["a"], [1.0]), "estimate must be an array of numbers"),
        (lambda: shrink([10**400], [1.0]), "estimate must be an array of numbers"),
        (lambda: shrink([1.0], [1.0], [0.0]), "prior must be above 0"),
        (lambda: shrink([1.0], [1.0], [math.nan]), "prior must be finite"),
        (lambda: shrink([1.0], [1.0], noise="uniform"), "noise must be one of"),
        (lambda: consistent([1.0], [1.0], -1.0), "total must be finite and at least 0"),
        (lambda: consistent([1.0], [1.0], math.nan), "total must be finite and at least 0"),
        (lambda: consistent([1.0], [1.0], [1.0], [1]), "total must have one number per group"),
        (lambda: consistent([5.0, 1.0], [0.0, 1.0], 4.0), "total must be consistent"),
        (lambda: consistent([5.0], [0.0], 6.0), "total must be consistent"),
        (lambda: consistent([], [], 6.0), "total must be consistent"),
        (lambda: reconcile([1.0], [0.0], [2.0], [0.0], [0]), "totals must equal"),
        (lambda: reconcile([1.0], [1.0], [2.0], [1.0], [1]), "totals must have one number"),
        (lambda: reconcile([1.0], [1.0], [math.inf], [1.0], [0]), "totals must be finite"),
    ],
)
def test_invalid_arrays_are_rejected_with_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as raised:
        call()
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)

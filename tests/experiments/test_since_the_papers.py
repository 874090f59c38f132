"""Means beside later estimators: the baselines are right, and the recorded run supports the page."""

from __future__ import annotations

import numpy as np
import pytest
from tests.programs import experiment

since = experiment("since_the_papers")
bl = experiment("baselines")


def test_huberized_mean_ignores_distant_users() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(scale=0.1, size=(2000, 3))
    vectors[:20] += 1e6
    found = bl.huberized(vectors, 50.0, 1e-6, "replace", rng, radius=0.5)
    assert np.linalg.norm(found - vectors[20:].mean(axis=0)) < 0.02
    # Without distant users and noise it is the mean.
    near = vectors[20:]
    exact = bl.huberized(near, 1e4, 1e-6, "replace", rng, radius=10.0)
    assert np.allclose(exact, near.mean(axis=0), atol=1e-3)


def test_tested_mean_averages_users_within_the_radius() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(scale=0.1, size=(2000, 3))
    vectors[:20] += 1e6
    found = bl.tested(vectors, 1e4, 1e-6, "replace", rng, centre=np.zeros(3), radius=0.9)
    assert np.allclose(found, vectors[20:].mean(axis=0), atol=1e-3)


def test_laws_have_the_same_variance() -> None:
    for law in ("normal", "Student's t, 3 degrees"):
        vectors, centre = since.draw(law, 3, 0)
        assert vectors.shape == (since.USERS, since.DIMENSION)
        assert (vectors - centre).var() == pytest.approx(1 / 3, rel=0.1)


def test_recorded_default_has_the_smallest_error() -> None:
    errors = {(c.law, c.records, c.method): c.error for c in since.recorded()}
    assert len(errors) == 2 * len(since.RECORDS) * len(since.METHODS)
    for law, records, method in errors:
        if method != "auto":
            assert errors[law, records, "auto"] < errors[law, records, method]


def test_a_cell_repeats_the_recorded_one() -> None:
    (recorded,) = (
        cell
        for cell in since.recorded()
        if (cell.law, cell.records, cell.method) == ("normal", 10, "Huberized mean")
    )
    again = since.measured("normal", 10, "Huberized mean", 9)
    assert again.error == pytest.approx(recorded.error, rel=1e-6)

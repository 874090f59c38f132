"""Rotations preserve norms, are invertible, and treat each row separately."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import hadamard as dense
from scipy.stats import beta
from tests.papers.winsorized import cases
from tests.refusals import refuses

from dpgrain.means import Vectors
from dpgrain.noise import SeededSource
from dpgrain.papers.winsorized import winsorized
from dpgrain.papers.winsorized.rotation import Rotation, hadamard, padded


@pytest.mark.parametrize("size", [1, 2, 4, 8, 64, 512])
def test_the_fast_transform_is_the_dense_one(size: int) -> None:
    columns = np.random.default_rng(size).normal(size=(size, 7))
    found = hadamard(columns.copy())
    assert np.allclose(found, dense(size) @ columns, atol=1e-12 * size)
    assert np.allclose(hadamard(found.copy()), size * columns, atol=1e-12 * size)


def test_other_lengths_are_rejected() -> None:
    with refuses("columns", "power"):
        hadamard(np.ones((6, 1)))


@pytest.mark.parametrize("d", [1, 2, 3, 5, 64, 100])
def test_rotations_keep_lengths_and_are_undone(d: int) -> None:
    vectors = np.random.default_rng(d).normal(size=(9, d)) * 10.0 ** np.arange(-4, 5)[:, None]
    rotation = Rotation.draw(d, SeededSource(d))
    assert set(np.abs(rotation.signs)) == {1.0}
    columns = rotation.of(vectors)
    assert columns.shape == (padded(d), 9)
    assert np.allclose(
        np.linalg.norm(columns, axis=0), np.linalg.norm(vectors, axis=1), rtol=1e-13, atol=0
    )
    for vector, column in zip(vectors, columns.T, strict=True):
        assert np.allclose(rotation.back(column), vector, rtol=0, atol=1e-12 * abs(vector).max())


@pytest.mark.parametrize("d", [1, 2, 3, 7, 100, 1000])
def test_rotated_vector_depends_only_on_its_row_bitwise(d: int) -> None:
    # Otherwise another user's data could move it into another bin.
    rng = np.random.default_rng(d)
    vectors = rng.normal(size=(301, d)) * 10.0 ** rng.integers(-3, 4, (301, 1))
    rotation = Rotation.draw(d, SeededSource(1))
    whole = rotation.of(winsorized._shortened(Vectors(vectors), cases.BOUND))
    for rows in (slice(0, 1), slice(17, 20), slice(None, None, -1), slice(None, None, 3)):
        alone = rotation.of(winsorized._shortened(Vectors(vectors[rows]), cases.BOUND))
        assert np.array_equal(alone, whole[:, rows])


def test_rotated_coordinates_are_within_the_expected_radius() -> None:
    mean = cases.mean_of(dimension=200, n_users=50, rounds=1, failure=0.5)
    rng, outside, times = np.random.default_rng(1), 0, 300
    for seed in range(times):
        # With one large coordinate, two, …: few of them are the worst case for signs.
        vectors = np.zeros((50, 200))
        some = rng.integers(1, 9)
        vectors[:, :some] = cases.RADIUS / math.sqrt(some)
        columns = Rotation.draw(200, SeededSource(seed)).of(vectors)
        outside += bool(np.abs(columns).max() > mean.coordinate_radius)
    assert outside <= beta.ppf(1 - cases.CHANCE, 1 + 0.25 * times, 0.75 * times) * times

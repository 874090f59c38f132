"""Factors that clip sums: never too large, and of odd norms 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpgrain.gradients.clip_factors import (
    LONGEST_CLIPS,
    factors,
    limit_slopes,
    row_squared_norms,
    zero_rows,
)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("clip", [1e-9, 0.3, 1e9])
def test_no_mean_is_longer_than_the_clip(clip: float, size: int, kind: Any) -> None:
    norms = (np.random.default_rng(0).lognormal(0, 3, 1000) * clip * size).astype(kind)
    found = factors(norms.copy(), size, clip)
    means = found.astype(np.float64) * norms
    assert found.dtype == kind
    assert means.max() <= clip
    short = norms < 0.999 * clip * size
    assert (found[short] == kind(1 / size)).all()
    assert means[~short].min() >= 0.998 * clip


def test_non_finite_norms_count_nothing() -> None:
    assert factors(np.array([np.inf, np.nan, 1.0]), 1, 2.0).tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("made", [np.asarray, sparse.csr_array])
def test_malformed_rows_are_dropped(made: Any) -> None:
    rows = made(np.array([[1.0, np.nan], [3.0, 4.0], [np.inf, 0.0]]))
    found = row_squared_norms(rows)
    left = zero_rows(rows, ~np.isfinite(found))
    dense = left.toarray() if sparse.issparse(left) else left
    assert dense.tolist() == [[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]


@pytest.mark.parametrize("outputs", [1, 3])
def test_long_records_are_shortened_and_no_others(outputs: int) -> None:
    X = np.array([[1e9, 0.0], [1.0, 1.0]])
    slopes = np.ones((2, outputs))
    found = limit_slopes(slopes, X, 1.0)
    assert np.linalg.norm(np.outer(found[0], X[0])) == pytest.approx(LONGEST_CLIPS[8])
    assert (found[1] == 1).all()
    assert limit_slopes(slopes, X[[1, 1]], 1.0) is slopes

"""Neighbours on the grid are counted exactly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.means import close_vectors
from dpgrain.means.close_vectors import close, on_grid
from dpgrain.testing.mean_contract import Array


def by_hand(vectors: Array, step: float, squared: list[int]) -> NDArray[np.int64]:
    """Counts in Python's integers."""
    steps = on_grid(vectors, step).astype(object)
    apart = [((steps - row) ** 2).sum(axis=1) for row in steps]
    return np.array([[int((row <= limit).sum()) for row in apart] for limit in squared])


@pytest.mark.parametrize("tile", [7, 2048])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e9, 1e200])
def test_counts_are_exact(tile: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(close_vectors, "_TILE_ROWS", tile)
    rng = np.random.default_rng(5)
    for d in (1, 2, 30):
        vectors = rng.normal(size=(40, d)) + rng.choice([-scale, 0.0, scale], size=(40, 1))
        limits = [0, 4**15 * d, 4**16 * d, 4**17]
        found = close(vectors, 2.0**-16, limits)
        assert np.array_equal(found, by_hand(vectors, 2.0**-16, limits))
    assert (found.max(axis=1) > 1).any()


@pytest.mark.parametrize("offset", [0.0, 2.0**20, 2.0**36], ids=["near", "far", "farther"])
def test_pairs_at_the_distance_differ_from_those_beyond(offset: float) -> None:
    # Most users at 0, so that the pairs in question are far from the centre of all products.
    rng = np.random.default_rng(6)
    d = 40
    direction = np.zeros(d)
    direction[:4] = 0.5
    step = 2.0**-16
    pair = offset * rng.choice([-1.0, 1.0], size=d) + np.vstack([0 * direction, 2 * direction])
    for beyond, expected in ((0.0, 2), (step, 1)):
        pair[1, 7] = pair[0, 7] + beyond
        vectors = np.vstack([np.zeros((50, d)), pair])
        (counts,) = close(vectors, step, [4**17])
        assert list(counts[50:]) == ([52, 51] if offset == beyond == 0 else [expected] * 2) or (
            offset == 0
        )
        # In any order, and with any other vectors.
        order = rng.permutation(52)
        assert np.array_equal(close(vectors[order], step, [4**17])[0], counts[order])
        others = np.vstack([rng.normal(size=(60, d)) * 1e9, pair])
        assert list(close(others, step, [4**17])[0][60:]) == [expected] * 2


def test_a_float_product_would_err(monkeypatch: pytest.MonkeyPatch) -> None:
    # The integers prevent an error: without rechecking open pairs counts are wrong.
    rng = np.random.default_rng(7)
    # Pairs that are far from all others, so that no centre is near to many.
    places = np.repeat(rng.normal(size=(60, 30)) * 1e7, 2, axis=0)
    vectors = np.vstack([np.zeros((60, 30)), places + rng.normal(scale=0.25, size=(120, 30))])
    right = by_hand(vectors, 2.0**-16, [4**17])
    assert np.array_equal(close(vectors, 2.0**-16, [4**17]), right)
    monkeypatch.setattr(close_vectors._Rows, "_undecided", lambda *_: iter(()))
    assert not np.array_equal(close(vectors, 2.0**-16, [4**17]), right)


def test_the_grid_is_a_function_of_each_row() -> None:
    rows = np.array([[1e308, -1e308], [np.inf, 0.0], [0.5, np.nan], [1.26, -1.24]])
    assert on_grid(rows, 0.5).tolist() == [[2**60, -(2**60)], [0, 0], [0, 0], [3, -2]]
    assert close(np.empty((0, 3)), 1.0, [4]).shape == (1, 0)

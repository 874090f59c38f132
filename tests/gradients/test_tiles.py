"""Rows arranged by block and cut into tiles: positions and copies."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpgrain.gradients import tiles
from dpgrain.gradients.tiles import (
    LONGEST_CLIPS,
    LinearBlocks,
    Tile,
    factors,
    limit_slopes,
    squared_norms,
    zero_rows,
)

Array = NDArray[Any]


def ragged(rows: int = 500, kind: Any = np.float64) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 3)).astype(kind), rng.normal(size=rows), rng.zipf(1.7, rows) % 40


@pytest.mark.parametrize("made", [np.asarray, sparse.csr_array])
def test_block_rows_are_together_and_small_blocks_first(made: Any) -> None:
    X, y, codes = ragged()
    blocks = LinearBlocks.arrange(made(X), y, codes, intercept=False, blocks=50)
    assert (np.diff(blocks.sizes) >= 0).all()
    assert blocks.blocks == 50
    dense = blocks.X.toarray() if sparse.issparse(blocks.X) else blocks.X
    for place, name in enumerate(blocks.names):
        own = slice(blocks.starts[place], blocks.starts[place + 1])
        assert np.array_equal(dense[own], X[codes == name])
        assert np.array_equal(blocks.y[own], y[codes == name])
        assert blocks.longest[place] == pytest.approx(np.linalg.norm(dense[own], axis=1).max())


@pytest.mark.parametrize("made", [np.asarray, sparse.csr_array])
def test_counted_rows_are_read_by_a_function(made: Any) -> None:
    X, y, codes = ragged()
    kept = np.flatnonzero(np.arange(500) % 3 > 0)
    some = LinearBlocks.arrange(
        made(X), y, codes[kept], intercept=True, indices=kept, read=lambda rows: rows * 2.0
    )
    twice = LinearBlocks.arrange(made(2 * X[kept]), y[kept], codes[kept], intercept=True)
    found, expected = some.X, twice.X
    assert (found != expected).sum() == 0
    assert np.array_equal(some.y, twice.y)


@pytest.mark.parametrize("drawn", [None, "all", "some", "none"])
def test_each_block_is_in_one_tile(drawn: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_TILE_BYTES", 1 << 9)
    monkeypatch.setattr(tiles, "_FEWEST_TILE_ROWS", 8)
    X, y, codes = ragged()
    blocks = LinearBlocks.arrange(X, y, codes, intercept=False, blocks=50)
    which = {"all": np.arange(50), "some": np.arange(0, 50, 3), "none": np.arange(0)}
    chosen = None if drawn is None else which[drawn]
    found: list[Tile] = [blocks.tile(cut) for cut in blocks.cuts(chosen, several=False)]
    assert all(len(tile.y) <= 21 or len(tile.sizes) == 1 for tile in found)
    names = [name for tile in found for name in blocks.names[tile.places].tolist()]
    there = np.intersect1d(np.arange(50) if chosen is None else chosen, codes)
    assert sorted(names) == there.tolist()
    for tile in found:
        for i, name in enumerate(blocks.names[tile.places]):
            own = slice(tile.starts[i], tile.starts[i] + tile.sizes[i])
            assert np.array_equal(tile.X[own], X[codes == name])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_features_are_copied_once(kind: Any) -> None:
    X = np.random.default_rng(0).normal(size=(60_000, 40)).astype(kind)
    y, codes = np.zeros(len(X)), np.random.default_rng(1).integers(0, 9000, len(X))
    tracemalloc.start()
    blocks = LinearBlocks.arrange(X, y, codes, intercept=False)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert blocks.X.dtype == kind
    # Rows have a few 8-byte numbers in addition to their features, and some rows are in memory.
    assert most < X.nbytes + 40 * len(X) + 4 * (1 << 22)


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
    found = squared_norms(rows)
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

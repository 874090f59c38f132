"""Clipped sums of linear models' gradients against a loop in double precision."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpgrain.errors import ParameterError
from dpgrain.gradients import linear
from dpgrain.gradients.linear import LinearBlocks
from dpgrain.optimize import Logistic, MarginLoss, Poisson, Softmax, Squared

Array = NDArray[Any]


def one_by_one(
    X: Array, y: Array, codes: Array, loss: MarginLoss, theta: Array, clip: float, intercept: bool
) -> tuple[Array, Array]:
    """The mean gradient of each block, and the sum of the clipped ones, in double precision."""
    X = X.astype(np.float64)
    if intercept:
        X = np.column_stack([X, np.ones(len(X))])
    per_record = loss.gradient(theta, X, y.astype(np.float64))
    means = np.array(
        [
            per_record[codes == b].mean(axis=0) if (codes == b).any() else np.zeros(len(theta))
            for b in range(codes.max() + 1)
        ]
    )
    norms = np.linalg.norm(means, axis=1)
    return means, (means * np.minimum(1, clip / np.maximum(norms, 1e-300))[:, None]).sum(axis=0)


SIZES = {
    "single": [1] * 40,
    "pairs": [2] * 20,
    "fives": [5] * 12,
    "twenties": [20] * 4,
    "long": [90, 150],
    "ragged": [1, 1, 2, 3, 3, 5, 7, 8, 13, 21, 40, 80],
}


def data(
    sizes: list[int], d: int, loss: MarginLoss, *, intercept: bool, seed: int = 0
) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(rng.permutation(len(sizes)), sizes))
    X = rng.normal(size=(len(codes), d)) * rng.lognormal(size=(len(codes), 1)) / np.sqrt(d)
    y = rng.integers(0, max(loss.outputs, 2), len(codes)).astype(float)
    theta = rng.normal(size=loss.outputs * (d + intercept)) * 0.3
    return X, y, codes, theta


@pytest.mark.search
@pytest.mark.parametrize("kind", ["dense", "not kept", "single precision", "sparse"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sizes", list(SIZES))
@pytest.mark.parametrize(
    ("loss", "d"), [(Logistic(), 4), (Squared(), 300), (Softmax(3), 6), (Softmax(40), 300)]
)
def test_sums_are_those_of_a_loop(
    loss: MarginLoss,
    d: int,
    sizes: str,
    intercept: bool,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind == "not kept":
        monkeypatch.setattr(linear, "_KEPT_BYTES", 0)
        monkeypatch.setattr(linear, "_KEPT_ROWS", 0)
    X, y, codes, theta = data(SIZES[sizes], d, loss, intercept=intercept)
    if kind == "sparse":
        X[np.random.default_rng(1).random(X.shape) < 0.7] = 0
    single = kind == "single precision"
    given: Any = sparse.csr_array(X) if kind == "sparse" else X.astype("f4" if single else "f8")
    blocks = LinearBlocks.arrange(given, y, codes, intercept=intercept)
    accuracy = 1e-4 if single else 1e-9
    for clip in (0.05, 1.0, 1e6):
        means, total = one_by_one(X, y, codes, loss, theta, clip, intercept)
        found = blocks.gradients(loss, theta).clipped_sum(clip)
        assert found.dtype == np.float64
        assert np.abs(found - total).max() <= accuracy * max(np.abs(total).max(), 1)
        some = np.array([0, len(means) // 2, len(means) - 1])
        some = np.unique(some)
        part = blocks.gradients(loss, theta).clipped_sum(clip, some)
        norms = np.linalg.norm(means[some], axis=1)
        kept = means[some] * np.minimum(1, clip / np.maximum(norms, 1e-300))[:, None]
        assert np.abs(part - kept.sum(axis=0)).max() <= accuracy * max(np.abs(kept).max(), 1)
    assert np.allclose(blocks.gradients(loss, theta).vectors(), means, atol=accuracy * 10)
    assert np.allclose(blocks.gradients(loss, theta).vectors(some), means[some], atol=accuracy * 10)


def test_empty_blocks_and_nothing_drawn() -> None:
    blocks = LinearBlocks.arrange(np.ones((2, 3)), [1.0, 0.0], [1, 4], intercept=True, blocks=9)
    gradients = blocks.gradients(Logistic(), np.zeros(4))
    assert (blocks.blocks, blocks.rows, gradients.dimension) == (9, 2, 4)
    assert (gradients.clipped_sum(1.0, np.array([], dtype=np.intp)) == 0).all()
    assert (gradients.clipped_sum(1.0, np.array([0, 2, 8])) == 0).all()
    assert gradients.vectors(np.array([4, 0])).tolist() == [[0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0]]
    nobody = LinearBlocks.arrange(np.zeros((0, 3)), [], [], intercept=False, blocks=2)
    assert (nobody.gradients(Logistic(), np.zeros(3)).clipped_sum(1.0) == 0).all()


@pytest.mark.search
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("outputs", [1, 12])
@pytest.mark.parametrize("size", [3, 5, 60])
@pytest.mark.parametrize("cancel", [1e2, 1e3, 1e4, 1e6])
def test_blocks_whose_gradients_cancel_stay_within_the_clip(
    cancel: float, size: int, outputs: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records far longer than their mean: in single precision the norm alone has no digits left."""
    if not kept:
        monkeypatch.setattr(linear, "_KEPT_BYTES", 0)
    worst = 0.0
    for seed in range(4):
        X, y, codes, theta, loss = cancelling(cancel, size, outputs, seed)
        for clip in (0.3, 1.0):
            blocks = LinearBlocks.arrange(X, y, codes, intercept=False)
            found = blocks.gradients(loss, theta).clipped_sum(clip)
            worst = max(worst, float(np.linalg.norm(found)) / clip)
    assert worst <= 1 + 1e-5


def cancelling(
    cancel: float, size: int, outputs: int, seed: int
) -> tuple[Array, Array, Array, Array, MarginLoss]:
    """One block of records that nearly cancel; what is left is about as long as the clip."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(size, 400)) * cancel
    # At θ = 0 slopes are the same up to a sign by class; their sum is made small.
    X -= X.mean(axis=0)
    X += rng.normal(size=400) / 20 * 3
    loss: MarginLoss = Logistic() if outputs == 1 else Softmax(outputs)
    theta = np.zeros(outputs * 400)
    return X.astype(np.float32), np.zeros(size), np.zeros(size, dtype=int), theta, loss


def test_without_the_guard_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def certain(squares: Array, *_: Any) -> Array:
        return np.zeros(np.shape(squares), dtype=bool)

    monkeypatch.setattr(linear, "_doubtful", certain)
    monkeypatch.setattr(linear, "_KEPT_BYTES", 0)
    worst = 0.0
    for seed in range(4):
        X, y, codes, theta, loss = cancelling(1e2, 3, 12, seed)
        found = LinearBlocks.arrange(X, y, codes, intercept=False).gradients(loss, theta)
        worst = max(worst, float(np.linalg.norm(found.clipped_sum(0.3))) / 0.3)
    # By how much depends on how the machine rounds; with the guard it is less than 1e-5 on any.
    assert worst > 1 + 1e-4


def test_what_is_not_finite_does_not_poison_the_sum() -> None:
    rng = np.random.default_rng(2)
    for loss in (Logistic(), Squared(), Poisson(), Softmax(3)):
        for size in (1, 4):
            X = rng.normal(size=(20, 3))
            codes = np.arange(20) // size
            y = rng.integers(0, 2, 20).astype(float)
            theta = rng.normal(size=3 * loss.outputs)
            spoiled, targets = X.copy(), y.copy()
            spoiled[0] = 1e308
            targets[1] = np.nan
            spoiled[2, 1] = np.inf
            blocks = LinearBlocks.arrange(spoiled, targets, codes, intercept=False)
            found = blocks.gradients(loss, theta).clipped_sum(1.0)
            assert np.isfinite(found).all()
            # All other blocks are as they were.
            others = codes > codes[2]
            rest = LinearBlocks.arrange(X[others], y[others], codes[others], intercept=False)
            expected = rest.gradients(loss, theta).clipped_sum(1.0)
            assert np.linalg.norm(found - expected) <= codes[2] + 1 + 1e-9


@pytest.mark.parametrize("size", [1, 3, 20])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("clip", [1e-90, 1e-30, 1e-16, 1e-3, 1e12])
def test_clips_of_any_size_bind(clip: float, outputs: int, size: int) -> None:
    loss: MarginLoss = Logistic() if outputs == 1 else Softmax(outputs)
    for scale in (1e-28, 1e-10, 1.0, 1e12):
        X = (np.random.default_rng(0).normal(size=(size, 4)) * scale).astype(np.float32)
        for made in (np.asarray, sparse.csr_array):
            blocks = LinearBlocks.arrange(
                made(X), np.zeros(size), np.zeros(size, dtype=int), intercept=False
            )
            found = blocks.gradients(loss, np.zeros(4 * outputs)).clipped_sum(clip)
            assert np.linalg.norm(found / clip) <= 1 + 1e-5


def test_features_that_are_not_finite_count_as_zero() -> None:
    X = np.array([[1.0, np.nan], [np.inf, 2.0]])
    zeroed = np.array([[1.0, 0.0], [0.0, 2.0]])
    for made in (np.array, sparse.csr_array):
        sums = [
            LinearBlocks.arrange(made(rows), [1.0, 0.0], [0, 0], intercept=True)
            .gradients(Logistic(), np.ones(3))
            .clipped_sum(1.0)
            for rows in (X, zeroed)
        ]
        assert np.array_equal(sums[0], sums[1])
    assert np.isnan(X[0, 1])


def test_a_block_with_more_rows_than_a_tile() -> None:
    loss = Softmax(3)
    rows = linear._TILE_ROWS * 2 + 5
    X, y, codes, theta = data([rows, 3], 4, loss, intercept=True)
    for kind in (np.float32, np.float64):
        blocks = LinearBlocks.arrange(X.astype(kind), y, codes, intercept=True)
        _, total = one_by_one(X, y, codes, loss, theta, 0.1, intercept=True)
        assert np.allclose(blocks.gradients(loss, theta).clipped_sum(0.1), total, atol=1e-4)


@pytest.mark.search(keep=1)
@pytest.mark.parametrize(("outputs", "d", "rows"), [(101, 512, 6000), (1, 10, 400_000)])
def test_memory_beside_the_rows_is_bounded(outputs: int, d: int, rows: int) -> None:
    loss: MarginLoss = Softmax(outputs) if outputs > 1 else Logistic()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, d)).astype(np.float32)
    codes = np.sort(rng.integers(0, rows // 7, rows))
    blocks = LinearBlocks.arrange(X, rng.integers(0, 2, rows), codes, intercept=True)
    gradients = blocks.gradients(loss, np.zeros(outputs * (d + 1)))
    for drawn in (None, np.flatnonzero(rng.random(blocks.blocks) < 0.3)):
        tracemalloc.start()
        gradients.clipped_sum(1.0, drawn)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 64 * 2**20


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ParameterError, match="as many rows"):
        LinearBlocks.arrange(np.ones((2, 3)), [1.0], [0, 0], intercept=True)


def both(X: Array, y: Array, codes: Array, loss: MarginLoss, blocks: int, *, exact: bool) -> Array:
    """The clipped sum, or the vectors, of blocks at a θ that is not 0."""
    theta = np.linspace(-1, 1, X.shape[1] * loss.outputs)
    found = LinearBlocks.arrange(X, y, codes, intercept=False, blocks=blocks)
    gradients = found.gradients(loss, theta)
    return gradients.vectors() if exact else gradients.clipped_sum(1.0)


@pytest.mark.search(keep=4)
@pytest.mark.parametrize(
    ("kind", "large"),
    [(np.float32, 1.0), (np.float32, 1e8), (np.float32, 1e25)]
    + [(np.float64, large) for large in (1.0, 1e8, 1e17, 1e154)],
)
@pytest.mark.parametrize("outputs", [1, 3])
def test_other_peoples_blocks_do_not_change_with_ones_rows(
    outputs: int, kind: Any, large: float
) -> None:
    """Records that are huge, or cancel; a neighbour has one row more, and another size of block."""
    users, loss = 300, (Squared() if outputs == 1 else Softmax(3))
    for size in (1, 5, 16):
        rng = np.random.default_rng(size)
        X = (rng.choice([-1.0, 1.0, 0.5], size=(users * size + 2, 3)) * large).astype(kind)
        y = rng.integers(0, 3, len(X)).astype(float) * (large if outputs == 1 else 1)
        codes = np.append(np.repeat(np.arange(users), size), [users, users])
        for more in (1, 2):
            keep = np.arange(len(X)) < users * size + more
            fewer = codes < users
            one, other = (
                both(X[rows], y[rows], codes[rows], loss, users + 1, exact=False)
                for rows in (keep, fewer)
            )
            # The block itself moves the sum by 1; rounding by next to nothing.
            assert np.linalg.norm(one - other) <= 1 + (1e-2 if kind == np.float32 else 1e-6)
            one, other = (
                both(X[rows], y[rows], codes[rows], loss, users + 1, exact=True)
                for rows in (keep, fewer)
            )
            assert np.array_equal(one[:users], other[:users])


def test_the_clip_binds_where_squares_vanish() -> None:
    for x, y, clip, kind in (
        (1.8e19, 2.5e-23, 1e-6, np.float32),
        (1.8e19, 2.5e-23, 2.0**-12, np.float32),
        (1e154, 1e-162, 1e-10, np.float64),
    ):
        blocks = LinearBlocks.arrange(np.array([[x]], kind), [y], [0], intercept=False)
        found = blocks.gradients(Squared(), np.zeros(1)).clipped_sum(clip)
        assert abs(found[0]) <= clip * (1 + 1e-5)

"""Clipped sums of linear models' gradients against a loop in double precision."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from tests.refusals import refuses
from threadpoolctl import threadpool_limits

from dpgrain.gradients import linear, tiles
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.optimize import Logistic, MarginLoss, PoissonLoss, Softmax, Squared

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


@pytest.mark.parametrize("kind", ["dense", "not kept", "single precision", "sparse"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sizes", list(SIZES))
@pytest.mark.parametrize(
    ("loss", "d"), [(Logistic(), 4), (Squared(), 300), (Softmax(3), 6), (Softmax(40), 300)]
)
def test_sums_agree_with_a_loop(
    loss: MarginLoss,
    d: int,
    sizes: str,
    intercept: bool,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind == "not kept":
        monkeypatch.setattr(tiles, "_KEPT_BYTES", 0)
    X, y, codes, theta = data(SIZES[sizes], d, loss, intercept=intercept)
    if kind == "sparse":
        X[np.random.default_rng(1).random(X.shape) < 0.7] = 0
    single = kind == "single precision"
    given: Any = sparse.csr_array(X) if kind == "sparse" else X.astype("f4" if single else "f8")
    blocks = LinearBlocks.arrange(given, y, codes, intercept=intercept)
    accuracy = 1e-4 if single else 1e-9
    for clip in (0.05, 1.0, 1e6):
        means, total = one_by_one(X, y, codes, loss, theta, clip, intercept)
        found = LinearGradients(blocks, loss, theta).clipped_sum(clip)
        assert found.dtype == np.float64
        assert np.abs(found - total).max() <= accuracy * max(np.abs(total).max(), 1)
        some = np.array([0, len(means) // 2, len(means) - 1])
        some = np.unique(some)
        part = LinearGradients(blocks, loss, theta).clipped_sum(clip, some)
        norms = np.linalg.norm(means[some], axis=1)
        kept = means[some] * np.minimum(1, clip / np.maximum(norms, 1e-300))[:, None]
        assert np.abs(part - kept.sum(axis=0)).max() <= accuracy * max(np.abs(kept).max(), 1)
    assert np.allclose(LinearGradients(blocks, loss, theta).vectors(), means, atol=accuracy * 10)
    assert np.allclose(
        LinearGradients(blocks, loss, theta).vectors(some), means[some], atol=accuracy * 10
    )


@pytest.mark.parametrize("tile", [1 << 12, 1 << 22])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.2])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 2, 5, 10, 100, "ragged"])
@pytest.mark.parametrize("d", [10, 41, 500])
def test_each_way_gives_the_sum_of_a_loop(
    d: int, size: int | str, kind: Any, share: float, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "_TILE_BYTES", tile)
    rng = np.random.default_rng(d)
    sizes = rng.permutation(np.repeat([1, 2, 3, 40], 12)) if size == "ragged" else [int(size)] * 23
    X, y, codes, theta = data(list(sizes), d, Logistic(), intercept=True)
    X = X.astype(kind)
    blocks = LinearBlocks.arrange(X, y, codes, intercept=True)
    theta = theta.astype(kind).astype(np.float64)
    means, _ = one_by_one(X, y, codes, Logistic(), theta, 1.0, True)
    # A small sample of blocks is gathered; in a large one, blocks outside it add nothing.
    drawn = None if share == 1 else np.flatnonzero(np.arange(len(means)) % 5 < 5 * share)
    means = means if drawn is None else means[drawn]
    norms = np.linalg.norm(means, axis=1)
    # Results of an earlier round must not affect this one.
    LinearGradients(blocks, Logistic(), 0 * theta).clipped_sum(1.0, drawn)
    for clip in (0.02, float(np.median(norms)), 1e3):
        total = (means * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
        found = LinearGradients(blocks, Logistic(), theta).clipped_sum(clip, drawn)
        most = 1e-10 if kind == np.float64 else 2e-5
        assert np.linalg.norm(found - total) <= most * np.minimum(norms, clip).sum()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_each_size_has_its_own_way(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    gathered, rows = tiles.Tile.gathered, linear._clipped_rows

    def gather(*args: Any) -> Any:
        seen.append("gathered")
        return gathered(*args)

    def alone(*args: Any) -> Any:
        seen.append("alone")
        return rows(*args)

    monkeypatch.setattr(tiles.Tile, "gathered", gather)
    monkeypatch.setattr(linear, "_clipped_rows", alone)
    for size, d, way in ((1, 10, ["alone"]), (5, 10, ["gathered"]), (50, 20, []), (5, 100, [])):
        X, y, codes, theta = data([size] * 30, d, Logistic(), intercept=False)
        blocks = LinearBlocks.arrange(X.astype(kind), y, codes, intercept=False)
        LinearGradients(blocks, Logistic(), theta).clipped_sum(1.0)
        assert seen == way
        seen.clear()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, 90])
@pytest.mark.parametrize("d", [2, 9, 130, 700])
@pytest.mark.parametrize("loss", [Logistic(), Squared(), Softmax(3), Softmax(16)])
def test_people_with_only_zeros_affect_no_one(
    loss: MarginLoss,
    d: int,
    size: int,
    threads: int,
    kind: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A person's contribution with any number of other people with zero gradients."""
    monkeypatch.setattr(tiles, "_TILE_BYTES", 1 << 14)
    monkeypatch.setattr(tiles, "_TILE_BYTES_OF_SEVERAL", 1 << 14)
    rng = np.random.default_rng(d + size)
    X, y, _, theta = data([size], d, loss, intercept=False)
    X *= 10.0 ** rng.uniform(0, 5, size=(size, 1))
    norms_from_products = (
        loss.outputs > 1
        and linear.clipping_method(size, loss.outputs, d, dense=True) == "gram"
        and size > 1
    )

    def total(others: int, their_size: int, place: int) -> Array:
        users = np.repeat(np.arange(others), their_size)
        users += users >= place
        rows = np.vstack([np.zeros((len(users), d)), X]).astype(kind)
        codes = np.append(users, np.full(size, min(place, others)))
        blocks = LinearBlocks.arrange(
            rows, np.append(np.zeros(len(users)), y), codes, intercept=False
        )
        return LinearGradients(blocks, loss, theta).clipped_sum(1.0)

    with threadpool_limits(threads, user_api="blas"):
        alone = total(0, 1, 0)
        for others in (*range(1, 18), 31, 32, 33, 63, 64, 65, 255, 256, 257):
            for their_size in {1, size}:
                found = total(others, their_size, others // 2)
                if norms_from_products:
                    # The rows of the block are added in the product of the whole tile.
                    most = 1e-5 if kind == np.float32 else 1e-12
                    assert np.linalg.norm(found - alone) <= most
                else:
                    assert np.array_equal(found, alone)


def test_empty_blocks_and_nothing_drawn() -> None:
    blocks = LinearBlocks.arrange(np.ones((2, 3)), [1.0, 0.0], [1, 4], intercept=True, blocks=9)
    gradients = LinearGradients(blocks, Logistic(), np.zeros(4))
    assert (blocks.blocks, len(blocks.y), gradients.dimension) == (9, 2, 4)
    assert (gradients.clipped_sum(1.0, np.array([], dtype=np.intp)) == 0).all()
    assert (gradients.clipped_sum(1.0, np.array([0, 2, 8])) == 0).all()
    assert gradients.vectors(np.array([4, 0])).tolist() == [[0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0]]
    nobody = LinearBlocks.arrange(np.zeros((0, 3)), [], [], intercept=False, blocks=2)
    assert (LinearGradients(nobody, Logistic(), np.zeros(3)).clipped_sum(1.0) == 0).all()


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("outputs", [1, 12])
@pytest.mark.parametrize("size", [3, 5, 60])
@pytest.mark.parametrize("cancel", [1e2, 1e3, 1e4, 1e6])
def test_cancelling_blocks_stay_within_the_clip(
    cancel: float, size: int, outputs: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records with far larger norms than their mean: single precision loses all digits."""
    if not kept:
        monkeypatch.setattr(tiles, "_KEPT_BYTES", 0)
    worst = 0.0
    for seed in range(4):
        X, y, codes, theta, loss = cancelling(cancel, size, outputs, seed)
        for clip in (0.3, 1.0):
            blocks = LinearBlocks.arrange(X, y, codes, intercept=False)
            found = LinearGradients(blocks, loss, theta).clipped_sum(clip)
            worst = max(worst, float(np.linalg.norm(found)) / clip)
    assert worst <= 1


def cancelling(
    cancel: float, size: int, outputs: int, seed: int
) -> tuple[Array, Array, Array, Array, MarginLoss]:
    """One block of nearly cancelling records; the remainder has about the norm of the clip."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(size, 400)) * cancel
    # At θ = 0 slopes are equal up to a sign by class; their sum is small by construction.
    X -= X.mean(axis=0)
    X += rng.normal(size=400) / 20 * 3
    loss: MarginLoss = Logistic() if outputs == 1 else Softmax(outputs)
    theta = np.zeros(outputs * 400)
    return X.astype(np.float32), np.zeros(size), np.zeros(size, dtype=int), theta, loss


def test_non_finite_rows_do_not_affect_the_sum() -> None:
    rng = np.random.default_rng(2)
    for loss in (Logistic(), Squared(), PoissonLoss(), Softmax(3)):
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
            found = LinearGradients(blocks, loss, theta).clipped_sum(1.0)
            assert np.isfinite(found).all()
            # All other blocks are unchanged.
            others = codes > codes[2]
            rest = LinearBlocks.arrange(X[others], y[others], codes[others], intercept=False)
            expected = LinearGradients(rest, loss, theta).clipped_sum(1.0)
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
            found = LinearGradients(blocks, loss, np.zeros(4 * outputs)).clipped_sum(clip)
            assert np.linalg.norm(found / clip) <= 1


def test_non_finite_features_count_as_zero() -> None:
    X = np.array([[1.0, np.nan], [np.inf, 2.0]])
    zeroed = np.array([[1.0, 0.0], [0.0, 2.0]])
    for made in (np.array, sparse.csr_array):
        sums = [
            LinearGradients(
                LinearBlocks.arrange(made(rows), [1.0, 0.0], [0, 0], intercept=True),
                Logistic(),
                np.ones(3),
            ).clipped_sum(1.0)
            for rows in (X, zeroed)
        ]
        assert np.array_equal(sums[0], sums[1])
    assert np.isnan(X[0, 1])


def test_a_block_with_more_rows_than_a_tile() -> None:
    loss = Softmax(3)
    rows = tiles.TILE_ROWS * 2 + 5
    X, y, codes, theta = data([rows, 3], 4, loss, intercept=True)
    for kind in (np.float32, np.float64):
        blocks = LinearBlocks.arrange(X.astype(kind), y, codes, intercept=True)
        _, total = one_by_one(X, y, codes, loss, theta, 0.1, intercept=True)
        assert np.allclose(LinearGradients(blocks, loss, theta).clipped_sum(0.1), total, atol=1e-4)


@pytest.mark.parametrize(("outputs", "d", "rows"), [(101, 512, 6000), (1, 10, 400_000)])
def test_memory_in_addition_to_the_rows_is_bounded(outputs: int, d: int, rows: int) -> None:
    loss: MarginLoss = Softmax(outputs) if outputs > 1 else Logistic()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, d)).astype(np.float32)
    codes = np.sort(rng.integers(0, rows // 7, rows))
    blocks = LinearBlocks.arrange(X, rng.integers(0, 2, rows), codes, intercept=True)
    gradients = LinearGradients(blocks, loss, np.zeros(outputs * (d + 1)))
    for drawn in (None, np.flatnonzero(rng.random(blocks.blocks) < 0.3)):
        tracemalloc.start()
        gradients.clipped_sum(1.0, drawn)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 64 * 2**20


def test_mismatched_shapes_are_rejected() -> None:
    with refuses("X"):
        LinearBlocks.arrange(np.ones((2, 3)), [1.0], [0, 0], intercept=True)


def both(X: Array, y: Array, codes: Array, loss: MarginLoss, blocks: int, *, exact: bool) -> Array:
    """The clipped sum, or the vectors, of blocks at a θ that is not 0."""
    theta = np.linspace(-1, 1, X.shape[1] * loss.outputs)
    found = LinearBlocks.arrange(X, y, codes, intercept=False, blocks=blocks)
    gradients = LinearGradients(found, loss, theta)
    return gradients.vectors() if exact else gradients.clipped_sum(1.0)


@pytest.mark.parametrize(
    ("kind", "large"),
    [(np.float32, 1.0), (np.float32, 1e8), (np.float32, 1e25)]
    + [(np.float64, large) for large in (1.0, 1e8, 1e17, 1e154)],
)
@pytest.mark.parametrize(("outputs", "width"), [(1, 3), (1, 130), (3, 3)])
def test_other_peoples_blocks_do_not_change_with_ones_rows(
    outputs: int, width: int, kind: Any, large: float
) -> None:
    """Records that are huge, or cancel; a neighbour has one row more, and another size of block.

    Blocks of few features are gathered, blocks of many are multiplied.
    """
    users, loss = 300, (Squared() if outputs == 1 else Softmax(3))
    for size in (1, 5, 16):
        rng = np.random.default_rng(size)
        X = (rng.choice([-1.0, 1.0, 0.5], size=(users * size + 2, width)) * large).astype(kind)
        y = rng.integers(0, 3, len(X)).astype(float) * (large if outputs == 1 else 1)
        codes = np.append(np.repeat(np.arange(users), size), [users, users])
        for more in (1, 2):
            keep = np.arange(len(X)) < users * size + more
            fewer = codes < users
            one, other = (
                both(X[rows], y[rows], codes[rows], loss, users + 1, exact=False)
                for rows in (keep, fewer)
            )
            # The block itself moves the sum by 1; rounding has almost no effect.
            assert np.linalg.norm(one - other) <= 1 + (1e-2 if kind == np.float32 else 1e-6)
            one, other = (
                both(X[rows], y[rows], codes[rows], loss, users + 1, exact=True)
                for rows in (keep, fewer)
            )
            assert np.array_equal(one[:users], other[:users])


def test_clip_is_effective_when_squares_vanish() -> None:
    for x, y, clip, kind in (
        (1.8e19, 2.5e-23, 1e-6, np.float32),
        (1.8e19, 2.5e-23, 2.0**-12, np.float32),
        (1e154, 1e-162, 1e-10, np.float64),
    ):
        blocks = LinearBlocks.arrange(np.array([[x]], kind), [y], [0], intercept=False)
        found = LinearGradients(blocks, Squared(), np.zeros(1)).clipped_sum(clip)
        assert abs(found[0]) <= clip


WAYS = ("_by_gram", "_add_slices", "_add_formed")


@pytest.mark.parametrize(
    ("way", "classes", "d", "size", "kept"),
    [
        ("_by_gram", 40, 300, 5, True),
        ("_by_gram", 40, 300, 5, False),
        ("_add_slices", 3, 20, 5, False),
        ("_add_formed", 40, 300, 90, False),
    ],
)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_each_method_is_used_and_agrees_with_a_loop(
    way: str,
    classes: int,
    d: int,
    size: int,
    kept: bool,
    kind: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not kept:
        monkeypatch.setattr(tiles, "_KEPT_BYTES", 0)
    seen: set[str] = set()
    for name in WAYS:

        def watched(*args: Any, real: Any = getattr(linear, name), name: str = name) -> Any:
            seen.add(name)
            return real(*args)

        monkeypatch.setattr(linear, name, watched)
    loss = Softmax(classes)
    X, y, codes, theta = data([size] * 9, d, loss, intercept=False)
    blocks = LinearBlocks.arrange(X.astype(kind), y, codes, intercept=False)
    means, _ = one_by_one(X.astype(kind), y, codes, loss, theta, 1.0, False)
    clip = float(np.median(np.linalg.norm(means, axis=1)))
    _, total = one_by_one(X.astype(kind), y, codes, loss, theta, clip, False)
    found = LinearGradients(blocks, loss, theta).clipped_sum(clip)
    assert seen == {way}
    assert np.linalg.norm(found - total) <= (1e-4 if kind == np.float32 else 1e-10) * 9 * clip


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("drawn", [None, [1, 4, 5]])
def test_cached_products_equal_computed_ones(
    drawn: list[int] | None, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = Softmax(40)
    X, y, codes, theta = data([5] * 9 + [3] * 4, 300, loss, intercept=False)
    found = []
    for most in (0, 1 << 25, 8 * 4 * 3**2):
        monkeypatch.setattr(tiles, "_KEPT_BYTES", most)
        blocks = LinearBlocks.arrange(X.astype(kind), y, codes, intercept=False)
        some = None if drawn is None else np.array(drawn)
        found.append(LinearGradients(blocks, loss, theta).clipped_sum(0.1, some))
        assert sum(kept.nbytes for kept in blocks._grams.values()) <= most
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def longest(kind: Any) -> float:
    """Largest norm of a clipped gradient of cancelling blocks, with the bound."""
    worst = 0.0
    for cancel in (1e2, 1e3, 1e4, 1e5):
        for seed in range(4):
            X, y, codes, theta, loss = cancelling(cancel, 3, 12, seed)
            blocks = LinearBlocks.arrange(X.astype(kind), y, codes, intercept=False)
            found = LinearGradients(blocks, loss, theta).clipped_sum(0.3)
            worst = max(worst, float(np.linalg.norm(found)) / 0.3)
    return worst


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_clips_are_effective_when_records_cancel(kind: Any) -> None:
    assert longest(kind) <= 1


def test_without_the_guard_clips_do_not_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    def certain(squares: Array, *_: Any) -> Array:
        return np.zeros(np.shape(squares), dtype=bool)

    monkeypatch.setattr(linear, "_doubtful", certain)
    # By how much depends on how the machine rounds.
    assert longest(np.float64) > 1 + 1e-10

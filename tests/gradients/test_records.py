"""Blocks of records of any loss: no vector depends on other users' data, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.gradients import records as module
from dpgrain.gradients.records import RecordBlocks
from dpgrain.optimize import Absolute, Huber, Logistic, MarginLoss, Softmax, Squared

Array = NDArray[np.float64]
LOSSES: dict[str, MarginLoss] = {
    "logistic": Logistic(),
    "squared": Squared(),
    "absolute": Absolute(),
    "huber": Huber(),
    "softmax": Softmax(3),
}


def vectors(loss: MarginLoss, X: Array, y: Array, codes: NDArray[np.int_], theta: Array) -> Array:
    blocks = RecordBlocks.arrange(X, y, codes)
    return blocks.gradients(loss, theta, longest=1e6).vectors()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("width", [1, 3, 50, 201])
def test_removed_user_affects_no_one(name: str, width: int) -> None:
    # Margins cancel, so that only the last digit of a sum is left of them.
    loss, rng = LOSSES[name], np.random.default_rng(width)
    sizes = rng.integers(1, 6, 40)
    codes = np.repeat(np.arange(40), sizes)
    X = rng.normal(size=(len(codes), width)) * 1e9
    X -= X.mean(axis=1, keepdims=True)
    y = rng.integers(0, 2, len(codes)).astype(float)
    theta = np.ones(width * loss.outputs) + 1e-3 * rng.normal(size=width * loss.outputs)
    whole = vectors(loss, X, y, codes, theta)
    for user in range(40):
        there = codes != user
        others = np.searchsorted(np.delete(np.arange(40), user), codes[there])
        left = vectors(loss, X[there], y[there], others, theta)
        assert np.array_equal(left, np.delete(whole, user, axis=0))


class ByProduct(Squared):
    """A loss with margins from a matrix product, like a custom one."""

    def margins(self, theta: Any, X: Any) -> Any:
        return X @ theta


def test_user_with_many_records_affects_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # More than a tile: they are added in slices, in another order than others.
    monkeypatch.setattr(module, "_BATCH_ENTRIES", 1 << 12)
    rng, width = np.random.default_rng(1), 20
    sizes = np.concatenate([rng.integers(1, 4, 30), [1000], rng.integers(1, 4, 30)])
    codes = np.repeat(np.arange(61), sizes)
    X = rng.normal(size=(len(codes), width)) * 1e9
    y, theta = np.zeros(len(codes)), np.full(width, 0.1)
    whole = vectors(ByProduct(), X, y, codes, theta)
    there = codes != 30
    others = codes[there] - (codes[there] > 30)
    left = vectors(ByProduct(), X[there], y[there], others, theta)
    # Few others: their last rows may be added in another order, and not all later ones.
    changed = (left != np.delete(whole, 30, axis=0)).any(axis=1)
    assert changed.sum() <= 6


def test_blocks_are_taken_in_order() -> None:
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    blocks = RecordBlocks.arrange(X, y, [2, 0, 1, 1, 2, 3])
    some = blocks.select(np.array([1, 3]))
    assert some.blocks == 2
    assert some.y.tolist() == [2.0, 3.0, 5.0]
    assert some.starts.tolist() == [0, 2, 3]
    assert blocks.select(np.array([], dtype=int)).blocks == 0


@pytest.mark.parametrize("name", LOSSES)
def test_block_has_the_mean_of_its_rows(name: str) -> None:
    loss, rng = LOSSES[name], np.random.default_rng(1)
    codes = np.repeat([0, 1, 3], [1, 4, 2])
    X, y = rng.normal(size=(7, 3)), rng.integers(0, 2, 7).astype(float)
    theta = rng.normal(size=3 * loss.outputs)
    each = loss.gradient(theta, X, y)
    means = [each[codes == b].mean(axis=0) if b in codes else 0 * theta for b in range(4)]
    assert np.allclose(vectors(loss, X, y, codes, theta), means, rtol=1e-12, atol=1e-14)

"""Several outputs: each way to the norms, and the guard of norms from products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.gradients.test_linear import cancelling, data, one_by_one

from dpgrain.gradients import multi_output, tiles
from dpgrain.gradients.linear import LinearGradients
from dpgrain.gradients.tiles import LinearBlocks
from dpgrain.optimize import Softmax

Array = NDArray[Any]
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
def test_each_way_is_used_and_gives_the_sum_of_a_loop(
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

        def watched(*args: Any, real: Any = getattr(multi_output, name), name: str = name) -> Any:
            seen.add(name)
            return real(*args)

        monkeypatch.setattr(multi_output, name, watched)
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
def test_products_that_are_kept_are_those_that_are_made(
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
    """The longest clipped gradient of blocks whose records cancel, beside the bound."""
    worst = 0.0
    for cancel in (1e2, 1e3, 1e4, 1e5):
        for seed in range(4):
            X, y, codes, theta, loss = cancelling(cancel, 3, 12, seed)
            blocks = LinearBlocks.arrange(X.astype(kind), y, codes, intercept=False)
            found = LinearGradients(blocks, loss, theta).clipped_sum(0.3)
            worst = max(worst, float(np.linalg.norm(found)) / 0.3)
    return worst


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_clips_bind_where_records_cancel(kind: Any) -> None:
    assert longest(kind) <= 1


def test_without_the_guard_clips_do_not_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    def certain(squares: Array, *_: Any) -> Array:
        return np.zeros(np.shape(squares), dtype=bool)

    monkeypatch.setattr(multi_output, "_doubtful", certain)
    # By how much depends on how the machine rounds.
    assert longest(np.float64) > 1 + 1e-10

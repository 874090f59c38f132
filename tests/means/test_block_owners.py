"""Users come in by their places in the roster, in parts or at once."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.means import Vectors, block_owners, grid
from dpgrain.noise import SeededSource
from dpgrain.papers import PanPrivate, PanPrivateStream


def test_sums_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = Vectors(np.random.default_rng(1).normal(size=(50, 3)))
    mean, owners = PanPrivate(1.0, 1.0, 30, 2), np.arange(50) // 2
    whole = mean.start(SeededSource(2), owners).estimate(vectors)
    for part in (block_owners, grid):
        monkeypatch.setattr(part, "_BATCH_ENTRIES", 12)
    assert np.array_equal(whole, mean.start(SeededSource(2), owners).estimate(vectors))


def test_users_beyond_the_stated_number_are_rejected() -> None:
    stream = PanPrivateStream(PanPrivate(1.0, 1.0, 2, 1), 1)
    assert stream.receive([1.0]) is None
    assert stream.receive(None) is not None
    for late in (stream, PanPrivateStream.from_json(stream.to_json())):
        with refuses("n_users", "2"):
            late.receive([1.0])

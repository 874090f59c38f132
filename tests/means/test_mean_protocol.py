"""Vectors of blocks are numbers, of any size."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean, Vectors, clipped
from dpgrain.noise import SystemSource


def test_vectors_of_any_size_are_clipped() -> None:
    rows = np.array([[1e308, 1e308], [-1e308, 1e-308], [1e-320, 0.0], [0.0, 0.0], [0.3, 0.4]])
    norms = np.linalg.norm(clipped(rows, 1.0), axis=1)
    assert np.allclose(norms, [1, 1, 0, 0, 0.5])


@pytest.mark.parametrize("bad", [np.ones(2), np.array([["a", "b"]]), np.zeros((2, 2, 2))])
def test_vectors_must_be_numbers(bad: Any) -> None:
    with refuses("vectors", "numbers"):
        Vectors(bad)


@pytest.mark.parametrize("order", ["C", "F"])
def test_vectors_are_stored_row_by_row(order: Literal["C", "F"]) -> None:
    assert Vectors(np.ones((7, 5), order=order)).vectors().flags.c_contiguous


def test_rounds_beyond_the_charged_number_are_rejected() -> None:
    vectors, run = (
        Vectors(np.ones((10, 2))),
        ClippedMean(1.0, 1.0, 10, rounds=2).start(SystemSource()),
    )
    for _ in range(2):
        run.estimate(vectors)
    with pytest.raises(ParameterError, match="rounds = 2 are over"):
        run.estimate(vectors)

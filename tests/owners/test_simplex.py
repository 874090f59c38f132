"""The simplex method in fractions is exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.owners.cases import by_program, sharing_of, some_rows

from dpgrain.owners.simplex import largest


def test_random_rows() -> None:
    rng = np.random.default_rng(5)
    for _ in range(100):
        sharing = sharing_of(some_rows(rng, 7, 5, 4), rng.integers(0, 10, 5).tolist())
        assert float(largest(sharing)) == pytest.approx(by_program(sharing))


def test_thirds_are_kept() -> None:
    # Every pair of six people that a Fano plane's lines share.
    lines = [(0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5)]
    assert largest(sharing_of([(line, 1) for line in lines], 1)) == Fraction(7, 3)

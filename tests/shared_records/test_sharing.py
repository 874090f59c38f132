"""Rows with owners and bounds."""

from __future__ import annotations

import numpy as np
from tests.shared_records.cases import sharing_of

from dpgrain.shared_records.sharing import SharedAmounts, sums_at


def test_a_load_is_the_sum_of_a_persons_rows() -> None:
    sharing = sharing_of([((0, 1), 5), ((1,), 2), ((0, 2), 1)], 9)
    assert sharing.load().tolist() == [6, 7, 1]
    assert sharing.owners().tolist() == [2, 1, 2]


def test_some_rows_keep_their_owners() -> None:
    sharing = sharing_of([((0, 1), 5), ((1,), 2), ((0, 2), 1)], 9)
    some = sharing.rows(np.array([False, True, True]))
    assert some.load().tolist() == [1, 2, 1]
    assert some.owners().tolist() == [1, 2]


def test_sums_are_integers_beyond_floats() -> None:
    assert sums_at(np.array([1, 1]), np.array([2**60, 1]), 2).tolist() == [0, 2**60 + 1]


def test_a_load_beyond_64_bits_is_large() -> None:
    """An overflowing sum would belong to a person without a bound."""
    ones = np.full(5, 2**62)
    sharing = SharedAmounts.create(ones, np.arange(5), np.zeros(5, dtype=np.int64), 2**62)
    assert sharing.load().tolist() == [2**63 - 1]
    assert (sharing.load() > sharing.bound).all()

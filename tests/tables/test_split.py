"""Numbers of records become whole multiples: truncated, saturated, and none unless above 0."""

from __future__ import annotations

import numpy as np

from dpgrain.tables.engines.kernel import SATURATION
from dpgrain.tables.split import Present, Weight


def test_weights_are_truncated_to_multiples_and_positive() -> None:
    keys, totals = Weight(0.25)(np.arange(5), np.array([0.6, -1.0, 0.0, 0.2, 3.0]))
    assert keys.tolist() == [0, 3, 4]
    assert totals is not None
    assert totals.tolist() == [2.0, 0.0, 12.0]


def test_huge_weights_saturate_silently() -> None:
    _, totals = Weight(2.0**-40)(np.arange(2), np.array([1e308, 1.0]))
    assert totals is not None
    assert totals.tolist() == [SATURATION, 2.0**40]


def test_presence_counts_every_record_once() -> None:
    keys, totals = Present()(np.array([7, 7, 1]), np.array([-3.0, 0.0, 5.0]))
    assert keys.tolist() == [7, 7, 1]
    assert totals is None

"""Noise on floating-point sums: their rounding to the grid is covered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.noise import SeededSource, noisy_sums
from dpgrain.noise.noisy_sums import add_gaussian_noise

Array = NDArray[Any]


@pytest.mark.parametrize("dimension", [1, 100, 10_000])
@pytest.mark.parametrize("multiplier", [0.5, 2.0**20])
def test_rounding_moves_no_sum_farther_than_noise_is_for(
    dimension: int, multiplier: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales: list[float] = []

    def drawn(scale: Any, size: int, **_: Any) -> Array:
        scales.extend(scale)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(noisy_sums, "rounded_gaussian", drawn)
    step = 2.0 ** math.floor(math.log2(multiplier / 2.0**30))
    each = 1 / math.sqrt(dimension)
    # One sum is rounded down in each coordinate, and the other up, as far away as one unit moves it.
    low = np.full(dimension, 0.499 * step)
    high = np.full(dimension, (math.floor((low[0] + each) / step - 0.501) + 0.501) * step)
    assert np.linalg.norm(high - low) <= 1.0
    one, two = (
        add_gaussian_noise(total, 1.0, multiplier, SeededSource(1)) for total in (low, high)
    )
    assert np.linalg.norm(two - one) / step <= scales[0] / multiplier


def test_noise_has_the_stated_deviation() -> None:
    found = add_gaussian_noise(np.zeros(40_000), 3.0, 2.0, SeededSource(1))
    assert found.std() == pytest.approx(6.0, rel=0.03)

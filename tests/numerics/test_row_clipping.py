"""Row clipping: each row separately, at any size, and never above the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpgrain.numerics import row_clipping
from dpgrain.numerics.row_clipping import clipped, zero_nonfinite_rows

Array = NDArray[np.float64]


@pytest.mark.parametrize("clip", [1e-158, 1e-120, 1e-3, 1.0, 1e120])
@pytest.mark.parametrize("scale", [1e-160, 1e-156, 1e-101, 1e-3, 1.0, 1e99, 1e101, 1e160, 1e300])
def test_rows_of_any_size_are_shortened_to_the_bound(scale: float, clip: float) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 4)) * scale
    found = clipped(rows, clip)
    for row, short in zip(rows, found, strict=True):
        largest = float(np.abs(row).max())
        norm = largest * float(np.linalg.norm(row / largest))
        expected = row if norm <= clip else row / norm * clip
        assert np.allclose(short / clip, expected / clip, rtol=1e-12, atol=0)


@pytest.mark.parametrize("clip", [1e-3, 0.5, 7.0])
def test_row_slightly_above_the_bound_is_clipped(clip: float) -> None:
    for excess in (1 + 2.0**-10, 1.4):
        found = clipped(np.full((1, 4), excess * clip / 2), clip)
        assert np.linalg.norm(found) == pytest.approx(clip, rel=1e-12)


def test_a_row_does_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_clipping, "_TILE_ENTRIES", 40)
    rng: Any = np.random.default_rng(1)
    rows = rng.normal(size=(300, 5)) * 10.0 ** rng.integers(-200, 200, (300, 1))
    whole = clipped(rows, 1.0)
    assert all(np.array_equal(clipped(rows[i : i + 1], 1.0)[0], whole[i]) for i in range(300))


def test_only_non_finite_rows_become_zero() -> None:
    rows = np.array([[1.0, np.nan], [1e308, 1e308], [-np.inf, 1.0], [np.inf, -np.inf]])
    assert zero_nonfinite_rows(rows).tolist() == [
        [0.0, 0.0],
        [1e308, 1e308],
        [0.0, 0.0],
        [0.0, 0.0],
    ]
    whole = rows[1:2]
    # Its sum overflows, and it is finite.
    assert zero_nonfinite_rows(whole) is whole

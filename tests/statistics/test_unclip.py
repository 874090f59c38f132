"""Undoing what clipping took comes near what the best bound took."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistics.test_shrink import squared

from dpgrain.statistics.shrink import shrink
from dpgrain.statistics.unclip import unclip


def test_unclipping_is_near_what_the_best_bound_took() -> None:
    """Users with one profile, bounds that balance loss and noise: the truth is told again."""
    generator = np.random.default_rng(11)
    profile = np.sort(generator.pareto(1.0, 400))[::-1]
    size = generator.lognormal(0, 1.5, 500)
    truth, norms = size.sum() * profile, size * np.linalg.norm(profile)

    def error(bound: float, multiplier: float) -> float:
        lost = np.maximum(norms - bound, 0).sum()
        return float(lost**2 + 400 * (bound * multiplier) ** 2)

    for multiplier in (2.0, 5.0, 10.0):
        bound = min(np.geomspace(norms.min(), norms.max(), 400), key=lambda r: error(r, multiplier))
        clipped = np.minimum(size, bound / np.linalg.norm(profile)).sum() * profile
        sd = np.full(400, bound * multiplier)
        noisy = clipped + generator.normal(0, sd)
        shrunk, _ = shrink(noisy, sd)
        found, gain = unclip(noisy, sd, shrunk)
        assert found == pytest.approx(shrunk * gain)
        assert squared(found, truth) < 0.7 * squared(shrunk, truth)
        # Never more than the loss: it is a lower bound in this setting.
        assert 1 < gain[0] < 1.1 * truth.sum() / clipped.sum()


def test_unclipping_goes_cell_by_cell() -> None:
    gain = unclip([300.0, 0, 30.0, 0], [10.0, 10, 10, 10], [300.0, 0, 30.0, 0], [4, 4, 2, 2])[1]
    # 1 + mσ²/A², with A² = ‖x‖² where that is the larger.
    assert gain == pytest.approx([1 + 200 / 300**2] * 2 + [1 + 200 / 900] * 2)
    # By default, items of one standard error are one cell.
    pooled = unclip([300.0, 0, 30.0, 0], [10.0, 10, 10, 10], [300.0, 0, 30.0, 0])[1]
    assert pooled == pytest.approx(1 + 400 / (300**2 + 30**2))
    nothing, factor = unclip([-1.0, 2.0], [100.0, 0.0], [0.0, 2.0])
    assert nothing.tolist() == [0.0, 2.0]
    assert factor.tolist() == [1.0, 1.0]
    assert unclip([50.0], [100.0], [50.0])[1].tolist() == [4.0]
    assert unclip([], [], [])[0].shape == (0,)

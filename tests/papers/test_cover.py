"""Covers of balls reach every point, and oversized ones raise an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.papers.cover import Cover, ball_cover


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize(("dimension", "spacing"), [(1, 0.3), (2, 0.41), (3, 0.7), (4, 1.1)])
def test_covers_cover(norm: Any, dimension: int, spacing: float) -> None:
    cover = ball_cover(dimension, 1.3, spacing, norm)
    order = 2 if norm == "l2" else np.inf
    assert (np.linalg.norm(cover.points, order, axis=1) <= 1.3 * (1 + 1e-12)).all()
    rng = np.random.default_rng(13)
    x = rng.normal(size=(4000, dimension))
    # In the ball, on its sphere, and at lattice points of its cells' corners.
    x *= 1.3 * rng.choice([1.0, 0.999, 0.5], (4000, 1)) / np.linalg.norm(x, order, axis=1)[:, None]
    apart = np.linalg.norm(x[:, None] - cover.points[None], order, axis=2).min(axis=1)
    assert apart.max() <= cover.radius * (1 + 1e-12)
    assert apart.max() > 0.5 * cover.radius
    fewer = Cover(cover.points[1:], cover.radius)
    nearest = np.linalg.norm(cover.points[0] - fewer.points, order, axis=1).min()
    assert nearest > 0.2 * spacing


def test_covers_are_sequences() -> None:
    cover = ball_cover(2, 1.0, 1.0, "linf")
    assert len(cover) == 9 == len(list(cover))
    assert cover[0].tolist() == [-1.0, -1.0]
    assert [point.tolist() for point in cover[:2]] == [[-1.0, -1.0], [-1.0, 0.0]]


def test_too_large_cover_is_rejected_before_it_is_built() -> None:
    with refuses("spacing", "0.001"):
        ball_cover(50, 1.0, 0.001)
    with refuses("spacing", "20"):
        ball_cover(2, 1.0, 0.5, most=20)
    assert len(ball_cover(2, 1.0, 0.5, most=21)) == 21

"""No radius and no centre brings less Gaussian noise than the floor of clipped sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi

from dpgrain.papers.floors import min_noise_of_clipped_sums


def noise_of(factor: float, n: int, dimension: int, radius: float, away: float) -> float:
    """The noise's rms error of clipping to a radius around a centre that is so far from the mean.

    The best linear answer divides, along each direction, by how much a moved mean moves the sum.
    """
    if away == 0:
        grid = chi.ppf((np.arange(20_000) + 0.5) / 20_000, dimension)
        moved = np.mean(np.minimum(grid, radius) * grid) / dimension
        return float(factor * radius * math.sqrt(dimension) / (n * moved))
    normal = np.random.default_rng(3).normal(size=(100_000, dimension))
    shifted = normal + away * np.eye(dimension)[0]
    norms = np.linalg.norm(shifted, axis=1, keepdims=True)
    clipped = shifted * np.minimum(1, radius / norms)
    turned = clipped.T @ normal / len(normal)
    return factor * radius / n * float(np.linalg.norm(np.linalg.inv(turned)))


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2, 5, 20])
def test_no_radius_around_a_centre_brings_less_noise(dimension: int) -> None:
    floor = min_noise_of_clipped_sums(4.0, 1000, dimension)
    near = []
    for away in (0.0, 0.5, 2.0):
        for radius in np.geomspace(0.02, 6, 12) * math.sqrt(dimension):
            made = noise_of(4.0, 1000, dimension, float(radius), away)
            # Estimated from 100,000 users where the centre is off.
            assert made >= floor * (1 - (1e-4 if away == 0 else 0.02))
            near.append(made)
    assert min(near) == pytest.approx(floor, rel=0.02)
    assert floor >= 4.0 * dimension / 1000


def test_clipped_sums_as_in_production() -> None:
    # Signs of coordinates, a fixed rotation of them, and clipped vectors: the measured cases.
    generator = np.random.default_rng(5)
    n, dimension, factor = 4000, 3, 200.0
    floor = min_noise_of_clipped_sums(factor, n, dimension)
    turn = np.linalg.qr(generator.normal(size=(7, dimension)))[0]
    ways: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
        "signs": lambda u: np.sign(u) / math.sqrt(dimension),
        "lengths": lambda u: u / np.maximum(1, np.linalg.norm(u, axis=1, keepdims=True)),
        "seven": lambda u: np.tanh(u @ turn.T) / math.sqrt(7),
    }
    for way in ways.values():
        users = generator.normal(size=(400_000, dimension))
        turned = way(users).T @ users / len(users)
        decoder = np.linalg.pinv(turned) / n
        sums = factor * generator.normal(size=(4000, turned.shape[0]))
        measured = math.sqrt(np.mean(np.sum((sums @ decoder.T) ** 2, axis=1)))
        assert measured >= 0.93 * floor

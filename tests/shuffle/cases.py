"""Shuffled sums, neighbours and reports of a few devices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain.shuffle import PoissonNoise, PoissonSum, VectorSum
from dpgrain.shuffle.design import Design
from dpgrain.shuffle.device_noise import BinomialNoise

Array = NDArray[np.float64]
CHANCE, SURE = 1e-7, 5.4
HEADLINE: dict[str, Any] = {
    "n_users": 1000,
    "dim": 100,
    "l2_bound": 1.0,
    "epsilon": 1.0,
    "delta": 1e-6,
}


def small(kind: type[Any] = VectorSum, coins: int = 6) -> Any:
    protocol = kind(n_users=3, dim=2, epsilon=8.0, delta=1e-3, honest_fraction=0.5)
    noise = PoissonNoise(2.0) if kind is PoissonSum else BinomialNoise(coins, 0.3)
    object.__setattr__(protocol, "design", Design(4, noise, 1e-6))
    return protocol

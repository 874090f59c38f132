"""Losses of candidates for the records of a few users, and draws from them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain.auditing.epsilon_bounds import (
    event_epsilon,
    probability_lower_bound,
    probability_upper_bound,
)
from dpgrain.choices.scores import BlockLosses, sum_losses
from dpgrain.inputs.array_blocks import arrange
from dpgrain.noise import RandomSource, SeededSource
from dpgrain.units import Relation, Unit

Array = NDArray[Any]
RELATIONS: list[Relation] = ["zero_out", "replace"]


def records(users: Sequence[Sequence[float]]) -> tuple[Array, Array]:
    values = [value for held in users for value in held]
    owners = [owner for owner, held in enumerate(users) for _ in held]
    return np.array(values), np.array(owners, dtype=float)


def two_ways(value: Array) -> list[Array]:
    return [value, 1 - value, 3 * value - 1, np.zeros_like(value), np.full_like(value, np.nan)]


def totals(users: Sequence[Sequence[float]], unit: Unit) -> NDArray[np.int64]:
    values, owners = records(users)
    blocks = BlockLosses(arrange(len(values), owners, None, unit), 0.0, 1.0)
    return np.array([sum_losses(blocks.of(loss)) for loss in two_ways(values)])


def measured(
    pick: Callable[[Array, RandomSource], int], one: Array, two: Array, draws: int = 5000
) -> float:
    """A lower bound on ε from the choices of two neighbours, wrong once in 10^7 or so."""
    source = SeededSource(11)
    seen = [Counter(pick(x, source) for _ in range(draws)) for x in (one, two)]
    best = 0.0
    for a, b in itertools.permutations(seen):
        for k in a:
            low, high = (
                probability_lower_bound(a[k], draws, 1e-8),
                probability_upper_bound(b[k], draws, 1e-8),
            )
            best = max(best, event_epsilon(low, high, 0.0))
    return best

"""Losses on a grid dominate, and are dominated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr
from tests.accounting.losses import sampling_rates

from dpgrain.accounting.losses.pairs import MixturePair

Array = NDArray[np.float64]


def log_ratio(p: sampling_rates.Parts, q: sampling_rates.Parts, x: Array) -> Array:
    top, bottom = (
        logsumexp([math.log(w) + m * x - m * m / 2 for w, m in mixture], axis=0)
        for mixture in (p, q)
    )
    found: Array = top - bottom
    return found


def hockey_sticks(
    p: sampling_rates.Parts, q: sampling_rates.Parts, epsilons: Array
) -> tuple[Array, Array]:
    """(n,) H at e^ε for several ε, and the probability under P of the event that attains it."""
    low, high = np.full(epsilons.shape, -200.0), np.full(epsilons.shape, 200.0)
    for _ in range(80):
        middle = (low + high) / 2
        above = log_ratio(p, q, middle) > epsilons
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    first, second = (sum(w * ndtr(m - high) for w, m in mixture) for mixture in (p, q))
    return np.maximum(first - np.exp(epsilons) * second, 0.0), np.asarray(first)


@pytest.mark.slow
@settings(max_examples=25, derandomize=True, deadline=None, phases=[Phase.generate])
@given(
    pair=sampling_rates.mixtures,
    step=sampling_rates.steps,
    tail=sampling_rates.small,
    floor=sampling_rates.small,
    turned=st.booleans(),
)
def test_losses_on_a_grid_dominate_and_are_dominated(
    pair: MixturePair, step: float, tail: float, floor: float, turned: bool
) -> None:
    chosen: Any = pair.swapped if turned else pair
    above = chosen.losses(step, tail, floor)
    below = chosen.losses(step, tail, floor, upper=False)
    grid = step * np.arange(-60, 61)
    epsilons = np.sort(np.concatenate([grid, grid[:-1] + 0.37 * step, np.linspace(-12, 12, 61)]))
    # Swapping, by definition.
    mirrored = (
        tuple((w, -m) for w, m in pair.q),
        tuple((w, -m) for w, m in pair.p),
    )
    exact, event = hockey_sticks(*(mirrored if turned else (pair.p, pair.q)), epsilons)
    slack = 1e-12 * event + 1e-300
    upper = sampling_rates.sticks(above, epsilons)
    assert (upper >= exact - slack).all()
    # On the grid only the truncated mass is added, between its points also the chord.
    on_grid = np.isin(epsilons, grid)
    assert (upper - exact)[on_grid].max() <= 1.01 * tail + 3 * floor + 1e-9
    inside = (epsilons >= grid[0]) & (epsilons <= grid[-1])
    chord = np.interp(np.exp(epsilons), np.exp(epsilons[on_grid]), exact[on_grid])
    assert (upper - chord)[inside].max() <= 1.01 * tail + 3 * floor + 1e-9
    # From below what rounding may do is not counted: at most this.
    lower = sampling_rates.sticks(below, epsilons)
    assert (lower <= exact + 1e-11 * event + 1e-14).all()
    later, _ = hockey_sticks(*(mirrored if turned else (pair.p, pair.q)), epsilons + step)
    if step < 0.1:
        assert (lower >= later - tail - floor - 1e-3).all()

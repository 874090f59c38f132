"""The rule that chooses clipping bounds: robust to noise, near the best bound where there is signal."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dpgrain.errors import ParameterError
from dpgrain.statistics.bounds import AutoClip, choose_bounds

EDGES = AutoClip().edges
SD, NOISE = 8.0, 5.0


def noisy(counts: np.ndarray, seed: int) -> np.ndarray:
    return np.asarray(counts + np.random.default_rng(seed).normal(0, SD, counts.shape))


def histogram_of(norms: np.ndarray) -> np.ndarray:
    bins = np.minimum(np.searchsorted(EDGES[1:], norms), EDGES.size - 2)
    return np.bincount(bins, minlength=EDGES.size - 1).astype(float)


def test_one_cell_without_a_sight_gets_the_fullest_bin() -> None:
    """A bound too high shows in the standard error, one too low in nothing; and it is said."""
    empty = np.zeros((1, EDGES.size - 1))
    for seed in range(2000):
        chosen = choose_bounds(noisy(empty, seed), EDGES, SD, np.array([10]), NOISE)
        assert not chosen.seen.any()
        assert chosen.above is None
    few = empty.copy()
    few[0, 3] = 3 * SD
    bounds = [
        choose_bounds(noisy(few, seed), EDGES, SD, np.array([10]), NOISE).bounds[0]
        for seed in range(200)
    ]
    assert np.mean(np.array(bounds) == EDGES[4]) > 0.75


@pytest.mark.parametrize("cells", [2, 100, 10_000])
def test_empty_data_give_tiny_bounds(cells: int) -> None:
    """No noisy far bin may choose a huge bound where nobody has anything."""
    draws = 1000 if cells == 2 else 20
    empty = np.zeros((cells, EDGES.size - 1))
    for seed in range(draws):
        bounds = choose_bounds(noisy(empty, seed), EDGES, SD, np.full(cells, 10), NOISE)
        assert bounds.bounds.max() <= EDGES[0]


@pytest.mark.parametrize("coordinates", [1, 100])
def test_near_the_best_bound(coordinates: int) -> None:
    norms = np.random.default_rng(1).lognormal(3, 1, 100_000)
    counts = histogram_of(norms)[None, :]

    def error(bound: float) -> float:
        lost = np.maximum(norms - bound, 0).sum()
        return float(lost**2 + coordinates * (bound * NOISE) ** 2)

    best = min(error(bound) for bound in np.geomspace(1, 1e5, 400))
    for seed in range(20):
        chosen = choose_bounds(noisy(counts, seed), EDGES, SD, np.array([coordinates]), NOISE)
        assert error(float(chosen.bounds[0])) <= 25 * best
        # Publishing zeros would be far worse.
        assert error(float(chosen.bounds[0])) < 1e-2 * error(0.0)


def test_minimiser_is_exact() -> None:
    """Against brute force over the same estimate: one visible bin, points √2 apart."""
    counts = np.zeros((1, EDGES.size - 1))
    counts[0, 2] = 500.0
    parts = 4
    points = EDGES[2] * (EDGES[3] / EDGES[2]) ** ((np.arange(parts) + 0.5) / parts)

    def objective(bound: float) -> float:
        lost = (np.maximum(points - bound, 0) * 500 / parts).sum()
        return float(lost**2 + 7 * (bound * NOISE) ** 2)

    grid = np.geomspace(1, 100, 20_000)
    best = grid[np.argmin([objective(bound) for bound in grid])]
    chosen = choose_bounds(counts, EDGES, SD, np.array([7]), NOISE)
    assert chosen.bounds[0] == pytest.approx(best, rel=1e-3)


def test_one_far_bin_cannot_move_the_bound() -> None:
    counts = np.zeros((1, EDGES.size - 1))
    counts[0, 1] = 400.0
    before = choose_bounds(counts, EDGES, SD, np.array([3]), NOISE).bounds[0]
    counts[0, -1] = 3.5 * SD
    after = choose_bounds(counts, EDGES, SD, np.array([3]), NOISE).bounds[0]
    assert after == before


def test_what_lies_above_the_bounds_is_told() -> None:
    """Of Pareto blocks in many cells, near the true shares, and no larger a loss than there is."""
    generator = np.random.default_rng(5)
    norms = 1 + generator.pareto(1.5, (200, 2000))
    counts = np.stack([histogram_of(row) for row in norms])
    chosen = choose_bounds(noisy(counts, 1), EDGES, SD, np.ones(200, dtype=np.int64), NOISE)
    assert chosen.seen.all()
    assert chosen.above is not None
    assert chosen.lost is not None
    above = norms > chosen.bounds[:, None]
    lost = np.maximum(norms - chosen.bounds[:, None], 0).sum() / norms.sum()
    assert chosen.above == pytest.approx(above.mean(), rel=0.5)
    assert 0 < chosen.lost < lost
    cells = np.array([3, 3, 0])
    taken = chosen.at_most(2.0).take(cells)
    assert (taken.bounds == np.minimum(chosen.bounds, 2.0)[cells]).all()
    assert taken.seen.shape == (3,)


def test_nothing_is_told_of_what_was_not_seen() -> None:
    empty = noisy(np.zeros((5, EDGES.size - 1)), 3)
    chosen = choose_bounds(empty, EDGES, SD, np.ones(5, dtype=np.int64), NOISE)
    assert not chosen.seen.any()
    assert (chosen.above, chosen.lost) == (None, None)


@pytest.mark.search(keep=0)
def test_many_cells_are_quick() -> None:
    """400,000 cells, all visible: a ratio to sorting as many numbers, not a time."""
    counts = np.full((400_000, EDGES.size - 1), 300.0)
    start = time.process_time()
    np.sort(np.random.default_rng(0).random(counts.size))
    sorting = time.process_time() - start
    start = time.process_time()
    choose_bounds(counts, EDGES, SD, np.ones(400_000, dtype=np.int64), NOISE)
    assert time.process_time() - start < 60 * sorting


@pytest.mark.parametrize(
    "wrong",
    [{"share": 0.0}, {"share": 1.0}, {"low": 0.0}, {"low": 2.0, "high": 1.0}, {"ratio": 1.0}],
)
def test_parameters(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        AutoClip(**wrong)

"""The experiment on clipping bounds: its errors, its rows and its price are right."""

from __future__ import annotations

import numpy as np
import pytest
from tests.programs import experiment

from dpgrain.statistics.bounds import POOLED_EDGES, RoughBounds

clipping = experiment("clipping")


def some(cells: int = 12, seed: int = 0) -> clipping.Norms:  # type: ignore[name-defined]
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 300, 9000), rng.integers(0, 2 * cells, 9000)
    amount = rng.lognormal(2, 1, 9000).round()
    group = np.arange(2 * cells) // 2
    return clipping._of_groups("some", user, item, group, amount)


def test_norms_agree_with_blocks() -> None:
    norms = clipping.Norms.of(
        "two", [7, 7, 7, 9], [1, 1, 1, 4], [0, 0, 1, 2], [1.0, 2.0, 4.0, 0.0], [0, 2, 0, 0, 1]
    )
    assert norms.norm.tolist() == [5.0]
    assert norms.coordinates.tolist() == [2]


@pytest.mark.parametrize("noise", [0.5, 5.0, 50.0])
def test_the_best_bound_in_hindsight(noise: float) -> None:
    norms = some()
    found = norms.least_errors(noise)
    grid = np.geomspace(1, 1000, 3000)
    tried = np.array([norms.squared_errors(np.full(norms.cells, r), noise) for r in grid])
    assert (found <= tried.min(axis=0) * (1 + 1e-9)).all()
    np.testing.assert_allclose(found, tried.min(axis=0), rtol=1e-3)


@pytest.mark.parametrize("most", [1, 2, 20])
def test_rows_of_the_second_query(most: int) -> None:
    """Against counting block by block, with a person's blocks in a bin capped."""
    norms = some()
    pool = np.arange(norms.cells) % 2
    weight = np.where(np.arange(norms.cells) % 3 == 0, 512, 1024)
    bounds = np.full(norms.cells, 20.0)
    rough = RoughBounds(bounds, np.ones(norms.cells, bool), pool, weight)
    held: dict[tuple[int, int, int], float] = {}
    for user, cell, norm in zip(norms.user, norms.cell, norms.norm, strict=True):
        b = min(int(np.searchsorted(POOLED_EDGES, norm / 20.0)) - 1, POOLED_EDGES.size - 2)
        if b >= 0:
            key = int(user), int(pool[cell]), b
            held[key] = held.get(key, 0.0) + weight[cell] / 1024
    rows = np.zeros((2, POOLED_EDGES.size - 1))
    for (_, group, b), count in held.items():
        rows[group, b] += min(count, most)
    np.testing.assert_allclose(norms.pooled(rough, most), rows)
    assert norms.pooled(rough, 1).sum() < norms.pooled(rough, 20).sum()


def test_both_methods_run_within_the_price() -> None:
    norms, mu = some(), clipping.mu_of(3.0)
    for method in (clipping.before, clipping.new):
        outcomes = [method(norms, mu, np.random.default_rng(seed)) for seed in range(3)]
        ratio = clipping.ratios(norms, mu, outcomes)
        assert ratio.shape == (norms.cells,)
        assert 1 <= ratio.min() <= np.median(ratio) < 3
    assert max(clipping.price(cells) for cells in (1, 9, 10, 60, 20_000)) <= 1.1 + 1e-12


def test_coverage_of_the_capped_total() -> None:
    norms = clipping._of_items(
        "items", np.arange(4000) % 800, np.arange(4000) // 800, np.full(4000, 9.0)
    )
    outcome = clipping.Outcome(
        clipping.ChosenBounds(np.full(5, 3.0), np.ones(5, dtype=np.bool_), 0.5), 4.0
    )
    found = clipping.said(norms, [outcome] * 400, np.random.default_rng(0))
    assert found.capped == pytest.approx(0.95, abs=0.02)
    # Two thirds of every total are clipped away: 4,800 of 7,200, against noise of 12.
    assert (found.least, found.most) == (1.0, 0.0)
    assert found.above == (1.0, 0.5)
    assert found.lost == pytest.approx(2 / 3)

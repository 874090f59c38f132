"""The rule that chooses clipping bounds: robust to noise, near the best bound where there is signal."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.statistics import bounds as bounds_module
from dpgrain.statistics.bounds import (
    POOL_LEAST,
    POOL_MOST,
    POOL_SIZE,
    POOLED_EDGES,
    AutoClip,
    ChosenBounds,
    RoughBounds,
    beyond_at_least,
    bound_of_ratios,
    choose_bounds,
    clipped_at_least,
    group_scales,
    likely_lost,
    pooled_bounds,
    rough_bounds,
)
from dpgrain.units import Law

ONE, MANY = AutoClip().edges(cells=1), AutoClip().edges(cells=100)
SD, NOISE = 8.0, 5.0


def noisy(counts: FloatArray, seed: int, sd: float = SD) -> FloatArray:
    return np.asarray(counts + np.random.default_rng(seed).normal(0, sd, counts.shape))


def counted(norms: FloatArray, edges: FloatArray) -> FloatArray:
    """The number of norms in each bin of each row, (K, bins); 0 means no block."""
    found = np.zeros((len(norms), edges.size - 1))
    for row, values in zip(found, norms, strict=True):
        index = np.minimum(np.searchsorted(edges[1:], values[values > 0]), row.size - 1)
        row += np.bincount(index, minlength=row.size)
    return found


@dataclass(frozen=True)
class Looks:
    """Both noisy queries of the norms of some cells, (K, n), one block per user, as in a release."""

    norms: FloatArray
    noise: float = NOISE
    seed: int = 0

    @property
    def ones(self) -> IntArray:
        return np.ones(len(self.norms), dtype=np.int64)

    @property
    def rough(self) -> RoughBounds:
        sd = 2.1 * self.noise
        counts = noisy(counted(self.norms, MANY), self.seed, sd)
        return rough_bounds(counts, MANY, sd, self.ones, self.noise)

    @property
    def chosen(self) -> ChosenBounds:
        rough, sd = self.rough, 8.5 * self.noise
        rows = np.zeros((rough.pools, POOLED_EDGES.size - 1))
        for cell, values in enumerate(self.norms):
            relative = values / rough.bounds[cell]
            index = np.minimum(np.searchsorted(POOLED_EDGES, relative) - 1, rows.shape[1] - 1)
            rows[rough.pool[cell]] += np.bincount(index[index >= 0], minlength=rows.shape[1])
        rows = noisy(rows, self.seed + 1, sd)
        return pooled_bounds(rough, rows, sd, self.ones, self.noise, 1.0)


def error(norms: FloatArray, bound: float, noise: float) -> float:
    return math.hypot(float(np.maximum(norms - bound, 0).sum()), bound * noise)


def min_error(norms: FloatArray, noise: float) -> float:
    return min(
        error(norms, float(bound), noise) for bound in np.geomspace(1, 1.1 * norms.max(), 400)
    )


# Nothing to see --------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_cell_without_a_sight_gets_the_lowest_edge() -> None:
    """Nothing is known then, and this is reported; a distant bin would add unlimited noise."""
    empty = np.zeros((1, ONE.size - 1))
    found = [
        choose_bounds(noisy(empty, seed), ONE, SD, np.ones(1, int), NOISE) for seed in range(3000)
    ]
    seen = np.array([chosen.seen[0] for chosen in found])
    bounds = np.array([chosen.bounds[0] for chosen in found])
    assert (bounds[~seen] == ONE[0]).all()
    assert seen.mean() < 0.03
    # A false bin j bins up has a level 4^-j times as small.
    assert bounds.mean() < 1.3
    assert bounds.max() <= ONE[10]


@pytest.mark.slow
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_false_bins_far_above_cost_little(law: Law) -> None:
    """Blocks of about 30 in one cell: noise in another bin rarely raises the bound by much."""
    counts = counted(np.full((1, 4000), 30.0), ONE)
    bounds = []
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=counts.shape)
        if law == "laplace":
            noise = rng.laplace(scale=math.sqrt(0.5), size=counts.shape)
        rest = (counts + 20 * noise, ONE, 20.0)
        one = choose_bounds(*rest, np.ones(1, int), NOISE, law)
        ratio = bound_of_ratios(*rest, np.ones(1), NOISE, 0.5, law)
        bounds.append([one.bounds[0], ratio.bounds[0]])
    assert np.sqrt(np.mean(np.square(bounds), axis=0)).max() < 2 * 30
    assert np.max(bounds) < 100 * 30


@pytest.mark.slow
@pytest.mark.parametrize("cells", [2, 100, 10_000])
def test_empty_data_give_tiny_bounds(cells: int) -> None:
    """No distant noisy bin may select a large bound if no user has a value."""
    edges = AutoClip().edges(cells=cells)
    empty = np.zeros((cells, edges.size - 1))
    for seed in range(1000 if cells == 2 else 20):
        chosen = choose_bounds(noisy(empty, seed), edges, SD, np.full(cells, 10), NOISE)
        assert chosen.seen.mean() <= 0.5 if cells == 2 else 0.01
        assert chosen.bounds.max() <= edges[8 if cells == 2 else 4]


def test_no_cells() -> None:
    """Without selected items there is nothing to choose."""
    empty, none = np.zeros((0, MANY.size - 1)), np.zeros(0, dtype=np.int64)
    rough = rough_bounds(empty, MANY, SD, none, NOISE)
    rows = np.zeros((0, POOLED_EDGES.size - 1))
    assert pooled_bounds(rough, rows, SD, none, NOISE, 1.0).bounds.size == 0
    assert choose_bounds(empty, MANY, SD, none, NOISE).bounds.size == 0


def test_a_far_bin_needs_more_than_a_near_one() -> None:
    counts = np.zeros((1, ONE.size - 1))
    counts[0, 4] = 50 * SD
    bounds = []
    for b in (5, 20):
        with_false = counts.copy()
        with_false[0, b] = 4.5 * SD
        bounds.append(choose_bounds(with_false, ONE, SD, np.ones(1, int), NOISE).bounds[0])
    alone = choose_bounds(counts, ONE, SD, np.ones(1, int), NOISE).bounds[0]
    assert bounds[0] > alone
    assert bounds[1] == alone


# The best bound --------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinates", [1, 100])
def test_near_the_best_bound(coordinates: int) -> None:
    norms = np.random.default_rng(1).lognormal(3, 1, (1, 100_000))
    counts, noise = counted(norms, ONE), NOISE * math.sqrt(coordinates)
    best = min_error(norms[0], noise)
    for seed in range(20):
        chosen = choose_bounds(noisy(counts, seed), ONE, SD, np.array([coordinates]), NOISE)
        assert error(norms[0], float(chosen.bounds[0]), noise) <= 3 * best


def test_minimiser_is_exact() -> None:
    """Against brute force over the same estimate: one bin without noise, four points in it."""
    counts = np.zeros((1, ONE.size - 1))
    counts[0, 4] = 500.0
    points = ONE[4] * (ONE[5] / ONE[4]) ** ((np.arange(4) + 0.5) / 4)

    def objective(bound: float) -> float:
        lost = (np.maximum(points - bound, 0) * 500 / 4).sum()
        return float(lost**2 + 7 * (bound * NOISE) ** 2)

    grid = np.geomspace(1, 100, 20_000)
    best = grid[np.argmin([objective(bound) for bound in grid])]
    chosen = choose_bounds(counts, ONE, 1e-12, np.array([7]), NOISE)
    assert chosen.bounds[0] == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1.3, 2.0, 3.1])
def test_bounded_number_has_a_bound_within_a_half(scale: float) -> None:
    """The coarse bins of the first query answer 4 times, and the second corrects it."""
    rng = np.random.default_rng(2)
    norms = scale * 10.0 * rng.random((120, 400))
    chosen = Looks(norms).chosen
    ratios = [
        error(values, bound, NOISE) / min_error(values, NOISE)
        for values, bound in zip(norms, chosen.bounds, strict=True)
    ]
    assert max(ratios) < 1.5
    one = choose_bounds(noisy(counted(norms[:1], ONE), 3, 1.0), ONE, 1.0, np.ones(1, int), NOISE)
    assert error(norms[0], float(one.bounds[0]), NOISE) < 2.2 * min_error(norms[0], NOISE)


@pytest.mark.slow
def test_near_the_best_bounds_of_heavy_tails() -> None:
    """Noise in one cell's counts masks the best level: the second query finds it."""
    rng = np.random.default_rng(3)
    norms = np.exp(rng.normal(3, 1, (200, 1)) + rng.normal(0, 1.3, (200, 1000)))
    best = np.array([min_error(values, NOISE) for values in norms])

    def mean_ratio(bounds: FloatArray) -> float:
        errors = [error(values, bound, NOISE) for values, bound in zip(norms, bounds, strict=True)]
        return float((np.array(errors) / best).mean())

    looks = Looks(norms)
    assert mean_ratio(looks.chosen.bounds) < 1.2 < mean_ratio(looks.rough.bounds)


# Properties ------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.floats(1e-3, 1e3), st.sampled_from([1, 5, 80]))
def test_units_do_not_matter(seed: int, unit: float, cells: int) -> None:
    edges = AutoClip().edges(cells=cells)
    counts = noisy(np.random.default_rng(seed).exponential(40.0, (cells, edges.size - 1)), seed)
    ones = np.ones(cells, dtype=np.int64)
    for choose in (choose_bounds, rough_bounds):
        here = choose(counts, edges, SD, ones, NOISE).bounds
        there = choose(counts, edges * unit, SD, ones, NOISE).bounds
        np.testing.assert_allclose(there, here * unit, rtol=1e-9)


@given(st.integers(0, 10_000), st.sampled_from([1, 7, 80, 300]))
def test_the_order_of_cells_does_not_matter(seed: int, cells: int) -> None:
    rng = np.random.default_rng(seed)
    counts = noisy(rng.exponential(40.0, (cells, MANY.size - 1)), seed)
    order, coordinates = rng.permutation(cells), rng.integers(1, 9, cells)
    rough = rough_bounds(counts, MANY, SD, coordinates, NOISE)
    other = rough_bounds(counts[order], MANY, SD, coordinates[order], NOISE)
    np.testing.assert_array_equal(other.bounds, rough.bounds[order])
    np.testing.assert_array_equal(other.weight, rough.weight[order])
    # Cells with one and the same bound may change places.
    np.testing.assert_array_equal(
        np.sort(np.bincount(other.pool)), np.sort(np.bincount(rough.pool))
    )


@given(st.integers(0, 10_000), st.floats(1.0, 1e4))
def test_more_large_blocks_never_lower_a_bound(seed: int, more: float) -> None:
    counts = noisy(np.random.default_rng(seed).exponential(200.0, (1, 8)), seed)
    counts[0, 7] = 300.0
    edges, ones = ONE[:9], np.ones(1, dtype=np.int64)
    before = choose_bounds(counts, edges, SD, ones, NOISE).bounds[0]
    counts[0, 7] += more
    assert choose_bounds(counts, edges, SD, ones, NOISE).bounds[0] >= before * (1 - 1e-12)


@given(st.integers(0, 10_000), st.integers(1, 400))
def test_pools_and_weights(seed: int, cells: int) -> None:
    rng = np.random.default_rng(seed)
    counts = noisy(np.where(rng.random((cells, 1)) < 0.5, 0.0, 200.0) * np.ones(13), seed)
    coordinates = rng.integers(1, 10_000_000, cells)
    rough = rough_bounds(counts, MANY, SD, coordinates, NOISE)
    assert np.bincount(rough.pool).max() <= POOL_SIZE
    assert np.bincount(rough.pool).min() >= 1
    assert rough.pools == np.unique(rough.pool).size
    assert 1 <= rough.weight.min() <= rough.weight.max() <= 1024
    for pool in range(rough.pools):
        assert np.unique(rough.seen[rough.pool == pool]).size == 1


@given(
    st.integers(0, 10_000),
    st.integers(1, 200),
    st.floats(0.1, 1e6),
    st.sampled_from([0.1, NOISE, 1000.0]),
)
def test_second_query_moves_a_bound_within_its_window(
    seed: int, cells: int, height: float, noise: float
) -> None:
    """For any counts."""
    rng = np.random.default_rng(seed)
    counts = noisy(np.where(rng.random((cells, 1)) < 0.5, 0.0, 200.0) * np.ones(13), seed)
    ones = np.ones(cells, dtype=np.int64)
    rough = rough_bounds(counts, MANY, SD, ones, NOISE)
    rows = rng.normal(0, height, (rough.pools, POOLED_EDGES.size - 1))
    chosen = pooled_bounds(rough, rows, SD, ones, noise, 1e-9)
    factor = chosen.bounds / rough.bounds
    assert (factor >= 0.25 - 1e-12).all()
    assert (factor <= np.where(rough.seen, 8.0, 2.0)).all()
    assert (pooled_bounds(rough, rows, SD, ones, noise, 1.0).bounds >= 1.0).all()
    assert (chosen.seen == rough.seen).all()
    alone = np.bincount(rough.pool)[rough.pool] < POOL_LEAST
    assert (factor[alone] == 1).all()


def test_window_restricts_invisible_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the last property is violated."""
    rough = Looks(np.zeros((60, 1))).rough
    rows = np.full((rough.pools, POOLED_EDGES.size - 1), 1e6)
    monkeypatch.setattr(bounds_module, "_UNSEEN_MOST", 100.0)
    chosen = pooled_bounds(rough, rows, SD, np.ones(60, int), NOISE, 1.0)
    assert chosen.bounds[~rough.seen].max() > 2


def test_noise_lowers_a_bound_to_a_quarter_at_most() -> None:
    rough = RoughBounds(np.full(20, 10.0), np.ones(20, bool), np.zeros(20, int), np.full(20, 1024))
    row = np.zeros((1, POOLED_EDGES.size - 1))
    row[0, 3] = 50.0
    assert (pooled_bounds(rough, row, SD, np.ones(20, int), 1000.0, 1.0).bounds == 2.5).all()


def test_a_block_of_many_items_counts_less() -> None:
    counts = np.full((5, MANY.size - 1), 100.0)
    rough = rough_bounds(counts, MANY, SD, np.array([1, 4, 4, 4, 400]), NOISE)
    assert rough.weight.tolist() == [1024, 1024, 1024, 1024, 102]


def test_bounds_of_groups_and_the_largest_one() -> None:
    chosen = ChosenBounds(np.array([1.0, 9.0]), np.array([False, True]))
    assert chosen.within(0.0, 4.0).bounds.tolist() == [1.0, 4.0]
    taken = chosen.take(np.array([1, 1, 0]))
    assert taken.bounds.tolist() == [9.0, 9.0, 1.0]
    assert taken.seen.tolist() == [True, True, False]


@pytest.mark.slow
def test_clipped_share_counts_bins_above_the_bound() -> None:
    counts, edges = np.array([[100.0, 0.0, 900.0]]), np.array([1.0, 2, 4, 8])
    assert round(clipped_at_least(counts, edges, 4.0, np.array([3.0])), 2) == 0.89


def test_lost_share_of_norms_beyond_the_bound() -> None:
    counts, edges = np.array([[900.0, 0.0, 100.0]]), np.array([1.0, 4, 16, 64])
    assert likely_lost(counts, edges, 4.0, np.array([16.0])).round(2) == [0.34]


def test_norms_beyond_bounds_are_counted_at_lower_edges() -> None:
    counts, edges = np.array([[900.0, 0.0, 100.0]]), np.array([1.0, 4, 16, 64])
    beyond, share = beyond_at_least(counts, edges, 1e-9, np.array([10.0]))
    assert (round(beyond, 3), round(share, 6)) == (600.0, 0.1)
    assert beyond_at_least(counts, edges, 50.0, np.array([10.0])) == (0.0, 0.0)
    assert beyond_at_least(counts, edges, 1e-9, np.array([16.0])) == (0.0, 0.0)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_limit_of_norms_beyond_bounds_is_valid(law: Law) -> None:
    rng, counts = np.random.default_rng(0), np.full((2, ONE.size - 1), 200.0)
    bounds, missed, found = np.array([2.0, 64.0]), 0, 0
    beyond = float((counts * np.maximum(ONE[:-1] - bounds[:, None], 0)).sum())
    for _ in range(4000):
        draw = rng.normal(0, SD, counts.shape)
        if law == "laplace":
            draw = rng.laplace(0, SD / math.sqrt(2), counts.shape)
        least, _ = beyond_at_least(counts + draw, ONE, SD, bounds, law)
        missed += least > beyond
        found += least > 0.6 * beyond
    assert missed <= 0.025 * 4000 + 3 * math.sqrt(0.025 * 4000)
    assert found > 3000


def test_many_cells_are_quick() -> None:
    """400,000 cells, all visible: a ratio to sorting the same number of values, not a time."""
    counts = np.full((400_000, MANY.size - 1), 300.0)
    start = time.process_time()
    np.sort(np.random.default_rng(0).random(counts.size))
    sorting = time.process_time() - start
    start = time.process_time()
    rough_bounds(counts, MANY, SD, np.ones(400_000, dtype=np.int64), NOISE)
    assert time.process_time() - start < 60 * sorting


# Requests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [None, 0.01, 0.2, 0.9])
@pytest.mark.parametrize("cells", [None, 1, 2, 9, 10, 13, 40, 10_000])
def test_the_price_of_many_elements(share: float | None, cells: int | None) -> None:
    """k elements of one person cost at most 1.1 times √k, however they share bins."""
    own, pooled = AutoClip(share=share).shares(one_bound=cells == 1, cells=cells)
    if share is not None:
        assert own + pooled == pytest.approx(share)
    assert 0 < own < 1
    k, most = np.arange(1, 1 + (cells or 1000)), min(POOL_MOST, cells or POOL_MOST)
    moved = most**2 * (k // most) + (k % most) ** 2
    assert (np.sqrt((1 - pooled) + pooled * moved / k) <= 1.1 + 1e-12).all()
    assert (pooled > 0) == (cells is None or cells >= POOL_LEAST)


def test_single_bound_has_no_second_query() -> None:
    assert AutoClip().shares(one_bound=True) == (0.15, 0.0)
    assert AutoClip(share=0.3).shares(one_bound=True, cells=50) == (0.3, 0.0)


def test_bins_are_finer_without_a_second_query() -> None:
    assert AutoClip().edges(cells=1)[1] == 2.0
    assert AutoClip().edges(cells=POOL_LEAST)[1] == 4.0
    assert AutoClip(ratio=3.0).edges(cells=1)[1] == 3.0
    assert AutoClip(low=1.0, high=1.5).edges(cells=50).tolist() == [1.0, 1.5]


@pytest.mark.parametrize(
    "wrong",
    [{"share": 0.0}, {"share": 1.0}, {"low": 0.0}, {"low": 2.0, "high": 1.0}, {"ratio": 1.0}],
)
def test_parameters(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        replace(AutoClip(), **wrong)


@pytest.mark.slow
def test_few_heavy_tailed_cells_are_not_truncated() -> None:
    """Together the cells show that norms fall slowly, which no single cell shows."""
    rng = np.random.default_rng(0)
    norms = 2 * (1 - rng.random((6, 900))) ** (-1 / 1.1)
    counts, ones = counted(norms, ONE), np.ones(6, int)

    def error(bounds: FloatArray) -> float:
        lost = np.maximum(norms - bounds[:, None], 0).sum(axis=1)
        return float(np.sqrt(np.mean(lost**2 + (bounds * NOISE) ** 2)))

    best = min(error(np.full(6, bound)) for bound in np.geomspace(1, 1e4, 200))
    errors = [
        error(choose_bounds(noisy(counts, seed, 12), ONE, 12, ones, NOISE).bounds)
        for seed in range(60)
    ]
    alone = [
        error(
            np.array(
                [
                    choose_bounds(row[None], ONE, 12, ones[:1], NOISE).bounds[0]
                    for row in noisy(counts, seed, 12)
                ]
            )
        )
        for seed in range(60)
    ]
    assert np.mean(errors) < 0.9 * np.mean(alone)
    assert np.mean(errors) < 2 * best


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_similar_cells_together_show_their_bound(law: Law) -> None:
    """A hundred cells of about 25 blocks of norm 2,000, each count with noise of 16."""
    counts = np.zeros((100, len(MANY) - 1))
    where = np.searchsorted(MANY, 2000.0) - 1
    counts[:, where] = np.random.default_rng(0).poisson(25, 100)
    seen = raised = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noise = rng.normal(0, 16, counts.shape)
        if law == "laplace":
            noise = rng.laplace(0, 16 / 2**0.5, counts.shape)
        rough = rough_bounds(counts + noise, MANY, 16.0, np.ones(100, int), 10.0, law)
        seen += rough.seen.sum()
        started = rough.bounds[~rough.seen]
        assert len(set(started)) == 1
        raised += 100 < started[0] < 2000
    assert seen < 500
    assert raised >= 18


def test_different_cells_start_at_the_lowest_edge() -> None:
    counts = np.zeros((300, len(MANY) - 1))
    counts[:200, np.searchsorted(MANY, 2000.0) - 1] = 30
    for seed in range(20):
        rough = rough_bounds(noisy(counts, seed, 16.0), MANY, 16.0, np.ones(300, int), 10.0)
        assert (rough.bounds[~rough.seen] == MANY[0]).all()


def test_of_few_cells_none_starts_higher() -> None:
    counts = np.tile(np.where(np.arange(len(MANY) - 1) == 3, 20.0, 0.0), (POOL_LEAST - 1, 1))
    for seed in range(20):
        rough = rough_bounds(noisy(counts, seed, 16.0), MANY, 16.0, np.ones(len(counts), int), 9.0)
        assert (rough.bounds[~rough.seen] == MANY[0]).all()


# Ratios ----------------------------------------------------------------------------------------

HALVES = AutoClip(low=0.5).edges(cells=1)


@pytest.mark.parametrize("count", [40, 400, 40_000])
def test_bounds_of_ratios_never_clip_one_record(count: int) -> None:
    """People with one record each have norms of .7 to 1, so a bound below 1 would clip some."""
    counts = np.zeros((1, HALVES.size - 1))
    counts[0, 0] = count
    for seed in range(20):
        chosen = bound_of_ratios(
            noisy(counts, seed, 2.0), HALVES, 2.0, np.ones(1), 4.0, 0.1, "gaussian", 1.0
        )
        assert chosen.bounds[0] == 1.0


def test_tiny_groups_do_not_lower_the_bound_of_ratios() -> None:
    """Groups of 500 records of a million have inaccurate means at any bound."""
    norms = np.random.default_rng(2).geometric(0.3, 70_000).astype(float)
    counts = counted(norms[None], HALVES)
    large, tiny = np.full(5, 0.2), np.full(3, 2e-3)
    alone, both = (
        float(bound_of_ratios(counts, HALVES, 10.0, shares / shares.sum(), 4.7, 0.1).bounds[0])
        for shares in (large, np.concatenate([large, tiny]))
    )
    assert alone > 4
    assert both > alone / 1.5


def directions_of(vectors: Any) -> FloatArray:
    """The sums of (users, groups) vectors scaled to norm 1, by group and bin of norm."""
    norm = np.linalg.norm(vectors, axis=1)
    bins = np.minimum(np.searchsorted(ONE[1:], norm), ONE.size - 2)
    sums = np.zeros((vectors.shape[1], ONE.size - 1))
    np.add.at(sums.T, bins, vectors / norm[:, None])
    return sums


def test_scales_of_groups_follow_their_magnitudes() -> None:
    # All users in all groups: √x. Each user in one group: x.
    together = np.tile([256.0, 16.0, 16.0], (900, 1))
    apart = np.repeat(np.diag([256.0, 16.0, 16.0]), 900, axis=0)
    for vectors, smallest in ((together, 0.25), (apart, 0.0625)):
        scales = group_scales(directions_of(vectors), ONE, 1e-3)
        assert scales.tolist() == [1.0, smallest, smallest]


@given(st.integers(0, 1000), st.integers(0, 12))
def test_scales_of_groups_are_powers_of_two(seed: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    sums = rng.normal(scale=SD, size=(groups, ONE.size - 1))
    sums[: groups // 2] += rng.exponential(300, ONE.size - 1)
    scales = group_scales(sums, ONE, SD)
    assert scales.shape == (groups,)
    assert np.isin(scales, 2.0 ** -np.arange(9)).all()
    assert not groups or scales.max() == 1


def test_like_groups_and_noise_have_no_scales() -> None:
    like = directions_of(np.random.default_rng(0).poisson(3, size=(2000, 30)) + 0.01)
    for sums in (like, np.zeros((30, ONE.size - 1))):
        scales = np.array([group_scales(noisy(sums, seed), ONE, SD) for seed in range(100)])
        assert (scales == 1).all(axis=1).mean() > 0.95

"""The kernel against a slow oracle in exact rational arithmetic."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgrain._types import FloatArray, IntArray
from dpgrain.tables.engines import kernel
from dpgrain.tables.engines.kernel import (
    SATURATION,
    Grid,
    KeyLayout,
    Pools,
    Routes,
    clipped_sum,
    directions,
    norm_histogram,
    pair_totals,
    pooled_counts,
    record_sum,
    routed_sum,
    set_fingerprint,
)

Norm = Literal["l2", "l1"]
Rows = list[tuple[int, int, int, int]]  # user, cell, item, total


@dataclass(frozen=True)
class Case:
    layout: KeyLayout
    rows: Rows
    counted: bool

    @property
    def keys(self) -> IntArray:
        layout = self.layout
        packed = [
            (user << layout.user_shift)
            | ((cell << layout.item_bits) if layout.cell_of is None else 0)
            | item
            for user, cell, item, _ in self.rows
        ]
        return np.array(packed, dtype=np.int64)

    def arguments(self, out: IntArray) -> tuple[IntArray, FloatArray | None, IntArray, KeyLayout]:
        keys = self.keys
        order = np.argsort(keys, kind="stable")
        totals = np.array([float(total) for *_, total in self.rows])[order]
        return keys[order], None if self.counted else totals, out, self.layout

    def pairs(self) -> dict[int, dict[int, dict[int, int]]]:
        """user → cell → item → total, saturated."""
        held: dict[int, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        for user, column, item, total in self.rows:
            layout = self.layout
            cell = column if layout.cell_of is None else int(layout.cell_of[item])
            block = held[user][cell]
            amount = block.get(item, 0) + (1 if self.counted else total)
            block[item] = min(amount, int(SATURATION))
        return held

    def blocks(self, max_elements: int | None) -> list[tuple[int, dict[int, int]]]:
        kept = []
        for cells in self.pairs().values():
            kept += [(c, cells[c]) for c in sorted(cells)[:max_elements]]
        return kept


@st.composite
def cases(draw: st.DrawFn, *, largest: int = 50) -> Case:
    items = draw(st.integers(1, 6))
    column = draw(st.booleans())
    if column:
        cells = draw(st.integers(1, 4))
        layout = KeyLayout(items, cells, None)
    else:
        new = [draw(st.booleans()) for _ in range(items - 1)]
        cell_of = np.cumsum([0, *new])
        cells = int(cell_of[-1]) + 1
        layout = KeyLayout(items, cells, cell_of)
    row = st.tuples(
        st.integers(0, 3),
        st.integers(0, cells - 1),
        st.integers(0, items - 1),
        st.integers(0, largest),
    )
    return Case(layout, draw(st.lists(row, max_size=25)), draw(st.booleans()))


def roots(norm: Norm) -> st.SearchStrategy[float]:
    """Bounds that are hit exactly, or nearly, by blocks of small integers."""
    edge = st.integers(1, 4000).map(math.sqrt) if norm == "l2" else st.integers(1, 80).map(float)
    return st.one_of(edge, st.floats(0.01, 90.0))


def squared(block: dict[int, int] | IntArray, norm: Norm) -> Fraction:
    """The norm (l1) or its square (l2), exactly."""
    values = block.values() if isinstance(block, dict) else [int(v) for v in block]
    return Fraction(sum(abs(v) if norm == "l1" else v * v for v in values))


def integers_of_blocks(case: Case, grid: Grid) -> dict[tuple[int, int], IntArray]:
    """The kernel's result for each block separately, its only allowed effect."""
    made = {}
    for user, cells in case.pairs().items():
        for cell in cells:
            rows = [r for r in case.rows if r[0] == user and _cell(case, r) == cell]
            out = np.zeros(case.layout.items, dtype=np.int64)
            clipped_sum(*Case(case.layout, rows, case.counted).arguments(out), grid)
            made[user, cell] = out
    return made


def _cell(case: Case, row: tuple[int, int, int, int]) -> int:
    layout = case.layout
    return row[1] if layout.cell_of is None else int(layout.cell_of[row[2]])


def check_block(z: IntArray, block: dict[int, int], bound: float, grid: Grid, row: int) -> None:
    """One block: bounded in integers, exact where it is not clipped, else near the exact multiple."""
    radius = Fraction(bound) / Fraction(float(grid.step[row]))
    cap = radius if grid.norm == "l1" else radius * radius
    assert squared(z, grid.norm) <= cap
    assert (z >= 0).all()
    step = Fraction(float(grid.step[row]))
    size = squared(block, grid.norm)
    limit = Fraction(bound) if grid.norm == "l1" else Fraction(bound) ** 2
    scale = 1.0 if size <= limit else math.sqrt(limit / size) if grid.norm == "l2" else limit / size
    for item, total in block.items():
        exact = Fraction(total) * Fraction(scale) / step
        got = Fraction(int(z[item]))
        edge = abs(size / limit - 1) < Fraction(1, 10**12) if limit else True
        if size <= limit and not edge:
            assert got == math.floor(exact)
        # Never above the exact value, and below it by truncation and the safety of 2^-40 only.
        assert got <= exact * (1 + Fraction(1, 10**15))
        assert got >= exact * (1 - Fraction(1, 2**39)) - 3


@pytest.mark.parametrize("norm", ["l2", "l1"])
@given(data=st.data())
def test_every_block_is_bounded_and_near_the_exact_multiple(
    norm: Norm, data: st.DataObject
) -> None:
    case = data.draw(cases())
    count = case.layout.cells if case.layout.cell_of is not None and data.draw(st.booleans()) else 1
    bounds = np.array([data.draw(roots(norm)) for _ in range(count)])
    grid = Grid(bounds, data.draw(st.sampled_from([8, 20, 30])), norm)
    made = integers_of_blocks(case, grid)
    total = np.zeros(case.layout.items, dtype=np.int64)
    clipped_sum(*case.arguments(total), grid)
    np.testing.assert_array_equal(total, sum(made.values(), np.zeros_like(total)))
    pairs = case.pairs()
    for (user, cell), z in made.items():
        row = cell if count > 1 else 0
        check_block(z, pairs[user][cell], float(bounds[row]), grid, row)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@given(case=cases(), kept=st.integers(1, 3), items=st.integers(1, 3), data=st.data())
def test_first_elements_and_items_are_used(
    norm: Norm, case: Case, kept: int, items: int, data: st.DataObject
) -> None:
    grid = Grid(np.array([data.draw(roots(norm))]), 20, norm)
    out = np.zeros(case.layout.items, dtype=np.int64)
    clipped_sum(*case.arguments(out), grid, max_elements=kept, max_items=items)
    expected = np.zeros_like(out)
    for cell, block in case.blocks(kept):
        rows = [(0, cell, item, block[item]) for item in sorted(block)[:items]]
        clipped_sum(*Case(case.layout, rows, counted=False).arguments(expected), grid)
    np.testing.assert_array_equal(out, expected)


@given(case=cases(), items=st.none() | st.integers(1, 3))
def test_indicators_ignore_totals(case: Case, items: int | None) -> None:
    grid = Grid(np.ones(1), 24)
    out = np.zeros(case.layout.items, dtype=np.int64)
    clipped_sum(*case.arguments(out), grid, indicator=True, max_items=items)
    expected = np.zeros_like(out)
    for _, block in case.blocks(None):
        kept = sorted(block)[:items]
        share = 2**24 / math.sqrt(len(kept))
        for item in kept:
            expected[item] += math.floor(share * (1 - 2**-40)) if len(kept) > 1 else 2**24
    assert np.abs(out - expected).max(initial=0) <= len(case.rows)
    single = all(len(b) == 1 for _, b in case.blocks(None))
    if single:
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@given(
    case=cases(),
    unit=st.sampled_from([2.0**-20, 2.0**-3, 1.0, 8.0]),
    kept=st.none() | st.integers(1, 2),
)
def test_norms_are_counted_in_their_bins(
    norm: Norm, case: Case, unit: float, kept: int | None
) -> None:
    edges = np.array([1.0, 2, 4, 8, 16]) * unit
    by_cell = case.layout.cell_of is not None
    out = np.zeros((case.layout.cells if by_cell else 1, edges.size), dtype=np.int64)
    norm_histogram(*case.arguments(out), edges, norm=norm, unit=unit, max_elements=kept)
    expected = np.zeros_like(out)
    for cell, block in case.blocks(kept):
        size = squared(block, norm)
        if size:
            scale = Fraction(unit) if norm == "l1" else Fraction(unit) ** 2
            ends = [Fraction(e) if norm == "l1" else Fraction(e) ** 2 for e in edges[:-1]]
            row = cell if by_cell else 0
            expected[row, sum(size * scale > end for end in ends)] += 1
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@given(case=cases(), unit=st.sampled_from([2.0**-20, 1.0, 8.0]), kept=st.none() | st.integers(1, 2))
def test_blocks_of_norm_1_are_added_by_norm(
    norm: Norm, case: Case, unit: float, kept: int | None
) -> None:
    edges, units = np.array([1.0, 2, 4, 8, 16]) * unit, Grid(np.ones(1), 20, norm)
    out = np.zeros((case.layout.items, edges.size), dtype=np.int64)
    directions(*case.arguments(out), edges, units=units, unit=unit, max_elements=kept)
    expected = np.zeros(out.shape)
    for _, block in case.blocks(kept):
        size = math.sqrt(squared(block, norm)) if norm == "l2" else float(squared(block, norm))
        place = min(int(np.searchsorted(edges, size * unit)), edges.size - 1)
        for item, total in block.items():
            expected[item, place] += total / size if size else 0.0
    np.testing.assert_allclose(out * units.step[0], expected, atol=len(case.rows) * 2.0**-18)


@given(case=cases(), data=st.data())
def test_factors_multiply_totals(case: Case, data: st.DataObject) -> None:
    powers = [data.draw(st.integers(0, 3)) for _ in range(case.layout.items)]
    larger = [
        (user, cell, item, (1 if case.counted else total) << powers[item])
        for user, cell, item, total in case.rows
    ]
    layout = replace(case.layout, factors=2.0 ** np.array(powers))
    grid = Grid(np.array([5.0]), 12)
    sums = []
    for one in (replace(case, layout=layout), Case(case.layout, larger, counted=False)):
        out = np.zeros(case.layout.items, dtype=np.int64)
        clipped_sum(*one.arguments(out), grid)
        sums.append(out.tolist())
    assert sums[0] == sums[1]


@st.composite
def pools_of(draw: st.DrawFn, cells: int, unit: float) -> Pools:
    count = draw(st.integers(1, cells))
    pool = [*range(count), *(draw(st.integers(0, count - 1)) for _ in range(cells - count))]
    scale = [draw(st.sampled_from([0.5, 1.0, 3.0, 8.0])) * unit for _ in range(cells)]
    weight = [draw(st.sampled_from([1, 7, 512, 1023, 1024])) for _ in range(cells)]
    most = draw(st.integers(1, 3))
    edges = np.array([0.5, 1, 2, 4])
    return Pools(edges, np.array(pool), np.array(scale), np.array(weight), count, most)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@given(
    case=cases().filter(lambda case: case.layout.cell_of is not None),
    data=st.data(),
    unit=st.sampled_from([2.0**-20, 1.0, 8.0]),
    kept=st.none() | st.integers(1, 2),
)
def test_blocks_are_counted_in_their_pools(
    norm: Norm, case: Case, data: st.DataObject, unit: float, kept: int | None
) -> None:
    pools = data.draw(pools_of(case.layout.cells, unit))
    out = np.zeros(pools.shape, dtype=np.int64)
    pooled_counts(*case.arguments(out), pools, norm=norm, unit=unit, max_elements=kept)
    expected = np.zeros_like(out)
    for cells in case.pairs().values():
        mine = np.zeros_like(out)
        for cell in sorted(cells)[:kept]:
            size, scale = squared(cells[cell], norm), Fraction(pools.scale[cell]) / Fraction(unit)
            ends = [Fraction(e) * scale for e in pools.edges[:-1]]
            passed = sum(size > (end if norm == "l1" else end**2) for end in ends)
            if passed:
                mine[pools.pool[cell], passed - 1] += pools.weight[cell]
        expected += np.minimum(mine, pools.max_blocks * 1024)
    np.testing.assert_array_equal(out, expected)


def test_pooled_counts_do_not_depend_on_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(6)
    layout = KeyLayout(40, 40, np.arange(40))
    keys = np.sort((rng.integers(0, 300, 5000) << layout.user_shift) | rng.integers(0, 40, 5000))
    pools = Pools(
        np.array([0.5, 1, 2, 4]), np.arange(40) // 9, np.ldexp(np.ones(40), rng.integers(-1, 2, 40)),
        rng.integers(1, 1025, 40), 5, 2,
    )  # fmt: skip

    def counted(parts: list[IntArray]) -> IntArray:
        out = np.zeros(pools.shape, dtype=np.int64)
        for part in parts:
            pooled_counts(part, None, out, layout, pools)
        return out

    whole = counted([keys])
    cut = np.searchsorted(keys, np.array([20, 21, 150]) << layout.user_shift)
    np.testing.assert_array_equal(counted(np.split(keys, cut)), whole)
    monkeypatch.setattr(kernel, "_POOLED_USERS", 7)
    np.testing.assert_array_equal(counted([keys]), whole)
    # The bound bites, for some bins of some users.
    monkeypatch.setattr(kernel, "_add_limited", uncapped)
    assert counted([keys]).sum() > whole.sum()


def uncapped(users: IntArray, rows: IntArray, weights: IntArray, most: int, out: IntArray) -> None:
    np.add.at(out.reshape(-1), rows, weights)


def adversarial_blocks() -> list[tuple[list[int], float]]:
    rng = np.random.default_rng(1)
    blocks: list[tuple[list[int], float]] = [
        ([3, 4], 5.0),
        ([1, 1], math.sqrt(2)),
        ([1, 1, 1], math.sqrt(3)),
        ([1] * 7, math.nextafter(math.sqrt(7), 0)),
        ([1] * 7, math.nextafter(math.sqrt(7), 9)),
        ([10_000, 1], math.sqrt(100_000_001)),
        ([2**53 - 1, 1], 2.0**53),
        ([2**53, 2**53], 1.0),
        ([1] * 20_000, math.sqrt(20_000)),
        ([1] * 19_999, math.nextafter(math.sqrt(19_999), 0)),
        (rng.integers(1, 2**40, 20_000).tolist(), 1.0),
    ]
    for size in (2, 3, 17, 1000, 5_000):
        block = rng.integers(1, 2**20, size).tolist()
        exact = math.sqrt(sum(v * v for v in block))
        blocks += [(block, b) for b in (exact, math.nextafter(exact, 0), exact / 3, exact * 2)]
    return blocks


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("bits", [8, 29, 30])
def test_no_rounding_takes_a_block_over_its_bound(norm: Norm, bits: int) -> None:
    for block, bound in adversarial_blocks():
        if norm == "l1":
            bound = float(sum(block)) if bound > 2 else bound
        layout = KeyLayout(len(block), 1, np.zeros(len(block), dtype=np.int64))
        grid = Grid(np.array([bound]), bits, norm)
        out = np.zeros(len(block), dtype=np.int64)
        keys = np.arange(len(block), dtype=np.int64)
        clipped_sum(keys, np.array(block, dtype=np.float64), out, layout, grid)
        check_block(out, dict(enumerate(block)), bound, grid, 0)


def test_counts_within_the_bound_are_exact() -> None:
    layout = KeyLayout(3, 1, np.zeros(3, dtype=np.int64))
    grid = Grid(np.array([5.0]), 30)
    out = np.zeros(3, dtype=np.int64)
    clipped_sum(np.array([0, 0, 0, 1, 1, 1, 1]), None, out, layout, grid)
    assert (out * grid.step).tolist() == [3.0, 4.0, 0.0]


@given(bound=st.floats(1e-80, 1e80), bits=st.integers(8, 30), norm=st.sampled_from(["l2", "l1"]))
def test_grid_is_exact(bound: float, bits: int, norm: Norm) -> None:
    grid = Grid(np.array([bound]), bits, norm)
    step, radius = float(grid.step[0]), Fraction(float(grid.radius[0]))
    mantissa, _ = math.frexp(step)
    assert mantissa == 0.5
    assert radius == Fraction(bound) / Fraction(step)
    assert 2 ** (bits - 1) < radius <= 2**bits
    limit, true = int(grid.limit[0]), radius if norm == "l1" else radius * radius
    assert limit <= true
    # At most one below: for a square that is a hair above a whole number.
    assert limit >= math.floor(true) - (1 if norm == "l2" and radius.denominator > 1 else 0)


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100)), max_size=40),
    bound=st.floats(0.01, 120.0),
    counted=st.booleans(),
)
def test_records_are_clipped_one_by_one(
    rows: list[tuple[int, int]], bound: float, counted: bool
) -> None:
    grid = Grid(np.array([bound]), 24)
    codes = np.array([item for item, _ in rows], dtype=np.int64)
    totals = None if counted else np.array([float(t) for _, t in rows])
    out = np.zeros(5, dtype=np.int64)
    record_sum(codes, totals, out, grid)
    expected = [0] * 5
    for item, total in rows:
        value = min(Fraction(1 if counted else total), Fraction(bound))
        expected[item] += math.floor(value / Fraction(float(grid.step[0])))
    assert out.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**53)), max_size=30), st.booleans())
def test_totals_saturate_in_any_order(rows: list[tuple[int, int]], halves: bool) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    keys = np.array([key for key, _ in rows], dtype=np.int64)
    totals = np.array([float(total) for _, total in rows])
    if halves and len(rows) > 1:
        middle = len(rows) // 2
        parts = [
            pair_totals(keys[:middle], totals[:middle]),
            pair_totals(keys[middle:], totals[middle:]),
        ]
        keys, totals = (np.concatenate(column) for column in zip(*parts, strict=True))
    found, sums = pair_totals(keys, totals)
    true: dict[int, int] = defaultdict(int)
    for key, total in rows:
        true[key] += total
    assert found.tolist() == sorted(true)
    assert sums.tolist() == [float(min(true[key], 2**53)) for key in sorted(true)]


def test_sums_wrap_modulo_two_to_the_64() -> None:
    layout = KeyLayout(1, 1, np.zeros(1, dtype=np.int64))
    out = np.array([2**63 - 5], dtype=np.int64)
    clipped_sum(np.zeros(1, dtype=np.int64), None, out, layout, Grid(np.ones(1), 4))
    assert out.tolist() == [-(2**63) + 11]
    out = np.array([2**63 - 5], dtype=np.int64)
    record_sum(np.zeros(1, dtype=np.int64), None, out, Grid(np.ones(1), 4))
    assert out.tolist() == [-(2**63) + 11]


def test_nothing_adds_nothing() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    for layout in (KeyLayout(0, 0, nothing), KeyLayout(3, 2, None), KeyLayout(3, 3, np.arange(3))):
        out = np.zeros(layout.items, dtype=np.int64)
        clipped_sum(nothing, None, out, layout, Grid(np.ones(1), 8), max_elements=1, max_items=1)
        clipped_sum(nothing, np.zeros(0), out, layout, Grid(np.ones(1), 8))
        if layout.cell_of is not None:
            cells = np.zeros(layout.cells, dtype=np.int64)
            scale, count = np.ones(layout.cells), min(layout.cells, 1)
            pools = Pools(np.array([0.5, 1]), cells, scale, cells + 1, count, 1)
            pooled_counts(nothing, None, np.zeros(pools.shape, dtype=np.int64), layout, pools)
        assert not out.any()


# ------------------------------------------------------------------------------------ a second round

# Items of all small graphs of people and items.
_SMALL = 4


def routed(held: list[list[int]], routes: Routes, most: int, bits: int = 12) -> IntArray:
    layout = KeyLayout(_SMALL, 1, np.zeros(_SMALL, dtype=np.int64))
    keys = [(who << layout.user_shift) | item for who, items in enumerate(held) for item in items]
    out = np.zeros(_SMALL, dtype=np.int64)
    grid = Grid(np.ones(1), bits)
    routed_sum(np.array(sorted(keys), dtype=np.int64), None, out, layout, routes,
               grid=grid, max_items=most)  # fmt: skip
    return out


def guidance(seed: int) -> Routes:
    """Routes after some first round: many equal counts, and some items that do not go on."""
    rng = np.random.default_rng(seed)
    first = rng.integers(1, 9, _SMALL)
    return Routes.after(first, rng.random(_SMALL) < 0.8, float(rng.choice([0.5, 3.0, 20.0])))


SETS = [[i for i in range(_SMALL) if number >> i & 1] for number in range(1 << _SMALL)]


def farthest(most: int, seed: int, others: list[list[int]]) -> tuple[int, int]:
    """The largest squared change of the sums by anyone: removed, or replaced by anyone."""
    routes = guidance(seed)
    sums = [routed([*others, items], routes, most) for items in SETS]
    squares = [[int(((one - two) ** 2).sum()) for two in sums] for one in sums]
    return max(square[0] for square in squares), max(max(square) for square in squares)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_second_round_moves_by_at_most_norm_one(seed: int) -> None:
    # All graphs of three people and four items, and every replacement of one of them.
    limit, worst = (1 << 12) ** 2, [0, 0]
    for one, two in itertools.product(SETS, repeat=2):
        removed, exchanged = farthest(1 + seed % 4, seed, [one, two])
        assert removed <= limit
        assert exchanged <= 2 * limit
        worst = [max(worst[0], removed), max(worst[1], exchanged)]
    # No weight is wasted: anyone with a contribution gives a vector of about norm 1.
    if guidance(seed).items.size:
        assert worst[0] > 0.99 * limit


def plainly_routed(items: list[int], routes: Routes, most: int) -> dict[int, Fraction]:
    """The squared share of each item of one person, by the definition."""
    first = items[:most]
    taken: list[int] = []
    room = Fraction(len(first) * routes.capacity)
    for item in sorted((i for i in first if routes.rank[i] >= 0), key=lambda i: routes.rank[i]):
        room -= int(routes.needs[routes.rank[item]]) ** 2
        if room < 0 and taken:
            break
        taken.append(item)
    needs = {item: Fraction(int(routes.needs[routes.rank[item]])) for item in taken}
    norm = sum(need**2 for need in needs.values())
    return {item: need**2 / norm for item, need in needs.items()}


@pytest.mark.parametrize("most", [1, 3, 4])
@pytest.mark.parametrize("seed", range(10))
def test_a_second_round_follows_the_rule(seed: int, most: int) -> None:
    routes = guidance(seed)
    for items in SETS:
        out, right = routed([items], routes, most, bits=20), plainly_routed(items, routes, most)
        for item in range(_SMALL):
            share = math.sqrt(right.get(item, Fraction(0)))
            assert out[item] / 2**20 == pytest.approx(share, abs=3e-6)


def test_items_are_used_from_the_largest_count_down() -> None:
    routes = Routes.after(np.array([10, 30, 12, 30]), np.array([True, True, False, True]), 30.0)
    assert routes.items.tolist() == [1, 3, 0]
    assert routes.rank.tolist() == [2, 0, -1, 1]
    assert (np.sqrt(routes.capacity) / routes.needs[:2]).tolist() == [1.0, 1.0]
    assert routes.needs[2] == math.ceil(30 / 10 * math.sqrt(routes.capacity))


def test_a_second_round_of_nothing_is_nothing() -> None:
    nothing = Routes.after(np.array([3, 2, 1, 4]), np.zeros(4, dtype=np.bool_), 9.0)
    assert routed(SETS, nothing, 4).tolist() == [0, 0, 0, 0]
    assert routed([], guidance(1), 4).tolist() == [0, 0, 0, 0]


def test_marks_identify_item_sets_regardless_of_users() -> None:
    layout = KeyLayout(8, 1, np.zeros(8, dtype=np.int64))

    def mark(*held: list[int]) -> int:
        keys = sorted(
            user << layout.user_shift | item for user, of in enumerate(held) for item in of
        )
        return set_fingerprint(np.array(keys, dtype=np.int64), layout)

    one = mark([0, 1], [2, 3], [5])
    assert one == mark([5], [3, 2, 2], [1, 0, 1])
    assert one == int(np.int64(np.uint64((mark([0, 1], [2, 3]) + mark([5])) % 2**64)))
    assert mark() == 0
    others = ([0, 2], [1, 3], [5]), ([0, 1, 2, 3], [5]), ([0, 1], [2, 3]), ([0, 1], [2, 3], [6])
    assert one not in [mark(*held) for held in others]

"""Clipped sums equal a loop over blocks, and no block exceeds the charged bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.torch.cases import NETWORKS, Case, distance
from tests.torch.library import torch

# isort: split
from dpgrain.torch import block_gradients, clipping
from dpgrain.torch.block_gradients import Filters, Lookup, Outer, StoredGradients, Use
from dpgrain.torch.clipping import PRODUCT_ERROR, ExactSum, clip_vector, clipped_sums, overshoot
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder

SINGLE, DOUBLE = torch.float32, torch.float64
SIZES = {
    "singles": (1,) * 9,
    "equal": (4,) * 5,
    "ragged": (1, 1, 2, 2, 2, 5, 9),
    "one": (7,),
}
# The error is at most this share of the sum of the norms of blocks.
CLOSE = {SINGLE: 1e-5, DOUBLE: 1e-10}


@pytest.mark.parametrize("bound", [0.05, 1.0, 1e6])
@pytest.mark.parametrize("precision", [SINGLE, DOUBLE], ids=["single", "double"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("name", NETWORKS)
def test_sums_are_those_of_a_loop(
    name: str, sizes: tuple[int, ...], precision: Any, bound: float
) -> None:
    case = Case.of(name, sizes, precision)
    found, (looped, norms) = case.clipped(bound), case.looped(bound)
    assert set(found) == set(looped)
    assert distance(looped, found) <= CLOSE[precision] * norms
    assert norms > 0


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d"])
def test_filters_of_blocks_need_not_be_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_gradients, "_MAX_STORED_ENTRIES", 0)
    case = Case.of(name, SIZES["ragged"], DOUBLE)
    assert distance(case.looped(0.3)[0], case.clipped(0.3)) < 1e-10


@pytest.mark.parametrize("worth", [0, 1e9], ids=["formed", "gram"])
@pytest.mark.parametrize("name", ["wide", "positions", "attention"])
def test_norms_by_either_way(name: str, worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_gradients, "_GRAM_WORTH", worth)
    monkeypatch.setattr(block_gradients, "_SLICE_ENTRIES", 50)
    monkeypatch.setattr(block_gradients, "_MAX_STORED_MEMORY", 0)
    case = Case.of(name, SIZES["ragged"], DOUBLE)
    assert distance(case.looped(0.3)[0], case.clipped(0.3)) < 1e-10


@pytest.mark.parametrize("name", ["deep", "attention", "tied", "conv2d"])
def test_blocks_formed_apart_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "_MAX_TERM_BOUNDS", 0.0)
    monkeypatch.setattr(block_gradients, "_MAX_STORED_MEMORY", 0)
    case = Case.of(name, SIZES["ragged"], DOUBLE)
    assert distance(case.looped(0.3)[0], case.clipped(0.3)) < 1e-10


def test_autocast_has_norms_in_single_precision() -> None:
    case = Case.of("deep", SIZES["ragged"], SINGLE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = case.clipped(0.3)
    looped, norms = case.looped(0.3)
    # Half precision has 8 bits, but no block is longer than the bound.
    assert 0 < distance(looped, found) < 0.02 * norms
    for block in range(case.layout.blocks):
        rows = case.layout.block_slice(block)
        alone = Case(
            case.module, case.x[rows], case.y[rows], BlockLayout((rows.stop - rows.start,))
        )
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert distance(alone.clipped(0.3)) <= 0.3 * (1 + overshoot(SINGLE))


def test_autocast_stores_its_factors() -> None:
    module = torch.nn.Linear(50, 40)
    recorder = Recorder(module, (), lambda: BlockLayout((1, 1)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = module(torch.randn(2, 50))
    out.float().square().sum().backward()
    recorder.remove()
    (use,) = recorder.uses[module.weight]
    assert isinstance(use, Outer)
    assert use.x.dtype == use.b.dtype == torch.bfloat16


def test_half_precision_is_added_up_in_single() -> None:
    case = Case.of("deep", SIZES["ragged"], torch.bfloat16)
    looped, norms = case.looped(0.3)
    assert distance(looped, case.clipped(0.3)) < 0.05 * norms


# -- the bound of a block, for any records --

SCALES = (1e-30, 1e-12, 1.0, 1e3, 1e6, 1e9)
NEVER = (math.inf, -math.inf, math.nan, 1e30)


def adversarial(kind: str, layout: BlockLayout, rng: np.random.Generator, precision: Any) -> Use:
    """A use with entries of odd sizes, which cancel, or are NaN."""

    def tensor(*shape: int) -> Any:
        values = rng.choice(rng.choice(SCALES, size=2), size=shape) * rng.normal(size=shape)
        if rng.random() < 0.1:
            values.flat[rng.integers(values.size)] = rng.choice(NEVER)
        if shape[0] > 1 and rng.random() < 0.8:
            # The first two records are each other's opposites, nearly.
            values[1] = -values[0] * (1 + rng.choice([0, 1e-7, 1e-4]))
        return torch.from_numpy(values).to(precision)

    match kind:
        case "outer":
            x, b = tensor(layout.rows, 2, 3), tensor(layout.rows, 2, 4)
            if layout.rows > 1:
                x[1] = x[0]
            return Outer(layout, x, b).stored()
        case "lookup":
            places = torch.from_numpy(rng.integers(0, 5, size=(layout.rows, 2)))
            return Lookup(layout, places, tensor(layout.rows, 2, 3), 5)
        case "filters":
            geometry: Any = {"stride": (1,), "padding": (1,), "dilation": (1,), "groups": 1}
            x, b = tensor(layout.rows, 2, 6), tensor(layout.rows, 3, 6)
            return Filters(layout, x, b, (3, 2, 3), **geometry).stored()
    return StoredGradients(layout, layout.per_block(tensor(layout.rows, 7)))


@pytest.mark.parametrize("kept", [0, 1 << 24], ids=["bookkeeping", "kept"])
@pytest.mark.parametrize("precision", [SINGLE, DOUBLE], ids=["single", "double"])
@pytest.mark.parametrize("kind", ["outer", "lookup", "filters", "sums"])
def test_no_block_adds_more_than_the_bound(
    kind: str, precision: Any, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_gradients, "_MAX_STORED_ENTRIES", kept)
    monkeypatch.setattr(block_gradients, "_MAX_STORED_MEMORY", kept)
    rng = np.random.default_rng(3)
    longest = 0.0
    for _ in range(150):
        layout = BlockLayout.of([int(rng.integers(1, 7))])
        use = adversarial(kind, layout, rng, precision)
        bound = float(rng.choice([1e-4, 1.0, 1e4]))
        (total,) = clipped_sums({"w": [use]}, layout, bound).values()
        assert torch.isfinite(total).all()
        longest = max(longest, float(total.double().square().sum().sqrt()) / bound)
    assert 0.9 < longest <= 1 + overshoot(precision)


@pytest.mark.slow
def test_block_sum_is_independent_of_invalid_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    monkeypatch.setattr(block_gradients, "_MAX_STORED_MEMORY", 0)
    for _ in range(200):
        layout = BlockLayout.of(sorted(rng.integers(1, 5, size=4).tolist()))
        use = adversarial("outer", layout, rng, DOUBLE)
        assert isinstance(use, Outer)
        block = int(rng.integers(0, 4))
        emptied = torch.zeros(4, dtype=torch.bool)
        emptied[block] = True
        whole = clipped_sums({"w": [use]}, layout, 1.0)["w"]
        rest = clipped_sums({"w": [use.without(emptied)]}, layout, 1.0)["w"]
        assert float((whole - rest).square().sum().sqrt()) <= 1 + 1e-9


def test_a_norm_from_cancelling_terms_is_not_believed() -> None:
    # Terms of norm 10^5 cancel up to rounding: the remainder must be within the bound.
    torch.manual_seed(1)
    x = torch.randn(1, 10, 400).repeat(2, 1, 1)
    b = torch.randn(1, 10, 300) * 1e4
    b = torch.cat([b, -b * (1 + 2.0**-20)])
    layout = BlockLayout((2,))
    use = Outer(layout, x, b)
    total = clipped_sums({"w": [use]}, layout, 1.0)["w"]
    exact = use.block_gradient(0)
    assert float(total.double().norm()) <= 1 + overshoot(SINGLE)
    direction = float((total.double() * exact).sum() / (total.double().norm() * exact.norm()))
    assert direction > 0.999


@pytest.mark.parametrize("precision", [SINGLE, DOUBLE], ids=["single", "double"])
@pytest.mark.parametrize("rows", [3, 300, 30_000])
def test_products_are_as_exact_as_is_billed(rows: int, precision: Any) -> None:
    # Rounding is worst where all terms round in one direction, and partial sums are long.
    for values in (torch.ones(rows, 4), torch.randn(rows, 4), torch.rand(rows, 4).sort(0).values):
        x = (values * 1.1).to(precision)
        b = torch.linspace(0.3, 1.7, rows)[:, None].repeat(1, 3).to(precision)
        for signs in (torch.ones(rows), torch.sign(torch.arange(rows) - rows / 2)):
            signed = b * signs[:, None].to(precision)
            if precision == SINGLE:
                exact: Any = signed.double().t() @ x.double()
            else:
                exact = torch.from_numpy(
                    (
                        signed.numpy().astype(np.longdouble).T @ x.numpy().astype(np.longdouble)
                    ).astype(np.float64)
                )
            lengths = float((signed.double().norm(dim=1) * x.double().norm(dim=1)).sum())
            error = float(((signed.t() @ x).double() - exact).norm())
            assert error <= PRODUCT_ERROR[precision] * lengths


def test_non_finite_vectors_are_dropped() -> None:
    assert clip_vector({"w": torch.tensor([math.nan, 1.0])}, 1.0) == {}
    assert clip_vector({"w": torch.tensor([math.inf])}, 1.0) == {}
    assert clip_vector({"w": torch.zeros(3)}, 1.0) == {}


def test_exact_sums_are_whole_numbers_within_the_bound() -> None:
    weight = torch.zeros(3, requires_grad=True)
    found = ExactSum([weight], 1.0, 2.0**-10)
    for vector in ([3.0, 4.0, 0.0], [math.nan, 0, 0], [1e300, 1e300, 1e300], [0.5, 0, 0]):
        before = found.total.copy()
        found.add_block({weight: torch.tensor(vector, dtype=DOUBLE)}, 1)
        moved = found.total - before
        assert (moved * moved).sum() <= 2**20
    found.add_block({}, 3)
    assert found.total.dtype == np.int64


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("bound", [1e-9, 1e-6, 1e-3, 0.1, 1.0, 1e4])
@pytest.mark.parametrize("kind", ["outer", "kept", "lookup", "filters"])
def test_no_size_of_numbers_gets_past_the_bound(kind: str, bound: float, flush: bool) -> None:
    # The sums have 2,048 inputs; each size of gradients has one norm.
    layout, longest = BlockLayout((1,)), 0.0
    torch.set_flush_denormal(flush)
    try:
        for powers in np.ndindex(13, 13):
            large, small = (10.0 ** (3 * power - 0.3) for power in (powers[0], -powers[1]))
            x, b = torch.full((1, 1, 64), large), torch.full((1, 1, 32), small)
            use = wide(kind, layout, x, b)
            (total,) = clipped_sums({"w": [use]}, layout, bound).values()
            longest = max(longest, float(total.double().norm()) / bound)
    finally:
        torch.set_flush_denormal(False)
    assert longest <= 1 + overshoot(SINGLE)
    assert longest > 0.9 or kind == "lookup"


def wide(kind: str, layout: BlockLayout, x: Any, b: Any) -> Use:
    match kind:
        case "outer":
            return Outer(layout, x, b)
        case "kept":
            return StoredGradients(layout, b.mT @ x)
        case "lookup":
            return Lookup(layout, torch.zeros(1, 1, dtype=torch.int64), b, 5)
    geometry: Any = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1}
    return Filters(layout, x.mT, b.mT, (32, 64, 1), **geometry)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [SINGLE, DOUBLE], ids=["single", "double"])
def test_dropped_blocks_are_independent_of_the_summation(
    precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = BlockLayout((3,))
    geometry: Any = {"stride": (1,), "padding": (0,), "dilation": (1,)}
    seen = set()
    for powers in np.ndindex(9, 9):
        large, small = (10.0 ** (10 * power - 43) for power in powers)
        x, b = (torch.full((3, 4, 1), of, dtype=precision) for of in (large, small))
        added = []
        for kept in (0, 1 << 24):
            monkeypatch.setattr(block_gradients, "_MAX_STORED_ENTRIES", kept)
            monkeypatch.setattr(block_gradients, "_MAX_STORED_MEMORY", kept)
            filters = Filters(layout, x, b, (4, 4, 1), groups=1, **geometry).stored()
            for use in (Outer(layout, x.mT, b.mT).stored(), filters):
                (total,) = clipped_sums({"w": [use]}, layout, 1e-3).values()
                added.append(float(total.double().norm()) / 1e-3)
        assert max(added) - min(added) <= 1e-3, (large, small, added)
        seen.add(round(added[0]))
    assert seen == {0, 1}

"""Each use of a parameter gives the norms and sums of the vectors that it forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.torch.library import torch

# isort: split
from dpgrain.torch import block_gradients, devices
from dpgrain.torch.block_gradients import (
    Filters,
    Lookup,
    Outer,
    StoredGradients,
    Use,
    combined,
    inner_products,
    norms,
)
from dpgrain.torch.layout import BlockLayout

LAYOUT = BlockLayout((1, 2, 2, 4))


def filters() -> Filters:
    geometry: Any = {"stride": (2,), "padding": (1,), "dilation": (1,), "groups": 2}
    return Filters(LAYOUT, draw(9, 4, 7), draw(9, 6, 4), (6, 2, 3), **geometry)


def draw(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64)


USES: dict[str, Callable[[], Use]] = {
    "kept": lambda: StoredGradients(LAYOUT, draw(4, 3, 2)),
    "numbers": lambda: StoredGradients(LAYOUT, draw(4)),
    "outer": lambda: Outer(LAYOUT, draw(9, 3, 4), draw(9, 3, 5)),
    "single": lambda: Outer(LAYOUT, draw(9, 1, 4), draw(9, 1, 5)),
    "lookup": lambda: Lookup(LAYOUT, torch.randint(0, 3, (9, 4)), draw(9, 4, 2), 3),
    "kept products": lambda: Outer(LAYOUT, draw(9, 30, 4), draw(9, 30, 5)).stored(),
    "filters": filters,
    "kept filters": lambda: filters().stored(),
}


@pytest.mark.parametrize("make", USES.values(), ids=USES)
def test_norms_and_sums_match_formed_gradients(make: Callable[[], Use]) -> None:
    torch.manual_seed(1)
    use, weights = make(), torch.tensor([0.5, 0.0, 2.0, 1.0])
    formed = torch.stack([use.block_gradient(block) for block in range(4)])
    assert torch.allclose(use.squared_norms(), formed.reshape(4, -1).square().sum(1))
    total = torch.tensordot(weights.double(), formed, 1)
    assert torch.allclose(use.weighted_sum(weights), total)
    # The terms of a sum are together at least as long as the sum, where it is not kept.
    lengths = use.term_norms()
    assert ((lengths == 0) | (lengths >= use.squared_norms().sqrt() * (1 - 1e-12))).all()


@pytest.mark.parametrize("make", USES.values(), ids=USES)
def test_blocks_can_be_left_out(make: Callable[[], Use]) -> None:
    use = make().without(torch.tensor([False, True, False, True]))
    assert (use.squared_norms() > 0).tolist() == [True, False, True, False]


def test_cancelling_sums_use_double_precision() -> None:
    torch.manual_seed(1)
    layout = BlockLayout((2, 2, 2))
    x, b = (torch.randn(6, 5, width) * 1e6 for width in (4, 3))
    # The records of the second block are each other's opposites, nearly.
    x[3], b[3] = x[2], -b[2] * (1 + 1e-6)
    kept, exact = Outer(layout, x, b).stored(), Outer(layout, x, b).block_gradient(1)
    assert isinstance(kept, StoredGradients)
    assert float((kept.block_gradient(1) - exact).norm() / exact.norm()) < 1e-6
    assert float(exact.norm()) < 1e-4 * float(kept.block_gradient(0).norm())


@pytest.mark.parametrize("flush", [False, True])
def test_norms_do_not_underflow_or_overflow(flush: bool) -> None:
    layout, small, large = BlockLayout((1, 1)), 1e-30, 1e30
    torch.set_flush_denormal(flush)
    try:
        use = Outer(layout, torch.full((2, 1, 4), large), torch.full((2, 1, 9), small))
        assert use.squared_norms().sqrt().tolist() == pytest.approx([6.0, 6.0])
        assert use.term_norms().tolist() == pytest.approx([6.0, 6.0])
        kept = StoredGradients(layout, torch.tensor([[small, 0.0], [large, large]]))
        assert kept.squared_norms().sqrt().tolist() == pytest.approx([small, large * 2**0.5])
        of_filters = Filters(
            layout,
            torch.full((2, 1, 1), large),
            torch.full((2, 9, 1), small),
            (9, 1, 1),
            stride=(1,),
            padding=(0,),
            dilation=(1,),
            groups=1,
        )
        assert of_filters.term_norms().tolist() == pytest.approx([3.0, 3.0])
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("entries", [1, 7, 100_000])
def test_norms_are_made_in_slices(entries: int) -> None:
    tensor = torch.randn(9, 2, entries)
    assert torch.allclose(norms(tensor), tensor.double().norm(dim=-1))


@pytest.mark.parametrize("most", [1 << 26, 1000, 1])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 1, 2)])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_filters_on_a_gpu_are_products(
    dims: int,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "is_gpu", lambda _: True)
    monkeypatch.setattr(block_gradients, "_MAX_UNFOLDED_ENTRIES", most)
    torch.manual_seed(1)
    sizes, places = (9, 8, 7)[:dims], (3, 2, 2)[:dims]
    outputs = [
        (n + 2 * padding - (p - 1) * dilation - 1) // stride + 1
        for n, p in zip(sizes, places, strict=True)
    ]
    x, b = draw(9, 4, *sizes), draw(9, 6, *outputs)
    geometry: Any = {"stride": stride, "padding": padding, "dilation": dilation}
    along = {name: (value,) * dims for name, value in geometry.items()}
    use = Filters(LAYOUT, x, b, (6, 4 // groups, *places), **along, groups=groups)
    formed = torch.stack([use.block_gradient(block) for block in range(4)])
    kept = use.stored()
    assert isinstance(kept, StoredGradients)
    assert torch.allclose(kept.sums, formed)
    assert torch.allclose(use.squared_norms(), formed.flatten(1).square().sum(1))


def test_cancelling_filter_sums_use_double_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "is_gpu", lambda _: True)
    torch.manual_seed(1)
    x, b = torch.randn(1, 3, 9).repeat(2, 1, 1), torch.randn(1, 4, 7) * 1e6
    b = torch.cat([b, -b * (1 + 2.0**-20)])
    flat: Any = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1}
    use = Filters(BlockLayout((2,)), x, b, (4, 3, 3), **flat)
    kept = use.stored()
    assert isinstance(kept, StoredGradients)
    assert torch.equal(kept.sums[0], use.block_gradient(0).float())


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kept", [False, True], ids=["map", "sums"])
def test_tied_table_products_match_formed_gradients(kept: bool, times: int) -> None:
    torch.manual_seed(1)
    words, width, layout = 6, 4, LAYOUT.times(times)
    lookup = Lookup(LAYOUT, torch.randint(0, words, (9, 5)), draw(9, 5, width), words)
    rows = 9 * times
    use: Any = Outer(layout, draw(rows, 3, width), draw(rows, 3, words))
    if kept:
        use = StoredGradients(
            layout, torch.stack([use.block_gradient(block) for block in range(4)])
        )
    found = inner_products(use, lookup)
    for block in range(4):
        wanted = (use.block_gradient(block) * lookup.block_gradient(block)).sum()
        assert torch.allclose(found[block], wanted)


def test_calls_of_unequal_lengths_are_not_combined() -> None:
    one, two = (Outer(LAYOUT.times(k), draw(9 * k, 3, 4), draw(9 * k, 3, 5)) for k in (1, 2))
    lookup = Lookup(LAYOUT, torch.randint(0, 5, (9, 2)), draw(9, 2, 4), 5)
    found = combined([lookup, one, two, one])
    assert [type(use) for use in found] == [Outer, Outer, Lookup]
    assert found[0].layout == LAYOUT


@pytest.mark.parametrize(("rows", "inputs"), [(3, 400), (40, 100), (40, 400), (90, 100)])
def test_long_sequences_have_norms_by_either_way(
    rows: int, inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    use = Outer(
        BlockLayout((1, 1, 2)), torch.randn(4, rows, inputs), torch.randn(4, rows, 2 * inputs)
    )
    formed = torch.stack([use.block_gradient(block).square().sum() for block in range(3)])
    for worth in (0.0, 0.5, 1e9):
        monkeypatch.setattr(block_gradients, "_LONG_GRAM_WORTH", worth)
        assert torch.allclose(use.squared_norms(), formed, rtol=1e-5)

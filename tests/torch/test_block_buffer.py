"""Sums from a buffer of all blocks, as on a GPU: those of a loop, and no block above the bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.cases import NETWORKS, Case, Scaled, distance
from tests.torch.library import torch
from tests.torch.operations import MODELS, as_on_gpu, batch, losses
from tests.torch.runs import WIDTH, gradients
from tests.torch.test_clipping import NEVER, SIZES

# isort: split
from dpgrain.torch import block_buffer, devices
from dpgrain.torch.block_buffer import SUM_ERROR, BufferedUses, has_buffer, new_uses
from dpgrain.torch.block_gradients import Filters, Lookup, Outer, RowGradients, Use, Uses
from dpgrain.torch.clipping import FloatSum, unclipped_sums
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder
from dpgrain.units import User

SINGLE, DOUBLE, HALVES = torch.float32, torch.float64, (torch.bfloat16, torch.float16)
CLOSE = {SINGLE: 1e-5, DOUBLE: 1e-10}


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_gpu(monkeypatch)


@pytest.mark.parametrize("bound", [0.05, 1e6])
@pytest.mark.parametrize("precision", [SINGLE, DOUBLE], ids=["single", "double"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("name", NETWORKS)
def test_sums_are_those_of_a_loop(
    name: str, sizes: tuple[int, ...], precision: Any, bound: float
) -> None:
    case = Case.of(name, sizes, precision)
    found, (looped, norms) = case.clipped(bound), case.looped(bound)
    assert {part.dtype for part in found.values()} == {DOUBLE}
    # A parameter without contributions has a sum of zeros.
    assert set(found) >= set(looped)
    assert distance(looped, {n: found[n] for n in looped}) <= (CLOSE[precision] + SUM_ERROR) * norms
    assert all(not part.any() for name, part in found.items() if name not in looped)


@pytest.mark.parametrize("sizes", [(2, 2), (1, 1, 2)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_sums_of_language_models_are_those_of_a_loop(name: str, sizes: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    module, layout = MODELS[name](1), BlockLayout(sizes)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    inputs = batch(layout)
    trained = [p for p in module.parameters() if p.requires_grad]
    wanted = torch.zeros(sum(p.numel() for p in trained), dtype=DOUBLE)
    for block, size in enumerate(sizes):
        own = {key: value[layout.block_slice(block)] for key, value in inputs.items()}
        gradients = torch.autograd.grad(losses(module(**own)) / size, trained)
        vector = torch.cat([g.double().flatten() for g in gradients])
        wanted += vector * min(1.0, 0.1 / float(vector.norm()))
    recorder, total = Recorder(module, (), lambda: layout), FloatSum(trained, 0.1)
    losses(module(**inputs)).backward()
    total.add_blocks(recorder.uses, layout)
    recorder.remove()
    found = torch.cat([total.sums[parameter].flatten() for parameter in trained])
    assert float((found - wanted).norm()) <= 1e-4 * float(wanted.norm())


@pytest.mark.parametrize("name", ["attention", "tied", "conv2d"])
def test_sums_without_a_buffer_are_those_of_a_loop(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_gpu(monkeypatch, buffer=100)
    case = Case.of(name, SIZES["ragged"], DOUBLE)
    assert distance(case.looped(0.3)[0], case.clipped(0.3)) < 1e-10


def test_buffer_needs_one_device_and_one_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = torch.zeros(3, 4), torch.zeros(4, dtype=DOUBLE)
    as_on_gpu(monkeypatch, buffer=2 * 12 * 4)
    assert has_buffer(2, [one])
    assert not has_buffer(3, [one])
    assert not has_buffer(1, [one, other])
    assert type(new_uses(BlockLayout((1, 1)), [one])) is BufferedUses
    assert type(new_uses(BlockLayout((1, 1, 1)), [one])) is Uses


@pytest.mark.parametrize("precision", [SINGLE, *HALVES], ids=str)
@pytest.mark.parametrize("sizes", [(3,) * 4, (1, 2, 2, 4)], ids=str)
def test_products_of_half_numbers_are_exact_enough(sizes: tuple[int, ...], precision: Any) -> None:
    torch.manual_seed(1)
    layout = BlockLayout(sizes)
    x, b = torch.randn(layout.rows, 5, 16), torch.randn(layout.rows, 5, 8).to(precision)
    sums = torch.zeros(4, 8, 16)
    Outer(layout, x, b).add_to(sums)
    use = Outer(layout, x.to(precision), b)
    formed = torch.stack([use.block_gradient(block) for block in range(4)])
    assert float((sums - formed).norm() / formed.norm()) < (1e-6 if precision == SINGLE else 0.01)


@pytest.mark.parametrize("precision", [SINGLE, *HALVES], ids=str)
def test_block_sum_is_independent_of_other_block_sizes(precision: Any) -> None:
    torch.manual_seed(2)
    x, b = torch.randn(15, 5, 16), torch.randn(15, 5, 8).to(precision)
    formed = []
    for sizes in ((3, 3), (3, 3, 4), (3, 3, 4, 5)):
        layout, rows = BlockLayout.of(sizes), sum(sizes)
        sums = torch.zeros(len(sizes), 8, 16)
        Outer(layout, x[:rows], b[:rows]).add_to(sums)
        formed.append(sums[:2])
    assert torch.equal(formed[0], formed[1])
    assert torch.equal(formed[0], formed[2])


@pytest.mark.parametrize("shape", [(7,), (7, 2)], ids=str)
def test_vector_is_independent_of_other_block_sizes(shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    rows, formed = torch.randn(15, 50, *shape), []
    for sizes in ((3, 3), (3, 3, 4), (3, 3, 4, 5)):
        layout = BlockLayout(sizes)
        uses = buffered(layout, shape, RowGradients(layout, rows[: sum(sizes)]))
        formed.append(uses.finished().values[:2])
    assert torch.equal(formed[0], formed[1])
    assert torch.equal(formed[0], formed[2])


def test_vectors_used_several_times_are_added() -> None:
    torch.manual_seed(3)
    layout = BlockLayout((1, 2))
    of_records, of_positions = torch.randn(3, 5, 2), torch.randn(6, 4, 2)
    uses = buffered(layout, (2,), RowGradients(layout, of_records))
    uses.add(uses.parameters[0], RowGradients(layout.times(2), of_positions))
    each = of_records.sum(1) + of_positions.reshape(3, 8, 2).sum(1)
    wanted = torch.stack([each[0], each[1] + each[2]])
    assert torch.allclose(uses.finished().values, wanted, atol=1e-5)
    # Adding up twice changes nothing.
    assert torch.allclose(uses.finished().values, wanted, atol=1e-5)
    assert torch.allclose(unclipped_sums(uses, layout)[uses.parameters[0]], wanted.sum(0).double())


def test_contributions_of_another_stream_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [1]
    monkeypatch.setattr(devices, "current_stream", lambda _tensor: streams[-1])
    layout = BlockLayout((1, 2))
    uses = buffered(layout, (2,), RowGradients(layout, torch.ones(3, 1, 2)))
    streams.append(2)
    with refuses("module", "one stream"):
        uses.add(uses.parameters[0], RowGradients(layout, torch.ones(3, 1, 2)))


# -- what one block adds --


def tensor(rng: np.random.Generator, precision: Any, *shape: int) -> Any:
    """Numbers of two sizes, some opposite and some not finite."""
    values = rng.choice(10.0 ** rng.uniform(-30, 18, size=2), size=shape) * rng.normal(size=shape)
    if rng.random() < 0.1:
        values.flat[rng.integers(values.size)] = rng.choice(NEVER)
    if shape[0] > 1 and rng.random() < 0.5:
        values[1] = -values[0] * (1 + rng.choice([0, 1e-7, 1e-3]))
    return torch.from_numpy(values).to(precision)


def adversarial(
    kind: str, layout: BlockLayout, rng: np.random.Generator, precision: Any
) -> tuple[tuple[int, ...], Use]:
    """The shape of a parameter, and its use."""
    rows = layout.rows
    match kind:
        case "outer":
            x, b = tensor(rng, precision, rows, 2, 8), tensor(rng, precision, rows, 2, 16)
            if rows > 1:
                x[1] = x[0]
            return (16, 8), Outer(layout, x, b)
        case "lookup":
            places = torch.from_numpy(rng.integers(0, 5, size=(rows, 2)))
            return (5, 3), Lookup(layout, places, tensor(rng, SINGLE, rows, 2, 3), 5)
        case "filters":
            geometry: Any = {"stride": (1,), "padding": (1,), "dilation": (1,), "groups": 1}
            x, b = tensor(rng, SINGLE, rows, 2, 6), tensor(rng, SINGLE, rows, 3, 6)
            return (3, 2, 3), Filters(layout, x, b, (3, 2, 3), **geometry)
    return (7,), RowGradients(layout, tensor(rng, precision, rows, 3, 7))


def buffered(layout: BlockLayout, shape: tuple[int, ...], use: Use) -> BufferedUses:
    uses = BufferedUses(layout, [torch.zeros(shape)])
    uses.add(uses.parameters[0], use)
    return uses


def norm(values: Any) -> float:
    """The norm, rounded correctly up to its last digit."""
    scale = float(values.abs().max()) or 1.0
    return scale * math.sqrt(math.fsum((values / scale).square().flatten().tolist()))


@pytest.mark.parametrize("precision", [SINGLE, *HALVES], ids=str)
@pytest.mark.parametrize("kind", ["outer", "lookup", "filters", "rows"])
def test_no_block_adds_more_than_the_bound(kind: str, precision: Any) -> None:
    rng, longest = np.random.default_rng(3), 0.0
    for _ in range(150):
        layout = BlockLayout((int(rng.integers(1, 7)),))
        bound = float(rng.choice([1e-9, 1e-4, 1.0, 1e9]))
        uses = buffered(layout, *adversarial(kind, layout, rng, precision))
        total = uses.clipped_sum(bound).values
        assert torch.isfinite(total).all()
        longest = max(longest, norm(total) / bound)
    assert 1 - 2 * SUM_ERROR < longest <= 1 / (1 + SUM_ERROR)


def without(use: Any, layout: BlockLayout, left_out: int) -> tuple[BlockLayout, Any]:
    """The use and the layout without the rows of one block."""
    rows = torch.ones(layout.rows, dtype=torch.bool)
    rows[layout.block_slice(left_out)] = False
    rest = BlockLayout(tuple(s for i, s in enumerate(layout.sizes) if i != left_out))
    parts = {
        name: value[rows] if isinstance(value, torch.Tensor) else value
        for name, value in vars(use).items()
    }
    copy = object.__new__(type(use))
    vars(copy).update(parts, layout=rest)
    return rest, copy


@pytest.mark.parametrize("precision", [SINGLE, *HALVES], ids=str)
@pytest.mark.parametrize("kind", ["outer", "lookup", "filters", "rows"])
def test_one_block_changes_the_sum_by_one_bound(kind: str, precision: Any) -> None:
    rng, farthest = np.random.default_rng(5), 0.0
    for _ in range(100):
        layout = BlockLayout.of(sorted(rng.integers(1, 5, size=4).tolist()))
        shape, use = adversarial(kind, layout, rng, precision)
        whole = buffered(layout, shape, use).clipped_sum(1.0).values
        rest = buffered(*of_rest(use, layout, int(rng.integers(0, 4)), shape)).clipped_sum(1.0)
        farthest = max(farthest, norm(whole - rest.values))
    assert 0.99 < farthest <= 1.0


def of_rest(use: Any, layout: BlockLayout, block: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    rest, copy = without(use, layout, block)
    return rest, shape, copy


@pytest.mark.parametrize("precision", [SINGLE, *HALVES], ids=str)
@pytest.mark.parametrize("name", ["deep", "attention", "positions"])
def test_one_record_changes_network_sum_by_one_bound(name: str, precision: Any) -> None:
    sizes = (1,) * 12
    case = Case.of(name, sizes, SINGLE)
    for scale in (1e-6, 1.0, 1e6):
        farthest = 0.0
        x = case.x * scale if case.x.is_floating_point() else case.x
        for left_out in (0, 5):
            rows = [row for row in range(12) if row != left_out]
            sums = []
            for own in (list(range(12)), rows):
                part = Case(case.module, x[own], case.y[own], BlockLayout((1,) * len(own)))
                sums.append(stepped(part, precision))
            farthest = max(farthest, norm(sums[0] - sums[1]))
        assert farthest <= 1.0


def stepped(case: Case, precision: Any) -> Any:
    """The sum of one step with the bound 1 and large losses."""
    recorder = Recorder(case.module, (Scaled,), lambda: case.layout)
    trained = [p for p in case.module.parameters() if p.requires_grad]
    total = FloatSum(trained, 1.0)
    try:
        with torch.autocast("cpu", dtype=precision, enabled=precision != SINGLE):
            losses = case.losses(case.module, case.x, case.y)
        (losses.float() * 100).sum().backward()
        total.add_blocks(recorder.uses, case.layout)
    finally:
        recorder.remove()
    return total.tensors()[0].clone()


def test_block_with_nan_adds_nothing() -> None:
    layout = BlockLayout((1, 1))
    x = torch.tensor([[[1.0]], [[math.nan]]])
    uses = buffered(layout, (1, 1), Outer(layout, x, torch.ones(2, 1, 1)))
    found: list[Any] = []
    total = uses.clipped_sum(10.0, found.append).values
    assert total.tolist() == [1.0]
    assert found[0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("entries", [1, 3, 1000])
def test_norms_and_sums_are_made_in_slices(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_buffer, "_SLICE_ENTRIES", entries)
    torch.manual_seed(1)
    layout, rows = BlockLayout((2, 2, 2)), torch.randn(6, 4, 7)
    uses = buffered(layout, (7,), RowGradients(layout, rows))
    each = rows.double().reshape(3, 8, 7).sum(1) / 2
    wanted = (each * (0.1 / each.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
    assert torch.allclose(uses.clipped_sum(0.1).values, wanted, atol=1e-5)


def test_batches_add_up_in_double_precision() -> None:
    weight = torch.zeros(3, requires_grad=True)
    total = FloatSum([weight], 1.0)
    for value in (1.0, 2.0**-40):
        uses = new_uses(BlockLayout((1,)), [weight])
        uses.add(weight, RowGradients(BlockLayout((1,)), torch.full((1, 1, 3), value / 2)))
        total.add_blocks(uses, BlockLayout((1,)))
    vector, counted = total.tensors()
    assert vector.dtype == DOUBLE
    assert total.sums[weight].tolist() == vector.tolist()
    assert vector[0] > 0.5 - SUM_ERROR
    assert float(vector[0]) != float(vector[0].float())
    assert counted == 0


@pytest.mark.parametrize("max_rows", [None, 3, 100])
@pytest.mark.parametrize("fit", [4, 70])
def test_addition_method_is_independent_of_block_count(
    fit: int, max_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_gpu(monkeypatch, buffer=fit * WIDTH * 4)
    # Without a buffer such large records add nothing.
    records = np.zeros((fit + 1, WIDTH), dtype=np.float32)
    records[:, 0] = 2.0**122
    one, other = (
        gradients(records[:blocks], User(), max_rows=max_rows)[0] for blocks in (fit, fit + 1)
    )
    assert np.linalg.norm(one - other) <= 1.02

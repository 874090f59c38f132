"""Adapters on frozen weights of 4 bits: sums of a loop, with layers of bitsandbytes or others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.cases import distance
from tests.torch.library import torch
from tests.torch.operations import as_on_gpu

# isort: split
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layers import is_four_bit
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder

nn, functional = torch.nn, torch.nn.functional
WIDTH, BOUND, SIZES = 64, 0.3, (1, 2, 2)


class Times(torch.autograd.Function):
    """A product with packed weights, as kernels of other libraries compute it."""

    @staticmethod
    def forward(ctx: Any, x: Any, layer: Any) -> Any:
        ctx.layer = layer
        return x @ layer.unpacked().t()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] @ ctx.layer.unpacked(), None


class Packed(torch.nn.Module):
    """A linear map without a bias, with two weights in each byte and one scale for each output."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        scale = weight.abs().amax(1, keepdim=True) / 7
        codes = ((weight / scale).round() + 8).to(torch.uint8)
        self.register_buffer("scale", scale)
        self.register_buffer("codes", codes[:, ::2] * 16 + codes[:, 1::2])

    def unpacked(self) -> Any:
        """The weight, (outputs, inputs)."""
        codes = torch.stack([self.codes // 16, self.codes % 16], -1).flatten(1)
        return (codes.to(self.scale.dtype) - 8) * self.scale

    def forward(self, x: Any) -> Any:
        return x @ self.unpacked().t()


class Opaque(Packed):
    """The same, with a custom product."""

    def forward(self, x: Any) -> Any:
        return Times.apply(x, self)


# A layer recognized as one of bitsandbytes.
Linear4bit: Any = type("Linear4bit", (Opaque,), {"__module__": "bitsandbytes.nn.modules"})


class Adapter(torch.nn.Module):
    """A frozen map plus a trained one of low rank."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(WIDTH, 2), nn.Linear(2, WIDTH)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.base(x) + self.up(self.down(x)))


def of_bitsandbytes(weight: Any) -> Any:
    library = pytest.importorskip("bitsandbytes")
    layer = library.nn.Linear4bit(
        WIDTH, WIDTH, bias=False, compute_dtype=torch.float32, quant_type="nf4"
    )
    layer.load_state_dict({"weight": weight})
    return layer.to("cpu")


KINDS: dict[str, Any] = {
    "packed": Packed,
    "recognized": Linear4bit,
    "bitsandbytes": of_bitsandbytes,
}


def network(kind: Any) -> Any:
    torch.manual_seed(1)
    adapters = [Adapter(kind(torch.randn(WIDTH, WIDTH) / 8)) for _ in range(2)]
    return nn.Sequential(*adapters, nn.Linear(WIDTH, 3))


def losses(module: Any, x: Any, y: Any) -> Any:
    return functional.cross_entropy(module(x).mean(1), y, reduction="none")


@pytest.mark.parametrize("on_gpu", [False, True], ids=["processor", "as on a GPU"])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_adapters_are_those_of_a_loop(
    kind: str, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if on_gpu:
        as_on_gpu(monkeypatch)
    module, layout = network(KINDS[kind]), BlockLayout(SIZES)
    x, y = torch.randn(layout.rows, 3, WIDTH), torch.arange(layout.rows) % 3
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    wanted = {name: torch.zeros_like(p) for name, p in trained.items()}
    for block in range(layout.blocks):
        rows = layout.block_slice(block)
        parts = torch.autograd.grad(losses(module, x[rows], y[rows]).mean(), list(trained.values()))
        own = dict(zip(trained, parts, strict=True))
        for name, part in own.items():
            wanted[name] += part * min(1.0, BOUND / distance(own))
    recorder = Recorder(module, (), lambda: layout)
    losses(module, x, y).sum().backward()
    sums = clipped_sums(recorder.uses, layout, BOUND)
    recorder.remove()
    found = {name: sums[p].float() for name, p in trained.items()}
    assert sums.keys() == set(trained.values())
    assert distance(wanted, found) < 1e-4 * distance(wanted)


def test_frozen_maps_of_bitsandbytes_run_once_for_all_records() -> None:
    module, layout = network(Linear4bit), BlockLayout(SIZES)
    seen: list[Any] = []

    def noted(self: Any, x: Any) -> Any:
        seen.append(tuple(x.shape))
        return Opaque.forward(self, x)

    Linear4bit.forward = noted
    try:
        recorder = Recorder(module, (), lambda: layout)
        recorder.check_example(((torch.randn(2, 3, WIDTH),), {}), 2)
        module(torch.randn(layout.rows, 3, WIDTH))
        seen.clear()
        module(torch.randn(layout.rows, 3, WIDTH))
        recorder.remove()
    finally:
        del Linear4bit.forward
    assert seen == [(layout.rows, 3, WIDTH)] * 2


def test_unknown_products_are_rejected_by_name() -> None:
    module, layout = network(Opaque), BlockLayout(SIZES)
    recorder = Recorder(module, (), lambda: layout)
    with refuses("module", "Opaque", "torch.func.vmap"):
        module(torch.randn(layout.rows, 3, WIDTH))
    recorder.remove()


def test_only_maps_of_four_bits_are_recognized() -> None:
    eight: Any = type("Linear8bitLt", (Opaque,), {"__module__": "bitsandbytes.nn.modules"})
    other: Any = type("Linear4bit", (Opaque,), {"__module__": "elsewhere"})
    weight = torch.randn(4, 4)
    assert is_four_bit(Linear4bit(weight))
    assert not is_four_bit(eight(weight))
    assert not is_four_bit(other(weight))
